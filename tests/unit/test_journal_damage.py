"""Crashes, full disks and other writers: no complete record is lost, and the next one is readable."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from storage.journal import (
    VERSION,
    Journal,
    JournalBusy,
    JournalError,
    JournalFile,
    JournalForeign,
    JournalMissing,
    JournalSource,
    JournalVersionError,
    Record,
    migrate,
    record,
    resume,
    show,
)
from storage.journal.migrations import STEPS
from storage.journal.migrations import migrate as migrate_line
from storage.journal.records import encode

RECORDS = [Record(n, "tool_call", {"n": "天" if n % 7 == 0 else n}) for n in range(200)]
LINES = [encode(one) for one in RECORDS]
NEXT = Record(999, "tool_result", "next")


def test_a_journal_cut_at_every_byte_keeps_every_complete_record_and_takes_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)  # a warning for each of 14,000 cuts would be kept in memory
    path = tmp_path / "ses_a.jsonl"
    whole = b"".join(LINES)
    ends: list[int] = []
    for line in LINES:
        ends.append((ends[-1] if ends else 0) + len(line))
    complete = len(LINES)

    with JournalFile(path) as file:
        for length in range(len(whole), -1, -1):
            path.write_bytes(whole[:length])
            while complete and length < ends[complete - 1] - 1:  # a record is complete without its line feed too
                complete -= 1
            before = resume(path, "ses_a", messages=0)
            file.append(NEXT)
            after = resume(path, "ses_a", messages=0)

            torn = length - (ends[complete - 1] if complete else 0) > 0
            assert (before.records, before.complaint_count) == (complete, int(torn)), length
            assert (after.records, after.complaint_count) == (complete + 1, 0), length
            if length % 97 == 0:
                assert file.load().records == (*RECORDS[:complete], NEXT), length


@pytest.mark.parametrize(("damage", "costs_a_line"), [
    pytest.param(b"\0" * 64, False, id="64 NULs"),
    pytest.param(LINES[0][:40] + LINES[1], True, id="a stub with a record glued to it"),
    pytest.param(LINES[0].rstrip() + LINES[1], True, id="two records on a line"),
    pytest.param(b'{"v":3,"turn":1,"event":"tool_call","data":"\xe4\xbd\xff"}\n', True, id="a line that is not UTF-8"),
])  # fmt: skip
def test_damage_at_every_border_between_records_costs_no_record(
    tmp_path: Path, damage: bytes, costs_a_line: bool
) -> None:
    path = tmp_path / "ses_a.jsonl"
    for border in range(len(LINES) + 1):
        path.write_bytes(b"".join(LINES[:border]) + damage + b"".join(LINES[border:]))

        before = resume(path, "ses_a", messages=0)
        assert before.records == len(LINES)
        assert [complaint.line for complaint in before.complaints] == [border + 1]

        with JournalFile(path) as file:
            file.append(NEXT)
            loaded = file.load()
        assert loaded.records == (*RECORDS, NEXT)
        kept = costs_a_line or border < len(LINES)  # at the very end NULs are cut off
        assert loaded.complaint_count == int(kept)


_WRITER = """
import sys
from pathlib import Path
from storage.journal import JournalFile, Record
name, count = int(sys.argv[2]), int(sys.argv[3])
sys.stdin.readline()
with JournalFile(sys.argv[1]) as file:
    for n in range(count):
        file.append(Record(n, "tool_result", {"by": name, "text": "天气" * (n % 50)}))
"""


def _python(script: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, args)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _go(*children: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    """Let children that wait for a line go on together; (exit code, stdout, stderr) of each."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    told = [child.communicate() for child in children]
    return [(child.returncode, out, err) for child, (out, err) in zip(children, told, strict=True)]


def test_four_processes_append_2000_records_each_and_none_is_lost_or_torn(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"

    ended = _go(*(_python(_WRITER, path, name, 2000) for name in range(4)))

    assert [(code, err) for code, _, err in ended] == [(0, "")] * 4
    loaded = JournalFile(path).load()
    assert loaded.complaint_count == 0
    for name in range(4):
        assert [held.turn for held in loaded.records if held.data["by"] == name] == list(range(2000))
    assert len(loaded.records) == 8000


_FILLER = """
import resource, sys
from storage.journal import JournalError, JournalFile, Record
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
with JournalFile(sys.argv[1]) as file:
    written = 0
    try:
        while True:
            file.append(Record(written, "tool_result", {"text": "天气" * 70}))
            written += 1
    except JournalError as error:
        print(written, file.path.stat().st_size, error)
"""


@pytest.mark.parametrize("limit", [0, 300, 10_000, 100_001])
def test_a_full_disk_is_a_clear_error_and_costs_only_what_did_not_fit(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "ses_a.jsonl"

    [(code, out, err)] = _go(_python(_FILLER, path, limit))

    assert (code, err) == (0, "")
    written, size, said = out.split(" ", 2)
    assert "check the disk" in said
    loaded = JournalFile(path).load()
    assert (len(loaded.records), loaded.complaint_count) == (int(written), 0)
    assert path.stat().st_size == int(size) <= limit
    JournalFile(path).append(NEXT)
    assert JournalFile(path).load().records[-1] == NEXT


def test_of_a_batch_that_does_not_fit_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JournalFile(path) as file:
        file.append(*RECORDS[:5])
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        try:
            with pytest.raises(JournalError):
                file.append(*RECORDS[5:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert file.load().records == tuple(RECORDS[:5])
        file.append(NEXT)
        assert file.load().records == (*RECORDS[:5], NEXT)


_KILLED = """
import os, signal, sys, threading
from storage.journal import JournalFile, Record
size = int(sys.argv[2])
sys.stdin.readline()
with JournalFile(sys.argv[1]) as file:
    n = 0
    while True:
        file.append(Record(n, "tool_result", {"text": "x" * size}))
        n += 1
        print(n, flush=True)
"""


@pytest.mark.parametrize("size", [200, 20_000, 900_000])
def test_a_writer_killed_at_any_moment_leaves_what_it_had_finished(tmp_path: Path, size: int) -> None:
    path = tmp_path / "ses_a.jsonl"
    for after in (1, 2, 5, 9):
        child = _python(_KILLED, path, size)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        finished = 0
        while finished < after:
            finished = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        finished = max([finished, *(int(line) for line in child.communicate()[0].split() if line.isdigit())])

        with JournalFile(path) as file:
            file.append(NEXT)
            loaded = file.load()
        turns = [held.turn for held in loaded.records]
        assert turns[: finished + 1] in ([*range(finished), 999], [*range(finished + 1)])
        assert turns[-1] == 999
        assert loaded.complaint_count == 0
        path.unlink()


_KILLED_IN_WRITE = """
import os, signal, sys
from storage.journal import JournalFile, Record, record
write = os.write
def half(fd, data):
    write(fd, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
with JournalFile(sys.argv[1]) as file:
    file.append(record(1, "turn_start", {"content": "hi"}, 0.0))
    os.write = half
    file.append(record(1, "turn_end", {"content": "bye"}, 1.0))
"""


def test_a_writer_killed_within_a_write_leaves_an_interrupted_turn(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"

    child = _python(_KILLED_IN_WRITE, path)
    child.communicate()

    assert child.returncode == -signal.SIGKILL
    found = resume(path, "ses_a")
    assert (found.interrupted_turn, found.records, found.complaint_count) == (1, 1, 1)
    with Journal(tmp_path).open("ses_a") as session:
        session.append(1, "turn_end", {"content": "bye"}, 2.0)
        again = session.resume()
    assert (again.interrupted_turn, again.records, again.complaint_count) == (None, 2, 0)


def test_threads_may_share_one_file(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:

        def write() -> None:
            for one in RECORDS:
                file.append(one)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loaded = file.load()
    assert (len(loaded.records), loaded.complaint_count) == (800, 0)


# -- the owner of a session ------------------------------------------------------------------------

_OWNER = """
import sys
from storage.journal import Journal
with Journal(sys.argv[1]).create("ses_a", at=0.0):
    print("owned", flush=True)
    sys.stdin.readline()
"""


def test_a_second_owner_is_told_who_the_first_is_and_may_own_after_it(tmp_path: Path) -> None:
    child = _python(_OWNER, tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == "owned\n"

    with pytest.raises(JournalBusy, match=str(child.pid)) as busy:
        Journal(tmp_path).open("ses_a")
    assert busy.value.pid == child.pid
    JournalFile(tmp_path / "ses_a.jsonl").append(NEXT)  # a single line is no second owner
    with pytest.raises(JournalBusy):
        migrate(tmp_path / "ses_a.jsonl")

    child.kill()
    child.communicate()
    with Journal(tmp_path).open("ses_a") as session:
        assert session.resume().records == 2
    assert [file.name for file in tmp_path.iterdir()] == ["ses_a.jsonl"], "no lock is left lying about"


def test_a_second_owner_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with journal.create("ses_a", at=0.0) as first:
        with pytest.raises(JournalBusy) as busy:
            journal.open("ses_a")
        assert busy.value.pid == os.getpid()
        with journal.create("ses_b", at=0.0):
            first.append(1, "turn_start", {"content": "hi"}, 1.0)
        first.close()
        first.close()
    journal.open("ses_a").close()


def test_no_such_session_is_an_answer_and_not_a_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    assert journal.load("ses_none") is None
    with pytest.raises(JournalMissing, match="ses_none"):
        journal.open("ses_none")
    with pytest.raises(JournalMissing):
        show(tmp_path / "ses_none.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("session_id", ["../x", "..", ".", "/etc/x", "a/../../x", "..\\x", "C:\\x", "", " ", "a\0b",
                                        "x" * 201, "\ud800"])
def test_an_id_that_would_leave_the_folder_or_cannot_be_a_name_is_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(JournalError, match="No session can be called"):
        Journal(tmp_path / "sessions").create(session_id, at=0.0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_or_a_pipe_in_the_place_of_a_journal_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("folder", "pipe"):
        path = tmp_path / f"{name}.jsonl"
        with pytest.raises(JournalError, match=r"is no file|cannot be"):
            show(path)
        with pytest.raises(JournalError, match=r"is no file|cannot be"):
            JournalFile(path).append(NEXT)


@pytest.mark.parametrize(("held", "said"), [
    (Record(1, "turn_over", {}), "turn_over"),
    (Record(-1, "turn_end", {}), "-1"),
    (Record(True, "turn_end", {}), "True"),
])  # fmt: skip
def test_what_no_reader_would_take_is_not_written(tmp_path: Path, held: Record, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JournalFile(tmp_path / "ses_a.jsonl").append(held)
    assert list(tmp_path.iterdir()) == []


# -- migrations ------------------------------------------------------------------------------------

OLD = [b'{"timestamp":"2026-01-15T08:00:00.000Z","turn":%d,"event":"turn_start","data":{"content":"hi"}}\n' % n
       for n in range(500)]


_KILLED_MIGRATING = """
import os, signal, sys
from storage.journal import migrate
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
migrate(sys.argv[1])
"""


def test_jnl_09_a_migration_killed_before_the_rename_has_changed_nothing_and_can_run_again(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(b"".join(OLD))

    child = _python(_KILLED_MIGRATING, path)
    child.communicate()

    assert child.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"".join(OLD)
    assert (tmp_path / "ses_a.jsonl.new").exists(), "the draft is left, and in nobody's way"
    assert migrate(path).changed == 500
    assert show(path)["versions"] == {"3": 500}
    assert not (tmp_path / "ses_a.jsonl.new").exists()


_MIGRATING = """
import sys
from storage.journal import JournalBusy, migrate
sys.stdin.readline()
try:
    print(migrate(sys.argv[1]).changed)
except JournalBusy:
    print("busy")
"""


def test_jnl_09_of_two_migrations_at_once_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(b"".join(OLD))

    ended = _go(*(_python(_MIGRATING, path) for _ in range(3)))

    assert [(code, err) for code, _, err in ended] == [(0, "")] * 3
    told = sorted(out.strip() for _, out, _ in ended)
    assert told.count("500") == 1
    assert set(told) <= {"500", "0", "busy"}
    assert show(path)["versions"] == {"3": 500}


def test_an_append_during_a_migration_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(b"".join(OLD))
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with JournalFile(path) as file:
            while not done.is_set() or written < 50:
                file.append(Record(written, "tool_result", "new"))
                written += 1

    thread = threading.Thread(target=write)
    thread.start()
    while not written:
        pass
    migrate(path)
    done.set()
    thread.join()

    loaded = JournalFile(path).load()
    assert [held.turn for held in loaded.records if held.data == "new"] == list(range(written))
    assert loaded.versions == {3: 500 + written}


@pytest.mark.parametrize(("config", "becomes"), [
    ('"{\\"model\\":\\"m\\",\\"maxTurns\\":5}"', {"model": "m", "maxTurns": 5}),
    ('{"model":"m"}', {"model": "m"}),
    ('"some-model"', {"model": "some-model"}),
    ('"{broken"', {"unread": "{broken"}),
])  # fmt: skip
def test_a_config_that_was_a_text_becomes_an_object(tmp_path: Path, config: str, becomes: dict[str, object]) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_text('{"v":2,"event":"header","turn":0,"data":{"config":' + config + ',"x":1}}\n'
                    '{"v":2,"turn":1,"event":"turn_end","data":{}}\n', encoding="utf-8")

    before = show(path)["config"]
    migrate(path)

    assert show(path)["config"] == before
    assert JournalFile(path).load().records[0].data == {"config": becomes, "x": 1}


def test_a_first_header_without_an_event_is_understood_and_given_totals(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_text('{"v":1,"id":"ses_a","title":"T","startedAt":"2026-01-01T00:00:00Z","config":"m"}\n'
                    '{"turn":1,"event":"turn_start","data":"hi"}\n', encoding="utf-8")

    before = show(path)
    migrate(path)
    after = show(path)

    assert before["title"] == "T"
    assert before["startedAt"] == "2026-01-01T00:00:00Z"
    assert before["config"]["model"] == "m"
    assert {**after, "versions": before["versions"]} == before
    assert b'"totalTokens":{"input":0,"output":0}' in path.read_bytes().splitlines()[0]


def test_bad_lines_and_lines_that_are_too_long_go_over_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    long = b'{"x":"' + b"y" * (5 * 1024 * 1024) + b'"}\n'
    bad = [b"not json\n", long, b'{"v":3,"turn":9,"event":"turn_end","data":"as it is" }\n']
    path.write_bytes(OLD[0] + b"".join(bad) + OLD[1])

    done = migrate(path)

    assert (done.changed, done.complaint_count) == (2, 2)
    assert b"".join(bad) in path.read_bytes()
    assert JournalFile(path).load().versions == {3: 3}


def test_a_gap_in_the_steps_is_a_clear_error(tmp_path: Path) -> None:
    steps = {1: STEPS[1]}

    with pytest.raises(JournalVersionError, match="version 2 to the next") as gap:
        migrate_line({"v": 1, "turn": 1, "event": "turn_end"}, steps=steps, path="ses_a.jsonl", number=7)

    assert (gap.value.version, gap.value.line) == (2, 7)
    assert "Nothing was changed" in str(gap.value)
    assert migrate_line({"v": 3}, steps={}) == {"v": 3}


def test_every_version_has_a_step_to_the_next() -> None:
    assert sorted(STEPS) == list(range(1, VERSION))


def test_a_record_that_was_read_is_written_as_it_was(tmp_path: Path) -> None:
    held = record(1, "turn_start", {"content": "hi"}, 1768464000.25)
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(held)
        assert file.load().records == (held,)
    assert held.timestamp == "2026-01-15T08:00:00.250000Z"


# -- files of somebody else ----------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="a link takes rights there that few have")
@pytest.mark.parametrize("there", [True, False], ids=["leads somewhere", "leads nowhere"])
def test_a_journal_is_never_written_through_a_link(tmp_path: Path, there: bool) -> None:
    outside, path = tmp_path / "outside.jsonl", tmp_path / "sessions" / "ses_a.jsonl"
    path.parent.mkdir()
    path.symlink_to(outside)
    if there:
        outside.write_bytes(encode(record(1, "turn_start", {"content": "hi"}, 0.0)))
    before = outside.read_bytes() if there else None

    for write in (
        lambda: JournalFile(path).append(record(1, "turn_end", {}, 0.0)), lambda: migrate(path),
        lambda: Journal(path.parent).create("ses_a", at=0.0),
    ):
        with pytest.raises(JournalForeign, match="is a symbolic link, which a session journal may not be"):
            write()

    assert (outside.read_bytes() if outside.exists() else None) == before
    assert path.is_symlink()


@pytest.mark.parametrize("content", [
    b"root:x:0:0:root:/root:/bin/bash\n", b"no line feed at the end", b"a\nb\n\"{}\"", b"[1]\n[2]\n", b"\xff\xfe\n",
], ids=["lines", "no line feed", "mixed", "json", "bytes"])
async def test_a_file_without_a_single_record_is_left_alone_and_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(content)
    source = JournalSource(tmp_path)

    with pytest.raises(JournalForeign, match="is a record of a session, so nothing is added to it"):
        JournalFile(path).append(record(1, "turn_end", {}, 0.0))
    assert path.read_bytes() == content
    assert await source.list() == []
    assert [one.session for one in source.unread()] == ["ses_a"]


@pytest.mark.parametrize("torn", [b"", b"\0" * 5000, b'{"v":3,"timesta', b'\xef\xbb\xbf{"v"', b'{"v":3,"\0\0\0'])
def test_a_journal_whose_writer_was_killed_in_its_first_record_is_gone_on_with(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(torn)
    end = record(1, "turn_end", {}, 0.0)
    JournalFile(path).append(end)

    assert JournalFile(path).load().records == (end,)
