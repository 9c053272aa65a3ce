"""Scenarios as Python: people who say things, time that passes, a bot that answers.

    def test_a_selection_is_gone_after_two_minutes(bot):
        alice = bot.person("alice", channel="console")
        alice.says("切换到weather")
        assert alice.state is State.AWAITING_SELECTION
        bot.waits(minutes=2)
        assert alice.state is State.IDLE

Everything is synchronous to the test and instant: the engine runs on a clock that stands still until
``waits`` moves it, and stops at every due moment on the way. Inside
``freeze_time(…, real_asyncio=True)`` it is freezegun's clock that moves, so that code under test
which reads ``time`` or ``datetime`` sees the same instant.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fsm.agent import in_room
from fsm.commands.registry import Registry
from fsm.conversation import Bound, Conversation, Key, State
from fsm.effects import Disposition
from fsm.events import Choice
from fsm.ports import Inbound, Line, Store
from session_router.config import agent_from_mapping
from session_router.scenario.clock import FrozenClock, SteppedClock
from session_router.scenario.files import MINIMAL
from session_router.scenario.format import START
from session_router.scenario.script import Answer, ScriptedSession, Sent
from session_router.scenario.stage import Delivered, Stage

T = TypeVar("T")

USUAL = (("ses_a", "天气机器人", -60.0), ("ses_b", "weather-api", -120.0), ("ses_c", "博客 weather 草稿", -300.0))
"""The sessions of a story that names none: id, title, and when each was last active, in seconds from the start."""


class Bot:
    """The engine under test, with the world around it scripted.

    ``agent`` holds keys of the real config. Without a call of ``session`` there are the three of
    :data:`USUAL`; ``has_no_sessions`` leaves those out, and a text makes one. The engine opens with the
    first thing that happens.
    """

    def __init__(
        self,
        *,
        agent: dict[str, Any] | None = None,
        commands: Registry | None = None,
        store: Callable[[], Store] | None = None,
    ) -> None:
        self._config: dict[str, Any] = dict(agent or {})
        self._commands, self._store = commands, store
        self._runner: asyncio.Runner | None = None
        self._stage: Stage | None = None
        self._sessions: list[ScriptedSession] = []
        self._usual = True
        self._ids = 0
        self.people: dict[tuple[str, str], Person] = {}

    # -- setting the stage -----------------------------------------------------------------------

    def configure(self, **keys: Any) -> Bot:
        """Keys of the agent's config (``turn_timeout=60``), before anything happens."""
        assert self._stage is None, "configure the bot before the first message"
        self._config |= keys
        return self

    @property
    def commands(self) -> Registry:
        """The registry, to add commands of your own to before anything happens."""
        if self._commands is None:
            from fsm.commands.builtin import BUILTIN

            self._commands = BUILTIN.copy()
        return self._commands

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            self._runner = asyncio.Runner()
            frozen = _freezer()
            clock = FrozenClock(frozen) if frozen is not None else SteppedClock(START)
            if self._usual and not self._sessions:
                for name, title, active in USUAL:
                    self.session(name, title, active=active)
            base = MINIMAL | {"make_sessions": not self._sessions}
            self._stage = Stage(
                agent_from_mapping(self._config, base), clock, commands=self._commands, store=self._store
            )
            for session in self._sessions:
                self._stage.source.sessions[session.id] = session
            self._do(self._stage.open())
        return self._stage

    def has_no_sessions(self) -> Bot:
        """Leave the usual sessions out: the first text makes one."""
        self._usual = False
        return self

    def session(
        self,
        session_id: str,
        title: str = "",
        *,
        active: float = 0.0,
        parent: str | None = None,
        archived: bool = False,
        said: Sequence[tuple[str, str]] = (("user", "你好"), ("assistant", "在")),
    ) -> None:
        """Put a session into the source; ``active`` in seconds from the scenario's start."""
        start = self._stage.start_at if self._stage else (_wall() or START)
        lines = tuple(
            Line("user" if role == "user" else "assistant", text, start + active - len(said) + n + 1)
            for n, (role, text) in enumerate(said)
        )
        session = ScriptedSession(session_id, title, start + active, lines, parent, archived)
        if self._stage is not None:
            self._stage.source.sessions[session_id] = session
        else:
            self._sessions.append(session)

    def answers(self, *answers: str | Answer | None) -> Bot:
        """What the model will say, in order."""
        self.stage.model.answers += [a if isinstance(a, Answer) else Answer(a) for a in answers]
        return self

    def person(self, name: str, *, channel: str = "console", nick: str = "", real_jid: str = "") -> Person:
        """Somebody who writes; the same name and channel is the same person."""
        return self.people.setdefault((channel, name), Person(self, name, channel, nick or name, real_jid))

    # -- what can happen -------------------------------------------------------------------------

    def waits(self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Time passes, and stops at every due moment on the way. Raises ValueError for what is no time to wait."""
        stage, wait = self.stage, seconds + 60 * minutes + 3600 * hours
        if not 0 <= wait < math.inf:
            raise ValueError(f"time passes forwards, for as long as one can say, not {wait} s")
        self._do(stage.advance(stage.clock.now() + wait))

    def settles(self) -> None:
        """Whatever is due now happens (after moving frozen time by hand)."""
        self._do(self.stage.advance(self.stage.clock.now()))

    def restarts(self) -> None:
        """Everything in memory is gone, as with kill -9; the store is what it was."""
        self._do(self.stage.restart())
        self._do(self.stage.settle())

    def crashes(self, *, before: str = "", after: str = "") -> None:
        """The next effect of that kind (model, command, send, commit) strikes the process down. Raises ValueError for
        another kind, and for two."""
        if bool(before) == bool(after) or (before or after) not in ("model", "command", "send", "commit"):
            raise ValueError("crashes(before=KIND) or crashes(after=KIND), of model, command, send or commit")
        self.stage.crash(before or after, "before" if before else "after")

    def fails_to_send(self, times: int) -> None:
        self.stage.channel.failing += times

    @property
    def model_calls(self) -> int:
        return self.stage.model.calls

    @property
    def prompt(self) -> str:
        """The last prompt that the model got."""
        return "\n".join(message["content"] for message in self.stage.model.prompts[-1])

    @property
    def commands_run(self) -> list[tuple[str, str | None]]:
        return list(self.stage.commands.ran)

    @property
    def counts(self) -> dict[str, int]:
        """What the engine has counted since it started."""
        return dict(self.stage.engine.counts)

    def close(self) -> None:
        if self._stage is not None:
            self._do(self._stage.close())
        if self._runner is not None:
            self._runner.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._runner is not None
        return self._runner.run(work)


class Person:
    """Somebody in one channel. ``hears`` gives what was sent there since it was last asked."""

    def __init__(self, bot: Bot, name: str, channel: str, nick: str, real_jid: str) -> None:
        self.bot, self.name, self.channel, self.nick, self.real_jid = bot, name, channel, nick, real_jid
        self._heard = 0
        self._last: Delivered | None = None

    @property
    def key(self) -> Key:
        return Key(self.bot.stage.agent.name, self.channel, self.name)

    def says(self, text: str, *, id: str | None = None, wait_reply: bool = True, **facts: Any) -> None:
        """Say something, and wait for what becomes of it unless ``wait_reply`` is False."""
        stage = self.bot.stage
        self.bot._ids += 1
        inbound = Inbound(
            channel=self.channel, sender=self.name, text=text, id=id or f"auto-{self.bot._ids}", at=stage.clock.now(),
            reply_to=stage.route_of(self.channel, self.name), nick=self.nick if in_room(self.channel) else "",
            real_jid=self.real_jid, **facts,
        )  # fmt: skip

        async def say() -> None:
            self._last = stage.deliver(inbound)
            if wait_reply:
                await stage.finish([self._last])
            else:
                await stage.settle()

        self.bot._do(say())

    def hears(self) -> list[str]:
        """Every text that reached this person since last asked, in order."""
        to = self.bot.stage.route_of(self.channel, self.name)
        sent: list[Sent] = [s for s in self.bot.stage.channel.sent if s.channel == self.channel and s.to == to]
        new, self._heard = sent[self._heard :], len(sent)
        return [s.text for s in new]

    @property
    def conversation(self) -> Conversation:
        return self.bot._do(self.bot.stage.conversation(self.key))

    @property
    def state(self) -> State:
        return self.conversation.state

    @property
    def bound(self) -> str | None:
        """The session that this person talks to."""
        return self.bot._do(self.bot.stage.bound(self.key))[0]

    @property
    def binding(self) -> str | None:
        """Why it is that one."""
        return self.bot._do(self.bot.stage.bound(self.key))[1]

    @property
    def disposition(self) -> Disposition | None:
        """What became of the last message."""
        assert self._last is not None, "nothing was said yet"
        return self.bot._do(self.bot.stage.disposition(self._last))

    @property
    def loops(self) -> int:
        return self.bot.stage.loops(self.key)

    def is_bound_to(self, session_id: str) -> None:
        """Somebody chooses this person's session from outside."""
        info = self.bot.stage.source.sessions[session_id].info

        async def bind() -> None:
            self.bot.stage.engine.rebind(self.key, Choice(Bound(info.id, "manual", info.title, info.source)))
            await self.bot.stage.settle()

        self.bot._do(bind())


def _freezer() -> Any:
    """freezegun's frozen time, where a test has frozen it."""
    try:
        from freezegun import api
    except ImportError:
        return None
    return api.freeze_factories[-1] if api.freeze_factories else None


def _wall() -> float | None:
    import time

    return time.time() if _freezer() is not None else None
