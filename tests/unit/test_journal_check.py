"""Checking a journal is stricter than loading it, and names the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.journal import check, show

START = {"v": 3, "timestamp": "2026-01-15T08:00:00Z", "turn": 1, "event": "turn_start", "data": {"content": "在吗"}}
END = {"v": 3, "timestamp": "2026-01-15T08:00:01Z", "turn": 1, "event": "turn_end", "data": {"content": "在"}}


def journal(folder: Path, *records: dict[str, Any] | str) -> Path:
    path = folder / "ses_a.jsonl"
    lines = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in records)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def complaints(path: Path) -> list[tuple[int, str]]:
    found = check(path)
    assert found["ok"] is (found["complaintCount"] == 0)
    assert found["complaintCount"] == len(found["complaints"])
    return [(one["line"], one["problem"]) for one in found["complaints"]]


@pytest.mark.parametrize(("changed", "problem"), [
    ({"data": []}, "data is a list, not an object"),
    ({"data": 5}, "data is a number, not an object"),
    ({"data": True}, "data is true or false, not an object"),
    ({"data": {"content": 5}}, "the content of the message is a number, not text or blocks"),
    ({"timestamp": "yesterday"}, "timestamp is 'yesterday', not a time such as 2026-01-15T08:00:00Z"),
    ({"timestamp": "2026-13-40T00:00:00Z"}, "timestamp is '2026-13-40T00:00:00Z', not a time"),
    ({"timestamp": True}, "timestamp is True, not a time"),
    ({"timestamp": 1e300}, "timestamp is 1e+300, not a time"),
    ({"timestamp": ["now"]}, "timestamp is a list, not a time"),
    ({"timestamp": "x" * 5000}, "timestamp is 'xxxx"),
])
def test_what_loading_takes_for_nothing_is_wrong_in_a_check(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    path = journal(tmp_path, START, END, {**START, "turn": 2, **changed}, {**END, "turn": 2})
    ((line, said),) = complaints(path)
    assert line == 3
    assert said.startswith(problem)
    assert len(said) < 200
    assert show(path)["complaintCount"] == 0, "loading gets over it"


@pytest.mark.parametrize("changed", [
    {"data": None}, {"data": "在吗"}, {"data": {}}, {"data": {"content": [{"type": "text", "text": "x"}]}},
    {"data": {"messages": [{"role": "user", "content": "x"}]}}, {"timestamp": None}, {"timestamp": ""},
    {"timestamp": 1768464000}, {"timestamp": 1768464000000}, {"timestamp": "2026-01-15T08:00:00+08:00"},
])
def test_what_other_writers_may_write_is_nothing_wrong(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert complaints(journal(tmp_path, {**START, **changed}, END)) == []


def test_what_may_be_missing_is_not_missed(tmp_path: Path) -> None:
    bare = {"turn": 1, "event": "turn_start"}
    assert complaints(journal(tmp_path, bare, {**bare, "event": "turn_end"})) == []


def test_complaints_stand_in_the_order_of_the_lines_and_none_is_told_twice(tmp_path: Path) -> None:
    path = journal(
        tmp_path, {**START, "data": []}, "no json", {**END, "event": "nonsense", "data": []},
        {**END, "timestamp": "soon", "data": 1}, "",
    )  # fmt: skip
    assert [line for line, _ in complaints(path)] == [1, 2, 3, 4, 4]


def test_turns_that_overlap_are_nothing_wrong_and_each_is_counted_by_itself(tmp_path: Path) -> None:
    """As two processes on one session write them."""
    def used(number: int, **more: int) -> dict[str, Any]:
        return {"usage": {"input_tokens": number, "output_tokens": number, **more}}

    call = {"event": "tool_call", "data": {"id": "c", "name": "x", **used(10)}}
    start, end = {**START, "turn": 2}, {**END, "turn": 2}
    path = journal(
        tmp_path, START, {**START, **call}, start, {**start, **call}, {**END, "data": used(30, calls=2)},
        {**end, "data": used(40, calls=2)},
    )  # fmt: skip

    assert complaints(path) == []
    found = show(path)
    assert found["totalTokens"] == {"input": 70, "output": 70}
    assert (found["interruptedTurn"], found["turnCount"]) == (None, 2)
    assert complaints(journal(tmp_path, START, start, END, end, END)) == [
        (5, "the end of turn 1, which was not begun")]  # fmt: skip


@pytest.mark.parametrize(("records", "turn"), [
    ((START, {**START, "turn": 2}, END), 2), ((START, {**START, "turn": 2}, {**END, "turn": 2}), None),
], ids=["the last is open", "an earlier one was left"])
def test_the_interrupted_turn_is_the_last_one_that_was_begun(
    tmp_path: Path, records: tuple[dict[str, Any], ...], turn: int | None
) -> None:
    found = show(journal(tmp_path, *records))
    assert (found["interruptedTurn"] or {}).get("turn") == turn
    assert found["complaintCount"] == 0
