"""What a deadline that has come is, as an event."""

from __future__ import annotations

from fsm.conversation import Conversation, deadlines
from fsm.events import BackoffOver, Event, SelectionExpired, SilenceExpired, TurnExpired


def expiry(kind: str, fence: str, due: float, at: float, *, while_down: bool) -> Event:
    """The deadline of that kind and fence, due at ``due`` and noticed at ``at`` (unix seconds).
    ``while_down`` says that no process ran when it came."""
    match kind:
        case "selection":
            return SelectionExpired(at, number=int(fence), while_down=while_down)
        case "silence":
            return SilenceExpired(at, due=float(fence))
        case "turn":
            return TurnExpired(at, turn=fence, due=due)
        case "backoff":
            turn, _, call = fence.rpartition("/")
            return BackoffOver(at, turn=turn, call=int(call))
    raise AssertionError(kind)


def overdue(conversation: Conversation, at: float, *, started_at: float) -> list[Event]:
    """What has come due in a stored conversation. A start in the future counts as overdue: the wall clock
    went back while nobody was running. ``started_at`` is when this process began."""
    return [
        expiry(d.kind, d.fence, d.due, at, while_down=started_at > d.due or d.started > at)
        for d in deadlines(conversation)
        if d.due <= at or d.started > at
    ]
