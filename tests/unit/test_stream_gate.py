"""What of a reply is shown while it is still coming in."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsm.language.commands import parse_commands
from fsm.language.markers import StreamGate, Verdict, gate
from fsm.language.reply import ReadingKind, read_reply

KNOWN = frozenset({"list_sessions", "switch_session"})


def shown(text: str, size: int = 1) -> list[str]:
    """All that is shown of a text that comes in pieces of ``size`` characters."""
    stream = StreamGate(KNOWN)
    pieces = [text[at:at + size] for at in range(0, len(text), size)]
    out = [new for piece in pieces if (new := stream.feed(piece)) is not None]
    assert stream.finish() == gate(text)
    return out


@pytest.mark.parametrize("text", [
    "__SILENT__", "__SILENT__ 不是问我的", "\ufeff \n__SILENT__\n清空", "**__SILENT__**",
    "```\n__SILENT__\n```", "`__SILENT__`",
    "<think>他们在聊别的</think>__SILENT__", "<think>没想完", "<b>__SILENT__</b>",
    '{"action":"__SILENT__"}', r"\_\_SILENT\_\_",
    "__REPLY__", "__REPLY__ **__SILENT__**", "##list_sessions##", "## list_sessions ##",
    "＃＃switch_session：ses_b＃＃",
    "`##list_sessions##`", "```\n##list_sessions##\n```", "##dummy##", "**__SILENT__**\n没叫我",
    "[THINK]x[/THINK]__SILENT__",
])
def test_nothing_is_shown_of_what_is_not_sent(text: str) -> None:
    assert shown(text) == []
    assert shown(text, 3) == []


@pytest.mark.parametrize(("text", "last"), [
    ("你好，世界。", "你好，世界。"),
    ("__REPLY__\n你好", "你好"),
    ("<think>嗯</think>\n\n你好", "你好"),
    ("文件在。\n\n__SILENT__", "文件在。"),
    ("文件在。\n\n**__SILENT__**", "文件在。"),
    ("先看 ##list_sessions## 吧", "先看"),
    ("写 `##list_sessions##` 就行", "写 `##list_sessions##` 就行"),
    ("## 标题\n正文", "## 标题\n正文"),
    ("##总结##\n三件事", "##总结##\n三件事"),
    ("a##b##c", "a##b##c"),
    ("__SILENT__MODE 是什么", "__SILENT__MODE 是什么"),
    ("a < b 且 [链接](x)", "a < b 且 [链接](x)"),
    ("写法是 `<think>` 和 `</think>`。", "写法是 `<think>` 和 `</think>`。"),
])
def test_the_last_thing_shown(text: str, last: str) -> None:
    assert shown(text)[-1] == last
    assert all(last.startswith(early) for early in shown(text))


def test_plain_text_is_shown_as_it_comes() -> None:
    assert shown("你好 吗") == ["你", "你好", "你好 吗"]


def test_a_heading_is_held_only_until_its_name_is_no_command() -> None:
    assert shown("## 今天")[0] == "## 今"
    assert shown("## list of") == ["## list", "## list o", "## list of"]
    assert shown("## list_sessions ##") == []


def test_a_long_reply_with_code_is_looked_at_in_growing_steps() -> None:
    text = "用 `x_y` 的例子，第 n 行。\n" * 400
    seen = shown(text)
    assert len(seen) < len(text) / 10
    assert len(seen[-1]) > len(text) * 0.95


PIECES = st.lists(st.sampled_from([
    "__SILENT__", "__REPLY__", "__", "_", "**", "`", "``", "```", "\n", "\n\n", " ", "\u200b",
    "<think>", "</think>", "<b>", "你好", "a",
    "##list_sessions##", "##list", "_sessions", "##", "#", "＃＃", ":", "总结", "dummy", "~~~", "> ",
    "- ", "    ", "<", ">", "[", "x",
    "{", '"', "。", "https://h/", "1", "\r", "SIL",
]), min_size=1, max_size=14).map("".join)


@settings(max_examples=800, deadline=None)
@given(PIECES, st.integers(1, 5))
@example("`a <think>b</think> c` d", 1)
@example("```<think>`", 1)
@example("```\n##list_sessions##\n```\n是例子", 1)
def test_what_was_shown_of_a_text_is_a_prefix_of_what_is_sent(text: str, size: int) -> None:
    reading = read_reply(text, known=KNOWN, taken_in=frozenset())
    if reading.kind is ReadingKind.TEXT and "</think>" not in text.replace("<think>", "", 1):
        for early in shown(text, size):
            assert reading.text.startswith(early)


@settings(max_examples=400, deadline=None)
@given(PIECES, st.integers(1, 5))
def test_of_a_silent_reply_nothing_was_shown(text: str, size: int) -> None:
    if "</think>" not in text and gate(text).verdict is not Verdict.SEND:
        assert shown(text, size) == []


@settings(max_examples=400, deadline=None)
@given(PIECES, st.integers(1, 5))
def test_nothing_that_is_shown_holds_a_command_that_could_act(text: str, size: int) -> None:
    for early in shown(text, size):
        assert [command for command in parse_commands(early, KNOWN).commands if command.known] == []
