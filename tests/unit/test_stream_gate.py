"""What of a reply is shown while it is still coming in."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsm.language import commands, markers, spans
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
    "[THINK]x[/THINK]__SILENT__", "__SILENT__<think>a</think>hello", "**__SILENT__**<think>a</think>MODE",
    "<think>x</think>`__SILENT__`\n<think>a</think>\nhello", "```\n__SILENT__\n```\n<think>a</think>hello",
    "__SILENT__\u200b<think>a</think>1", "__SIL<think>a</think>ENT__<think>b</think>hello",
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
    ("__REPLY__<think>a</think>你好", "你好"),
    ("文件在。<think>a</think>__SILENT__", "文件在。"),
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


class _Counted:
    """A pattern that adds up how many characters its searches go over."""

    def __init__(self, pattern: re.Pattern[str], seen: Counter[str]) -> None:
        self._pattern, self._seen = pattern, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def _saw(self, found: re.Match[str] | None, start: int, otherwise: int) -> re.Match[str] | None:
        self._seen["characters"] += 1 + (found.end() - start if found else otherwise)
        return found

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._saw(self._pattern.match(text, start), start, 0)

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        return self._saw(self._pattern.search(text, start, end), start, min(end, len(text)) - start)

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        while (found := self.search(text, start)) is not None:
            yield found
            start = max(found.end(), found.start() + 1)

    def sub(self, new: str, text: str, count: int = 0) -> str:
        self._seen["characters"] += len(text)
        return self._pattern.sub(new, text, count=count)

    def findall(self, text: str) -> list[Any]:
        self._seen["characters"] += len(text)
        return self._pattern.findall(text)


def examined(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> int:
    """Characters that all patterns together look at while ``text`` comes in."""
    seen: Counter[str] = Counter()
    with monkeypatch.context() as patched:
        for module in (spans, markers, commands):
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    patched.setattr(module, name, _Counted(value, seen))
        shown(text, size)
    return seen["characters"]


@pytest.mark.parametrize("piece", [
    "`x` ", "`x", "` ", "`` `", "```", "`\n", "字。", "word ", "<think>`</think>`", "<think>x</think>y",
    "字<think>`</think>`<think>",
    "x\n__SILENT__\n", "**", "> `x`\n", "a_b `c` <d> ", "~~~\n", "```\nx\n```\n", "##总结## ", "`##x##` ",
])
def test_twice_the_reply_is_about_twice_the_work(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    once, twice = (examined(monkeypatch, piece * (size // len(piece)), 64) for size in (4_000, 8_000))
    assert twice < 2.6 * once


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
@example("`##list_sessions##`##list_sessions## ", 1)
@example("`##list_sessions##`\n__SILENT__", 1)
def test_nothing_that_is_shown_holds_a_command_that_could_act(text: str, size: int) -> None:
    for early in shown(text, size):
        assert [command for command in parse_commands(early, KNOWN).commands if command.known] == []
