"""Damaged, odd, huge and old journals: what a reader makes of them, and what the next append does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.journal import (
    MAX_RECORD,
    JournalFile,
    JournalForeign,
    JournalVersionError,
    check,
    migrate,
    record,
    resume,
    show,
    turn_usage,
)

A = '{"v":3,"timestamp":"2026-01-15T08:00:00Z","turn":1,"event":"turn_start","data":{"content":"你好"}}\n'.encode()
B = ('{"v":3,"timestamp":"2026-01-15T08:00:01Z","turn":1,"event":"tool_call",'
     '"data":{"id":"c1","name":"list_sessions","input":"天气"}}').encode()
D = b'{"v":3,"timestamp":"2026-01-15T08:00:02Z","turn":1,"event":"turn_end","data":{}}\n'
END = record(1, "turn_end", {}, 1768464003.0)


def journal(folder: Path, *parts: bytes) -> Path:
    path = folder / "ses_a.jsonl"
    path.write_bytes(b"".join(parts))
    return path


def events(path: Path) -> list[str]:
    return [held.event for held in JournalFile(path).load().records]


@pytest.mark.parametrize(("parts", "entries", "warned"), [
    pytest.param([A, B[:-4]], 1, [2], id="JNL-01 torn in a 3-byte character"),
    pytest.param([A, b'{"v":3,"event":"tool_'], 1, [2], id="JNL-01 torn in ASCII"),
    pytest.param([A, B], 2, [], id="JNL-01 complete but no newline"),
    pytest.param([b'{"v"'], 0, [1], id="JNL-01 only a stub"),
    pytest.param([], 0, [], id="JNL-01 empty file"),
    pytest.param([A, b"\0" * 4096], 1, [2], id="JNL-01 a tail of NULs"),
    pytest.param([A, B, b"\0" * 64], 2, [2], id="JNL-01 NULs behind a complete record"),
    pytest.param([A, b"123"], 1, [2], id="JNL-01 a number that may be half of one"),
    pytest.param([A, b"  "], 1, [], id="JNL-01 blanks at the end"),
])  # fmt: skip
def test_a_torn_end_is_dropped_and_the_next_append_is_whole(
    tmp_path: Path, parts: Sequence[bytes], entries: int, warned: list[int]
) -> None:
    path = journal(tmp_path, *parts)
    before = path.read_bytes()

    loaded = JournalFile(path).load()

    assert len(loaded.records) == entries
    assert [complaint.line for complaint in loaded.complaints] == warned
    assert path.read_bytes() == before, "reading changes nothing"

    with JournalFile(path) as file:
        file.append(END)
    assert path.read_bytes().endswith(b"\n")
    again = JournalFile(path).load()
    assert again.records == (*loaded.records, END)
    assert again.complaint_count == 0, "no line holds anything but one record"


GLUED = b'{"v":3,"event":"tool_ca' + B + b"\n"
TWO = A.rstrip() + D


@pytest.mark.parametrize(("parts", "entries", "warned"), [
    pytest.param([A, b'{"v":3,"event":\n', D], 2, [2], id="JNL-03 bad middle line"),
    pytest.param([A, GLUED, D], 2, [2], id="JNL-03 stub glued to a record"),
    pytest.param([TWO], 0, [1], id="JNL-03 two records on one line"),
    pytest.param([A, b"\n   \n", D], 2, [], id="JNL-03 blank lines"),
    pytest.param([A.replace(b"\n", b"\r\n"), D], 2, [], id="JNL-03 CRLF"),
    pytest.param([b"\xef\xbb\xbf", A, D], 2, [], id="JNL-03 BOM"),
    pytest.param([A, b'null\n123\n[]\n"x"\n', D], 2, [2, 3, 4, 5], id="JNL-03 valid JSON wrong shape"),
    pytest.param([D], 1, [1], id="JNL-03 end without start"),
    pytest.param([A, A.replace(b"1,", b'"t1",', 1), D], 2, [2], id="JNL-03 a turn that is no number"),
    pytest.param([A, D.replace(b"turn_end", b"turn_over")], 1, [2], id="JNL-03 an event that is none"),
    pytest.param([A, b"\0" * 64, D], 2, [2], id="JNL-03 NULs before a record"),
    pytest.param([A, A.replace("你".encode(), b"\xe4\xbd"), D], 2, [2], id="JNL-03 a line that is not UTF-8"),
    pytest.param([A, b'{"v":3,"turn":1,\n"event":"turn_end"}\n', D], 2, [2, 3], id="JNL-03 a record on two lines"),
    pytest.param([A, TWO, b"\n", D], 2, [2], id="JNL-03 as many records as lines, though two share one"),
    pytest.param([A, b"[" * 100_000 + b"\n", D], 2, [2], id="JNL-03 nested beyond reason"),
])  # fmt: skip
def test_damage_in_the_middle_costs_only_its_own_line(
    tmp_path: Path, parts: Sequence[bytes], entries: int, warned: list[int]
) -> None:
    path = journal(tmp_path, *parts)

    quick = resume(path, "ses_a")

    assert quick.records == entries
    assert [complaint.line for complaint in quick.complaints] == warned
    lines = [complaint.line for complaint in JournalFile(path).load().complaints]
    assert lines == [line for line in warned if not (len(parts) == 1 and parts[0] is D)], "an order is not a line's"
    assert path.read_bytes() == b"".join(parts), "the bad line stays where it is"
    JournalFile(path).append(END)
    assert path.read_bytes().startswith(b"".join(parts))


def test_jnl_03_the_same_damage_deep_in_a_file_is_found_by_its_number(tmp_path: Path) -> None:
    bad = {1503: b'{"v":3,"event":\n', 2718: GLUED, 2719: TWO}
    path = journal(tmp_path, *(bad.get(number, A if number % 2 else D) for number in range(1, 4001)))

    found = resume(path, "ses_a")

    assert [complaint.line for complaint in found.complaints] == [1503, 2718, 2719]
    assert found.records == 3997 == len(JournalFile(path).load().records)


@pytest.mark.parametrize("text", [
    pytest.param("a\u2028b\u2029c\x85d", id="JNL-04 line separators of Unicode"),
    pytest.param("a\r\nb\x0bc", id="JNL-04 line feeds and a vertical tab"),
    pytest.param("\U0001f600 \x00 \x7f \ufeff", id="JNL-04 emoji and controls"),
])  # fmt: skip
def test_what_looks_like_a_line_end_inside_a_text_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ses_a.jsonl"

    JournalFile(path).append(record(1, "turn_start", {"content": text}, 0.0))

    assert path.read_bytes().count(b"\n") == 1
    loaded = JournalFile(path).load()
    assert (loaded.records[0].data["content"], loaded.complaint_count) == (text, 0)
    raw = text.translate(dict.fromkeys(range(32)))
    path.write_bytes(A.replace("你好".encode(), raw.encode()))
    assert JournalFile(path).load().complaint_count == 0, "written raw by another program"


def test_jnl_04_half_a_character_and_huge_numbers_survive_what_the_decoder_refuses(tmp_path: Path) -> None:
    path = journal(tmp_path, A, b'{"v":3,"turn":1,"event":"tool_result","data":{"content":"\\ud800 x","n":NaN}}\n', D)

    with JournalFile(path) as file:
        file.append(record(2, "turn_start", {"content": "\ud83d half", "n": 2**200}, 0.0))
        loaded = file.load()

    assert loaded.complaint_count == 0
    assert loaded.records[1].data["content"] == "\ud800 x"
    assert loaded.records[3].data == {"content": "\ufffd half", "n": 2**200}


_PEAK = """
import sys, time
from pathlib import Path
from storage.journal import resume
def peak():  # not ru_maxrss, which begins with what the parent held
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before = peak()
began = time.monotonic()
found = resume(Path(sys.argv[1]), "ses_a", messages=200)
print(found.records, [c.line for c in found.complaints], peak() - before, time.monotonic() - began)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("before", "after", "entries", "warned"), [
    pytest.param(A + B[:-2] + b'","text":"', b'"}}\n' + D, 2, [2], id="JNL-06 one record of 100 MiB"),
    pytest.param(b"", b"", 0, [1], id="JNL-06 100 MiB without any newline"),
])  # fmt: skip
def test_a_line_of_100_mib_is_passed_over_in_bounded_memory(
    tmp_path: Path, before: bytes, after: bytes, entries: int, warned: list[int]
) -> None:
    path = tmp_path / "ses_a.jsonl"
    with path.open("wb") as file:
        file.write(before)
        for _ in range(100):
            file.write(b"x" * 1024 * 1024)
        file.write(after)

    # In a process of its own: peak memory is that of everything a process ever did.
    told = subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True).stdout

    records, rest = told.split(" ", 1)
    lines, memory, seconds = rest.rsplit(" ", 2)
    assert (int(records), lines) == (entries, str(warned))
    assert float(memory) <= 64
    assert float(seconds) <= 30
    size = path.stat().st_size
    if entries == 0:
        with pytest.raises(JournalForeign, match="No line of"):
            JournalFile(path).append(END)
        assert path.stat().st_size == size
        return
    JournalFile(path).append(END)
    assert path.stat().st_size > size, "what is too large to judge is not thrown away"
    assert events(path)[-1] == "turn_end"


def test_jnl_06_a_result_of_100_mib_is_written_as_a_beginning_and_a_file_beside(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    large = {"id": "c1", "content": "天" + "x" * (100 * 1024 * 1024), "usage": {"input_tokens": 4}}

    with JournalFile(path) as file:
        file.append(record(1, "tool_result", large, 0.0))
        assert path.stat().st_size <= MAX_RECORD
        held = file.load().records[0].data
        assert held["truncated"] is True
        assert held["content"].startswith("天xxx")
        assert (held["id"], held["usage"]) == ("c1", {"input_tokens": 4})
        assert file.blob(held["blob"]["sha256"]) == large
    assert check(path)["ok"]
    (tmp_path / "blobs" / held["blob"]["sha256"]).unlink()
    assert [complaint["line"] for complaint in check(path)["complaints"]] == [1]


@pytest.mark.parametrize("data", [
    pytest.param(["x" * 1000] * 5000, id="a list"),
    pytest.param({f"key {n}": n for n in range(200_000)}, id="many keys"),
    pytest.param({"a": [{"b": ["y" * 2_000_000]}]}, id="far inside"),
    pytest.param("z" * 2_000_000, id="a text"),
])  # fmt: skip
def test_jnl_06_any_large_data_is_shortened_and_found_whole_again(tmp_path: Path, data: Any) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(record(1, "tool_result", data, 0.0))
        held = file.load().records[0].data
        assert file.path.stat().st_size <= MAX_RECORD
        assert file.blob(held["blob"]["sha256"]) == data


def usage_row(name: object, tokens_in: object, tokens_out: object, turn: int = 1) -> dict[str, object]:
    usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
    return {"usage": usage if name is None else {"id": name, **usage}}


@pytest.mark.parametrize(("rows", "total"), [
    pytest.param([("r1", 4, 9), ("r1", 4, 9), ("r1", 4, 159)], (4, 159), id="JNL-08 the last word on a call counts"),
    pytest.param([("r1", 4, 9), ("r2", 4, 9)], (8, 18), id="JNL-08 two calls"),
    pytest.param([(None, 4, 9), (None, 4, 9)], (8, 18), id="JNL-08 calls without an id"),
    pytest.param([("r1", 4, 9), ("r1", 4, None)], (4, 9), id="JNL-08 nothing new about a call"),
])  # fmt: skip
def test_every_model_call_is_counted_once(tmp_path: Path, rows: list[tuple[object, int, int]],
                                          total: tuple[int, int]) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(*(record(1, "tool_result", usage_row(*row), 0.0) for row in rows))

    found = resume(file.path, "ses_a")

    assert (found.snapshot.total_tokens.input, found.snapshot.total_tokens.output) == total
    assert found.complaint_count == 0


def test_jnl_08_numbers_that_are_none_are_told_and_not_counted(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(record(1, "tool_result", usage_row("r1", 4, None), 0.0),
                    record(1, "tool_result", usage_row("r1", "4", -1), 0.0),
                    record(1, "tool_result", {"usage": [], "cost": float("nan")}, 0.0),
                    record(1, "tool_result", {"usage": {"cost": True}}, 0.0))

    found = resume(file.path, "ses_a")

    assert (found.snapshot.total_tokens.input, found.snapshot.total_tokens.output) == (4, 0)
    assert [complaint.line for complaint in found.complaints] == [2, 2, 3, 4]


def test_jnl_08_a_turns_own_sum_replaces_what_its_calls_said(tmp_path: Path) -> None:
    calls = [(10, 1), (20, 2), (30, 3)]
    end = record(1, "turn_end", {"usage": turn_usage(calls, 0.3)}, 9.0)
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(record(1, "turn_start", {"content": "hi"}, 0.0))
        for number, (tokens_in, tokens_out) in enumerate(calls[:2]):
            row = {"usage": {"id": f"r{number}", "input_tokens": tokens_in, "output_tokens": tokens_out, "cost": 0.1}}
            file.append(record(1, "tool_call", row, 1.0), record(1, "tool_result", row, 2.0))
        before = resume(file.path, "ses_a").snapshot
        file.append(end, end)

    after = resume(file.path, "ses_a").snapshot

    assert (before.total_tokens.input, before.total_tokens.output, before.session_cost) == (30, 3, 0.2)
    assert (after.total_tokens.input, after.total_tokens.output, after.session_cost) == (60, 6, 0.3)


def test_jnl_08_a_turn_whose_end_was_torn_off_is_not_in_the_total(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        for turn in (1, 2):
            file.append(record(turn, "turn_start", {"content": "hi"}, 0.0),
                        record(turn, "turn_end", {"usage": turn_usage([(7, 3)])}, 1.0 + turn))
    path = file.path
    path.write_bytes(path.read_bytes()[:-5])

    found = resume(path, "ses_a")

    assert found.snapshot.total_tokens.input == 7
    assert found.complaint_count == 1
    assert found.interrupted_turn == 2


V1 = [b'{"timestamp":"2026-01-15T08:00:00.000Z","turn":1,"event":"turn_start","data":{"content":"hi"}}\n',
      '{"timestamp":"2026-01-15T08:00:01.000Z","turn":1,"event":"turn_end","data":{"content":"好","usage":{"input_tokens":3}}}\n'.encode()]


def test_jnl_09_old_records_are_brought_up_and_the_old_file_is_kept(tmp_path: Path) -> None:
    path = journal(tmp_path, V1[0].replace(b"{", b'{"v":1,', 1), V1[1].replace(b"{", b'{"v":1,', 1))
    before, total = path.read_bytes(), show(path)["totalTokens"]

    done = migrate(path)

    assert done.changed == 2
    assert done.backup is not None
    assert done.backup.read_bytes() == before
    assert show(path)["versions"] == {"3": 2}
    assert show(path)["totalTokens"] == total == {"input": 3, "output": 0}


def test_jnl_09_migrating_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    path = journal(tmp_path, *V1)
    migrate(path)
    after, total = path.read_bytes(), show(path)["totalTokens"]

    again = migrate(path)

    assert (again.changed, again.backup) == (0, None)
    assert path.read_bytes() == after
    assert show(path)["totalTokens"] == total
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ses_a.jsonl", "ses_a.jsonl.v1.bak"]


def test_jnl_09_unknown_keys_and_texts_go_over_as_they_are(tmp_path: Path) -> None:
    path = journal(tmp_path, b'{"v":2,"x_unknown":5,"turn":1,"event":"turn_start","data":{"content":"\\ud800",'
                             b'"y":[1e999,12345678901234567890123]}}\n')

    migrate(path)

    held = JournalFile(path).load().records[0]
    assert held.extra == {"x_unknown": 5}
    assert held.data == {"content": "\ud800", "y": [float("inf"), 12345678901234567890123]}


def test_jnl_09_a_mixed_file_loads_and_lines_without_a_version_are_the_first(tmp_path: Path) -> None:
    path = journal(tmp_path, *V1, A.replace(b'"turn":1', b'"turn":2'))

    found = show(path)

    assert found["versions"] == {"1": 2, "3": 1}
    assert [message["content"] for message in found["messages"]] == ["hi", "好", "你好"]
    assert found["complaintCount"] == 0


@pytest.mark.parametrize("parts", [[A, b'{"v":99,"turn":1,"event":"turn_end"}\n'], [b'{"v":99,"x":1}\n', A, D],
                                   [A, b'{"v":99,"x":1}']])
def test_jnl_09_a_version_from_the_future_is_refused_by_everything(tmp_path: Path, parts: list[bytes]) -> None:
    path = journal(tmp_path, *parts)

    acts = show, check, migrate, lambda path: JournalFile(path).load(), lambda path: JournalFile(path).append(END)
    for act in acts:
        with pytest.raises(JournalVersionError, match="99"):
            act(path)

    assert path.read_bytes() == b"".join(parts)
    assert [file.name for file in tmp_path.iterdir()] == ["ses_a.jsonl"]


def test_jnl_09_what_is_no_version_is_a_bad_line(tmp_path: Path) -> None:
    path = journal(tmp_path, A, *(A.replace(b"3", value, 1) for value in (b'"3"', b"true", b"0", b"null", b"3.5")))

    found = check(path)

    assert [complaint["line"] for complaint in found["complaints"]] == [2, 3, 4, 5, 6]
    assert found["records"] == 1


def test_jnl_09_a_torn_end_does_not_stop_a_migration(tmp_path: Path) -> None:
    path = journal(tmp_path, *V1, V1[1][: V1[1].index("好".encode()) + 2])

    done = migrate(path)

    assert (done.changed, done.complaint_count) == (2, 1)
    assert done.backup is not None
    assert done.backup.read_bytes().endswith(b"\xe5\xa5")
    assert check(path)["ok"]
