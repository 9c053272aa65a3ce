"""A store that fails for a while (a full disk, another program's lock): nothing is lost, dropped or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import fsm.runner.engine as engine
from fsm.agent import Agent
from fsm.conversation import Conversation, Key, Shown, State
from fsm.ports import Change, Inbound, Outgoing, SessionRouterError, StoreError
from session_router import SessionRouter
from storage.sqlite import SqliteStore

ALICE = Key("mohe", "xmpp", "alice")


class Fails(SqliteStore):
    """Each method in ``once`` fails the next time that it is called, those in ``always`` until they are taken out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="OFF")
        self.once: set[str] = set()
        self.always: set[str] = set()
        self.failed = asyncio.Event()

    def __getattribute__(self, name: str) -> Any:
        if name in ("commit", "load", "lines", "message", "steps") and name in self.once | self.always:
            self.once.discard(name)
            return self._fails
        return super().__getattribute__(name)

    async def _fails(self, *arguments: Any) -> Any:
        self.failed.set()
        raise StoreError("No space left on device.")


class Answers:
    """Says what ``says`` holds, one thing a call, and then echoes the last word; waits for the gate."""

    def __init__(self, *says: str) -> None:
        self.says = list(says)
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def chat(self, messages: Any, *, session_id: str) -> str:
        self.asked.set()
        await self.gate.wait()
        return self.says.pop(0) if self.says else f"on {messages[-1]['content'].split()[-1]}"


class Hears:
    def __init__(self) -> None:
        self.texts: list[str] = []

    async def send(self, outgoing: Outgoing) -> None:
        self.texts.append(outgoing.text)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STORE_PAUSES", (0.01,))


def router_on(store: SqliteStore, bridge: Answers, heard: Hears) -> SessionRouter:
    agent = Agent(name="mohe", allow=frozenset({"*"}), language="en")
    return SessionRouter(
        bridge=bridge, store=store, default_session="demo", sources=(), agent=agent, channels={"xmpp": heard}
    )


@pytest.fixture
def store(tmp_path: Path) -> Fails:
    return Fails(tmp_path / "engine.db")


@pytest.fixture
def bridge() -> Answers:
    return Answers()


@pytest.fixture
def heard() -> Hears:
    return Hears()


@pytest.fixture
async def router(store: Fails, bridge: Answers, heard: Hears) -> AsyncIterator[SessionRouter]:
    async with router_on(store, bridge, heard) as made:
        yield made


async def at_rest(router: SessionRouter) -> None:
    async with asyncio.timeout(20):
        await router.engine.rest_of(ALICE)


async def test_what_waits_in_the_queue_stays_in_its_order_when_the_store_fails_as_it_is_taken_up(
    router: SessionRouter, store: Fails, bridge: Answers, heard: Hears
) -> None:
    bridge.gate.clear()
    for number in (1, 2, 3):
        await router.submit("xmpp", "alice", f"text{number}", message_id=f"m{number}", reply_to="alice")
    store.once.add("message")
    bridge.gate.set()
    await at_rest(router)

    assert store.failed.is_set()
    assert heard.texts == ["on text1", "on text2", "on text3"]
    assert [row.disposition for row in await store.history(ALICE)] == ["replied"] * 3


@pytest.mark.parametrize("method", ["steps", "commit", "lines"])
async def test_a_turn_whose_own_work_the_store_fails_goes_on_once_it_works(
    router: SessionRouter, store: Fails, bridge: Answers, heard: Hears, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge.says = ["##current_session##", "Done."]
    if method == "commit":  # what is recorded of a command, before it and after it
        commit = store.commit
        left = ["started", "finished"]

        async def commits(change: Change) -> bool:
            if left and any(step.kind == left[0] for step in change.steps):
                left.pop(0)
                store.failed.set()
                raise StoreError("No space left on device.")
            return await commit(change)

        monkeypatch.setattr(router.engine, "commit", commits)
    else:
        store.once.add(method)
    await router.submit("xmpp", "alice", "where am I?", message_id="m1", reply_to="alice")
    await at_rest(router)

    assert store.failed.is_set()
    assert heard.texts == ["Done."]
    assert [(step.index, step.kind) for step in await store.steps("mohe/xmpp/m1") if step.kind != "model"] == [
        (0, "started"), (0, "finished")]  # fmt: skip


async def test_a_list_that_an_earlier_process_left_expires_also_when_the_store_fails_just_then(
    store: Fails, bridge: Answers, heard: Hears
) -> None:
    async with router_on(store, bridge, heard) as router:
        at = router.engine.clock.now()
        due = at + 0.05
        shown = Shown(1, "mohe/xmpp/m0", ("ses_a",), at, due, "xmpp", "alice", "en")
        now = Conversation(state=State.AWAITING_SELECTION, shown=shown, count=1)
        await store.commit(Change(ALICE, conversation=now, due=due, started=at))
        store.once.add("load")
        router.engine.timers.add(due, ALICE, "stored", "", at)
        await store.failed.wait()
        await at_rest(router)
        assert (await router.engine.conversation(ALICE)).state is State.IDLE
    assert len(heard.texts) == 1
    assert "expired" in heard.texts[0]


async def test_whoever_is_still_at_the_door_when_the_engine_closes_hears_of_it(
    router: SessionRouter, store: Fails
) -> None:
    callers = [
        asyncio.ensure_future(router.route("xmpp", f"person{n % 7}", f"text{n}", message_id=f"m{n}")) for n in range(60)
    ]
    await asyncio.sleep(0)
    await router.close()
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(*callers, return_exceptions=True)

    assert all(isinstance(outcome, str | SessionRouterError) for outcome in outcomes), outcomes
    assert any("the engine was closed" in str(outcome) for outcome in outcomes)


async def test_an_agent_is_dismissed_while_the_store_takes_nothing(
    router: SessionRouter, store: Fails, bridge: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "STORE_PAUSES", (3600.0,))
    monkeypatch.setattr(engine, "STOPPING", 0.05)
    bridge.gate.clear()
    await router.submit("xmpp", "alice", "text1", message_id="m1", reply_to="alice")
    await bridge.asked.wait()
    store.always.add("commit")
    bridge.gate.set()
    await store.failed.wait()
    async with asyncio.timeout(10):
        await router.engine.dismiss("mohe")

    store.always.clear()
    assert not router.engine.running
    assert [row.disposition for row in await store.history(ALICE)] == ["running"], "whoever serves it next goes on"


async def test_a_message_that_cannot_be_recorded_is_not_acknowledged(router: SessionRouter, store: Fails) -> None:
    store.once.add("commit")
    with pytest.raises(StoreError, match="No space left"):
        await router.engine.receive("mohe", Inbound("xmpp", "alice", "hi", "m1", 1.0, "alice"))
    assert await router.route("xmpp", "alice", "hi", message_id="m1") == "on hi"
