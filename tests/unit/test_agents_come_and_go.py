"""Agents of one engine that come, go and change while the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fsm.agent import Agent
from fsm.conversation import Key, State
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.ports import ChatMessage, Inbound, Outgoing, Store
from fsm.runner import Engine
from fsm.runner.locks import SessionLocks
from fsm.sessions import Sessions
from session_router.clock import SystemClock
from storage.memory import MemoryStore


class Parrot:
    """A model that answers while its gate is open."""

    def __init__(self, word: str) -> None:
        self.word, self.asked = word, asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> str:
        self.asked.set()
        await self.gate.wait()
        return self.word


class Out:
    def __init__(self) -> None:
        self.sent: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, outgoing: Outgoing) -> None:
        self.sent.put_nowait(outgoing.text)


class House:
    """An engine with two agents that share a session."""

    def __init__(self) -> None:
        self.store: Store = MemoryStore()
        self.models = {name: Parrot(f"I am {name}.") for name in ("ann", "ben")}
        self.outs = {name: Out() for name in self.models}
        self.engine = Engine(
            desks={name: self.desk(name) for name in self.models}, store=self.store, clock=SystemClock(),
            channels={(name, "tg"): out for name, out in self.outs.items()},
        )  # fmt: skip

    def desk(self, name: str, *, allow: str = "*", model: Parrot | None = None) -> Desk:
        agent = Agent(name, auto=False, default_session="shared", language="en", allow=frozenset({allow}))
        return Desk(agent, Sessions((), self.store), model or self.models[name])

    async def says(self, agent: str, text: str, id: str, sender: str = "u1") -> asyncio.Future[Disposition | None]:
        at = self.engine.clock.now()
        receipt = await self.engine.receive(agent, Inbound("tg", sender, text, id, at, reply_to=sender))
        return receipt.done

    async def hears(self, agent: str) -> str:
        async with asyncio.timeout(5):
            return await self.outs[agent].sent.get()

    async def adopt(self, name: str) -> None:
        await self.engine.adopt({name: self.desk(name)}, {(name, "tg"): self.outs[name]})


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    made = House()
    await made.engine.start()
    try:
        yield made
    finally:
        await made.engine.close()


async def test_whoever_waits_for_the_session_of_an_agent_that_goes_gets_it() -> None:
    async with house() as at_home:
        at_home.models["ann"].gate.clear()
        await at_home.says("ann", "hello", "m1")
        await at_home.models["ann"].asked.wait()
        await at_home.says("ben", "hello", "m2")
        assert not at_home.models["ben"].asked.is_set()

        await at_home.engine.dismiss("ann")

        assert await at_home.hears("ben") == "I am ben."
        assert at_home.outs["ann"].sent.empty()


async def test_an_agent_that_comes_back_takes_up_its_turn_and_answers_once() -> None:
    async with house() as at_home:
        at_home.models["ann"].gate.clear()
        await at_home.says("ann", "hello", "m1")
        await at_home.models["ann"].asked.wait()
        await at_home.engine.dismiss("ann")
        stored = await at_home.store.load(Key("ann", "tg", "u1"))
        assert stored is not None
        assert stored.state is State.COMMAND_LOOPING

        at_home.models["ann"].gate.set()
        await at_home.adopt("ann")

        assert await at_home.hears("ann") == "I am ann."
        assert await (await at_home.says("ann", "again", "m2")) is Disposition.REPLIED
        assert at_home.outs["ann"].sent.qsize() == 1


async def test_what_arrives_while_held_is_on_disk_and_worked_on_later() -> None:
    async with house() as at_home:
        at_home.engine.hold(["ann"])
        await at_home.says("ann", "hello", "m1")
        assert await (await at_home.says("ben", "hello", "m2")) is Disposition.REPLIED
        await at_home.engine.rest("ann")
        assert not at_home.models["ann"].asked.is_set()

        await at_home.engine.dismiss("ann")
        await at_home.adopt("ann")

        assert await at_home.hears("ann") == "I am ann."


async def test_a_running_turn_ends_on_its_own_model_and_the_next_one_on_the_new() -> None:
    async with house() as at_home:
        at_home.models["ann"].gate.clear()
        first = await at_home.says("ann", "hello", "m1")
        await at_home.models["ann"].asked.wait()

        at_home.engine.seat(at_home.desk("ann", allow="u1", model=Parrot("I am new.")))
        at_home.models["ann"].gate.set()

        assert await first is Disposition.REPLIED
        assert await at_home.hears("ann") == "I am ann."
        await at_home.says("ann", "again", "m2")
        assert await at_home.hears("ann") == "I am new."
        assert await (await at_home.says("ann", "hello", "m3", sender="u2")) is Disposition.REFUSED


async def test_another_desk_remembers_how_often_somebody_has_written() -> None:
    async with house() as at_home:
        limit = at_home.engine.desks["ann"].agent.limits.rate_limit
        for n in range(limit):
            await (await at_home.says("ann", "/status", f"m{n}"))

        at_home.engine.seat(at_home.desk("ann"))

        assert await (await at_home.says("ann", "/status", "last")) is Disposition.REFUSED


def test_dropping_an_agent_names_only_those_whose_turn_has_come() -> None:
    locks = SessionLocks()
    ann, ben, cat = ((Key(name, "tg", "u1"), f"{name}/tg/m1") for name in ("ann", "ben", "cat"))
    for waiter in (ann, ben, cat):
        locks.claim("s", waiter)
    locks.claim("t", ben)
    locks.claim("t", ann)
    locks.claim("u", ann)

    assert locks.drop("ann") == [ben]
    assert locks.claim("u", cat)
    assert not locks.claim("t", cat)
