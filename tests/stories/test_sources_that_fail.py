"""Sources are other people's files, servers and code: whatever they do, the bot says so and stays in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsm.agent import Agent
from fsm.constants import Limits
from fsm.conversation import Bound, Key, State
from fsm.events import Choice
from fsm.ports import Line, Outgoing, SessionInfo
from session_router import SessionRouter
from session_router.scenario.story import Bot
from storage.journal import JournalSource
from storage.sqlite import SqliteStore

EVERYBODY = frozenset({"*"})


class Hangs:
    """Never answers, and notes that it was asked."""

    name = "hangs"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def _never(self) -> None:
        self.asked.set()
        await asyncio.Event().wait()

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        await self._never()
        return ()

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        return await self.list()

    async def latest(self) -> SessionInfo | None:
        await self._never()
        return None

    async def find(self, session_id: str) -> SessionInfo | None:
        return await self.latest()

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        await self._never()
        return ()


class Panics(BaseException):
    """What a library in another language raises."""


class Falls(Hangs):
    """Other people's code at its worst."""

    name = "falls"

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def _never(self) -> None:
        raise self.error


class Thinks:
    """Answers when the gate is open."""

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def chat(self, messages: object, *, session_id: str) -> str:
        self.asked.set()
        await self.gate.wait()
        return "done"


async def test_a_source_that_hangs_holds_up_neither_stop_nor_help_nor_a_session_of_another(tmp_path: Path) -> None:
    journal, hangs, bridge = JournalSource(tmp_path / "sessions"), Hangs(), Thinks()
    await journal.create("plans", session_id="ses_plans", at=1.0)
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    router = SessionRouter(
        bridge=bridge, store=store, sources=(hangs, journal), agent=Agent(name="bot", language="en", allow=EVERYBODY)
    )
    async with asyncio.timeout(30), router:
        key = Key(router.agent.name, "tg", "hmo")
        router.engine.rebind(key, Choice(Bound("ses_plans", "manual", "plans", "journal")))
        asking = asyncio.ensure_future(router.route("tg", "hmo", "think hard about it", message_id="m1"))
        await bridge.asked.wait()

        waiting = asyncio.ensure_future(router.route("tg", "hmo", "switch to session plans", message_id="m2"))
        assert "/sessions" in (await router.route("tg", "hmo", "/help", message_id="m3") or "")
        assert await router.route("tg", "hmo", "/stop", message_id="m4") == "Stopped."
        assert await asking is None
        await hangs.asked.wait()  # only the message that waited for the end looks through all sources
        waiting.cancel()
        assert (await router.engine.conversation(key)).state is State.IDLE


FAILURES = [RuntimeError("nobody foresaw this"), Panics("nobody foresaw this"), asyncio.CancelledError("by itself")]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_a_source_that_fails_in_its_own_way_is_one_that_cannot_be_read(
    error: BaseException, tmp_path: Path
) -> None:
    journal = JournalSource(tmp_path / "sessions")
    await journal.create("plans", session_id="ses_plans", at=1.0)
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=Thinks(), store=store, sources=(Falls(error), journal)) as router:
        listed = await router.route("tg", "hmo", "/sessions", message_id="m1") or ""
        text = await router.route("tg", "hmo", "hello there", message_id="m2") or ""

    for said in (listed, text):
        assert f"The sessions of falls cannot be read ({type(error).__name__}: {error})." in said
    assert "1. plans" in listed


async def test_nobody_talks_to_a_session_that_the_config_no_longer_shows_them(tmp_path: Path) -> None:
    journal, bridge = JournalSource(tmp_path / "sessions"), Thinks()
    bridge.gate.set()
    for name in ("one", "two"):
        await journal.create(name, session_id=f"ses_{name}", at=1.0)
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    visible = {"eve": frozenset({"ses_two"}), "mallory": frozenset({"hermes"})}
    agent = Agent(
        name="bot", language="en", allow=EVERYBODY, visible=visible, default_session="ses_one", auto=False
    )
    async with SessionRouter(bridge=bridge, store=store, sources=(journal,), agent=agent) as router:
        for person in ("eve", "mallory", "ann"):
            bound = Bound("ses_one", "manual", "one", "journal")
            router.engine.rebind(Key("bot", "tg", person), Choice(bound))

        refused = await router.route("tg", "eve", "hello there", message_id="m1") or ""
        assert refused.startswith("You may not use the session “one” any more.")
        assert await router.route("tg", "ann", "hello there", message_id="m2") == "done"

        await router.route("tg", "mallory", "/auto", message_id="m3")
        for number in range(3):
            told = await router.route("tg", "mallory", "hello there", message_id=f"n{number}") or ""
            assert told.startswith("There is no session to talk to.")
        told = await router.route("tg", "mallory", "/new mine", message_id="m4") or ""
        assert "no session can be made here" in told
        assert {each.id for each in await journal.list()} == {"ses_one", "ses_two"}


def test_what_comes_in_while_a_turn_runs_is_understood_when_its_time_comes(bot: Bot) -> None:
    bot.answers("thought", "and done")
    alice = bot.person("alice", channel="tg")
    alice.says("想一想", wait_reply=False)
    alice.says("切换到 weather-api")
    alice.says("好了吗")
    assert alice.hears() == ["thought", "已切换到「weather-api」（opencode）。", "and done"]
    assert alice.bound == "ses_b"


class FailsOnce:
    """A channel whose first text comes to grief in its own way."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error
        self.heard = asyncio.Event()

    async def send(self, outgoing: Outgoing) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.heard.set()


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_a_channel_that_fails_in_its_own_way_is_tried_again(error: BaseException, tmp_path: Path) -> None:
    bridge, channel = Thinks(), FailsOnce(error)
    bridge.gate.set()
    agent = Agent(name="bot", allow=EVERYBODY, limits=Limits(delivery_backoff=(0.01,)))
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with asyncio.timeout(20), SessionRouter(
        bridge=bridge, store=store, default_session="demo", sources=(), agent=agent, channels={"tg": channel}
    ) as router:  # fmt: skip
        await router.submit("tg", "hmo", "hello there", message_id="m1", reply_to="hmo")
        await channel.heard.wait()
        assert router.engine.counts["send_retried"] == 1
