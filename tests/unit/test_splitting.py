"""Long texts are cut into pieces that put together are the text again, with code kept readable."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.splitting import SMALLEST, Measure, characters, cut, split, utf8_bytes

LINES = st.one_of(
    st.sampled_from(["", "```", "```python", "~~~", "````", "  ```js", "a" * 200, "好" * 90, "# 标题", "x = 1"]),
    st.text(alphabet="ab 好。👩🏽\u200d\u0301\r`~", max_size=120),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)
MEASURES = st.sampled_from([characters, utf8_bytes])


def open_fence(text: str) -> str:
    """The marks of the block that is still open at the end of ``text``, as CommonMark reads it."""
    marks = ""
    for line in text.split("\n"):
        found = re.fullmatch(r" {0,3}(`{3,}|~{3,})(.*)", line.rstrip("\r"))
        if found is None:
            continue
        if not marks and (found[1][0] == "~" or "`" not in found[2]):
            marks = found[1]
        elif marks and found[1][0] == marks[0] and len(found[1]) >= len(marks) and not found[2].strip():
            marks = ""
    return marks


@given(TEXTS, st.integers(SMALLEST, 300), MEASURES)
def test_the_pieces_joined_are_the_text_and_each_fits(text: str, limit: int, measure: Measure) -> None:
    pieces = cut(text, limit, measure)

    assert "".join(piece.raw for piece in pieces) == text
    assert [measure(piece.text) for piece in pieces if measure(piece.text) > limit] == []


@given(TEXTS, st.integers(SMALLEST, 300), MEASURES)
def test_no_piece_but_the_last_leaves_a_fence_open(text: str, limit: int, measure: Measure) -> None:
    pieces = cut(text, limit, measure)

    assert [open_fence(piece.text) for piece in pieces[:-1] if open_fence(piece.text)] == []
    if len(pieces) > 1:
        assert open_fence(pieces[-1].text) == open_fence(text)


@given(TEXTS, st.integers(SMALLEST, 300))
def test_a_piece_adds_nothing_but_fence_lines_and_takes_away_nothing_but_line_breaks(text: str, limit: int) -> None:
    for piece in cut(text, limit):
        assert piece.raw.strip("\n") in piece.text


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert split("\n\n  a\n", 64) == ["\n\n  a\n"]


def test_a_cut_is_made_between_paragraphs_where_one_is_near() -> None:
    first, second = "a word " * 8, "another " * 6

    assert split(f"{first}\n\n{second}", 80) == [first, second]


def test_a_line_break_is_better_than_a_space_and_a_space_better_than_a_word() -> None:
    assert split("a" * 40 + "\n" + "b" * 40, 64) == ["a" * 40, "b" * 40]
    assert split("a" * 40 + " " + "b" * 40, 64) == ["a" * 40 + " ", "b" * 40]
    assert split("a" * 100, 64) == ["a" * 64, "a" * 36]


def test_a_block_that_must_be_cut_is_closed_and_opened_again_with_its_language() -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(11))
    pieces = split(f"```python\n{code}\n```", 64)

    assert len(pieces) == 3
    assert [piece for piece in pieces if not re.fullmatch(r"```python\n.*\n```", piece, re.DOTALL)] == []
    assert "\n".join(piece.removeprefix("```python\n").removesuffix("\n```") for piece in pieces) == code


def test_a_block_that_fits_into_the_next_piece_is_not_cut() -> None:
    prose = "word " * 12
    block = "```\na\nb\nc\n```"

    assert split(f"{prose}\n{block}", 64) == [prose, block]


def test_what_is_seen_as_one_character_stays_whole() -> None:
    family = "👩🏽\u200d👧"

    assert all(piece.count(family) * len(family) == len(piece) for piece in split(family * 40, 66))


def test_bytes_are_counted_where_bytes_are_the_limit() -> None:
    assert [len(piece) for piece in split("好" * 100, 90, utf8_bytes)] == [30, 30, 30, 10]


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="a limit of 63 is too small for messages; give at least 64"):
        split("text", 63)
