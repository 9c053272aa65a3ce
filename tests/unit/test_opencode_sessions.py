"""OpenCode as one source: what becomes of it where its server does not answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsm.conversation import Bound
from fsm.ports import ChatMessage, MayBeAway, ModelError, SessionSource, SourceError, Talks, WritableSource
from fsm.sessions import Sessions
from session_router.router import SessionRouter
from storage.journal import JournalSource
from storage.memory import MemoryStore
from storage.opencode import OpenCodeServer, OpenCodeSessions, OpenCodeSource, SessionNotFound
from storage.sqlite import SqliteStore

NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""
FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode" / "fixture.db"
PARSER = "ses_dd36b73a4ffeUI3Vros5ub9e1D"


def unreachable(file: Path | None) -> OpenCodeSessions:
    server = OpenCodeServer(NOBODY, password="x", model=None, start_patience=0.01)
    return OpenCodeSessions(server, None if file is None else OpenCodeSource(file))


async def test_sessions_are_read_from_the_database_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    source, file = unreachable(FIXTURE), OpenCodeSource(FIXTURE)

    assert await source.list() == await file.list()
    assert await source.search("parser") == await file.search("parser")
    assert await source.latest() == await file.latest()
    assert await source.find(PARSER) == await file.find(PARSER)
    assert await source.context(PARSER, 5) == await file.context(PARSER, 5)
    with pytest.raises(SessionNotFound):
        await source.context("ses_nothing")
    await source.close()

    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1
    assert "cannot be reached, its sessions are only read" in caplog.text


async def test_it_cannot_be_talked_to_and_says_why() -> None:
    source = unreachable(FIXTURE)

    assert f"the OpenCode server at {NOBODY} does not answer" in await source.away()
    with pytest.raises(ModelError) as caught:
        await source.talk(PARSER, "hi", system="", call_id="c/1")
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    with pytest.raises(SourceError):
        await source.create("t", session_id="ses_x", at=0.0)
    await source.close()


async def test_a_turn_there_is_one_of_our_model_while_it_is_away() -> None:
    source, store = unreachable(FIXTURE), MemoryStore()
    await store.open()
    sessions = Sessions([source], store)
    bound = Bound(PARSER, "manual", "Refactor the parser", "opencode", kept="source")

    assert (await sessions.kept(bound)).kept == "store"
    assert "does not answer" in await sessions.away(bound)
    await sessions.close()


async def test_where_it_is_the_only_place_for_a_new_session_whoever_wants_one_is_told(tmp_path: Path) -> None:
    class Eager:
        async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> str:
            return "##new_session:plans##" if len(messages) < 3 else messages[-1]["content"]

    source = unreachable(None)
    journal = JournalSource(tmp_path / "sessions")
    for sources in ((source,), (source, journal)):
        store = SqliteStore(tmp_path / f"{len(sources)}.db")
        async with SessionRouter(bridge=Eager(), store=store, sources=sources) as router:
            if len(sources) == 1:
                for text in ("/new plans", "hello"):
                    told = await router.route("tg", "a", text) or ""
                    assert f"the OpenCode server at {NOBODY} does not answer" in told
            else:
                router.sessions.writable = source
                await journal.create("ours", session_id="ses_ours", at=0.0)
                unsure = await router.route("tg", "a", "hello") or ""
                assert "I do not know which session" in unsure
                assert "does not answer" in unsure
                assert "ours" in (await router.route("tg", "a", "switch to session ours") or "")
                assert "[new_session] " in (answer := await router.route("tg", "a", "hello") or "")
                assert "does not answer" in answer


@pytest.mark.parametrize("file", [None, Path("/nowhere/opencode.db")])
async def test_without_a_database_the_server_is_what_has_to_be_mended(file: Path | None) -> None:
    source = unreachable(file)

    for look in (source.list(), source.find(PARSER), source.context(PARSER), source.latest()):
        with pytest.raises(SourceError, match="start opencode serve") as caught:
            await look
        assert caught.value.kind == "unreadable", "a session is not gone because nobody can be asked"
    await source.close()


def test_it_is_everything_that_a_source_can_be() -> None:
    def takes(source: WritableSource, talks: Talks, away: MayBeAway) -> list[SessionSource]:
        return [source]

    source = unreachable(None)
    assert takes(source, source, source) == [source]
    assert isinstance(source, Talks)
    assert isinstance(source, MayBeAway)
