"""A session from the far future is none to go on with by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsm.agent import Agent
from fsm.ports import ChatMessage, Reply
from session_router import SessionRouter
from storage.journal import JournalSource
from storage.sqlite import SqliteStore

DAY = 86_400.0


class NamesTheSession:
    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        return Reply(session_id)


@pytest.mark.parametrize(("ahead", "bound"), [
    (3600.0, "ses_ahead"), (2 * DAY, "ses_sane"), (250_000 * DAY, "ses_sane"),
], ids=["an hour", "two days", "centuries"])
async def test_a_session_that_was_active_in_the_future_is_not_the_newest_for_good(
    tmp_path: Path, ahead: float, bound: str
) -> None:
    journal, now = JournalSource(tmp_path / "sessions"), time.time()
    await journal.create("sane", session_id="ses_sane", at=now - DAY)
    await journal.create("older", session_id="ses_older", at=now - 2 * DAY)
    await journal.create("ahead", session_id="ses_ahead", at=now + ahead)
    agent = Agent(name="mohe", allow=frozenset({"*"}), language="en")
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=NamesTheSession(), store=store, sources=(journal,), agent=agent) as router:
        listed = await router.route("console", "hmo", "/sessions") or ""
        await router.route("console", "hmo", "cancel")
        assert await router.route("console", "hmo", "hello") == bound

    order = [line.split(" · ")[0].split(". ")[1] for line in listed.splitlines() if " · " in line]
    assert order == (["ahead", "sane", "older"] if bound == "ses_ahead" else ["sane", "older", "ahead"])
