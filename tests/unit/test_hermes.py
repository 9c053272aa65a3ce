"""Hermes' database as a session source: a file that a real Hermes 0.19 wrote, and small ones made here, with
the columns of its schema 22 and of 30, for what that does not hold."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsm.ports import Line, SourceError
from storage.hermes import YOU, HermesSource, SessionNotFound, default_path, tag_own

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "hermes" / "state.db"

SESSIONS = """CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model_config TEXT,
    parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, cwd TEXT, title TEXT,
    archived INTEGER NOT NULL DEFAULT 0 {more});"""
MORE_OF_30 = """, created_source TEXT, title_source TEXT, last_activity_at REAL,
    last_activity_description TEXT, pinned INTEGER NOT NULL DEFAULT 0, hidden INTEGER NOT NULL DEFAULT 0"""
MESSAGES = """CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0);"""
META = """CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
    CREATE TABLE schema_version (version INTEGER NOT NULL); INSERT INTO schema_version VALUES ({version});"""
SCHEMAS = {
    22: SESSIONS.format(more="") + MESSAGES + META.format(version=22),
    30: SESSIONS.format(more=MORE_OF_30) + MESSAGES + META.format(version=30),
}


class Made:
    """A Hermes database of a test's own, written through a connection that is closed before it is read."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._now = 1000.0
        self.run(schema)

    def run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def insert(self, table: str, **values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            marks = ",".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} ({','.join(values)}) VALUES ({marks})",
                               list(values.values()))

    def tick(self) -> float:
        self._now += 1
        return self._now

    def session(self, session_id: str, *said: str, config: object = None, **values: Any) -> None:
        """A session in which a person said these things, each a second after the one before."""
        values = {"source": "cli", "started_at": self.tick(), **values}
        if config is not None:
            values["model_config"] = config if isinstance(config, str) else json.dumps(config)
        self.insert("sessions", id=session_id, **values)
        for text in said:
            self.says(session_id, "user", text)

    def says(self, session_id: str, role: str, content: object, **values: Any) -> None:
        if isinstance(content, list | dict):
            content = "\x00json:" + json.dumps(content)
        self.insert("messages", session_id=session_id, role=role, content=content,
                    **{"timestamp": self.tick(), **values})


def source(path: Path, *names: str) -> HermesSource:
    return HermesSource(path, own_names=names, timeout=0.05)


async def listed(made: Made) -> list[str]:
    return [info.id for info in await source(made.path).list()]


def said(lines: Iterable[Line]) -> list[str]:
    return [f"{line.role}: {line.text}" for line in lines]


def everything(folder: Path) -> dict[str, str]:
    return {str(found): hashlib.sha256(found.read_bytes()).hexdigest() if found.is_file() else ""
            for found in sorted(folder.rglob("*"))}


def put(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)


async def refused(path: Path) -> SourceError:
    """The one error that every method raises for this file, which a person can act on."""
    errors = []
    sessions = source(path)
    for call in (sessions.list(), sessions.search("x"), sessions.latest(), sessions.find("a"),
                 sessions.context("a"), sessions.probe()):
        with pytest.raises(SourceError) as caught:
            await call
        errors.append(caught.value)
    assert len({(str(error), error.kind) for error in errors}) == 1
    assert str(path) in str(errors[0])
    assert str(errors[0]).endswith(".")
    assert errors[0].source == "hermes"
    return errors[0]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURE, tmp_path / "state.db"))


@pytest.fixture(params=SCHEMAS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return Made(tmp_path / "state.db", SCHEMAS[request.param])


@pytest.fixture
def made30(tmp_path: Path) -> Made:
    return Made(tmp_path / "state.db", SCHEMAS[30])


# -- a real file of Hermes 0.19 ------------------------------------------------------------------


async def test_the_real_list_is_without_ended_ones_and_newest_first(real: Path) -> None:
    found = await source(real).list()
    assert [(info.id, info.title, info.folder) for info in found] == [
        ("api-20261001-bbbb", "deploy notes 部署笔记", ""),
        ("cli-20261001-aaaa", "files work", "/srv/app"),
        ("20261130_124339_4938b8f8", "", ""),
        ("20261130_124339_dec58252", "", ""),
        ("20261130_124339_fbbf379c", "", "")]
    assert {info.source for info in found} == {"hermes"}
    assert found[0].active_at == pytest.approx(1796042619.75516, abs=1e-4)
    assert await source(real).latest() == found[0]
    assert await source(real).list(2) == found[:2]
    assert await source(real).list(0) == []


async def test_every_real_session_is_read_and_nothing_is_written(real: Path) -> None:
    before = everything(real.parent)
    sessions = source(real)
    lengths = {info.id: len(await sessions.context(info.id)) for info in await sessions.list()}
    assert lengths == {"api-20261001-bbbb": 2, "cli-20261001-aaaa": 2, "20261130_124339_4938b8f8": 6,
                       "20261130_124339_dec58252": 6, "20261130_124339_fbbf379c": 6}
    await sessions.search("部署")
    await sessions.find("nobody")
    probe = await sessions.probe()
    assert (probe.path, probe.version, probe.sessions) == (str(real), 22, 5)
    assert sessions.skipped == 0
    assert everything(real.parent) == before


async def test_a_tool_and_the_call_of_it_leave_only_words(real: Path) -> None:
    lines = await source(real).context("cli-20261001-aaaa")
    assert said(lines) == ["user: list files", "assistant: a.txt and b.txt"]
    assert [line.id for line in lines] == ["25", "28"]
    assert [line.at for line in lines] == pytest.approx([1796042619.75172, 1796042619.75329], abs=1e-4)


@pytest.mark.parametrize("ended", ["20261130_124339_385211cc", "cli-20260930-cccc"])
async def test_an_ended_session_can_still_be_found_and_read(real: Path, ended: str) -> None:
    found = await source(real).find(ended)
    assert found is not None
    assert found.id == ended
    assert (await source(real).context(ended))[0].role == "user"


async def test_nobody_is_found_under_an_unknown_id(real: Path) -> None:
    for unknown in ("nobody", "", "a\ud800", "%"):
        assert await source(real).find(unknown) is None
        with pytest.raises(SessionNotFound) as caught:
            await source(real).context(unknown)
        assert caught.value.detail == unknown
        assert caught.value.kind == "missing"


async def test_a_search_takes_words_as_they_are(real: Path) -> None:
    async def ids(words: str, limit: int | None = None) -> list[str]:
        return [info.id for info in await source(real).search(words, limit)]

    assert await ids(" FILES ") == ["cli-20261001-aaaa"]
    assert await ids("部署") == ["api-20261001-bbbb"]
    assert await ids("e", 1) == ["api-20261001-bbbb"]
    assert await ids("cli-20261001-aaaa") == ["cli-20261001-aaaa"]
    for words in ("%", "_", "", "  ", "cli-2026"):
        assert await ids(words) == []


# -- which sessions: schemas 22 and 30 -----------------------------------------------------------


async def test_a_list_holds_what_a_person_would_go_on_with(made: Made) -> None:
    made.session("plain", "hi")
    made.session("branch", "hi", parent_session_id="plain", config={"_branched_from": "plain"})
    made.session("delegate", "task", parent_session_id="plain", config={"_delegate_from": "plain"})
    made.session("old-delegate", "task", parent_session_id="plain")
    made.session("orphaned-delegate", "task", config={"_delegate_from": "__orphaned__"})
    made.session("tool", "x", source="tool")
    made.session("ended", "hi", ended_at=made.tick(), end_reason="cli_close")
    made.session("archived", "hi", archived=1)
    made.session("empty")
    made.session("nothing-said")
    made.says("nothing-said", "tool", "output")
    made.says("nothing-said", "session_meta", "{}")
    made.session("taken-back")
    made.says("taken-back", "user", "never mind", active=0)
    assert await listed(made) == ["branch", "plain"]
    for left_out in ("delegate", "ended", "archived", "empty", "taken-back"):
        found = await source(made.path).find(left_out)
        assert found is not None
        assert found.id == left_out


async def test_a_hidden_session_is_left_out(made30: Made) -> None:
    made30.session("seen", "hi")
    made30.session("hidden", "hi", hidden=1)
    assert await listed(made30) == ["seen"]


async def test_a_fork_without_a_mark_is_a_branch_when_its_parent_ended_before_it_as_branched(made: Made) -> None:
    made.session("parent", "hi", ended_at=5000.0, end_reason="branched")
    made.session("fork", "hi", parent_session_id="parent", started_at=5000.0)
    made.session("sub-agent", "task", parent_session_id="parent", started_at=4999.0)
    assert await listed(made) == ["fork"]


async def test_a_branch_stays_one_when_its_parent_is_opened_and_ended_again(made: Made) -> None:
    made.session("parent", "hi", ended_at=5000.0, end_reason="tui_shutdown")
    made.session("branch", "hi", parent_session_id="parent", config={"_branched_from": "parent"})
    assert await listed(made) == ["branch"]


async def test_a_compressed_session_stands_once_under_the_id_in_which_it_goes_on(made: Made) -> None:
    made.session("first", "before", title="long talk", ended_at=2000.0, end_reason="compression")
    made.session("second", "between", parent_session_id="first", ended_at=3000.0, end_reason="compression")
    made.session("third", "after", parent_session_id="second", started_at=3000.0)
    made.session("sub-agent", "task", parent_session_id="first", config={"_delegate_from": "first"})
    made.session("branch", "aside", parent_session_id="second", config={"_branched_from": "second"})
    found = await source(made.path).list()
    assert [(info.id, info.title) for info in found] == [("third", "long talk"), ("branch", "")]
    for part in ("first", "second", "third"):
        assert said(await source(made.path).context(part)) == ["user: after"]
        assert await source(made.path).goes_on_as(part) == "third"
    for other in ("branch", "sub-agent", "nobody", "a\ud800"):
        assert await source(made.path).goes_on_as(other) == other
    assert said(await source(made.path).context("branch")) == ["user: aside"]


async def test_until_the_next_part_holds_words_the_one_before_is_read(made: Made) -> None:
    made.session("first", "before", ended_at=2000.0, end_reason="compression")
    made.session("second", parent_session_id="first")
    assert said(await source(made.path).context("first")) == ["user: before"]


async def test_of_two_continuations_the_living_one_is_taken(made: Made) -> None:
    made.session("first", "before", ended_at=2000.0, end_reason="compression")
    made.session("alive", "after", parent_session_id="first", started_at=1900.0)
    made.session("stale", "newer", parent_session_id="first", started_at=2500.0, ended_at=2600.0,
                 end_reason="ws_orphan_reap")
    assert await listed(made) == ["alive"]
    assert said(await source(made.path).context("first")) == ["user: after"]


async def test_a_compressed_session_that_ended_or_is_archived_is_left_out(made: Made) -> None:
    ends: tuple[dict[str, Any], ...] = ({"ended_at": 9000.0, "end_reason": "cli_close"}, {"archived": 1})
    for number, rest in enumerate(ends):
        made.session(f"first{number}", "a", ended_at=2000.0, end_reason="compression")
        made.session(f"last{number}", "b", parent_session_id=f"first{number}", **rest)
    assert await listed(made) == []


async def test_parents_in_a_circle_come_to_an_end(made: Made) -> None:
    made.session("a", "x", ended_at=1.0, end_reason="compression", parent_session_id="b",
                 config={"_branched_from": "c"})
    made.session("b", "x", ended_at=1.0, end_reason="compression", parent_session_id="a")
    assert await listed(made) == []
    assert said(await source(made.path).context("a")) == ["user: x"]


@pytest.mark.parametrize("config", ["", "{", "[1]", "null", '"text"', "\x00"])
async def test_a_config_that_is_no_object_marks_nothing(made: Made, config: str) -> None:
    made.session("a", "hi", config=config)
    made.session("child", "hi", config=config, parent_session_id="a")
    assert await listed(made) == ["a"]


async def test_activity_is_the_newest_message_or_the_start(made: Made) -> None:
    made.session("b", "hi", started_at=5000.0)
    made.session("a", "hi", started_at=5000.0)
    made.session("c", started_at=1.0)
    made.says("c", "user", "hi", timestamp=6000.0)
    found = await source(made.path).list()
    assert [(info.id, info.active_at) for info in found] == [("c", 6000.0), ("a", 5000.0), ("b", 5000.0)]


async def test_activity_that_hermes_notes_itself_counts_too(made30: Made) -> None:
    made30.session("older", "hi", last_activity_at=9000.0)
    made30.session("newer", "hi")
    found = await source(made30.path).list()
    assert [info.id for info in found] == ["older", "newer"]
    assert found[0].active_at == 9000.0


async def test_columns_that_are_absent_read_as_null(tmp_path: Path) -> None:
    made = Made(tmp_path / "state.db", "CREATE TABLE sessions(id TEXT, source TEXT, title TEXT, started_at REAL);"
                "CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, "
                "timestamp REAL)")
    made.session("a", "hi", title="t")
    (found,) = await source(made.path).list()
    assert (found.id, found.title, found.folder) == ("a", "t", "")
    assert said(await source(made.path).context("a")) == ["user: hi"]
    assert (await source(made.path).probe()).version is None


# -- what counts as said -------------------------------------------------------------------------


async def test_only_words_of_the_person_and_the_agent_are_lines(made: Made) -> None:
    made.session("a", "look at the log")
    made.says("a", "assistant", None, tool_calls="[]")
    made.says("a", "tool", "500 lines", tool_name="read")
    made.says("a", "system", "be kind")
    made.says("a", "assistant", "")
    made.says("a", "assistant", " \n ")
    made.says("a", "assistant", "two errors")
    for limit in (200, 2):
        assert said(await source(made.path).context("a", limit)) == ["user: look at the log", "assistant: two errors"]
    assert said(await source(made.path).context("a", 1)) == ["assistant: two errors"]
    assert await source(made.path).context("a", 0) == []
    assert await source(made.path).context("a", -1) == []


async def test_parts_give_their_text_and_pictures_none(made: Made) -> None:
    made.session("a")
    made.says("a", "user", [{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": {"url": "x"}},
                            {"type": "input_text", "text": "this?"}, {"type": "text"}, 7])
    made.says("a", "user", [{"type": "image_url", "image_url": {"url": "x"}}])
    made.says("a", "assistant", {"type": "output_text", "text": "cut \ud83d"})
    made.says("a", "user", '[{"type": "text", "text": "typed by hand"}]')
    assert said(await source(made.path).context("a")) == [
        "user: what is\nthis?", "assistant: cut \ufffd", 'user: [{"type": "text", "text": "typed by hand"}]']


async def test_content_that_is_broken_is_skipped_and_counted(
        made: Made, caplog: pytest.LogCaptureFixture) -> None:
    made.session("a", "before")
    made.says("a", "user", "\x00json:[{")
    made.says("a", "user", b"\xff\xfe")
    made.says("a", "user", "after")
    sessions = source(made.path)
    with caplog.at_level(logging.WARNING):
        assert said(await sessions.context("a")) == ["user: before", "user: after"]
        await sessions.context("a")
    assert sessions.skipped == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "2, 3" in caplog.text


async def test_text_that_is_not_utf_8_does_no_harm(made: Made) -> None:
    made.session("a")
    made.run("INSERT INTO messages(session_id, role, content, timestamp) "
             "VALUES ('a', 'user', CAST(x'61ff62' AS TEXT), 1)")
    assert said(await source(made.path).context("a")) == ["user: a\ufffdb"]


async def test_what_was_taken_back_or_replaced_by_a_summary_is_hidden(made: Made) -> None:
    made.session("a")
    for text, columns in (("old", {"active": 0, "compacted": 1}), ("kept by mistake", {"compacted": 1}),
                          ("taken back", {"active": 0}), ("overheard", {"observed": 1}), ("new", {})):
        made.says("a", "user", text, **columns)
    assert said(await source(made.path).context("a")) == ["user: overheard", "user: new"]


async def test_a_summary_of_now_stays_before_the_older_messages_that_it_was_put_before(made: Made) -> None:
    made.session("a")
    for role, text, at in (("user", "[CONTEXT COMPACTION — REFERENCE ONLY] they asked for a log", 2000.0),
                           ("assistant", "kept", 1003.0), ("user", "go on", 2001.0), ("assistant", "back", 1999.0)):
        made.says("a", role, text, timestamp=at)
    lines = await source(made.path).context("a")
    assert said(lines) == ["assistant: [CONTEXT COMPACTION — REFERENCE ONLY] they asked for a log",
                           "assistant: kept", "user: go on", "assistant: back"]
    assert [line.at for line in lines] == [1003.0, 1003.0, 1999.0, 1999.0]


async def test_memories_recalled_into_a_message_are_not_what_the_person_said(made: Made) -> None:
    made.session("a", "<memory-context>\nlikes blue\n</memory-context>\n\nwhat do I like?")
    made.session("b", "<memory-context>nothing else")
    assert said(await source(made.path).context("a")) == ["user: what do I like?"]
    assert await source(made.path).context("b") == []


async def test_as_many_pages_are_read_as_are_wanted(made: Made) -> None:
    made.session("a")
    with closing(sqlite3.connect(made.path)) as connection, connection:
        for number in range(3):
            connection.execute("INSERT INTO messages(session_id, role, content, timestamp) "
                               "VALUES ('a', 'user', ?, ?)", (f"question {number}", number))
            connection.executemany("INSERT INTO messages(session_id, role, content, timestamp) "
                                   "VALUES ('a', 'tool', 'x', ?)", [(number,)] * 600)
    sessions = source(made.path)
    assert said(await sessions.context("a", 2)) == ["user: question 1", "user: question 2"]
    assert len(await sessions.context("a")) == 3


async def test_a_context_and_a_list_use_the_indexes_of_hermes(real: Path) -> None:
    with closing(sqlite3.connect(real)) as connection:
        plan = [row[3] for row in connection.execute(
            "EXPLAIN QUERY PLAN SELECT id FROM messages WHERE session_id = 'a'")]
        newest = [row[3] for row in connection.execute(
            "EXPLAIN QUERY PLAN SELECT max(timestamp) FROM messages WHERE session_id = 'a'")]
    assert all("COVERING INDEX" in step for step in plan + newest if "messages" in step)
    assert plan
    assert newest


# -- what the agent said itself ------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "mohe: done", "MOHE：done", "  mohe : done", "[mohe] done", "【小小莫】done", "[mohe|42]\ndone", "小小莫: 好"])
async def test_a_line_with_one_of_its_names_as_speaker_is_the_agents_own_once(made: Made, text: str) -> None:
    made.session("a", text)
    made.says("a", "assistant", text)
    sessions = source(made.path, "mohe", "小小莫")
    lines = await sessions.context("a")
    assert [line.text for line in lines] == [YOU + text] * 2
    assert [line.text for line in tag_own(lines, ["mohe", "小小莫"])] == [YOU + text] * 2


@pytest.mark.parametrize("text", [
    "mohe, please look", "小小莫，帮我看日志", "mohe", "moheart: hi", "tell mohe: hi", "alice: mohe: hi",
    "[alice] mohe: hi", "[YOU] mohe: done", "hello\nmohe: done"])
async def test_a_line_to_or_about_the_agent_is_left_as_it_is(made: Made, text: str) -> None:
    made.session("a", text)
    assert said(await source(made.path, "mohe", "小小莫").context("a")) == [f"user: {text}"]


async def test_names_are_given_for_one_reading_or_not_at_all(made: Made) -> None:
    made.session("a", "m.x: done")
    assert said(await source(made.path).context("a")) == ["user: m.x: done"]
    assert said(await source(made.path).context("a", own_names=["m.x"])) == ["user: [YOU] m.x: done"]
    assert said(await source(made.path).context("a", own_names=["mqx", "", " "])) == ["user: m.x: done"]
    assert said(await source(made.path, "m.x").context("a", own_names=[])) == ["user: m.x: done"]


# -- what is read at all -------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "kind", "mend"), [
    (None, "missing", "set HERMES_HOME"),
    (b"", "empty", "start Hermes once"),
    (b"not a database file" * 100, "damaged", "backup"),
])
async def test_a_file_that_is_no_database_is_named_and_left_alone(
        tmp_path: Path, content: bytes | None, kind: str, mend: str) -> None:
    path = tmp_path / "state.db"
    put(path, content)
    before = everything(tmp_path)
    error = await refused(path)
    assert error.kind == kind
    assert mend in str(error)
    assert "Hermes's" not in str(error)
    assert "OpenCode" not in str(error)
    assert everything(tmp_path) == before


async def test_a_database_of_another_program_is_foreign(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Made(tmp_path / "state.db", "CREATE TABLE sessions(id, title); CREATE TABLE part(data);")
    error = await refused(made.path)
    assert error.kind == "foreign"
    assert "missing sessions.source, sessions.started_at, messages; present part, sessions" in error.detail
    assert "schema" in caplog.text


async def test_a_database_without_tables_is_empty(tmp_path: Path) -> None:
    made = Made(tmp_path / "state.db", "CREATE TABLE t(a); DROP TABLE t;")
    assert (await refused(made.path)).kind == "empty"


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    error = await refused(tmp_path)
    assert error.kind == "unreadable"
    assert "state.db" in str(error)


async def test_damaged_pages_are_said_to_be_damaged(real: Path) -> None:
    content = real.read_bytes()[:4096] + b"\xa5" * 100_000
    real.write_bytes(content)
    assert (await refused(real)).kind == "damaged"
    assert real.read_bytes() == content


async def test_a_file_under_an_exclusive_lock_is_locked(real: Path) -> None:
    with closing(sqlite3.connect(real, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=exclusive")
        other.execute("UPDATE sessions SET title = NULL WHERE 0")
        other.execute("BEGIN EXCLUSIVE")
        error = await refused(real)
        assert error.kind == "locked"
        assert "try again" in str(error)
        other.execute("COMMIT")
    assert await source(real).list()


async def test_tables_without_rows_are_no_error(made: Made) -> None:
    assert await source(made.path).list() == []
    assert await source(made.path).latest() is None
    assert (await source(made.path).probe()).sessions == 0


@contextmanager
def gateway(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that stays at the file and leaves what it writes in the -wal."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        yield connection


@pytest.mark.parametrize("begin", [None, "BEGIN IMMEDIATE"])
async def test_a_live_hermes_is_seen_and_not_held_up(real: Path, begin: str | None) -> None:
    sessions = source(real)
    with gateway(real) as live:
        live.execute("UPDATE sessions SET title = 'only in the -wal' WHERE id = 'api-20261001-bbbb'")
        if begin:
            live.execute(begin)
            live.execute("UPDATE sessions SET title = 'not yet' WHERE id = 'api-20261001-bbbb'")
        found = await sessions.latest()
        assert found is not None
        assert found.title == "only in the -wal"
        if begin:
            live.execute("COMMIT")
        assert live.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


# -- where the file is ---------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="the folder has another name there")
@pytest.mark.parametrize(("environ", "expected"), [
    ({"HOME": "/home/a"}, "/home/a/.hermes/state.db"),
    ({"HOME": "/home/a", "HERMES_HOME": "/srv/h"}, "/srv/h/state.db"),
    ({"HOME": "/home/a", "HERMES_HOME": "  "}, "/home/a/.hermes/state.db"),
])
def test_the_file_is_where_hermes_looks_for_it(environ: dict[str, str], expected: str) -> None:
    assert default_path(environ) == Path(expected)


async def test_without_a_path_the_environment_decides(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(real.parent))
    assert len(await HermesSource().list()) == 5
