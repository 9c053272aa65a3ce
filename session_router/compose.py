"""Puts the parts together: config → store, session sources, model, desk, engine, console."""

from __future__ import annotations

import getpass
import logging
import logging.handlers
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from channels.console import Console, Status
from fsm.agent import Agent
from fsm.binding import Binding, resolve
from fsm.closing import close_all
from fsm.commands.engine import name_bound
from fsm.conversation import Bound, Conversation, Key, State
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.events import Choice
from fsm.language.texts import say
from fsm.ports import Inbound, SessionInfo, SourceError
from fsm.runner import Engine, Receipt
from fsm.sessions import Sessions
from session_router.bridge import SessionBridge
from session_router.choose_model import Chosen
from session_router.clock import SystemClock
from session_router.config import AgentConfig, Config
from session_router.hold import hold
from session_router.process import settle_memory, tune
from session_router.resuming import Resuming
from session_router.sources import journal_channels, journal_of, sources_of, writable_of
from storage.sqlite import SqliteStore

CONSOLE = "console"
LOG_BYTES = 1_000_000


class SessionNotThere(SourceError):
    """The session that was named is in none of the sources."""

    def __init__(self, session: str) -> None:
        super().__init__(f"There is no session {session}.", kind="missing", source="")


def open_store(config: Config) -> SqliteStore:
    """The engine store of the config, not opened yet."""
    return SqliteStore(config.store.path, synchronous=config.store.synchronous)


def user_name() -> str:
    """Who sits at the terminal: the sender of what is typed there."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no variable names one, and the system knows none
        return "user"


# -- the terminal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chat:
    """One agent on the terminal."""

    key: Key
    agent: Agent
    engine: Engine
    sessions: Sessions
    desk: Desk
    lang: str

    def submit(self, text: str, message: str) -> Receipt:
        sender = self.key.sender
        inbound = Inbound(CONSOLE, sender, text, message, self.engine.clock.now(), reply_to=sender)
        return self.engine.submit(self.agent.name, inbound)

    async def status(self) -> Status:
        """What the status line says; a session that cannot be looked up is said there as well."""
        now, at = await self.engine.conversation(self.key), self.engine.clock.now()
        if now.turn is not None:
            binding = Binding(now.turn.bound)
        else:
            binding = await self.desk.binding(self.key, now, at)
        bound, problem = binding.bound, binding.problem
        if bound is not None:
            session = await self._named(bound)
        elif (
            now.manual is None and not binding.unsure and self.agent.make_sessions
            and self.sessions.takes_new(self.agent, self.key.sender)
        ):  # fmt: skip
            session = say(self.lang, "new_with_the_next")
        else:
            session = problem.partition("\n")[0] or say(self.lang, "none")
        muted = now.muted_until is not None and now.muted_until > at
        busy = now.state is State.COMMAND_LOOPING
        return Status(now.state.value, session, len(now.queue), muted, busy)

    async def _named(self, bound: Bound) -> str:
        away = await self.sessions.away(bound)
        return name_bound(bound, self.lang) + (f" · {say(self.lang, 'status_away')}" if away else "")

    def explain(self, receipt: Receipt) -> str:
        """Nothing where the answer itself says it; what became of the message otherwise."""
        if receipt.disposition in (None, Disposition.REPLIED, Disposition.STOPPED):
            return ""
        assert receipt.disposition is not None
        reason = say(self.lang, receipt.reason) if receipt.reason else ""
        return f"{receipt.disposition.value}: {reason}".removesuffix(": ")

    def bind(self, session: SessionInfo) -> None:
        bound = Bound(session.id, "manual", session.title, session.source)
        self.engine.rebind(self.key, Choice(bound))


async def chat(
    config: Config,
    settings: AgentConfig,
    chosen: Chosen,
    console: Console,
    *,
    session: str | None = None,
    lang: str = "en",
    sender: str | None = None,
) -> bool:
    """Talk on the terminal until its input ends; False when a message could not be taken.

    ``session`` is the id of the one to begin with. Closes the model.

    Raises:
        StoreError: the store cannot be used, or another process is at work on it.
        SessionNotThere: ``session`` is in no source.
    """
    tune()
    store = open_store(config)
    agent = settings.to_agent()
    sources = sources_of(config, store, agent.names, settings=settings, chosen=chosen)
    if "rate_limit" not in settings.limits.given():
        # It keeps others from spending the model; at their own terminal people may pipe in what they like.
        agent = replace(agent, limits=replace(agent.limits, rate_limit=0))
    key = Key(agent.name, CONSOLE, sender or user_name())
    clock = SystemClock()
    sessions = Sessions(sources, store, writable_of(sources), clock.now)
    desk = Desk(agent, sessions, SessionBridge(chosen.model, sources))

    resuming = Resuming(journal_of(sources), store, key, clock, lang, console.note)

    def watch(moved: Key, then: Conversation) -> None:
        if moved == key:
            console.changed()
            resuming.watch(moved, then)

    def owned(other: Key) -> bool:
        return other.channel == CONSOLE  # the other channels' turns and texts belong to whoever serves those

    engine = Engine(
        desks={agent.name: desk}, store=store, clock=clock, watch=watch, owns=owned,
        channels={(agent.name, CONSOLE): console, **journal_channels(agent.name, sources)},
    )  # fmt: skip
    talk = Chat(key, agent, engine, sessions, desk, lang)
    try:
        with hold(store.path, f"{agent.name}.{CONSOLE}"), _failures_shown(console):
            try:
                await store.open()
                found = None
                if session is not None and (found := await sessions.find(session)) is None:
                    raise SessionNotThere(session)
                # Before the engine takes up what was left: a moment later it may have ended.
                left = await store.load(key) or Conversation()
                if left.turn is not None:
                    await resuming.begin(left.turn.bound)
                elif found is None:
                    await resuming.begin((await desk.binding(key, left, clock.now())).bound)
                await engine.start()
                settle_memory()
                if found is not None:
                    talk.bind(found)
                await console.run(talk.submit, talk.status, talk.explain)
                if console.ok:
                    await engine.rest_of(key)  # a turn that was left from last time has its answer, too
            finally:
                await close_all([resuming.close, engine.close])
    finally:
        await close_all([sessions.close, chosen.model.close])
    return console.ok


class _ToConsole(logging.Handler):
    """Why a model call or a step failed, to the one person who may know; the same thing again is said once."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.ERROR)
        self._console = console
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last:
            self._last = text
            self._console.note(f"! {text}")


SHOWN = ("session_router.turn", "session_router.engine")
"""The loggers whose errors the person at the terminal gets to see."""


@contextmanager
def _failures_shown(console: Console) -> Iterator[None]:
    handler = _ToConsole(console)
    logs = [logging.getLogger(name) for name in SHOWN]
    for log in logs:
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in logs:
            log.removeHandler(handler)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that is full must not spoil the terminal with tracebacks: what it has no room for is lost."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def log_to_file(folder: Path) -> Path | None:
    """Send everything that is logged to ``session-router.log`` in ``folder``, rotated at a megabyte; None
    where that cannot be written. The terminal stays for the conversation."""
    path = folder / "session-router.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError:
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for noisy in ("httpx2", "httpcore2", "httpx", "httpcore", "openai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if os.name == "posix":
        path.chmod(0o600)
    return path


# -- looking at conversations ------------------------------------------------------------------------


class Bindings:
    """What each conversation is bound to. Those that nobody chose share the look-up, which reads the
    sources: there may be thousands of conversations."""

    def __init__(self, agents: Mapping[str, Agent], sessions: Sessions, at: float, lang: str) -> None:
        self._agents, self._sessions, self._at, self._lang = agents, sessions, at, lang
        self._known: dict[tuple[str, str, str], Bound | None] = {}

    async def of(self, key: Key, now: Conversation) -> Bound | None:
        """The running turn's session, the chosen one, or the one that a text would talk to now."""
        if now.turn is not None:
            return now.turn.bound
        if now.manual is not None:
            return now.manual
        if (agent := self._agents.get(key.agent)) is None:
            return None
        who = (key.agent, key.channel.partition(":")[0] if ":" in key.channel else "",
               key.sender if key.sender in agent.visible else "")  # fmt: skip
        if who not in self._known:
            found = await resolve(agent, key, now, self._sessions, at=self._at, lang=self._lang)
            self._known[who] = found.bound
        return self._known[who]

