"""An agent asks for leave: an answer is for what the person knew of, and is told as what has come of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from fsm.agent import Agent
from fsm.constants import Limits
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.ports import Line, ModelError, Outgoing, PermissionAsk, Reply, SessionInfo, SourceError
from fsm.runner import Receipt
from fsm.sessions import Sessions
from session_router import SessionRouter
from storage.memory import MemoryStore

WORK = SessionInfo("ses_work", "Work", "agent", 1.0)


class AtWork:
    """A source whose agent asks what the test says and ends when the test says so."""

    name = "agent"

    def __init__(self) -> None:
        self.answers: list[tuple[str, bool]] = []
        self.abandoned: list[tuple[str, str]] = []
        self.calls: list[str] = []
        self.takes_answers: Callable[[], Awaitable[bool]] = self._takes
        self.tell: Callable[[PermissionAsk], None] = lambda ask: None
        self.called = asyncio.Event()
        self.ends: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        return (WORK,)

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        return (WORK,)

    async def latest(self) -> SessionInfo | None:
        return WORK

    async def find(self, session_id: str) -> SessionInfo | None:
        return WORK if session_id == WORK.id else None

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        return ()

    async def talk(
        self, session_id: str, text: str, *, system: str, call_id: str, show: Callable[[str], None] | None = None,
        ask: Callable[[PermissionAsk], None] | None = None,
    ) -> Reply:  # fmt: skip
        assert ask is not None
        self.tell = ask
        self.calls.append(call_id)
        self.called.set()
        return await self.ends

    async def answer(self, ask_id: str, allow: bool) -> bool:
        taken = await self.takes_answers()
        self.answers.append((ask_id, allow))
        return taken

    async def abandon(self, session_id: str, call_id: str) -> None:
        self.abandoned.append((session_id, call_id))

    async def _takes(self) -> bool:
        return True

    def takes_its_time(self) -> asyncio.Event:
        """Answers are on their way until the event is set."""
        arrived = asyncio.Event()

        async def takes() -> bool:
            await arrived.wait()
            return True

        self.takes_answers = takes
        return arrived

    def asks(self, name: str, what: str) -> None:
        self.tell(PermissionAsk(name, WORK.id, "bash", (), what))


class NoModel:
    async def chat(self, messages: object, *, session_id: str) -> str:
        raise AssertionError("the session's own agent runs the turn")


class Told:
    """What the person reads."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, outgoing: Outgoing) -> None:
        self.texts.put_nowait(outgoing.text)

    async def next(self) -> str:
        async with asyncio.timeout(5):
            return await self.texts.get()


class Place:
    def __init__(self, router: SessionRouter, agent: AtWork, told: Told) -> None:
        self.router, self.agent, self.told = router, agent, told
        self._count = 0

    async def says(self, text: str) -> Receipt:
        self._count += 1
        return await self.router.submit("tg", "ann", text, message_id=f"m{self._count}", reply_to="ann")

    async def begins(self) -> Receipt:
        self.agent.called.clear()
        self.agent.ends = asyncio.get_running_loop().create_future()
        receipt = await self.says("do the work")
        async with asyncio.timeout(5):
            await self.agent.called.wait()
        return receipt

    async def asked(self, name: str, what: str) -> str:
        self.agent.asks(name, what)
        return await self.told.next()

    async def ends(self, answer: str) -> None:
        self.agent.ends.set_result(Reply(answer))
        assert await self.told.next() == answer


@asynccontextmanager
async def place(**limits: object) -> AsyncIterator[Place]:
    agent, told = AtWork(), Told()
    router = SessionRouter(
        bridge=NoModel(), store=MemoryStore(), sources=(agent,), channels={"tg": told},
        agent=Agent(name="bot", allow=frozenset({"*"}), language="en", limits=Limits(**limits)),  # type: ignore[arg-type]
    )  # fmt: skip
    async with router:
        yield Place(router, agent, told)


# -- which request an answer is for ----------------------------------------------------------------


async def test_an_answer_without_a_number_allows_nothing_where_two_things_are_asked() -> None:
    async with place() as here:
        await here.begins()
        assert "/allow 1" in await here.asked("p1", "ls")
        assert "/allow 2" in await here.asked("p2", "rm -rf ~")

        await here.says("/allow")
        assert await here.told.next() == (
            "Waiting for your answer:\n1. bash ls\n2. bash rm -rf ~\nSay which: /allow NUMBER or /deny NUMBER."
        )
        assert here.agent.answers == []

        await here.says("/deny 2")
        assert (await here.told.next()).startswith("All right, refused: bash")
        await here.says("/allow")
        assert (await here.told.next()).startswith("All right, allowed: bash")
        assert here.agent.answers == [("p2", False), ("p1", True)]
        await here.ends("done")


async def test_a_second_answer_while_the_first_is_on_its_way_is_not_for_what_is_asked_next() -> None:
    async with place() as here:
        on_its_way = here.agent.takes_its_time()
        await here.begins()
        await here.asked("p1", "ls")
        first = await here.says("/allow")
        await here.asked("p2", "rm -rf ~")
        await here.says("/allow")
        assert await here.told.next() == (
            "An answer to this is on its way to the agent: bash ls\nWaiting for your answer:\n2. bash rm -rf ~\n"
            "Say which: /allow NUMBER or /deny NUMBER."
        )
        assert not first.done.done(), "nobody knows yet what has come of it"

        on_its_way.set()
        assert (await here.told.next()).startswith("All right, allowed: bash")
        assert here.agent.answers == [("p1", True)]


async def test_numbers_are_not_given_again_in_the_next_turn() -> None:
    async with place() as here:
        await here.begins()
        await here.asked("p1", "ls")
        await here.ends("done without it")
        await here.begins()
        assert "/allow 2" in await here.asked("p2", "rm -rf ~")

        await here.says("/allow 1")
        assert (await here.told.next()).startswith("Waiting for your answer:\n2. bash rm -rf ~")
        assert here.agent.answers == []


# -- what has come of it ---------------------------------------------------------------------------


async def test_what_is_asked_no_more_is_not_told_as_allowed() -> None:
    async with place() as here:
        await here.begins()
        await here.asked("p1", "ls")

        async def gone() -> bool:
            return False

        here.agent.takes_answers = gone
        receipt = await here.says("/allow")

        assert (await here.told.next()).startswith("Nobody waits for an answer to this just now: bash ls\n")
        assert await receipt.done is Disposition.REPLIED
        await here.says("/allow")
        assert await here.told.next() == "Nothing is waiting for permission."


@pytest.mark.parametrize(
    "error",
    [SourceError("the server is slow", kind="unreadable", source="agent"), asyncio.CancelledError(), ValueError()],
    ids=lambda error: type(error).__name__,
)
async def test_an_answer_that_the_agent_does_not_take_can_be_given_again(error: BaseException) -> None:
    async with place() as here:
        await here.begins()
        await here.asked("p1", "ls")

        async def fails() -> bool:
            raise error

        here.agent.takes_answers = fails
        await here.says("/deny")
        assert await here.told.next() == (
            "The agent has not confirmed your answer: bash ls\n"
            "If it still waits, say it again: /allow 1 or /deny 1."
        )
        here.agent.takes_answers = here.agent._takes
        await here.says("/deny")
        assert (await here.told.next()).startswith("All right, refused: bash")
        assert here.agent.answers == [("p1", False)]


async def test_what_has_come_of_an_answer_is_told_also_after_the_end_of_the_turn() -> None:
    async with place() as here:
        on_its_way = here.agent.takes_its_time()
        await here.begins()
        await here.asked("p1", "ls")
        receipt = await here.says("/allow")
        await here.ends("done")

        on_its_way.set()
        assert (await here.told.next()).startswith("All right, allowed: bash")
        assert await receipt.done is Disposition.REPLIED


async def test_what_a_failed_call_has_asked_is_over_until_the_next_one_asks_it() -> None:
    async with place(model_backoff=(0.05,)) as here:
        await here.begins()
        await here.asked("p1", "ls")
        failing, here.agent.ends = here.agent.ends, asyncio.get_running_loop().create_future()
        here.agent.called.clear()
        failing.set_exception(ModelError("gone", kind="connection"))
        async with asyncio.timeout(5):
            await here.agent.called.wait()

        assert "/allow 1" in await here.asked("p1", "ls"), "the same request has the same number"
        await here.says("/allow")
        assert (await here.told.next()).startswith("All right, allowed: bash")
        assert here.agent.answers == [("p1", True)]


# -- a call without its answer ---------------------------------------------------------------------


async def test_a_stopped_call_is_abandoned_and_an_answered_one_is_not() -> None:
    async with place() as here:
        await here.begins()
        await here.says("/stop")
        assert await here.told.next() == "Stopped."
        await here.router.engine.drain()
        assert here.agent.abandoned == [(WORK.id, here.agent.calls[0])]

        await here.begins()
        await here.ends("done")
        await here.router.engine.drain()
        assert len(here.agent.abandoned) == 1


async def test_a_call_that_is_stopped_before_it_is_made_again_is_abandoned_under_its_own_name() -> None:
    async with place(model_backoff=(600.0,)) as here:
        await here.begins()
        here.agent.ends.set_exception(ModelError("gone", kind="connection"))
        async with asyncio.timeout(5):
            while (turn := (await here.router.conversation("tg", "ann")).turn) is None or turn.retry_at is None:
                await here.router.engine.changes()

        await here.says("/stop")
        assert await here.told.next() == "Stopped."
        await here.router.engine.drain()
        assert here.agent.abandoned == [(WORK.id, here.agent.calls[0])]


# -- what the person sees, and when he may answer ---------------------------------------------------


async def test_nobody_allows_what_he_has_not_seen() -> None:
    async with place() as here:
        await here.begins()
        assert "echo a ⏎ touch b" in await here.asked("p1", "echo a\ntouch b")
        told = await here.asked("p2", "echo " + "x" * 3_000 + " && rm -rf ~")
        assert "bash echo xxx" in told
        assert "[… +2022 …]" in told
        assert "xxx && rm -rf ~\n" in told


async def test_an_answer_is_taken_while_turns_are_only_let_come_to_their_end() -> None:
    async with place() as here:
        await here.begins()
        await here.asked("p1", "ls")
        here.router.engine.hold()
        await here.says("/allow")
        assert await here.told.next() == "All right, allowed: bash ls"
        later = await here.says("and then?")
        await here.ends("done")
        assert here.agent.answers == [("p1", True)]
        assert not later.done.done(), "that is for whoever takes it up next"


async def test_an_answer_gets_through_also_where_somebody_has_written_too_much() -> None:
    async with place(rate_limit=1) as here:
        await here.begins()
        await here.asked("p1", "ls")
        assert (await here.says("hello?")).disposition is Disposition.REFUSED
        await here.told.next()
        await here.says("/allow 1")
        assert await here.told.next() == "All right, allowed: bash ls"


async def test_an_agent_that_is_configured_anew_is_answered_where_it_runs() -> None:
    async with place() as here:
        await here.begins()
        await here.asked("p1", "ls")
        another = AtWork()
        here.router.engine.seat(
            Desk(here.router.agent, Sessions((another,), here.router.store), NoModel())
        )
        await here.says("/allow")
        assert await here.told.next() == "All right, allowed: bash ls"
        assert (here.agent.answers, another.answers) == ([("p1", True)], [])


async def test_a_turn_that_was_ended_over_at_the_agent_is_told_as_that() -> None:
    async with place() as here:
        receipt = await here.begins()
        here.agent.ends.set_exception(ModelError("stopped over there", kind="aborted", retryable=False))
        assert (await here.told.next()).startswith("The turn has ended over at the agent")
        assert (await receipt.done, receipt.reason) == (Disposition.FAILED, "why_aborted")
