"""What was said counts as said also while the file of its session takes no records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from fsm.agent import Agent
from fsm.constants import Limits
from fsm.ports import ChatMessage, Reply, SourceError
from session_router import SessionRouter
from storage.journal import HEADER, JournalFile, JournalSource
from storage.sqlite import SqliteStore

FULL = "No space left on device"


class OnAFullDisk(JournalSource):
    """Journals that can be read, and written as long as there is ``room``."""

    room = True

    async def take_record(self, session_id: str, *, turn: str, event: str, data: Mapping[str, object], at: float
                          ) -> None:
        if not self.room:
            raise SourceError(FULL, kind="unreadable", source=self.name)
        await super().take_record(session_id, turn=turn, event=event, data=data, at=at)


class Counts:
    """Answers ``answer 1``, ``answer 2``, …"""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        self.prompts.append("\n".join(message["content"] for message in messages))
        return Reply(f"answer {len(self.prompts)}")


@pytest.fixture
def journal(tmp_path: Path) -> OnAFullDisk:
    return OnAFullDisk(tmp_path / "sessions")


def a_router(journal: JournalSource, folder: Path) -> SessionRouter:
    agent = Agent(name="mohe", allow=frozenset({"*"}), language="en", limits=Limits(delivery_backoff=(0.05,)))
    store = SqliteStore(folder / "engine.db", synchronous="OFF")
    return SessionRouter(bridge=Counts(), store=store, sources=(journal,), agent=agent)


@pytest.fixture
async def router(journal: OnAFullDisk, tmp_path: Path) -> AsyncIterator[SessionRouter]:
    async with a_router(journal, tmp_path) as made:
        yield made


def prompt(router: SessionRouter) -> str:
    assert isinstance(router.bridge, Counts)
    return router.bridge.prompts[-1]


async def recorded(journal: JournalSource, router: SessionRouter) -> list[str]:
    """What the journal holds, as soon as nothing is owed to it any more."""
    async with asyncio.timeout(20):
        while (await router.store.open_work()).sends:
            await asyncio.sleep(0.02)
    (session,) = await journal.list()
    return [str(one.data["content"]) for one in JournalFile(journal.path(session.id)).load().records
            if one.event != HEADER]  # fmt: skip


async def test_while_a_journal_takes_nothing_the_next_prompt_has_what_was_said(
    journal: OnAFullDisk, router: SessionRouter, caplog: pytest.LogCaptureFixture
) -> None:
    assert await router.route("console", "hmo", "question one") == "answer 1"
    journal.room = False
    assert await router.route("console", "hmo", "question two") == "answer 2"
    assert await router.route("console", "hmo", "question three") == "answer 3"
    found = prompt(router)
    assert [found.count(text) for text in ("question one", "answer 1", "question two", "answer 2")] == [1, 1, 1, 1]
    assert found.index("answer 1") < found.index("question two") < found.index("answer 2") < found.index("three")

    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 1
    assert told[0].startswith("What is said in the session ses_")
    assert told[0].endswith(f"is not recorded there yet; it is kept, and recorded as soon as that can be. {FULL}")

    journal.room = True
    assert await recorded(journal, router) == [
        "question one", "answer 1", "question two", "answer 2", "question three", "answer 3"]  # fmt: skip
    await router.route("console", "hmo", "question four")
    assert [prompt(router).count(f"answer {number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert router.engine.counts["record_retried"] > 0, "whoever watches the counts sees it too"
    assert router.engine.counts["send_retried"] == 0


async def test_what_is_owed_to_a_journal_outlives_a_restart_and_is_in_the_prompt_before_it_is_written(
    journal: OnAFullDisk, tmp_path: Path
) -> None:
    async with a_router(journal, tmp_path) as before:
        await before.route("console", "hmo", "question one")
        journal.room = False
        await before.route("console", "hmo", "question two")

    async with a_router(journal, tmp_path) as after:
        await after.route("console", "hmo", "question three")
        assert "question two" in prompt(after)
        assert "answer 2" in prompt(after)


async def test_that_an_answer_was_not_recorded_because_its_journal_is_gone_is_said_with_the_reason(
    journal: OnAFullDisk, router: SessionRouter, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(router.bridge, Counts)
    await router.route("console", "hmo", "question one")
    (session,) = await journal.list()
    answer = router.bridge.chat

    async def and_it_is_gone(messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        journal.path(session_id).unlink()
        return await answer(messages, session_id=session_id)

    router.bridge.chat = and_it_is_gone  # type: ignore[method-assign]
    assert await router.route("console", "hmo", "question two") == "answer 2"
    await router.engine.drain()

    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert told == [f"What is said in the session {session.id} is not recorded there. There is no session journal "
                    f"{journal.path(session.id)}: check the name, or list the sessions."]  # fmt: skip
