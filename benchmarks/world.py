"""A whole engine with an instant world around it: what a comparison measures is then the engine itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsm.agent import Agent
from fsm.conversation import Bound, Conversation, Key
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.ports import Change, ChatMessage, Inbound, Line, Outgoing, Reply, SessionInfo
from fsm.runner import Engine
from fsm.sessions import Sessions
from session_router.clock import SystemClock
from storage.sqlite import SqliteStore

AGENT = "bot"
CHANNEL = "xmpp"
TEXT = "How far is the migration of the billing tables, and what is left to do today?"
ANSWER = "Two of the five tables are through. What is left is the ledger, which waits for the backup to finish tonight."

agent = Agent(name=AGENT, nick="Bot", language="en", allow=frozenset({"*"}))


def person(number: int) -> str:
    return f"person{number}@example.org"


def session(number: int) -> str:
    return f"ses_{number:020}"


def key_of(number: int) -> Key:
    return Key(AGENT, CHANNEL, person(number))


class MemorySource:
    """A session for everybody, named after the number in its id; takes no memory of its own."""

    name = "memory"

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        return ()

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        return ()

    async def latest(self) -> SessionInfo | None:
        return None

    async def find(self, session_id: str) -> SessionInfo | None:
        return SessionInfo(session_id, "Billing", self.name, 1_768_464_000.0)

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        return ()


class InstantModel:
    """Answers at once."""

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        return Reply(ANSWER, 400, 30)


@dataclass(slots=True)
class InstantChannel:
    """Takes every text at once and counts them."""

    sent: int = 0

    async def send(self, outgoing: Outgoing) -> None:
        self.sent += 1


@dataclass(slots=True)
class World:
    """An engine over the embedded store in ``folder``, which it makes."""

    folder: Path
    channel: InstantChannel = field(default_factory=InstantChannel)
    engine: Engine = field(init=False)
    store: SqliteStore = field(init=False)
    clock: SystemClock = field(default_factory=SystemClock)
    messages: int = 0

    def __post_init__(self) -> None:
        self.store = SqliteStore(self.folder / "engine.db", synchronous="FULL")
        desk = Desk(agent, Sessions((MemorySource(),), self.store), InstantModel())
        self.engine = Engine(
            desks={AGENT: desk}, store=self.store, clock=self.clock, channels={(AGENT, CHANNEL): self.channel}
        )

    async def bind(self, numbers: range) -> None:
        """Let each of these persons have chosen a session of their own, as after a switch."""
        for first in range(numbers.start, numbers.stop, 1000):
            some = range(first, min(first + 1000, numbers.stop))
            await self.store.commit_many([
                Change(key_of(n), Conversation(manual=Bound(session(n), "manual", "Billing", "memory"), count=1))
                for n in some
            ])  # fmt: skip

    def inbound(self, number: int) -> Inbound:
        self.messages += 1
        name = person(number)
        return Inbound(CHANNEL, name, TEXT, f"msg-{self.messages:012}", self.clock.now(), f"{name}/phone")

    def inbounds(self, persons: range, messages: int) -> Iterator[Inbound]:
        """``messages`` of these persons in turn."""
        return (self.inbound(persons[number % len(persons)]) for number in range(messages))

    async def talk(self, inbounds: Iterable[Inbound], in_flight: int) -> float:
        """Say all of these, ``in_flight`` at any time; back when all are answered and delivered, with the seconds that
        it took.

        Raises:
            AssertionError: one was not answered, so that a failing engine is never a fast one.
        """
        waiting, before, said = iter(inbounds), self.channel.sent, 0
        submit, replied = self.engine.submit, Disposition.REPLIED

        async def one_after_another() -> None:
            nonlocal said
            for inbound in waiting:
                said += 1
                assert await submit(AGENT, inbound).done is replied

        start = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        await self.engine.drain()
        seconds = time.perf_counter() - start
        assert self.channel.sent - before == said
        return seconds
