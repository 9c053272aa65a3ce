"""Which sessions a few words name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm.language.matching import match_sessions
from fsm.language.titles import one_line
from fsm.ports import SessionInfo

ORDINARY = [
    "天气机器人", "weather-api", "博客 weather 草稿", "部署服务器",
    "Refactor the authentication middleware of the gateway",
    "New session - 2026-01-15T07:00:00.000Z", "会话 01", "log_parser", "logXparser", "100% 覆盖率",
    "fix the login bug",
    "zhiwei notes", "pizza zones", "重庆火锅", "k", "在", "",
]  # fmt: skip


def sessions(*titles: str) -> list[SessionInfo]:
    """The first is the most recently active."""
    return [SessionInfo(f"ses_{n}", title, "journal", 1000.0 - n) for n, title in enumerate(titles)]


def found(words: str, *titles: str, narrow: bool = False) -> list[str]:
    return [session.title for session in match_sessions(words, sessions(*(titles or ORDINARY)), narrow=narrow)]


# -- exact ---------------------------------------------------------------------------------------


def test_an_exact_title_wins_over_titles_that_contain_it() -> None:
    assert found("weather", "weather-api", "weather", "weather 2") == ["weather"]
    assert found("Weather", "weather-api", "weather") == ["weather"]


def test_the_same_spelling_wins_over_the_same_letters() -> None:
    assert found("API", "api", "API") == ["API"]


def test_an_exact_id_wins() -> None:
    assert found("ses_1", "about ses_1", "other", "ses_12") == ["other"]


def test_two_sessions_of_one_title_are_both_found() -> None:
    assert found("deploy", "deploy", "x", "deploy") == ["deploy", "deploy"]


# -- contained -----------------------------------------------------------------------------------


def test_contained_words_keep_the_order_of_activity() -> None:
    assert found("WEATHER", "b weather", "other", "a Weather") == ["b weather", "a Weather"]


def test_wildcards_are_themselves_SEL_07() -> None:
    assert found("%") == ["100% 覆盖率"]
    assert found("log_parser") == ["log_parser"]
    assert found("LOG_PARSER") == ["log_parser"]
    assert found("_") == ["log_parser"]


def test_all_eighteen_are_found_SEL_07() -> None:
    titles = [f"会话 {n:02}" for n in range(1, 19)]
    assert found("会话", *titles, "log_parser") == titles


@pytest.mark.parametrize("words", ["zzz", "'; DROP TABLE session;--", "", "  ", "\u200b"])
def test_what_names_nothing_finds_nothing_SEL_07(words: str) -> None:
    assert found(words) == []


def test_width_and_unseen_characters_do_not_matter() -> None:
    assert found("ｗｅａｔｈｅｒ－ａｐｉ") == ["weather-api"]
    assert found("login bug", "fix\nthe login\u202e\n bug") == ["fix\nthe login\u202e\n bug"]


def test_a_title_copied_with_its_joiners_is_found() -> None:
    assert found("#\u2060#auto#\u2060#", "x", "##auto##") == ["##auto##"]


# -- alike ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("bushu", "部署服务器"),
        ("bs", "部署服务器"),
        ("布署", "部署服务器"),
        ("tianqi", "天气机器人"),
        ("tian qi", "天气机器人"),
        ("tq", "天气机器人"),
        ("tqjqr", "天气机器人"),
        ("tqijiqiren", "天气机器人"),
        ("天汽机器人", "天气机器人"),
        ("chongqing", "重庆火锅"),
        ("zai", "在"),
        ("wether", "weather-api"),
        ("wether api", "weather-api"),
        ("logparser", "log_parser"),
        ("authentcation", "Refactor the authentication middleware of the gateway"),
        ("refactor gateway", "Refactor the authentication middleware of the gateway"),
        ("loginbug", "fix the login bug"),
        ("pizzazones", "pizza zones"),
    ],
)
@pytest.mark.parametrize("narrow", [False, True])
def test_slips_pinyin_and_initials_find_a_session(words: str, title: str, narrow: bool) -> None:
    assert title in found(words, narrow=narrow)


@pytest.mark.parametrize(("words", "title"), [
    ("bog", "blog"), ("dcs", "docs"), ("tq", "天气机器人"), ("weather2", "weather-api"), ("tianqijiqi", "天气机器人"),
])  # fmt: skip
def test_asked_for_outright_whatever_is_alike_is_found(words: str, title: str) -> None:
    assert title in found(words, *ORDINARY, "blog", "docs")


@given(
    words=st.text("abdegilnoqstuw -", min_size=1, max_size=12),
    titles=st.lists(st.text("abdegilnoqstuw -", min_size=2, max_size=20), min_size=1, max_size=4),
)
def test_alike_is_what_scores_70_of_100(words: str, titles: list[str]) -> None:
    from rapidfuzz import fuzz

    wanted = one_line(words)
    named = found(words, *titles)
    if wanted and not any(wanted in one_line(title) for title in titles) and all(len(one_line(t)) > 1 for t in titles):
        assert set(named) == {title for title in titles if fuzz.WRatio(wanted, one_line(title)) >= 70}


def test_in_a_sentence_three_letters_must_be_the_whole_title_but_for_one() -> None:
    assert found("bog", "blog", "a blog of mine", narrow=True) == ["blog"]
    assert found("dcs", "docs and more", narrow=True) == []


@pytest.mark.parametrize(
    "words",
    ["xq", "q", "bot", "qz", "the dark theme", "new phone", "plan B of the trip", "main 分支",
     "python 3.12",
     "你好", "新手机", "looking for a job", "the the the thing", "x" * 5000, "明天的会议安排"],
)  # fmt: skip
def test_in_a_sentence_unrelated_words_find_nothing(words: str) -> None:
    assert found(words, narrow=True) == []


def test_a_title_of_one_character_is_not_found_in_every_word() -> None:
    assert found("deploy", "d", "在", "k") == []
    assert found("zai", "d", "在", "k") == ["在"]


def test_the_more_alike_comes_first_then_the_more_recent() -> None:
    assert found("wether", "weather in the north", "weathre x", "weather") == [
        "weather", "weather in the north", "weathre x",
    ]  # fmt: skip
    assert found("tq", "天启", "天气") == ["天启", "天气"]


def test_an_abbreviated_word_beside_a_whole_one_is_no_hindrance() -> None:
    assert found("deploy srv", "other", "deploy server") == ["deploy server"]
    assert found("deploy srver", "notes on how to deploy servers to the rack") != []


def test_likeness_counts_only_where_nothing_contains_the_words() -> None:
    assert found("bushu", "部署", "bushu notes") == ["bushu notes"]


@given(words=st.text(st.characters(exclude_categories=[]), max_size=30))
def test_any_words_can_be_looked_for(words: str) -> None:
    assert set(found(words)) <= set(ORDINARY)


def test_the_libraries_are_loaded_only_when_needed() -> None:
    code = "import sys, fsm.language.matching; print({'rapidfuzz', 'pypinyin'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
