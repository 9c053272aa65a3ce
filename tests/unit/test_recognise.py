"""What a message is taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fsm.conversation import State
from fsm.language.durations import parse_duration
from fsm.language.recognise import Kind, Recognised, recognise
from fsm.language.words import EN, WORDS, ZH, Words

CASES = {
    case["id"]: case
    for case in yaml.safe_load(
        (Path(__file__).parents[1] / "cases" / "selection_words.yaml").read_text(encoding="utf-8")
    )
}


def examples(case_id: str) -> list[Any]:
    rows = CASES[case_id]["examples"]
    return [pytest.param(row["in"], row["out"], id=f"{case_id}-{row['in']!a}") for row in rows]


def read(text: str, state: State = State.IDLE, words: Words = WORDS) -> Recognised:
    return recognise(text, state, words)


# -- numbers, cancel, stop -----------------------------------------------------------------------


@pytest.mark.parametrize(("text", "out"), examples("SEL-06"))
def test_only_plain_digits_answer_a_list(text: str, out: int | str) -> None:
    got = read(text, State.AWAITING_SELECTION)
    if out == "not_a_number":
        assert got.kind is Kind.TEXT
        return
    assert got.kind is Kind.NUMBER
    assert got.number is not None
    if out == "out_of_range":
        assert not 1 <= got.number <= CASES["SEL-06"]["rows"]
    else:
        assert got.number == out


@pytest.mark.parametrize("text", ["#2", "＃２", "第 2 个", "第２个。", "2!", "2。", "２．", "\ufeff2", "#2."])
def test_a_number_may_be_dressed_a_little(text: str) -> None:
    assert read(text, State.AWAITING_SELECTION) == Recognised(Kind.NUMBER, number=2)


@pytest.mark.parametrize("text", ["2个", "第二个", "(2)", "2、", "+2", "2.5", "1-2", "第2", "№2", "２ ３"])
def test_other_ways_to_write_a_number_are_text(text: str) -> None:
    assert read(text, State.AWAITING_SELECTION).kind is Kind.TEXT


def test_a_number_of_ten_thousand_digits_is_only_very_large() -> None:
    got = read("9" * 10_000, State.AWAITING_SELECTION)
    assert got.kind is Kind.NUMBER
    assert got.number is not None
    assert got.number > 10**6
    assert read("0" * 10_000 + "2", State.AWAITING_SELECTION).number == 2


@pytest.mark.parametrize("state", [State.IDLE, State.COMMAND_LOOPING, State.SILENCED])
@pytest.mark.parametrize("text", ["2", "第2个", "取消", "算了", "cancel"])
def test_numbers_and_cancel_mean_something_only_at_a_list(text: str, state: State) -> None:
    assert read(text, state).kind is Kind.TEXT


@pytest.mark.parametrize("text", ["取消", "算了。", "Cancel!", "ＣＡＮＣＥＬ", " cancel… "])
def test_cancel_at_a_list(text: str) -> None:
    assert read(text, State.AWAITING_SELECTION).kind is Kind.CANCEL


@pytest.mark.parametrize("text", ["停", "停止", "stop", "STOP!!", "停～"])
def test_a_bare_stop_acts_only_where_something_can_be_stopped(text: str) -> None:
    kinds = {state: read(text, state).kind for state in State}
    assert kinds == {
        State.IDLE: Kind.TEXT,
        State.AWAITING_SELECTION: Kind.STOP,
        State.COMMAND_LOOPING: Kind.STOP,
        State.SILENCED: Kind.TEXT,
    }


@pytest.mark.parametrize("state", State)
def test_slash_stop_acts_everywhere(state: State) -> None:
    assert read("/stop", state).kind is Kind.STOP
    assert read("/STOP。", state).kind is Kind.STOP


def test_sentences_that_contain_the_words_are_text() -> None:
    for text in ("取消订单", "please stop", "停车场在哪", "stop the server", "算了吧我们明天再说"):
        assert read(text, State.AWAITING_SELECTION).kind is Kind.TEXT, text


# -- switch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "out"), examples("SEL-09"))
def test_a_switch_begins_the_message(text: str, out: str | None) -> None:
    got = read(text)
    assert (got.words if got.kind is Kind.SWITCH else None) == out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("切换到X", "X"),
        ("切到 Weather-API", "Weather-API"),
        ("换到天气", "天气"),
        ("切换到天气会话", "天气"),
        ("切换到 天气 会话", "天气"),
        ("切换到deploy session", "deploy"),
        ("切换到 deploy Session。", "deploy"),
        ("切换到天气session", "天气"),
        ("切换到session", "session"),
        ("切换到会话", "会话"),
        ("切换到 会话 01", "会话 01"),
        ("切换到log_session", "log_session"),
        ("切换到subsession", "subsession"),
        ("切换到%", "%"),
        ("切换到'; DROP TABLE session;--", "'; DROP TABLE session;--"),
        ("切换到v1.2.", "v1.2"),
        ("切换到Ｗｅａｔｈｅｒ", "Ｗｅａｔｈｅｒ"),
        ("切换到İstanbul", "İstanbul"),
        ("switch to session Deploy", "Deploy"),
        ("switch to Deploy session", "Deploy"),
        ("switch to the Deploy session.", "Deploy"),
        ("/switch Deploy session", "Deploy session"),
        ("／SWITCH 天气", "天气"),
    ],
)
def test_a_sure_switch_keeps_the_senders_spelling(text: str, words: str) -> None:
    assert read(text) == Recognised(Kind.SWITCH, words=words)


@pytest.mark.parametrize("text", ["切换到", "切换到。", "切到…", "换到", "/switch", "/switch ?"])
def test_a_switch_to_nothing_asks_which(text: str) -> None:
    assert read(text) == Recognised(Kind.SWITCH, words="")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("switch to LOG_PARSER", "LOG_PARSER"),
        ("SWITCH   TO weather!", "weather"),
        ("ｓｗｉｔｃｈ　ｔｏ 天气", "天气"),
        ("switch to天气", "天气"),
        ("resume Deploy", "Deploy"),
        ("resume deploy session", "deploy"),
        ("switch to session", "session"),
        ("switch to the dark theme", "the dark theme"),
    ],
)
def test_some_phrases_switch_only_where_a_session_matches(text: str, words: str) -> None:
    assert read(text) == Recognised(Kind.SWITCH, words=words, only_if_matches=True)


@pytest.mark.parametrize(
    "text",
    ["switch to", "resume", "resume.", "switch to-do lists", "switch tomorrow", "resumed work",
     "please switch to x",
     "请切换到天气", "切换天气", "/switchboard", "切换到天气\n然后部署", "switch to weather\nand tell me",
     "“切换到天气”"],
)  # fmt: skip
def test_what_only_looks_like_a_switch_is_text(text: str) -> None:
    assert read(text).kind is Kind.TEXT


# -- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["/sessions", "列出会话", "会话列表", "有哪些会话？", "list sessions", "Show Sessions.",
     "list session", "show session",
     "列出 session", "session 列表", "有哪些session"],
)  # fmt: skip
def test_a_list_is_asked_for(text: str) -> None:
    assert read(text) == Recognised(Kind.LIST)


def test_a_list_may_name_words() -> None:
    assert read("/sessions Weather api") == Recognised(Kind.LIST, words="Weather api")
    assert read("list sessions about weather").kind is Kind.TEXT


# -- mute ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("/mute", None),
        ("安静", None),
        ("安静！", None),
        ("Be quiet.", None),
        ("/mute 30m", 1800),
        ("/mute 45", 2700),
        ("/mute 48h", 172_800),
        ("安静 30 分钟", 1800),
        ("安静30分钟。", 1800),
        ("安静半小时", 1800),
        ("安静 1小时", 3600),
        ("be quiet for 30 minutes", 1800),
        ("be quiet for half an hour", 1800),
        ("BE QUIET 2 hours", 7200),
        ("be quiet for 90s", 90),
    ],
)
def test_a_mute_with_or_without_its_time(text: str, seconds: float | None) -> None:
    for state in State:
        assert read(text, state) == Recognised(Kind.MUTE, seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["/mute xyz", "/mute 0", "/mute -5m", "/mute 5 bananas", "/mute inf", "安静 0 分钟"]
)  # fmt: skip
def test_a_mute_for_no_readable_time_is_a_question_of_usage(text: str) -> None:
    assert read(text) == Recognised(Kind.MUTE, problem="usage_mute")


def test_an_endless_mute_is_a_finite_number() -> None:
    seconds = read("/mute " + "9" * 40 + "h").seconds
    assert seconds is not None
    assert 86_400 < seconds < 10**12


@pytest.mark.parametrize(
    "text",
    ["安静的地方推荐一下", "be quiet please", "安静点", "be quiet for a while", "mute"]
)  # fmt: skip
def test_a_sentence_about_quiet_is_text(text: str) -> None:
    assert read(text).kind is Kind.TEXT


@pytest.mark.parametrize("text", ["/unmute", "可以说话了。", "解除静音", "you can talk", "You can talk!"])
def test_unmute(text: str) -> None:
    for state in State:
        assert read(text, state) == Recognised(Kind.UNMUTE)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800), ("30 分钟", 1800), ("2 hours", 7200), ("1小时", 3600), ("90s", 90), ("半小时", 1800),
        ("半个小时", 1800), ("half an hour", 1800), ("an hour", 3600), ("一个半小时", 5400), ("1h30m",
        5400),
        ("1 hour and 30 minutes", 5400), ("1小时30分钟", 5400), ("1.5h", 5400), ("十分钟", 600),
        ("三十分钟", 1800),
        ("四十五分钟", 2700), ("两个钟头", 7200), ("３０ｍ", 1800), ("1天", 86_400), ("ten minutes", 600),
        ("5", 300),
        ("0m", 0),
    ],
)  # fmt: skip
def test_durations_as_people_say_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "m", "30x", "xyz", "-5m", "1e3", "nan", "another hour", "30 m 5", "十十分钟", "٣m", "²h",
     "1" * 100],
)  # fmt: skip
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


# -- engine commands -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["help", "why", "status", "auto", "memory", "allow", "deny", "new"])
def test_engine_commands_act_in_every_state(name: str) -> None:
    for state in State:
        assert read(f"/{name}", state) == Recognised(Kind.ENGINE_COMMAND, command=name)
        assert read(f" ／{name.upper()}。", state) == Recognised(Kind.ENGINE_COMMAND, command=name)


@pytest.mark.parametrize(
    ("text", "command", "argument"),
    [
        ("/new 写周报", "new", "写周报"),
        ("/new  What next?", "new", "What next?"),
        ("/remember I like Tea.", "remember", "I like Tea."),
        ("/remember My address:\nHigh Street 1", "remember", "My address:\nHigh Street 1"),
        ("记住我喜欢茶。", "remember", "我喜欢茶。"),
        ("记住：我喜欢茶", "remember", "我喜欢茶"),
        ("Remember that I like Tea", "remember", "I like Tea"),
        ("/forget tea-and-coffee", "forget", "tea-and-coffee"),
        ("/allow 2", "allow", "2"),
        ("/deny １２。", "deny", "１２"),
        ("/lang zh", "lang", "zh"),
        ("/lang EN.", "lang", "en"),
        ("/lang 中文", "lang", "zh"),
    ],
)
def test_engine_commands_with_an_argument(text: str, command: str, argument: str) -> None:
    assert read(text) == Recognised(Kind.ENGINE_COMMAND, command=command, argument=argument)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("/lang", "usage_lang"), ("/lang fr", "usage_lang"), ("/remember", "usage_remember"),
     ("/remember …", "usage_remember"), ("/forget", "usage_forget"), ("/allow everything", "usage_allow"),
     ("/deny -1", "usage_allow"), ("/allow ²", "usage_allow")],
)  # fmt: skip
def test_an_engine_command_that_lacks_its_argument_says_what_is_wrong(text: str, problem: str) -> None:
    got = read(text)
    assert got.kind is Kind.ENGINE_COMMAND
    assert got.problem == problem


@pytest.mark.parametrize(
    "text",
    ["/compact", "/init now", "/", "/ help", "//help", "/why is the sky blue?", "/help\nme", "/newsletter",
     "help", "记住",
     "记住了", "记住了吗？", "记住…", "remember that", "remember the milk", "我记住了", "/usr/bin/help",
     "/unmute me"],
)  # fmt: skip
def test_other_slash_words_and_half_phrases_are_text(text: str) -> None:
    assert read(text).kind is Kind.TEXT


# -- all messages --------------------------------------------------------------------------------

PIECES = ["切换到", "switch to", "session", "会话", "/mute", "/", "记住", "安静", "第", "个", "2", "半",
"小时", "．", "\n",
          " ", "\u3000", "\u200b", "İ", "ß", "\ud800", "²", "#", "/lang", "be quiet for", "1.5",
          "h"]  # fmt: skip
anything = st.one_of(
    st.text(st.characters(exclude_categories=[]), max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
)


@given(text=anything, state=st.sampled_from(State))
@example(text="/mute " + "9" * 5000 + "h", state=State.IDLE)
@example(text="9" * 5000, state=State.AWAITING_SELECTION)
def test_every_text_is_read_in_every_state(text: str, state: State) -> None:
    got = recognise(text, state, WORDS)
    assert got.words in text
    assert (got.number is not None) == (got.kind is Kind.NUMBER)
    assert got.kind is not Kind.NUMBER or state is State.AWAITING_SELECTION
    assert not got.only_if_matches or (got.kind is Kind.SWITCH and got.words)
    if got.kind is Kind.TEXT:
        assert got == Recognised(Kind.TEXT)


# -- words from a config -------------------------------------------------------------------------


def test_a_config_adds_words_and_keeps_the_old_ones() -> None:
    more = WORDS.extended(
        {"switch": ["schalte zu"], "stop": "halt", "session": ["sitzung"], "units": {"stunden": 3600},
         "number": ["nummer {}"]}
    )  # fmt: skip
    assert read("Schalte zu Wetter Sitzung", words=more) == Recognised(Kind.SWITCH, words="Wetter")
    assert read("Halt!", State.COMMAND_LOOPING, more).kind is Kind.STOP
    assert read("stop", State.COMMAND_LOOPING, more).kind is Kind.STOP
    assert read("/mute 2 Stunden", words=more).seconds == 7200
    assert read("Nummer 2", State.AWAITING_SELECTION, more).number == 2
    assert read("halt", State.COMMAND_LOOPING).kind is Kind.TEXT


def test_one_language_alone_can_be_used() -> None:
    assert read("切换到x", words=ZH).kind is Kind.SWITCH
    assert read("切换到x", words=EN).kind is Kind.TEXT
    assert read("switch to x", words=Words()).kind is Kind.TEXT


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"stopp": ["x"]}, "'stop'"),
        ({"frobnicate": ["x"]}, "switch_if_found"),
        ({"stop": [""]}, "not empty"),
        ({"stop": ["。"]}, "not empty"),
        ({"stop": 3}, "list of phrases"),
        ({"stop": [3]}, "not empty"),
        ({"number": ["nummer"]}, "{}"),
        ({"units": ["h"]}, "table"),
        ({"units": {"h": "long"}}, "a number"),
        ({"languages": {"deutsch": 1}}, "text"),
    ],
)
def test_a_wrong_entry_of_a_config_is_named_with_its_mend(extra: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match="words: ") as error:
        WORDS.extended(extra)
    assert named in str(error.value)
