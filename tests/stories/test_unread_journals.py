"""A session of ours whose file cannot be read is told, and nothing is bound past it unsaid."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fsm.agent import Agent
from fsm.ports import ChatMessage, Reply
from session_router import SessionRouter
from storage.journal import JournalSource
from storage.sqlite import SqliteStore

FUTURE = '{"v":99,"timestamp":"2026-01-01T00:00:00.000Z","turn":9,"event":"turn_start","data":{}}\n'


class Answers:
    """Remembers what it was asked, and with what before it."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        self.prompts.append(f"{session_id}: {messages[-1]['content']}")
        return Reply("fine")


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[SessionRouter]:
    """Two sessions were talked to, ``ses_old`` and then ``ses_new``."""
    journal = JournalSource(tmp_path / "sessions")
    for session, at in (("ses_old", 1_000.0), ("ses_new", 2_000.0)):
        await journal.create(session, session_id=session, at=at)
        os.utime(journal.path(session), (at, at))
    agent = Agent(name="mohe", allow=frozenset({"*"}), language="en", visible={"bob": frozenset({"ses_old"})})
    async with SessionRouter(bridge=Answers(), store=SqliteStore(tmp_path / "engine.db", synchronous="OFF"),
                             sources=(journal,), agent=agent) as made:  # fmt: skip
        yield made


def spoil(router: SessionRouter, session: str, at: float) -> Path:
    (journal,) = router.sessions.sources
    assert isinstance(journal, JournalSource)
    path = journal.path(session)
    with path.open("a") as file:
        file.write(FUTURE)
    os.utime(path, (at, at))
    return path


async def said(router: SessionRouter, text: str, sender: str = "alice") -> str:
    return await router.route("console", sender, text) or ""


async def test_where_the_newest_session_cannot_be_read_nothing_is_bound_in_its_place(router: SessionRouter) -> None:
    path = spoil(router, "ses_new", 2_001.0)

    told = await said(router, "go on")
    assert "I do not know which session to go on with" in told
    assert f"{path}: this record has version 99 and was written by a newer program" in told
    assert router.bridge.prompts == []  # type: ignore[attr-defined]
    assert sorted(each.name for each in path.parent.iterdir()) == ["ses_new.jsonl", "ses_old.jsonl"]

    listed = await said(router, "/sessions")
    assert "1. ses_old" in listed
    assert str(path) in listed
    await said(router, "1")
    assert await said(router, "go on there") == "fine"
    assert router.bridge.prompts[0].startswith("ses_old: ")  # type: ignore[attr-defined]


async def test_an_older_session_that_cannot_be_read_keeps_nobody_from_the_newest(router: SessionRouter) -> None:
    path = spoil(router, "ses_old", 1_001.0)

    assert await said(router, "go on") == "fine"
    assert router.bridge.prompts[0].startswith("ses_new: ")  # type: ignore[attr-defined]
    assert str(path) in await said(router, "/sessions")


async def test_of_a_session_that_somebody_may_not_see_no_problem_is_told_to_them_either(router: SessionRouter) -> None:
    path = spoil(router, "ses_new", 2_001.0)

    assert await said(router, "go on", "bob") == "fine"
    assert str(path) not in await said(router, "/sessions", "bob")


async def test_once_it_can_be_read_again_it_is_bound(router: SessionRouter) -> None:
    path = spoil(router, "ses_new", 2_001.0)
    assert await said(router, "go on") != "fine"
    path.write_text(path.read_text().removesuffix(FUTURE))

    assert await said(router, "go on") == "fine"
    assert router.bridge.prompts[0].startswith("ses_new: ")  # type: ignore[attr-defined]
