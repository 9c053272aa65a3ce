"""A store that fails for a while (a full disk, another program's lock): nothing is lost, dropped or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import fsm.runner.engine as engine
from fsm.agent import Agent, Group
from fsm.constants import Limits
from fsm.conversation import Conversation, Key, Shown, State
from fsm.effects import Disposition
from fsm.ports import Change, Inbound, Outgoing, SessionRouterError, StoreError
from session_router import SessionRouter
from storage.sqlite import SqliteStore

FAILING = ("commit", "load", "lines", "message", "steps", "open_work", "meta_with_prefix", "set_meta", "conversations")
ALICE = Key("mohe", "xmpp", "alice")


class Fails(SqliteStore):
    """Each method in ``once`` fails the next time that it is called, those in ``always`` until they are taken out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="OFF")
        self.once: set[str] = set()
        self.always: set[str] = set()
        self.failed = asyncio.Event()

    def __getattribute__(self, name: str) -> Any:
        if name in FAILING and name in self.once | self.always:
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


async def test_a_message_that_comes_again_and_again_while_the_store_takes_nothing_counts_once(
    store: Fails, bridge: Answers, heard: Hears
) -> None:
    agent = Agent(name="mohe", allow=frozenset({"*"}), language="en", limits=Limits(rate_limit=2))
    async with SessionRouter(bridge=bridge, store=store, default_session="demo", sources=(), agent=agent) as router:
        at = router.engine.clock.now()
        message = Inbound("xmpp", "alice", "hi", "m1", at, "alice")
        store.always.add("commit")
        for _ in range(5):
            with pytest.raises(StoreError):
                await router.engine.receive("mohe", message)
        store.always.clear()
        receipt = await router.engine.receive("mohe", message)
        assert await receipt.done is Disposition.REPLIED


async def test_a_store_that_refuses_everything_is_told_of_once(
    router: SessionRouter, store: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    store.always.add("commit")
    for number in range(5):
        with pytest.raises(StoreError):
            await router.engine.receive("mohe", Inbound("xmpp", f"p{number}", "hi", f"m{number}", 1.0, "p"))
    assert len([one for one in caplog.records if "was not stored" in one.getMessage()]) == 1


@pytest.mark.parametrize("method", ["open_work", "meta_with_prefix"])
async def test_an_engine_that_could_not_start_starts_at_the_next_try_with_all_that_was_left(
    store: Fails, bridge: Answers, heard: Hears, method: str
) -> None:
    bridge.gate.clear()
    before = router_on(store, bridge, heard)
    await before.submit("xmpp", "alice", "text1", message_id="m1", reply_to="alice")
    await bridge.asked.wait()
    await before.close()

    bridge.gate.set()
    store.once.add(method)
    router = router_on(store, bridge, heard)
    with pytest.raises(StoreError, match="No space left"):
        await router.start()
    await router.start()
    await at_rest(router)
    await router.close()
    assert heard.texts == ["on text1"]


async def test_an_agent_that_could_not_be_taken_up_is_taken_up_at_the_next_try_and_nothing_goes_out_twice(
    router: SessionRouter, store: Fails, bridge: Answers, heard: Hears
) -> None:
    await store.commit(Change(ALICE, sends=(Outgoing("owed1", ALICE, "xmpp", "alice", "owed"),)))
    desk = router.engine.desks["mohe"]
    channels = {address: channel for address, channel in router.engine.channels.items() if address[0] == "mohe"}
    await router.engine.dismiss("mohe")
    store.once.add("open_work")
    with pytest.raises(StoreError, match="No space left"):
        await router.engine.adopt({"mohe": desk}, channels)
    assert "mohe" not in router.engine.desks

    await router.engine.adopt({"mohe": desk}, channels)
    assert await router.route("xmpp", "alice", "hi", message_id="m1") == "on hi"
    assert heard.texts == ["owed"]


async def test_a_message_that_comes_while_its_agent_is_dismissed_is_refused_and_the_next_one_is_heard(
    router: SessionRouter, store: Fails
) -> None:
    desk, channels = router.engine.desks["mohe"], dict(router.engine.channels)
    leaving = asyncio.ensure_future(router.engine.dismiss("mohe"))
    await asyncio.sleep(0)
    with pytest.raises(SessionRouterError, match="not served here"):
        await router.engine.receive("mohe", Inbound("xmpp", "alice", "hi", "m1", 1.0, "alice"))
    await leaving
    await router.engine.adopt({"mohe": desk}, channels)
    assert await router.route("xmpp", "alice", "hi", message_id="m1") == "on hi"


async def test_a_mute_reaches_everybody_in_the_room_also_when_the_store_fails_just_then(
    store: Fails, bridge: Answers
) -> None:
    agent = Agent(name="mohe", language="en", groups={"team": Group(allow=frozenset({"alice", "bob"}))})
    async with SessionRouter(
        bridge=bridge, store=store, default_session="demo", sources=(), agent=agent, channels={"xmpp": Hears()}
    ) as router:
        await router.route("xmpp:team", "bob", "mohe: hi", message_id="m1")
        store.once.add("conversations")
        await router.route("xmpp:team", "alice", "/mute 30m", message_id="m2")
        async with asyncio.timeout(20):
            await router.engine.drain()
        assert store.failed.is_set()
        assert (await router.engine.conversation(Key("mohe", "xmpp:team", "bob"))).state is State.SILENCED


async def test_what_was_delivered_is_marked_so_as_soon_as_the_store_takes_it(
    router: SessionRouter, store: Fails, heard: Hears, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_soon, tries = store.commit_soon, 0

    def fails_twice(change: Change, failed: Callable[[StoreError], None]) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            failed(StoreError("database is locked"))
        else:
            commit_soon(change, failed)

    monkeypatch.setattr(store, "commit_soon", fails_twice)
    await router.submit("xmpp", "alice", "one", message_id="m1", reply_to="alice")
    await at_rest(router)
    async with asyncio.timeout(20):
        while (await store.open_work()).sends:
            await asyncio.sleep(0.01)
    assert (heard.texts, tries) == (["on one"], 3)


async def test_a_line_of_a_group_that_is_refused_is_kept_with_its_refusal_or_not_at_all(
    store: Fails, bridge: Answers
) -> None:
    agent = Agent(name="mohe", language="en", groups={"team": Group(allow=frozenset({"alice"}))})
    async with SessionRouter(bridge=bridge, store=store, default_session="demo", sources=(), agent=agent) as router:
        line = Inbound("xmpp:team", "mallory", "the door is open", "m1", router.engine.clock.now(), "team")
        store.once.add("commit")
        with pytest.raises(StoreError):
            await router.engine.receive("mohe", line)
        receipt = await router.engine.receive("mohe", line)
        assert await receipt.done is Disposition.REFUSED
        assert [one.text for one in await store.lines("demo")] == ["the door is open"]


async def test_a_conversation_whose_row_means_nothing_fails_alone_and_holds_up_nobody(
    router: SessionRouter, store: Fails, heard: Hears
) -> None:
    await store.commit(Change(ALICE, conversation=Conversation(count=1)))
    await store._do(lambda raw: raw.execute("UPDATE conversations SET data = '{}x'").rowcount, writes=True)
    receipt = await router.submit("xmpp", "alice", "hi", message_id="m1", reply_to="alice")
    assert await receipt.done is Disposition.FAILED
    assert await router.route("xmpp", "bob", "hi", message_id="m2") == "on hi"
    assert len(heard.texts) == 1
