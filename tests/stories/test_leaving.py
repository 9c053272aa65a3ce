"""Leaving is no crash: what a program that was told to stop leaves behind is taken up as often as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fsm.runner.engine as engine
import fsm.runner.tasks as tasks
from fsm.conversation import Key
from fsm.ports import Line, SessionInfo, SessionRouterError
from session_router import SessionRouter
from storage.sqlite import SqliteStore


class Ponders:
    """Answers when the gate is open. ``stubborn``: it does not end when it is cancelled."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.asked, self.gate, self.stubborn = asyncio.Event(), asyncio.Event(), stubborn

    async def chat(self, messages: Any, *, session_id: str) -> str:
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            await self.gate.wait()
        return "Forty-two."


class Hangs:
    """A source that does not end when it is cancelled, but only as each call's gate is opened."""

    name = "slow"

    def __init__(self) -> None:
        self.gates: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def latest(self) -> SessionInfo | None:
        gate = asyncio.Event()
        self.gates.put_nowait(gate)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            await gate.wait()
            raise
        return SessionInfo("ses_slow", "Slow", self.name, 1.0)

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        return ()

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        return ()

    async def find(self, session_id: str) -> SessionInfo | None:
        return SessionInfo(session_id, "Slow", self.name, 1.0)

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        return ()


def router_on(path: Path, bridge: Ponders) -> SessionRouter:
    store = SqliteStore(path / "engine.db", synchronous="OFF")
    return SessionRouter(bridge=bridge, store=store, default_session="demo", sources=())


async def test_a_turn_that_was_left_four_times_still_has_its_answer(tmp_path: Path) -> None:
    bridge = Ponders()
    router = router_on(tmp_path, bridge)
    asking = asyncio.ensure_future(router.route("xmpp", "hmo", "What is the answer?", message_id="m1"))
    await bridge.asked.wait()
    await router.close()
    with pytest.raises(SessionRouterError, match="closed before the message had its answer"):
        await asking

    for _ in range(3):
        bridge = Ponders()
        async with router_on(tmp_path, bridge):
            await bridge.asked.wait()

    bridge = Ponders()
    bridge.gate.set()
    async with router_on(tmp_path, bridge) as router:
        await router.engine.rest_of(Key(router.agent.name, "xmpp", "hmo"))
        (row,) = await router.store.history(Key(router.agent.name, "xmpp", "hmo"))
    assert (row.disposition, row.reason) == ("replied", "why_replied")


async def test_a_bridge_that_does_not_want_to_stop_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "STOPPING", 0.01)
    bridge = Ponders(stubborn=True)
    router = router_on(tmp_path, bridge)
    asking = asyncio.ensure_future(router.route("xmpp", "hmo", "What is the answer?", message_id="m1"))
    await bridge.asked.wait()

    await router.close()

    with pytest.raises(SessionRouterError):
        await asking
    assert "is left behind (tasks: 1)" in caplog.text
    bridge.gate.set()


async def test_a_look_up_that_ends_after_its_agent_has_left_and_come_back_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "STOPPING", 0.01)
    monkeypatch.setattr(engine, "STOPPING", 0.01)
    bridge, source = Ponders(), Hangs()
    bridge.gate.set()
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=bridge, store=store, sources=(source,)) as router:
        name, desk, channels = router.agent.name, router.engine.desks[router.agent.name], dict(router.engine.channels)
        before = asyncio.ensure_future(router.route("xmpp", "hmo", "What is the question?", message_id="m1"))
        late = await source.gates.get()
        await router.engine.dismiss(name)
        await router.engine.adopt({name: desk}, channels)
        after = asyncio.ensure_future(router.route("xmpp", "hmo", "What is the answer?", message_id="m2"))
        gate = await source.gates.get()

        late.set()
        with pytest.raises(SessionRouterError, match="not taken in"):
            await before
        gate.set()

        async with asyncio.timeout(10):
            assert await after == "Forty-two."


async def test_of_a_message_that_is_refused_only_the_beginning_is_kept(tmp_path: Path) -> None:
    bridge = Ponders()
    async with router_on(tmp_path, bridge) as router:
        told = await router.route("xmpp", "hmo", "x" * 5_000_000, message_id="m1")
        (row,) = await router.store.history(Key(router.agent.name, "xmpp", "hmo"))

    assert told is not None
    assert "5000000" in told
    assert (row.disposition, len(row.message.text)) == ("refused", engine.REFUSED_CHARS + 1)
