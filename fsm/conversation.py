"""What one conversation is: plain frozen values, no I/O, no clock.

A :class:`Conversation` is all that the machine knows. It is stored whole after every step, so a
restart goes on from exactly here; every instant in it is absolute (unix seconds).
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from fsm.values import Value


class State(Enum):
    """What the conversation is doing."""

    IDLE = "idle"
    AWAITING_SELECTION = "awaiting_selection"
    COMMAND_LOOPING = "command_looping"
    SILENCED = "silenced"


class Phase(Enum):
    """What a running turn waits for."""

    SESSION = "session"
    MODEL = "model"
    COMMANDS = "commands"
    BACKOFF = "backoff"


class Key(NamedTuple):
    """Who talks where with whom; names one conversation."""

    agent: str
    channel: str
    sender: str


Kind = Literal["manual", "active-sender", "auto", "default"]
Kept = Literal["store", "journal", "source"]


class Bound(Value):
    """A session and why it is the one; ``title`` and ``source`` as they were when it was bound.

    ``kept`` says where the record of a turn goes: our ``store`` keeps its lines, its ``journal`` takes
    every step, or the ``source`` runs the turn itself and keeps all of it.
    """

    session: str
    kind: Kind
    title: str = ""
    source: str = ""
    kept: Kept = "store"


class Message(Value):
    """An admitted message as the machine sees it.

    ``ref`` names it for ever (agent, channel and id in one); ``prompt`` is the text with its source
    tag, made inert; ``owed`` says whether a reply is owed; ``to`` is the route fixed at admission;
    ``waited`` that it stood in the queue.
    """

    ref: str
    id: str
    channel: str
    to: str
    text: str
    prompt: str
    tag: str
    owed: bool
    lang: str
    waited: bool = False
    in_room: bool = False

    @property
    def nick(self) -> str:
        """Under which the sender is known in the room."""
        return self.tag.removeprefix("[群聊]").strip().removesuffix(":") if self.in_room else ""

    @property
    def tag_of_answer(self) -> str:
        """The channel alone: the agent's own line needs no nick."""
        return "[群聊]" if self.in_room else self.tag


class Command(Value):
    """A command that the model wrote. ``known`` is False for a name that stands alone but that
    nobody registered: it is answered with the list of commands and not run."""

    name: str
    argument: str | None
    known: bool = True


class Said(Value):
    """One message that a turn appended to its prompt."""

    role: Literal["user", "assistant"]
    text: str


class Ask(Value):
    """A request for leave that the agent makes in a turn. ``id`` is the agent's own name for it, ``number`` the one
    that a person answers by; ``what`` says in a line what it is for, inert.

    ``open``: a person may answer. ``answered``: the agent is being told. ``over``: nobody waits for an answer any more,
    which the person has not been told yet.
    """

    id: str
    number: int
    what: str
    state: Literal["open", "answered", "over"] = "open"


class Turn(Value):
    """One inbound message up to its disposition.

    ``call`` numbers the model calls from 1 and, with ``id``, fences their answers. ``taken_in``
    holds the command spellings that came in from outside during this turn and so are not run.
    ``requests`` are what the agent wants leave for. ``unrecorded`` are the tokens (in, out) of
    a call whose answer was asked for again, and so stands in no record yet.
    """

    id: str
    message: Message
    bound: Bound
    started: float
    phase: Phase = Phase.SESSION
    deadline: float | None = None
    deadline_from: float | None = None
    call: int = 0
    loops: int = 0
    retries: int = 0
    retry_at: float | None = None
    asked_again: bool = False
    cuts: int = 0
    exchange: tuple[Said, ...] = ()
    commands: tuple[Command, ...] = ()
    requests: tuple[Ask, ...] = ()
    unrecorded: tuple[int, int] = (0, 0)
    taken_in: frozenset[str] = frozenset()


class Shown(Value):
    """A numbered list before the person. ``number`` fences its timer; ``ids`` in the order shown;
    ``ref`` is the message that it answered."""

    number: int
    ref: str
    ids: tuple[str, ...]
    started: float
    deadline: float
    channel: str
    to: str
    lang: str


class Edge(Value, array_like=True):
    """A step that was taken: when, what the row did, on which event, and where it led. (As JSON an array: six are
    stored with every conversation, and an array is a third of an object.)"""

    at: float
    row: str
    event: str
    went_from: str
    went_to: str


class Conversation(Value):
    """One (channel, sender) pair under one agent. ``manual`` is the session that the person chose;
    ``listed`` the ids of the last list; ``trail`` the last edges, oldest first; ``asked`` the number of the last
    request for leave, so that none is given twice."""

    state: State = State.IDLE
    turn: Turn | None = None
    shown: Shown | None = None
    manual: Bound | None = None
    listed: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    muted_until: float | None = None
    silence_due: float | None = None
    silence_from: float | None = None
    lang: str = ""
    count: int = 0
    trail: tuple[Edge, ...] = ()
    asked: int = 0


class Deadline(Value, order=True):
    """Something that time will do to a conversation: ``kind`` is ``selection``, ``silence``,
    ``turn`` or ``backoff``; ``fence`` is what the event will carry."""

    due: float
    started: float
    kind: str
    fence: str


def deadlines(conversation: Conversation) -> tuple[Deadline, ...]:
    """Every deadline that the conversation carries, earliest first."""
    shown, turn = conversation.shown, conversation.turn
    if shown is None and conversation.silence_due is None:  # as with most of them
        if turn is None or (turn.deadline is None and turn.retry_at is None):
            return ()
        if turn.deadline is not None and turn.retry_at is None:
            return (Deadline(turn.deadline, turn.deadline_from or turn.started, "turn", turn.id),)
    found: list[Deadline] = []
    if shown is not None:
        found.append(Deadline(shown.deadline, shown.started, "selection", str(shown.number)))
    if conversation.silence_due is not None:
        started = conversation.silence_from if conversation.silence_from is not None else 0.0
        found.append(Deadline(conversation.silence_due, started, "silence", repr(conversation.silence_due)))
    if turn is not None:
        if turn.deadline is not None:
            found.append(Deadline(turn.deadline, turn.deadline_from or turn.started, "turn", turn.id))
        if turn.retry_at is not None:
            found.append(Deadline(turn.retry_at, turn.started, "backoff", f"{turn.id}/{turn.call}"))
    return tuple(sorted(found)) if len(found) > 1 else tuple(found)
