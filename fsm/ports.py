"""What the core needs from the world, beside the code that needs it.

Adapters in ``storage/``, ``channels/`` and ``session_router/`` implement these; nothing here
performs I/O. All instants are unix seconds (float) on the engine's own clock, all texts are ``str``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from typing import Literal, Protocol, TypedDict, runtime_checkable

from fsm.conversation import Conversation, Key
from fsm.values import Value

# -- errors --------------------------------------------------------------------------------------
#
# SessionRouterError
#  ├─ SourceError       a session source cannot be read just now, or not at all
#  ├─ StoreError        the engine's own store cannot be read or written
#  ├─ ModelError        the model gave no answer
#  └─ DeliveryError     a channel could not deliver a text


class SessionRouterError(Exception):
    """Base of the errors that callers are expected to catch. ``str()`` is fit for a person."""


class SourceError(SessionRouterError):
    """A session source cannot be read.

    ``kind``: ``missing`` (no such file), ``empty`` (a file without tables), ``foreign`` (not a
    database of that agent: ``detail`` names what is missing and what is there), ``damaged``,
    ``locked`` (try again later), ``unreadable`` (rights, a folder, I/O). Where only one session of it cannot,
    ``session`` is its id, and ``active_at`` the latest instant at which it can have been active.
    """

    def __init__(
        self, message: str, *, kind: str, source: str, detail: str = "", session: str = "",
        active_at: float = math.inf,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.kind, self.source, self.detail = kind, source, detail
        self.session, self.active_at = session, active_at


class StoreError(SessionRouterError):
    """The engine's store cannot be opened, read or written; nothing was changed."""


class ConversationUnreadable(StoreError):
    """What is stored of one conversation means nothing. The others are well, and asking again does not help."""


class ModelError(SessionRouterError):
    """A model call failed. ``str()`` may hold provider internals: log it, never send it.

    ``retryable`` says whether asking again can help (a timeout can, a wrong key cannot).
    """

    def __init__(self, message: str, *, kind: str = "error", retryable: bool = True) -> None:
        super().__init__(message)
        self.kind, self.retryable = kind, retryable


class DeliveryError(SessionRouterError):
    """A channel could not deliver a text; ``final`` when another try cannot help."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


# -- session sources -----------------------------------------------------------------------------


class SessionInfo(Value):
    """One root session of an agent. ``active_at`` in unix seconds; ``title`` may be empty."""

    id: str
    title: str
    source: str
    active_at: float
    folder: str = ""


class Line(Value):
    """One message of a session as the model will read it.

    ``role`` is ``user`` or ``assistant``; ``tag`` is the source tag without brackets' meaning
    (``[xmpp]``, ``[群聊] hmo:``), empty for the agent's own terminal; ``at`` in unix seconds.
    """

    role: Literal["user", "assistant"]
    text: str
    at: float
    tag: str = ""
    id: str = ""


class SessionSource(Protocol):
    """Sessions of one agent program. Methods raise :class:`SourceError` and nothing else."""

    name: str

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """Root sessions that hold a message, not archived, most recently active first, then by id."""

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """Those whose title contains ``words`` (case folded, no wildcards), or whose id equals it."""

    async def latest(self) -> SessionInfo | None:
        """The most recently active one."""

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session, archived and empty ones included; None when there is none."""

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        """Its newest ``limit`` visible messages, oldest first. For an unknown session the error's kind is
        ``missing``: an empty context would be a wrong answer in disguise."""


@runtime_checkable
class WritableSource(SessionSource, Protocol):
    """A source that also makes sessions."""

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo:
        """Make a session under that id, or under one of the source's own where it gives ids itself;
        making it again returns the one that is there."""


@runtime_checkable
class HasUnread(Protocol):
    """A source that may be unable to read some of its sessions though it reads the others."""

    def unread(self) -> Sequence[SourceError]:
        """Those that its last ``list`` or ``latest`` had to leave out, each with the reason."""


@runtime_checkable
class Journals(Protocol):
    """A source that takes the record of a turn itself, so that the session is whole without our store."""

    async def take_record(
        self, session_id: str, *, turn: str, event: str, data: Mapping[str, object], at: float
    ) -> None:
        """Add one record (``turn_start``, ``tool_call``, ``tool_result``, ``turn_end``) of the turn named
        ``turn``, durably. The same record again changes nothing. Raises :class:`SourceError`."""


class PermissionAsk(Value):
    """An agent's request for leave in the middle of a turn.

    ``session`` is the one that was talked to. ``what`` is the agent's own word for it (``bash``,
    ``edit``, …), ``patterns`` what it would be for, ``detail`` the command or file where that is told.
    All of it comes from a model: make it inert before anybody reads it. Told once more with ``over``, nobody
    waits for an answer any more.
    """

    id: str
    session: str
    what: str
    patterns: tuple[str, ...] = ()
    detail: str = ""
    over: bool = False


@runtime_checkable
class Talks(Protocol):
    """A source whose agent runs the turns of its sessions itself, and keeps their record."""

    async def talk(
        self,
        session_id: str,
        text: str,
        *,
        system: str,
        call_id: str,
        show: Callable[[str], None] | None = None,
        ask: Callable[[PermissionAsk], None] | None = None,
    ) -> Reply:
        """Put ``text`` into the session and return what the agent answers. The same ``call_id`` again
        does not run the turn again. ``show`` is told pieces as they come, ``ask`` what needs leave, and what
        needs it no more.

        Raises :class:`ModelError`. Cancelling stops the agent.
        """

    async def answer(self, ask_id: str, allow: bool) -> bool:
        """Answer a request for leave; False where nobody waits for it any more."""


@runtime_checkable
class RunsOn(Protocol):
    """A source whose agent goes on with a turn though whoever asked for it is gone."""

    async def abandon(self, session_id: str, call_id: str) -> None:
        """Stop that call of ``talk``, and refuse what it wants leave for, also where another process made it. Does
        nothing where the agent is not at it. Raises :class:`SourceError`."""


@runtime_checkable
class MayBeAway(Protocol):
    """A source whose agent may be out of reach while its sessions can still be read."""

    async def away(self) -> str:
        """Why its agent cannot be talked to just now, in one sentence; empty while it can."""


# -- the model -----------------------------------------------------------------------------------


class ChatMessage(TypedDict):
    """One message of a prompt, in the shape of the OpenAI chat API."""

    role: Literal["system", "user", "assistant"]
    content: str


class Reply(Value):
    """What a model answered. Tokens as the provider counted them, 0 where it did not."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class LanguageModel(Protocol):
    """Three methods. ``complete`` and ``stream`` raise :class:`ModelError`; cancelling the task
    closes the connection."""

    name: str

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        """The whole answer."""

    def stream(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> AsyncIterator[str | Reply]:
        """Pieces of text as they come, then one :class:`Reply` with the whole text and the usage."""

    async def close(self) -> None:
        """Let go of connections and child processes. May be called twice."""


# -- the clock -----------------------------------------------------------------------------------


class Clock(Protocol):
    """Time as the engine sees it: the wall clock read once at the start, then carried on by the
    monotonic clock, so that a wall clock that jumps moves nothing inside a process."""

    def now(self) -> float:
        """Unix seconds."""

    async def sleep_until(self, at: float) -> None:
        """Return as soon as ``now() >= at``."""


# -- the store -----------------------------------------------------------------------------------


class Inbound(Value):
    """A message as a channel delivers it, and as the store keeps it from admission on.

    ``channel`` and ``id`` name it for ever (duplicates are recognised by that pair); ``reply_to``
    is the channel's own address for the answer, fixed here and never computed again.
    """

    channel: str
    sender: str
    text: str
    id: str
    at: float
    reply_to: str
    nick: str = ""
    real_jid: str = ""
    mentioned: bool = False
    own: bool = False
    delayed: bool = False
    edited: bool = False
    bot: bool = False


class Outgoing(Value):
    """A text owed to a channel. ``id`` is the id to send it under, the same at every try; ``key`` the
    conversation that owes it."""

    id: str
    key: Key
    channel: str
    to: str
    text: str
    message: str = ""
    tries: int = 0
    due: float = 0.0


class Settled(Value):
    """What became of an inbound message, or where it stands."""

    message: str
    disposition: str
    reason: str = ""


class StepRecord(Value):
    """One recorded step of a turn: ``kind`` is ``model``, ``intent``, ``started`` or ``finished``;
    ``data`` is JSON text; (turn, call, index, kind) is unique and recording it again changes nothing."""

    turn: str
    call: int
    index: int
    kind: str
    data: str
    at: float


class KeptLine(Value):
    """A line that belongs to a session but that its source cannot take. ``line.id`` makes it unique."""

    session: str
    line: Line


class Change(Value):
    """Everything that one step writes, in one transaction: all of it or none.

    ``due`` is the conversation's next deadline and ``started`` the instant from which it counts.
    ``arrival`` is the message that the step answers, where it is admitted with it.
    """

    key: Key
    conversation: Conversation | None = None
    due: float | None = None
    started: float | None = None
    sends: tuple[Outgoing, ...] = ()
    delivered: tuple[str, ...] = ()
    settled: tuple[Settled, ...] = ()
    lines: tuple[KeptLine, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    meta: tuple[tuple[str, str | None], ...] = ()
    arrival: Inbound | None = None


class InboxRow(Value):
    """An inbound message as stored, with what became of it."""

    key: Key
    message: Inbound
    disposition: str
    reason: str
    settled_at: float | None


class OpenWork(Value):
    """What a start must take up again."""

    turns: Sequence[tuple[Key, Conversation]] = ()
    """Conversations with a running turn or a queue."""
    overdue: Sequence[tuple[Key, float, float]] = ()
    """(key, due, started) of every stored deadline, earliest first."""
    messages: Sequence[InboxRow] = ()
    """Admitted messages without a final disposition, in order of arrival."""
    sends: Sequence[Outgoing] = ()
    """Texts not yet delivered, in order."""


class Store(Protocol):
    """Durable memory of the engine. Every method raises :class:`StoreError` and nothing else.

    A call that returned is on disk. Calls from many tasks are committed together.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def load(self, key: Key) -> Conversation | None: ...

    async def commit(self, change: Change) -> bool:
        """Write a change. False where its ``arrival`` is a message that is known already: nothing else of
        it is written then. An arrival is ``running`` unless the change settles it otherwise."""

    def commit_soon(self, change: Change, failed: Callable[[StoreError], None]) -> None:
        """As ``commit``, for what nobody waits for and may be lost with the process; ``failed`` hears of it where it
        could not be written."""

    async def open_work(self) -> OpenWork: ...

    async def load_many(self, keys: Sequence[Key]) -> Mapping[Key, Conversation]:
        """Those of them that there are; made for starts, with a thousand at a time."""

    async def commit_many(self, changes: Sequence[Change]) -> None:
        """All of them in one transaction, in order: all or none."""

    async def message(self, key: Key, message_id: str) -> InboxRow | None:
        """The message of that id on the conversation's channel, as its agent got it."""

    async def history(self, key: Key, limit: int = 20) -> Sequence[InboxRow]:
        """The newest messages of a conversation, newest first."""

    async def conversations(
        self, agent: str | None = None, channel: str | None = None
    ) -> Sequence[tuple[Key, Conversation]]:
        """By key; one that cannot be read is left out and logged, for it must not hold up the others."""

    async def steps(self, turn: str) -> Sequence[StepRecord]: ...

    async def lines(self, session: str, limit: int = 200) -> Sequence[Line]:
        """The newest kept lines of a session, oldest first."""

    async def get_meta(self, key: str) -> str | None: ...

    async def set_meta(self, key: str, value: str | None) -> None: ...

    async def meta_with_prefix(self, prefix: str) -> Sequence[tuple[str, str]]:
        """(key, value) of every meta key that begins so, by key."""

    async def owed(self, channel: str, to: str) -> Sequence[Outgoing]:
        """Texts not yet delivered that go to one address, in order, whoever owes them."""


# -- channels ------------------------------------------------------------------------------------


class Channel(Protocol):
    """Where texts go out. ``send`` returns once the text is delivered as surely as the channel can
    tell, and raises :class:`DeliveryError` otherwise; sending one id twice shows it once where the
    channel can deduplicate."""

    async def send(self, outgoing: Outgoing) -> None: ...


@cache
def is_a(kind: type, protocol: type) -> bool:
    """Whether objects of that kind can do what the protocol names. Remembered, for the paths that every message
    takes: Python looks through all names of both at each ``isinstance``, which takes as long as a step."""
    return issubclass(kind, protocol)


@runtime_checkable
class ShowsTyping(Protocol):
    """A channel with a typing indicator."""

    async def typing(self, to: str, on: bool) -> None: ...


@runtime_checkable
class ShowsDrafts(Protocol):
    """A channel that can show what the answer looks like so far (``text`` is the whole of it)."""

    async def draft(self, to: str, text: str) -> None: ...
