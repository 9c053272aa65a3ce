"""What Hermes' stored messages say about a call, in the shapes that Hermes 0.19 leaves behind."""

from __future__ import annotations

import pytest

from storage.hermes.api import Row, judged
from storage.hermes.turn import GO_ON, Progress, ended, newest, progress

SAID = "please do it"


def user(text: object = SAID) -> Row:
    return Row(0, "user", text)


def answer(text: str, reason: str | None = "stop") -> Row:
    return Row(0, "assistant", text, finish_reason=reason)


CALL = Row(0, "assistant", "Let me look.", tool_calls=[{"id": "1"}], finish_reason="tool_calls")
RESULT = Row(0, "tool", "there it is")


@pytest.mark.parametrize(("rows", "expected"), [
    pytest.param([], Progress(), id="never stored"),
    pytest.param([user("another")], Progress(), id="only somebody else wrote"),
    pytest.param([user()], Progress(True), id="stored, nothing done yet or the model failed"),
    pytest.param([user(), CALL], Progress(True), id="a tool runs, or died with the gateway"),
    pytest.param([user(), CALL, RESULT], Progress(True), id="the model is asked what to make of the result"),
    pytest.param([user(), answer("done")], Progress(True, False, True, True, "done"), id="answered"),
    pytest.param([user(), CALL, RESULT, answer("done")], Progress(True, False, True, True, "Let me look.\n\ndone"),
                 id="answered, with a word before the tool"),
    pytest.param([user(), answer("do", None)], Progress(True, False, False, True), id="interrupted while it spoke"),
    pytest.param([user(), answer("do", "length"), user("[System: go on]")], Progress(True), id="Hermes asks for more"),
    pytest.param([user(), answer("do", "length"), user("[System: go on]"), answer("ne")],
                 Progress(True, False, True, True, "do\n\nne"), id="more came"),
    pytest.param([user(), answer("do", None), user(GO_ON)], Progress(True), id="we asked for the rest"),
    pytest.param([user(), answer("do", None), user(GO_ON), answer("done")], Progress(True, False, True, True, "done"),
                 id="the whole came at the second try"),
    pytest.param([user(), user("another"), answer("to both")], Progress(True, True, False, True),
                 id="somebody wrote before it was answered"),
    pytest.param([user(), answer("done"), user("another"), answer("more")], Progress(True, True, True, True, "done"),
                 id="somebody wrote after it was answered"),
    pytest.param([user(), answer("old"), user(), CALL], Progress(True), id="the same words, copied by a compression"),
    pytest.param([user(f"[CONTEXT SUMMARY] …\n\n{SAID}"), answer("done")], Progress(True, False, True, True, "done"),
                 id="a summary was put before it"),
    pytest.param([user([{"type": "text", "text": SAID}]), answer("done")], Progress(True, False, True, True, "done"),
                 id="stored in parts"),
])  # fmt: skip
def test_how_far_a_call_came_is_read_from_the_rows(rows: list[Row], expected: Progress) -> None:
    numbered = [Row(at + 11, row.role, row.content, row.tool_calls, row.finish_reason) for at, row in enumerate(rows)]
    before = [Row(9, "user", SAID), Row(10, "assistant", "an old answer", finish_reason="stop")]
    assert progress(before + numbered, 10, f" {SAID}\n") == expected


def test_a_turn_has_ended_with_an_answer_that_calls_no_tool() -> None:
    rows = [Row(1, "user", "x"), Row(2, "assistant", "", [{"id": "1"}]), Row(3, "assistant", "y")]
    assert [ended(newest(rows[:count], 0)) for count in range(4)] == [False, False, False, True]
    assert not ended(newest(rows, 3))


@pytest.mark.parametrize(("words", "expected"), [
    ("HTTP 401: no", ("auth", False)), ("HTTP 402: pay", ("quota", False)), ("HTTP 404: what", ("not_found", False)),
    ("HTTP 408: slow", ("timeout", True)), ("HTTP 429: wait", ("rate_limit", True)),
    ("HTTP 422: no", ("rejected", False)), ("Error code: 503 - {}", ("server", True)),
    ("Connection error.", ("error", True)), ("", ("error", True)),
])  # fmt: skip
def test_a_provider_s_failure_is_judged_by_the_status_in_its_words(words: str, expected: tuple[str, bool]) -> None:
    assert judged(words) == expected
