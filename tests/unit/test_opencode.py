"""OpenCode's database as a session source: files that a real OpenCode 1.18 wrote, one in the shape of 2.x,
and small ones made here for what those do not hold."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsm.ports import Line, SourceError
from storage.opencode import (
    STILL_ANSWERING,
    OpenCodeSource,
    SessionNotFound,
    default_path,
    extract_session_context,
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "opencode"
IDS: dict[str, str] = json.loads((FIXTURES / "fixture.ids.json").read_text(encoding="utf-8"))
NAMES = {session_id: name for name, session_id in IDS.items()}

MESSAGES = """
    CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INT, time_updated INT, data TEXT);
    CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INT,
                      time_updated INT, data TEXT);
"""
SESSION = ("CREATE TABLE session(id TEXT PRIMARY KEY, parent_id TEXT, title TEXT, time_created INT, "
           "time_updated INT, time_archived INT, revert TEXT);")
SESSION_MESSAGE = ("CREATE TABLE session_message(id TEXT PRIMARY KEY, session_id TEXT, type TEXT, seq INT, "
                   "time_created INT, time_updated INT, data TEXT);")


class Made:
    """An OpenCode database of a test's own, written through a connection that is closed before it is read."""

    def __init__(self, path: Path, schema: str = SESSION + MESSAGES) -> None:
        self.path = path
        self._count = 0
        self.run(schema)

    def run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def insert(self, table: str, **values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            marks = ",".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} ({','.join(values)}) VALUES ({marks})",
                               list(values.values()))

    def says(self, session: str, role: str, *parts: str | dict[str, Any] | bytes, at: int | None = None,
             **data: Any) -> str:
        """One message; a part is its text, its JSON object, or its bytes. Gives the message's id."""
        self._count += 1
        message = f"msg_{self._count:04d}"
        when = self._count if at is None else at
        if role == "assistant":
            data = {"time": {"created": when, "completed": when + 1}, **data}
        self.insert("message", id=message, session_id=session, time_created=when,
                    data=json.dumps({"role": role, **data}))
        for number, part in enumerate(parts):
            raw = {"type": "text", "text": part} if isinstance(part, str) else part
            self.insert("part", id=f"prt_{self._count:04d}_{number}", message_id=message, session_id=session,
                        data=raw.decode() if isinstance(raw, bytes) else json.dumps(raw))
        return message


def source(path: Path) -> OpenCodeSource:
    return OpenCodeSource(path, timeout=0.05)


def said(lines: Iterable[Line]) -> list[str]:
    return [f"{line.role}: {line.text}" for line in lines]


def bytes_of(path: Path | str) -> bytes:
    return Path(path).read_bytes()


def put(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)


def everything(folder: Path) -> dict[str, str]:
    return {str(found): hashlib.sha256(found.read_bytes()).hexdigest() if found.is_file() else ""
            for found in sorted(folder.rglob("*"))}


async def refused(path: Path) -> SourceError:
    """The one error that every method raises for this file, which a person can act on."""
    errors = []
    sessions = source(path)
    for call in (sessions.list(), sessions.search("x"), sessions.latest(), sessions.find("ses_a"),
                 sessions.context("ses_a"), sessions.probe()):
        with pytest.raises(SourceError) as caught:
            await call
        errors.append(caught.value)
    with pytest.raises(SourceError):
        extract_session_context("ses_a", path=path)
    assert len({(str(error), error.kind) for error in errors}) == 1
    assert str(path) in str(errors[0])
    assert str(errors[0]).endswith(".")
    assert errors[0].source == "opencode"
    return errors[0]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURES / "fixture.db", tmp_path / "opencode.db"))


@pytest.fixture
def both(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURES / "fixture_v2_synthetic.db", tmp_path / "opencode.db"))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "opencode.db")


# -- which session: CTX-01 -----------------------------------------------------------------------


def ctx_01(made: Made, *rows: tuple[str, str | None, str, int, int, int | None]) -> OpenCodeSource:
    for session, parent, title, created, updated, archived in rows:
        made.insert("session", id=session, parent_id=parent, title=title, time_created=created,
                    time_updated=updated, time_archived=archived)
        made.says(session, "user", "hi", at=created)
    return source(made.path)


P = ("ses_p", None, "写博客", 1, 1000, None)
K = ("ses_k", "ses_p", "Explore (@explore subagent)", 2, 2000, None)
OLD = ("ses_old", None, "已归档", 0, 3000, 3000)
Q = ("ses_q", None, "写博客", 1, 1000, None)


@pytest.mark.parametrize(("rows", "latest", "listed"), [
    pytest.param((P, K), "ses_p", ["ses_p"], id="CTX-01 a child is newest"),
    pytest.param((P, K, OLD), "ses_p", ["ses_p"], id="CTX-01 an archived one is newest"),
    pytest.param((), None, [], id="CTX-01 no rows at all"),
    pytest.param((Q, P), "ses_p", ["ses_p", "ses_q"], id="CTX-01 the same instant twice, decided by id"),
])
async def test_the_latest_session_is_one_that_a_person_sees(
        made: Made, rows: Any, latest: str | None, listed: list[str]) -> None:
    sessions = ctx_01(made, *rows)
    found = await sessions.latest()
    assert (found.id if found else None) == latest
    assert [info.id for info in await sessions.list()] == listed


@pytest.mark.parametrize("case", ["CTX-01", "CTX-03"])
async def test_a_table_without_parents_and_archive_still_lists(tmp_path: Path, case: str) -> None:
    session_table = "CREATE TABLE session(id TEXT PRIMARY KEY, title TEXT, time_updated INT);"
    made = Made(tmp_path / f"{case}.db", session_table + MESSAGES)
    for session, _parent, title, created, updated, _archived in (P, K, OLD):
        made.insert("session", id=session, title=title, time_updated=updated)
        made.says(session, "user", "hi", at=created)
    found = await source(made.path).latest()
    assert found is not None
    assert (found.id, found.folder) == ("ses_old", "")
    assert said(await source(made.path).context("ses_old")) == ["user: hi"]


async def test_activity_is_the_later_of_the_session_and_its_newest_message(made: Made) -> None:
    for session, updated, message in (("ses_a", 1000, 5000), ("ses_b", 4000, 10), ("ses_c", 3000, 20)):
        made.insert("session", id=session, title=session, time_updated=updated)
        made.says(session, "user", "hi", at=message)
    found = await source(made.path).list()
    assert [(info.id, info.active_at) for info in found] == [("ses_a", 5.0), ("ses_b", 4.0), ("ses_c", 3.0)]
    assert [info.id for info in await source(made.path).list(2)] == ["ses_a", "ses_b"]
    assert await source(made.path).list(0) == []


async def test_a_list_uses_indexes_and_reads_no_message(real: Path) -> None:
    from storage.opencode.reading import _all_sql
    from storage.opencode.schema import Schema

    columns = {"session": frozenset({"parent_id", "time_archived", "directory"})}
    sql = _all_sql(Schema(v1=True, v2=False, api=True, columns=columns, migration=None))
    with closing(sqlite3.connect(real)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert not [step for step in plan if step.startswith("SCAN")]
    assert any("message_session_time_created_id_idx" in step for step in plan)
    assert any("session_message_session_seq_idx" in step for step in plan)


# -- what is read at all: CTX-03 -----------------------------------------------------------------


@pytest.mark.parametrize(("content", "kind", "mend"), [
    pytest.param(None, "missing", "not found", id="CTX-03 absent"),
    pytest.param(b"", "empty", "start OpenCode once", id="CTX-03 zero bytes"),
    pytest.param(b"not a database file" * 100, "damaged", "backup", id="CTX-03 not a database"),
])
async def test_a_file_that_is_no_database_is_named_and_left_alone(
        tmp_path: Path, content: bytes | None, kind: str, mend: str) -> None:
    path = tmp_path / "opencode.db"
    put(path, content)
    before = everything(tmp_path)
    error = await refused(path)
    assert error.kind == kind
    assert mend in str(error)
    assert everything(tmp_path) == before


async def test_the_wal_beside_an_empty_file_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "opencode.db", b"")
    put(tmp_path / "opencode.db-wal", b"somebody's")
    assert (await refused(tmp_path / "opencode.db")).kind == "empty"
    assert bytes_of(tmp_path / "opencode.db-wal") == b"somebody's"


async def test_ctx_03_a_schema_without_messages_is_no_new_chat(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Made(tmp_path / "CTX-03.db", SESSION + SESSION_MESSAGE)
    made.insert("session", id="ses_a", title="t", time_updated=1)
    error = await refused(made.path)
    assert error.kind == "foreign"
    assert "schema" in str(error)
    for part in ("missing message, part (v1) or session_v2 (v2)", "present session, session_message"):
        assert part in error.detail
    assert "schema" in caplog.text
    assert "present session, session_message" in caplog.text


async def test_ctx_03_one_part_that_is_no_json_is_skipped_and_counted(
        made: Made, caplog: pytest.LogCaptureFixture) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    made.says("ses_a", "user", "before", b"not JSON", "after")
    made.says("ses_a", "assistant", "fine")
    sessions = source(made.path)
    with caplog.at_level(logging.WARNING):
        assert said(await sessions.context("ses_a")) == ["user: before\nafter", "assistant: fine"]
        await sessions.context("ses_a")
    assert sessions.skipped == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "prt_0001_1" in caplog.text


@pytest.mark.parametrize(
    "raw", ["", "{", "[1]", "null", '"text"', "\x00", '{"a":' * 5000, b"\xff\xfe{}", None, 7])
async def test_a_message_whose_data_is_anything_at_all_is_skipped(made: Made, raw: object) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    made.says("ses_a", "user", "hello")
    made.insert("message", id="msg_bad", session_id="ses_a", time_created=99, data=raw)
    sessions = source(made.path)
    assert said(await sessions.context("ses_a")) == ["user: hello"]
    assert sessions.skipped == 1


async def test_tables_without_rows_are_no_error(made: Made) -> None:
    assert await source(made.path).list() == []
    assert await source(made.path).latest() is None
    assert (await source(made.path).probe()).sessions == 0


async def test_a_database_of_another_program_is_foreign(tmp_path: Path) -> None:
    made = Made(tmp_path / "other.db", "CREATE TABLE sessions(id); CREATE TABLE messages(role, content);")
    error = await refused(made.path)
    assert error.kind == "foreign"
    assert "present messages, sessions" in error.detail


async def test_a_database_without_tables_is_empty(tmp_path: Path) -> None:
    made = Made(tmp_path / "opencode.db", "CREATE TABLE t(a); DROP TABLE t;")
    assert (await refused(made.path)).kind == "empty"


async def test_a_missing_column_is_named(tmp_path: Path) -> None:
    made = Made(tmp_path / "opencode.db", "CREATE TABLE session(id TEXT, title TEXT);" + MESSAGES)
    assert "session.time_updated" in (await refused(made.path)).detail


async def test_a_generation_that_does_not_fit_is_left_out_with_a_warning(
        made: Made, caplog: pytest.LogCaptureFixture) -> None:
    made.run("CREATE TABLE session_v2(id TEXT PRIMARY KEY, title TEXT)")
    ctx_01(made, P)
    assert [info.id for info in await source(made.path).list()] == ["ses_p"]
    assert "schema" in caplog.text
    assert "session_v2.time_updated" in caplog.text


async def test_a_schema_that_changes_is_looked_at_again(made: Made) -> None:
    ctx_01(made, P)
    sessions = source(made.path)
    assert (await sessions.probe()).generations == ("v1",)
    made.run("CREATE TABLE session_v2(id TEXT PRIMARY KEY, title TEXT, time_updated INT);" + SESSION_MESSAGE)
    assert (await sessions.probe()).generations == ("v1", "v2")
    made.run("DROP TABLE part")
    assert (await sessions.probe()).generations == ("v2",)


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    error = await refused(tmp_path)
    assert error.kind == "unreadable"
    assert "folder" in str(error)


async def test_a_path_through_a_file_or_with_a_nul_is_refused_in_words(real: Path) -> None:
    assert (await refused(real / "opencode.db")).kind == "missing"
    with pytest.raises(SourceError) as caught:
        await source(Path("a\0b")).list()
    assert caught.value.kind == "unreadable"


async def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (await refused(tmp_path / "pipe")).kind == "unreadable"


@pytest.mark.parametrize("damage", ["cut in a page", "cut after the header", "pages overwritten"])
async def test_damaged_pages_are_said_to_be_damaged(real: Path, damage: str) -> None:
    content = whole = bytes_of(real)
    if damage == "cut in a page":
        content = content[:5000]
    elif damage == "cut after the header":
        content = content[:100]
    else:
        content = content[:4096] + b"\xa5" * (len(content) - 4096)
    assert content != whole
    put(real, content)
    with pytest.raises(SourceError) as caught:
        await source(real).list()
    assert caught.value.kind == "damaged"
    assert str(real) in str(caught.value)
    assert bytes_of(real) == content


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.opencode.source.TIMEOUT", 0.05)


@pytest.mark.usefixtures("impatient")
async def test_a_file_under_an_exclusive_lock_is_locked(real: Path) -> None:
    with closing(sqlite3.connect(real, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        error = await refused(real)
        assert error.kind == "locked"
        assert "try again" in str(error)
        writer.execute("COMMIT")
        assert await source(real).list()


@pytest.mark.usefixtures("impatient")
async def test_a_wal_kept_by_one_process_alone_is_locked(real: Path) -> None:
    with closing(sqlite3.connect(real, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode=exclusive")
        writer.execute("PRAGMA journal_mode=wal")
        writer.execute("UPDATE session SET title = 'x'")
        assert (await refused(real)).kind == "locked"


# -- what counts as said: CTX-05 -----------------------------------------------------------------

CTX_05 = (
    ("user", {"type": "text", "text": "帮我看日志"}),
    ("user", {"type": "text", "text": "请继续（程序自动加的）", "synthetic": True}),
    ("user", {"type": "text", "text": "（压缩横幅，程序写的）", "ignored": True}),
    ("assistant", {"type": "reasoning", "text": "先打开文件"}),
    ("assistant", {"type": "tool", "tool": "read", "state": {"output": "..."}}),
    ("assistant", {"type": "text", "text": "日志里有 2 个错误"}),
)


@pytest.mark.parametrize("limit", [200, 2], ids=["CTX-05 lines", "CTX-05 no text, not counted"])
def test_only_what_was_said_appears(made: Made, limit: int) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    for role, part in CTX_05:
        made.says("ses_a", role, part)
    text = extract_session_context("ses_a", limit, path=made.path)
    assert text.splitlines() == ["用户: 帮我看日志", "小小莫: 日志里有 2 个错误"]


def test_sr01_the_context_is_labelled_text(made: Made) -> None:
    """SR01"""
    made.insert("session", id="ses_test", title="t", time_updated=1)
    made.says("ses_test", "user", "xxx")
    made.says("ses_test", "assistant", "xxx")
    assert extract_session_context("ses_test", path=made.path) == "用户: xxx\n小小莫: xxx"


def test_an_unknown_session_is_not_an_empty_text(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    assert extract_session_context("ses_a", path=made.path) == ""
    for unknown in ("ses_b", "", "ses_\ud800", "%"):
        with pytest.raises(SessionNotFound) as caught:
            extract_session_context(unknown, path=made.path)
        assert caught.value.detail == unknown
        assert "no session" in str(caught.value)


async def test_pages_are_read_back_until_enough_was_said(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    for number in range(3):
        made.says("ses_a", "user", f"question {number}")
        for _ in range(60):
            made.says("ses_a", "assistant", {"type": "tool", "tool": "read", "state": {}})
    sessions = source(made.path)
    assert said(await sessions.context("ses_a", 2)) == ["user: question 1", "user: question 2"]
    assert len(await sessions.context("ses_a", 3)) == 3
    assert len(await sessions.context("ses_a", 4)) == 3
    assert await sessions.context("ses_a", 0) == []
    assert await sessions.context("ses_a", -1) == []


async def test_messages_of_one_instant_go_by_id_over_a_page_end(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    for number in range(120):
        made.says("ses_a", "user", str(number), at=7)
        made.says("ses_a", "assistant", {"type": "tool"}, at=7)
    lines = await source(made.path).context("ses_a", 100)
    assert [line.text for line in lines] == [str(number) for number in range(20, 120)]


async def test_what_was_undone_is_hidden(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    made.says("ses_a", "user", "kept", at=10)
    taken_back = made.says("ses_a", "user", "taken back", "second part", at=20)
    made.says("ses_a", "assistant", "never mind", at=30)
    sessions = source(made.path)
    assert len(await sessions.context("ses_a")) == 3
    for revert, expected in (
            ({"messageID": taken_back}, ["user: kept"]),
            ({"messageID": taken_back, "partID": "prt_0002_1"}, ["user: kept", "user: taken back"]),
            ({"messageID": "msg_unknown"},
             ["user: kept", "user: taken back\nsecond part", "assistant: never mind"])):
        with closing(sqlite3.connect(made.path)) as connection, connection:
            connection.execute("UPDATE session SET revert = ?", (json.dumps(revert),))
        assert said(await sessions.context("ses_a")) == expected


async def test_a_compaction_that_failed_hides_nothing(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    made.says("ses_a", "user", "old")
    made.says("ses_a", "assistant", "half a summ", summary=True, error={"name": "MessageAbortedError"})
    made.says("ses_a", "assistant", "", summary=True, time={"created": 1})
    made.says("ses_a", "user", "new", summary={"diffs": []})
    assert said(await source(made.path).context("ses_a")) == ["user: old", "user: new"]


async def test_only_the_last_answer_can_be_unfinished(made: Made) -> None:
    made.insert("session", id="ses_a", title="t", time_updated=1)
    made.says("ses_a", "assistant", "cut off", time={"created": 1})
    made.says("ses_a", "user", "go on")
    made.says("ses_a", "assistant", "half of", time={"created": 1})
    sessions = source(made.path)
    assert said(await sessions.context("ses_a")) == [
        "assistant: cut off", "user: go on", f"assistant: half of {STILL_ANSWERING}"]
    made.says("ses_a", "assistant", time={"created": 1}, error={"name": "APIError"})
    assert said(await sessions.context("ses_a"))[-1] == "assistant: half of"


async def test_half_an_emoji_and_bytes_that_are_no_text_do_no_harm(made: Made) -> None:
    made.run("INSERT INTO session(id, title, time_updated) VALUES ('ses_a', CAST(x'61ff62' AS TEXT), 1)")
    made.says("ses_a", "user", b'{"type":"text","text":"cut \\ud83d"}')
    made.run("""INSERT INTO part(id, message_id, data) VALUES ('prt_z', 'msg_0001',
                CAST(x'7b2274797065223a2274657874222c2274657874223a22ff227d' AS TEXT))""")
    assert [info.title for info in await source(made.path).list()] == ["a\ufffdb"]
    lines = await source(made.path).context("ses_a")
    assert lines[0].text == "cut \ufffd\n\ufffd"


# -- a real file of OpenCode 1.18 ----------------------------------------------------------------


async def test_the_real_list_is_without_children_archived_and_empty_ones(real: Path) -> None:
    found = await source(real).list()
    assert [NAMES[info.id] for info in found] == [
        "killed", "v2api", "idwrap", "long", "fork", "compacted", "files", "unicode", "global", "parent",
        "tools"]
    assert {info.source for info in found} == {"opencode"}
    by_name = {NAMES[info.id]: info for info in found}
    assert by_name["global"].folder == "/home/alice/projB"
    assert by_name["fork"].title == "Résumé 简历 🚀 (fork #1)"
    # time_updated of a session made through /api never moved; its newest message tells.
    assert by_name["v2api"].active_at == 1796044276.584
    latest = await source(real).latest()
    assert latest is not None
    assert NAMES[latest.id] == "killed"


@pytest.mark.parametrize("name", ["child", "archived", "empty"])
async def test_what_a_list_leaves_out_can_still_be_found_and_read(real: Path, name: str) -> None:
    found = await source(real).find(IDS[name])
    assert found is not None
    assert found.id == IDS[name]
    assert bool(await source(real).context(IDS[name])) == (name != "empty")


async def test_nobody_is_found_under_an_unknown_id(real: Path, both: Path) -> None:
    for unknown in ("ses_x", "", "ses_\ud800"):
        assert await source(real).find(unknown) is None
        with pytest.raises(SessionNotFound):
            await source(real).context(unknown)


async def test_a_search_takes_words_as_they_are(real: Path) -> None:
    async def names(words: str, limit: int | None = None) -> list[str]:
        return [NAMES[info.id] for info in await source(real).search(words, limit)]

    assert await names("RÉSUMÉ") == ["fork", "unicode"]
    assert await names(" 简历 ", 1) == ["fork"]
    assert await names(IDS["tools"]) == ["tools"]
    for words in ("%", "_", "", "  ", IDS["tools"][:10], IDS["child"], "Archived"):
        assert await names(words) == []


async def test_tools_reasoning_and_failures_leave_only_words(real: Path) -> None:
    assert said(await source(real).context(IDS["tools"])) == [
        "user: Hello, what is in this repo?",
        "assistant: echo: Hello, what is in this repo?",
        "user: Please look at it [tool:read /home/alice/projA/README.md]",
        "assistant: Let me read it. ",
        "assistant: tool result seen (168 chars): <path>/home/alice/projA/README.md</path> <",
        "user: tell me a long story [slow 60]",
        "assistant: word0 word1 word2 word3 word4 word5 word6 word7 word8 ",
        "user: now fail [http401]",
        "user: and say nothing [empty]",
        "user: [reason] think, then answer",
        "assistant: done thinking"]


@pytest.mark.parametrize(("name", "expected"), [
    ("parent", ["user: delegate it [tool:task] please",
                'assistant: tool result seen (119 chars): <task id="ses_dd36b72efffedwFegwArf96N71" '
                'state="completed">']),
    ("child", ["user: sub work please", "assistant: echo: sub work please"]),
    ("global", ["user: run it [tool:bash echo hello-from-bash]",
                "assistant: tool result seen (16 chars): hello-from-bash "]),
    ("idwrap", ["user: before the wrap", "assistant: echo: before the wrap", "user: after the wrap",
                "assistant: echo: after the wrap"]),
    ("v2api", ["user: hello through /api", "assistant: echo: hello through /api"]),
    ("killed", ["user: I will be killed [slow 60]", f"assistant: {STILL_ANSWERING}"]),
    ("empty", []),
])
async def test_the_words_of_a_real_session(real: Path, name: str, expected: list[str]) -> None:
    lines = await source(real).context(IDS[name])
    assert [line.replace("\n", " ") for line in said(lines)] == expected
    assert [line.at for line in lines] == sorted(line.at for line in lines)


async def test_attached_files_are_not_what_the_user_said(real: Path) -> None:
    lines = await source(real).context(IDS["files"])
    assert said(lines[:1]) == ["user: see these"]
    assert [line.role for line in lines] == ["user", "assistant"]


async def test_a_fork_has_the_same_words_under_its_own_ids(real: Path) -> None:
    original = await source(real).context(IDS["unicode"])
    fork = await source(real).context(IDS["fork"])
    assert original[0].text.startswith("你好，世界！\nsecond line\n\n```py\nprint(1 < 2")
    assert said(fork) == said(original)
    assert [line.at for line in fork] == [line.at for line in original]
    assert not {line.id for line in fork} & {line.id for line in original}


async def test_a_compacted_session_starts_at_its_summary(real: Path) -> None:
    lines = await source(real).context(IDS["compacted"])
    assert lines[0].role == "assistant"
    assert lines[0].text.startswith("echo: Here is the conversation so far")
    assert said(lines[1:]) == ["user: after the compaction", "assistant: echo: after the compaction"]
    assert said(await source(real).context(IDS["compacted"], 1)) == ["assistant: echo: after the compaction"]


async def test_a_long_session_gives_its_newest_200(real: Path) -> None:
    sessions = source(real)
    whole = await sessions.context(IDS["long"], 10_000)
    assert len(whole) > 250
    assert await sessions.context(IDS["long"]) == whole[-200:]
    assert await sessions.context(IDS["long"], 7) == whole[-7:]


async def test_a_probe_tells_what_the_file_is(real: Path) -> None:
    probe = await source(real).probe()
    assert (probe.path, probe.generations, probe.sessions) == (str(real), ("v1",), 11)
    assert probe.migration == "20260622202450_simplify_session_input"


# -- both generations in one file ----------------------------------------------------------------


async def test_each_session_is_listed_once_and_the_newer_generation_wins(both: Path) -> None:
    found = await source(both).list()
    assert [(info.id, info.title) for info in found] == [
        ("ses_v2only", ""), ("ses_v2live", "Busy right now"), ("ses_v1only", "Made by 1.x after the import"),
        ("ses_both", "Continued in 2.x")]
    assert (await source(both).probe()).generations == ("v1", "v2")


@pytest.mark.parametrize(("session", "expected"), [
    ("ses_both", ["user: asked in 1.x", "assistant: answered in 1.x", "user: continue in 2.x",
                  "assistant: Looking. ", "assistant: done in 2.x"]),
    ("ses_v1only", ["user: hi v1", "assistant: still only in v1"]),
    ("ses_v2only", ["assistant: Earlier: they said hello.", "assistant: hello from 2.x"]),
    ("ses_v2live", ["user: long job", f"assistant: {STILL_ANSWERING}"]),
    ("ses_v2child", ["user: You are a subagent spawned by another session."]),
    ("ses_v2arch", ["user: archived"]),
])
async def test_the_words_of_a_session_of_2_x(both: Path, session: str, expected: list[str]) -> None:
    assert said(await source(both).context(session)) == expected
    found = await source(both).find(session)
    assert found is not None
    assert found.id == session


async def test_a_session_archived_in_2_x_hides_its_twin_of_1_x(both: Path) -> None:
    with closing(sqlite3.connect(both)) as connection, connection:
        connection.execute("UPDATE session_v2 SET time_archived = 1 WHERE id = 'ses_both'")
    assert "ses_both" not in [info.id for info in await source(both).list()]
    assert await source(both).search("stale") == []
    found = await source(both).find("ses_both")
    assert found is not None
    assert found.title == "Continued in 2.x"


async def test_a_fresh_file_of_2_x_has_no_tables_of_1_x(both: Path) -> None:
    with closing(sqlite3.connect(both)) as connection:
        connection.executescript("DROP TABLE part; DROP TABLE message; DROP TABLE session;")
    assert [info.id for info in await source(both).list()] == ["ses_v2only", "ses_v2live", "ses_both"]
    assert (await source(both).probe()).generations == ("v2",)


async def test_an_answer_before_which_the_agent_came_to_rest_is_over(both: Path) -> None:
    with closing(sqlite3.connect(both)) as connection, connection:
        connection.execute("INSERT INTO session_message VALUES ('i', 'ses_v2live', 'idle', 99, 9, 9, '{}')")
    assert said(await source(both).context("ses_v2live")) == ["user: long job"]


async def test_2_x_goes_by_seq_and_hides_what_was_undone(both: Path) -> None:
    with closing(sqlite3.connect(both)) as connection, connection:
        connection.execute("UPDATE session_message SET time_created = -seq WHERE session_id = 'ses_both'")
        [(message,)] = connection.execute(
            "SELECT id FROM session_message WHERE session_id = 'ses_both' AND seq = 6")
        connection.execute("UPDATE session_v2 SET revert = ? WHERE id = 'ses_both'",
                           (json.dumps({"messageID": message}),))
    assert said(await source(both).context("ses_both")) == [
        "user: asked in 1.x", "assistant: answered in 1.x"]


async def test_a_session_with_messages_in_both_tables_is_read_from_both(real: Path) -> None:
    with closing(sqlite3.connect(real)) as connection, connection:
        connection.execute("INSERT INTO message VALUES ('msg_zz', ?, 1796044276500, 0, ?)",
                           (IDS["v2api"], '{"role":"user"}'))
        connection.execute("INSERT INTO part VALUES ('prt_zz', 'msg_zz', ?, 0, 0, ?)",
                           (IDS["v2api"], '{"type":"text","text":"in between"}'))
    assert said(await source(real).context(IDS["v2api"])) == [
        "user: hello through /api", "user: in between", "assistant: echo: hello through /api"]
    assert said(await source(real).context(IDS["v2api"], 2)) == [
        "user: in between", "assistant: echo: hello through /api"]


# -- reading while OpenCode writes ---------------------------------------------------------------


@contextmanager
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        yield connection


@pytest.mark.parametrize("begin", [None, "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
async def test_a_live_writer_is_seen_and_not_held_up(real: Path, begin: str | None) -> None:
    sessions = source(real)
    with writer(real) as live:
        live.execute("UPDATE session SET title = 'only in the -wal' WHERE id = ?", (IDS["tools"],))
        if begin:
            live.execute(begin)
            live.execute("UPDATE session SET title = 'not committed' WHERE id = ?", (IDS["tools"],))
        main, wal = bytes_of(real), bytes_of(f"{real}-wal")
        found = await sessions.find(IDS["tools"])
        assert found is not None
        assert found.title == "only in the -wal"
        assert await sessions.list()
        assert len(await sessions.context(IDS["long"])) == 200
        assert (bytes_of(real), bytes_of(f"{real}-wal")) == (main, wal)
        if begin:
            live.execute("COMMIT")
        # A reader that was still there would keep the checkpoint from finishing.
        assert live.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_reading_creates_nothing_and_changes_no_byte(real: Path, mode: str) -> None:
    with closing(sqlite3.connect(real)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
    before, when = everything(real.parent), os.stat(real).st_mtime_ns
    sessions = source(real)
    await sessions.list()
    await sessions.search("x")
    await sessions.latest()
    await sessions.probe()
    for session in IDS.values():
        await sessions.find(session)
        await sessions.context(session)
        extract_session_context(session, path=real)
    assert everything(real.parent) == before
    assert os.stat(real).st_mtime_ns == when


async def test_a_writer_that_comes_while_a_file_at_rest_is_read_is_noticed(real: Path) -> None:
    from storage.opencode.files import read

    with closing(sqlite3.connect(real)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
    seen: list[str] = []
    with closing(sqlite3.connect(real, isolation_level=None)) as late:

        def work(connection: sqlite3.Connection, _file: object) -> str:
            if not seen:
                late.execute("UPDATE session SET title = 'just now'")
            seen.append(connection.execute("SELECT min(title) FROM session").fetchone()[0])
            return seen[-1]

        assert read(real, work) == "just now"
    assert len(seen) == 2
    assert seen[0] != "just now"


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("wal", "expected"), [(False, "read"), (True, "unreadable")])
def test_another_user_in_a_folder_that_may_not_be_written(wal: bool, expected: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        path = Path(shutil.copy(FIXTURES / "fixture.db", folder / "opencode.db"))
        with writer(path) as live:
            live.execute("UPDATE session SET title = 'x'")
            left = Path(f"{path}-wal").read_bytes()
        if wal:  # what a killed OpenCode leaves, without the index of it that only the owner may make
            Path(f"{path}-wal").write_bytes(left)
        os.chmod(path, 0o644)
        os.chmod(folder, 0o755)
        before = everything(folder)
        assert as_nobody(path) == expected
        assert everything(folder) == before
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="only root can become another user")
def test_a_file_that_only_its_owner_may_read_is_unreadable() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        path = Path(shutil.copy(FIXTURES / "fixture.db", folder / "opencode.db"))
        os.chmod(folder, 0o755)
        os.chmod(path, 0o600)
        assert as_nobody(path) == "unreadable"
        os.chmod(folder, 0o700)
        assert as_nobody(path) == "unreadable"
    finally:
        shutil.rmtree(folder)


def as_nobody(path: Path) -> str:
    """``read`` or the kind of error, as a process without rights meets the file."""
    answer, say = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                extract_session_context(IDS["tools"], path=path)
                result = "read"
            except SourceError as error:
                result = error.kind
            os.write(say, result.encode())
        finally:
            os._exit(0)
    os.close(say)
    with open(answer, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


@pytest.mark.parametrize("name", [
    "a#b.db", "a?mode=rwc&x=y.db", "100%25 sure.db", "with space.db", "新 库.db"])
async def test_a_path_may_hold_anything(tmp_path: Path, name: str) -> None:
    folder = tmp_path / f"folder of {name}"
    folder.mkdir()
    path = Path(shutil.copy(FIXTURES / "fixture.db", folder / name))
    before = everything(tmp_path)
    assert len(await source(path).list()) == 11
    assert await source(path).context(IDS["tools"])
    assert (await refused(folder / f"absent {name}")).kind == "missing"
    assert everything(tmp_path) == before


async def test_a_link_leads_to_the_file_and_its_wal(real: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(real)
    with writer(real) as live:
        live.execute("UPDATE session SET title = 'only in the -wal'")
        assert {info.title for info in await source(link).list()} == {"only in the -wal"}


async def test_another_file_in_its_place_is_another_file(real: Path, both: Path, tmp_path: Path) -> None:
    path = tmp_path / "moved.db"
    sessions = source(path)
    shutil.copy(FIXTURES / "fixture.db", path)
    assert len(await sessions.list()) == 11
    os.replace(shutil.copy(FIXTURES / "fixture_v2_synthetic.db", tmp_path / "new.db"), path)
    assert len(await sessions.list()) == 4


# -- where the file is ---------------------------------------------------------------------------


@pytest.mark.parametrize(("environ", "expected"), [
    ({"HOME": "/home/a"}, "/home/a/.local/share/opencode/opencode.db"),
    ({"HOME": "/home/a", "XDG_DATA_HOME": "/data"}, "/data/opencode/opencode.db"),
    ({"HOME": "/home/b", "XDG_DATA_HOME": "", "OPENCODE_DB": ""},
     "/home/b/.local/share/opencode/opencode.db"),
    ({"HOME": "/home/a", "OPENCODE_DB": "/tmp/x.db"}, "/tmp/x.db"),
    ({"HOME": "/home/a", "OPENCODE_DB": "other.db"}, "/home/a/.local/share/opencode/other.db"),
    ({"XDG_DATA_HOME": "/data", "OPENCODE_DB": "other.db"}, "/data/opencode/other.db"),
])
def test_the_file_is_where_opencode_looks_for_it(environ: dict[str, str], expected: str) -> None:
    assert default_path(environ) == Path(expected)


def test_a_relative_path_that_is_not_in_the_data_folder_is_meant_from_here(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(real.parent)
    environ = {"HOME": str(tmp_path / "home"), "OPENCODE_DB": f"../{real.parent.name}/{real.name}"}

    assert default_path(environ) == real.resolve()


async def test_without_a_path_the_environment_decides(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_DB", str(real))
    assert len(await OpenCodeSource().list()) == 11
    assert extract_session_context(IDS["child"]) == "用户: sub work please\n小小莫: echo: sub work please"
