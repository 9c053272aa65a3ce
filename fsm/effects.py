"""What a step owes the world: commands, as data. A runner carries them out and reports back as events."""

from __future__ import annotations

from enum import Enum
from typing import final

from fsm.conversation import Ask, Command, Message, Turn
from fsm.ports import Line
from fsm.values import Value


class Disposition(Enum):
    """What became of an inbound message. The last two only until one of the others is known."""

    REPLIED = "replied"
    SILENT = "silent"
    MUTED = "muted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"
    QUEUED = "queued"
    RUNNING = "running"

    @property
    def final(self) -> bool:
        return self not in _INTERIM


_INTERIM = (Disposition.QUEUED, Disposition.RUNNING)


@final
class Send(Value):
    """Deliver ``text``. ``id`` is the same at every try; ``message`` the inbound id that it answers."""

    id: str
    channel: str
    to: str
    text: str
    message: str = ""


@final
class SendAgain(Value):
    """Deliver the text of that id again at ``at``; ``at`` None gives it up."""

    send: str
    at: float | None


@final
class Settle(Value):
    """Record what became of a message, with the reason in plain words (a key of the texts)."""

    message: str
    disposition: Disposition
    reason: str


@final
class WaitForSession(Value):
    """Tell the turn when no other turn runs on its session. Stands last among the effects of a step."""

    turn: Turn


@final
class AskModel(Value):
    """Call the model with the turn's prompt; the answer carries ``turn.id`` and ``turn.call``."""

    turn: Turn


@final
class RunCommands(Value):
    """Run these in order, each at most once ever, and report their results together."""

    turn: Turn
    commands: tuple[Command, ...]


@final
class EndTurn(Value):
    """Cancel what still runs for the turn, clear its typing indicator and free its session."""

    turn: Turn


@final
class AbandonCall(Value):
    """Tell the session's agent that nobody waits for the turn's call any more: it may be at work on it all the same,
    above all where the process that had asked it was killed."""

    turn: Turn


@final
class KeepLine(Value):
    """Keep a line of a session that the session's own source cannot take."""

    session: str
    line: Line


@final
class Record(Value):
    """Add a step of a turn to the session's own journal. ``event`` is ``turn_start``, ``tool_call``,
    ``tool_result`` or ``turn_end``; ``id`` names the record for ever."""

    id: str
    session: str
    turn: str
    event: str
    data: dict[str, object]
    at: float


@final
class AnswerAsk(Value):
    """Tell the agent whether it may do what it asked leave for. What comes of it is the answer to ``message``."""

    turn: Turn
    ask: Ask
    allow: bool
    message: Message | None


@final
class TellRoom(Value):
    """A mute (``seconds``) or un-mute (None) holds for everybody in the room of ``message``."""

    message: Message
    seconds: float | None


@final
class Count(Value):
    """Something worth counting happened (``stale``, ``empty_reply``, ``near_miss``, …)."""

    what: str
    many: int = 1


Effect = (
    Send
    | SendAgain
    | Settle
    | WaitForSession
    | AskModel
    | RunCommands
    | EndTurn
    | AbandonCall
    | KeepLine
    | Record
    | AnswerAsk
    | TellRoom
    | Count
)
