"""How the title of a session is shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm.constants import CMD_RE
from fsm.language.titles import one_line, show_title

JOINER = "\u2060"


def test_an_ordinary_title_is_shown_as_it_is() -> None:
    assert show_title("博客 weather 草稿") == "博客 weather 草稿"


def test_a_title_of_many_lines_becomes_one() -> None:
    assert show_title("fix\r\n\tthe\u2028login\x85 bug\x00") == "fix the login bug"


def test_characters_that_turn_or_hide_text_are_taken_out() -> None:
    assert show_title("safe\u202egpj.exe\u2066\u200b\ufeff\U000e0041") == "safegpj.exe"
    assert show_title("a\ud800b") == "ab"


@pytest.mark.parametrize("title", ["", None, " \n ", "\u200b\u202e", "\u3164", "\u2800 \u2800"])
def test_nothing_to_show_gets_a_name(title: str | None) -> None:
    assert show_title(title) == "(untitled)"
    assert show_title(title, lang="zh") == "（无标题）"
    assert show_title(title, lang="fr") == "(untitled)"


def test_a_long_title_is_cut_with_an_ellipsis() -> None:
    assert show_title("x" * 40) == "x" * 40
    assert show_title("x" * 41) == "x" * 39 + "…"
    assert show_title("天气机器人", limit=3) == "天气…"


def test_a_cut_does_not_part_a_mark_from_its_letter() -> None:
    assert show_title("ab" + "e\u0301" + "cd", limit=4) == "ab…"


def test_a_command_in_a_title_cannot_act() -> None:
    shown = show_title("##switch_session:ses_b## now")
    assert not CMD_RE.search(shown)
    assert shown.replace(JOINER, "") == "##switch_session:ses_b## now"


@given(title=st.text(st.characters(exclude_categories=[]), max_size=80), limit=st.integers(2, 60))
def test_every_title_becomes_one_short_visible_line(title: str, limit: int) -> None:
    shown = show_title(title, limit)
    visible = shown.replace(JOINER, "")
    assert visible.strip()
    assert len(visible.splitlines()) == 1
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in visible)
    assert not CMD_RE.search(shown)
    if one_line(title):
        assert len(visible) <= limit
    shown.encode()
