"""What stands in for the world in a scenario: scripted answers, scripted sessions, a room for sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fsm.desk import current_call
from fsm.language.matching import match_sessions
from fsm.ports import (
    ChatMessage,
    DeliveryError,
    Inbound,
    Line,
    ModelError,
    Outgoing,
    PermissionAsk,
    Reply,
    SessionInfo,
    SourceError,
)
from session_router.scenario.clock import Sleeper, SteppedClock


@dataclass(frozen=True, slots=True)
class Asked:
    """The model was called; a call that is made again after a crash is none of its own."""

    call: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A command ran."""

    name: str
    argument: str | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A text that reached its address. ``address`` is what a scenario calls it."""

    id: str
    channel: str
    to: str
    text: str
    at: float

    @property
    def address(self) -> str:
        return self.channel if ":" in self.channel else f"{self.channel}/{self.to}"


What = Inbound | Asked | Ran | Sent


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that can be seen from outside, ``t`` seconds after the start."""

    t: float
    what: What


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer. ``text`` None: the model gave nothing. ``takes`` in seconds of the
    scenario's clock; ``error`` is raised instead; ``hang`` never answers. ``asks`` is what an agent wants
    leave for before it answers, ``denied`` what it says without."""

    text: str | None = None
    takes: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None
    hang: bool = False
    asks: str | None = None
    denied: str | None = None


class ScriptedModel:
    """A bridge with answers in order: of the calls, and of the messages where several call in one
    instant, so that it does not matter which task happens to be first. A call that is repeated after
    a crash gets the answer that it got before and counts once."""

    def __init__(self, clock: SteppedClock, happened: Callable[[What], None]) -> None:
        self._clock, self._happened = clock, happened
        self._waiting: list[tuple[str, Sleeper]] = []
        self.answers: list[Answer] = []
        self.by_call: dict[str, Answer] = {}
        self.prompts: list[list[ChatMessage]] = []
        self.missing: list[str] = []

    @property
    def calls(self) -> int:
        return len(self.by_call)

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply | None:
        answer = await self.take(current_call.get(), messages)
        return None if answer.text is None else Reply(answer.text, answer.input_tokens, answer.output_tokens)

    async def take(self, call: str, messages: Sequence[ChatMessage]) -> Answer:
        """The answer to that call, when its time has come."""
        self.prompts.append(list(messages))
        if call not in self.by_call:
            ticket = self._clock.ticket()
            self._waiting.append((call, ticket))
            await self._clock.hold(ticket)
        answer = self.by_call[call]
        if answer.hang:
            await self._clock.sleep_until(float("inf"))
        if answer.takes:
            await self._clock.sleep_until(self._clock.now() + answer.takes)
        if answer.error is not None:
            raise ModelError(answer.error)
        return answer

    def hand_out(self, order: Sequence[str]) -> bool:
        """Give everybody who waits an answer, in ``order`` of their messages; False if nobody does."""
        place = {ref: n for n, ref in enumerate(order)}
        waiting = sorted(self._waiting, key=lambda w: place.get(w[0].rpartition("/")[0], len(place)))
        self._waiting = []
        for call, ticket in waiting:
            if ticket.woken.done():
                continue  # cancelled meanwhile
            if call not in self.by_call:
                self._happened(Asked(call))
                if self.answers:
                    self.by_call[call] = self.answers.pop(0)
                else:
                    self.missing.append(f"call {self.calls + 1} (message {call.rpartition('/')[0]})")
                    self.by_call[call] = Answer(error="the scenario has no answer left")
            self._clock.wake(ticket)
        return bool(waiting)

    def forget_waiting(self) -> None:
        """The process that waited is gone."""
        self._waiting = []


@dataclass(frozen=True, slots=True)
class ScriptedSession:
    """A session as a scenario file describes it; instants in unix seconds."""

    id: str
    title: str
    active: float
    lines: tuple[Line, ...]
    parent: str | None = None
    archived: bool = False
    source: str = "opencode"

    @property
    def info(self) -> SessionInfo:
        newest = max((line.at for line in self.lines), default=self.active)
        return SessionInfo(self.id, self.title, self.source, max(self.active, newest))


@dataclass(slots=True)
class ScriptedSource:
    """``fsm.ports.SessionSource`` over what the scenario says there is; survives a restart, as files do."""

    name: str = "opencode"
    sessions: dict[str, ScriptedSession] = field(default_factory=dict)

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        shown = [s.info for s in self.sessions.values() if s.lines and not s.archived and s.parent is None]
        shown.sort(key=lambda s: (-s.active_at, s.id))
        return shown[:limit]

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        return match_sessions(words, await self.list())[:limit]

    async def latest(self) -> SessionInfo | None:
        return next(iter(await self.list(1)), None)

    async def find(self, session_id: str) -> SessionInfo | None:
        session = self.sessions.get(session_id)
        return session.info if session else None

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        session = self.sessions.get(session_id)
        if session is None:
            raise SourceError(f"There is no session {session_id}.", kind="missing", source=self.name)
        return session.lines[-limit:]

    def change(self, session_id: str, **changes: object) -> None:
        """Raises KeyError: no such session."""
        self.sessions[session_id] = replace(self.sessions[session_id], **changes)  # type: ignore[arg-type]


ASK_TIMEOUT = 120.0
"""Seconds after which a scripted agent takes silence for a refusal."""


class ScriptedAgent(ScriptedSource):
    """A source whose agent runs the turns itself (``fsm.ports.Talks``), from the same scripted answers."""

    def __init__(self, model: ScriptedModel, clock: SteppedClock) -> None:
        super().__init__(name="agent")
        self._model, self._clock = model, clock
        self._asked: dict[str, Sleeper] = {}
        self.allowed: dict[str, bool] = {}

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
        answer = await self._model.take(
            call_id, [{"role": "system", "content": system}, {"role": "user", "content": text}]
        )
        said = answer.text
        if answer.asks is not None and not await self._leave(session_id, call_id, answer.asks, ask):
            said = answer.denied if answer.denied is not None else answer.text
        session = self.sessions[session_id]
        at = self._clock.now()
        new = (Line("user", text, at, "", call_id), Line("assistant", said or "", at, "", call_id + ">"))
        self.sessions[session_id] = replace(session, lines=(*session.lines, *new))
        return Reply(said or "", answer.input_tokens, answer.output_tokens)

    async def answer(self, ask_id: str, allow: bool) -> bool:
        ticket = self._asked.pop(ask_id, None)
        if ticket is None:
            return False
        self.allowed[ask_id] = allow
        self._clock.wake(ticket)
        return True

    async def _leave(self, session_id: str, call: str, what: str, ask: Callable[[PermissionAsk], None] | None) -> bool:
        name = f"ask-{call}"
        ticket = self._asked[name] = self._clock.ticket(self._clock.now() + ASK_TIMEOUT)
        tell = ask or (lambda asked: None)
        tell(PermissionAsk(name, session_id, what))
        await self._clock.hold(ticket)
        if self._asked.pop(name, None) is not None:
            tell(PermissionAsk(name, session_id, what, over=True))
        return self.allowed.get(name, False)


@dataclass(slots=True)
class Recorder:
    """``fsm.ports.Channel`` that shows each id once, as a channel that can deduplicate does. The next ``failing`` tries
    fail; one that is made again after a crash fails again and counts once."""

    now: Callable[[], float]
    happened: Callable[[What], None]
    sent: list[Sent] = field(default_factory=list)
    failing: int = 0
    on: dict[str, bool] = field(default_factory=dict)
    """Typing indicators by route."""
    _failed: set[tuple[str, int]] = field(default_factory=set)

    async def send(self, outgoing: Outgoing) -> None:
        this = (outgoing.id, outgoing.tries)
        if self.failing > 0 and this not in self._failed:
            self.failing -= 1
            self._failed.add(this)
        if this in self._failed:
            raise DeliveryError("the scenario lets this delivery fail")
        if all(outgoing.id != sent.id for sent in self.sent):
            self.arrived(Sent(outgoing.id, outgoing.channel, outgoing.to, outgoing.text, self.now()))

    def arrived(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.happened(sent)

    async def typing(self, to: str, on: bool) -> None:
        self.on[to] = on
