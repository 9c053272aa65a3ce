"""Whether the model wants to speak, and what may then be sent."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm.language.markers import Verdict, gate
from fsm.language.reply import ReadingKind, read_reply
from fsm.language.spans import INVISIBLE, is_blank, strip_reasoning

FILE = Path(__file__).parents[1] / "cases" / "reply_gate.yaml"
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))
EXAMPLES = [
    pytest.param(example["in"], example["out"], id=f"{case['id']}-{number}")
    for case in CASES
    for number, example in enumerate(case["examples"], 1)
]
Z = "\u200b"


@pytest.mark.parametrize(("text", "out"), EXAMPLES)
def test_the_gate_decides_as_the_case_says(text: str, out: dict[str, Any]) -> None:
    gated = gate(text)
    if out["action"] == "drop":
        expected = Verdict.EMPTY if "reason" in out else Verdict.SILENT
        assert (gated.verdict, gated.text) == (expected, "")
    elif "text_trimmed" in out:
        assert (gated.verdict, gated.text.strip()) == (Verdict.SEND, out["text_trimmed"])
    else:
        assert (gated.verdict, gated.text) == (Verdict.SEND, out["text"])


@pytest.mark.parametrize("text", [
    "**__SILENT__**", "***__SILENT__***", "___SILENT___", "`__SILENT__`", "```\n__SILENT__\n```",
    "```text\n__SILENT__",
    "~~~\n__SILENT__\n~~~", "> __SILENT__", "- __SILENT__", "# __SILENT__", r"\_\_SILENT\_\_",
    r"**\_\_SILENT\_\_**",
    "<b>__SILENT__</b>", "<p class='x'>__SILENT__</p>", "<!-- __SILENT__ -->", "[__SILENT__]",
    "(__SILENT__)",
    "（__SILENT__）", "【__SILENT__】", '"__SILENT__"', "“__SILENT__”", "「__SILENT__」", ".__SILENT__",
    "__SILENT__。",
    "__SILENT__!", "＿＿ＳＩＬＥＮＴ＿＿", "__ＳＩＬＥＮＴ__", f"_{Z}_SI{Z}LENT__",
    f"\ufeff**{Z}__SILENT__**", "🤫 __SILENT__",
    '{"action":"__SILENT__"}', '```json\n{"action": "__SILENT__"}\n```', "__SILENT__ __REPLY__ 好",
    "**__SILENT__**\n\n没叫我。", "`__SILENT__`\n理由：没叫我", "**__SILENT__** **__REPLY__**",
    "<think>**__REPLY__**</think>\n**__SILENT__**", "\x00__SILENT__", "__SILENT__\u3000x",
])
def test_silence_is_seen_through_every_decoration(text: str) -> None:
    assert gate(text).verdict is Verdict.SILENT


@pytest.mark.parametrize("text", [
    "**__REPLY__**", "`__REPLY__`", "__REPLY__ **__SILENT__**", "__REPLY__\n`__REPLY__`", "> __REPLY__",
    "__REPLY__\u200b",
    "**__REPLY__**\n\n__SILENT__", "", " \n", "\u2060", "<think>x", "<b></b>__REPLY__", "x</think>",
])
def test_a_reply_with_nothing_behind_its_marker_is_empty(text: str) -> None:
    assert gate(text).verdict is Verdict.EMPTY


@pytest.mark.parametrize("marker", [
    "__SILENT__", "**__SILENT__**", "`__SILENT__`", "```\n__SILENT__\n```\n", "~~~\n__SILENT__\n~~~\n", "> __SILENT__",
    "> __SILENT__\n", "<b>__SILENT__</b>", f"__SILENT__{Z}", "__SILENT__ ", "__SILENT__\n", "__SILENT____SILENT__",
])
@pytest.mark.parametrize("reasoning", [
    "<think>a</think>", "<Thinking>__REPLY__ b</Thinking>", "[THINK]a[/THINK]", "<think>a</think><think>b</think>",
])
def test_silence_in_front_of_reasoning_is_silence(marker: str, reasoning: str) -> None:
    for before in ("", " \n", Z, "<think>x</think>", "<think>x</think>\n\n"):
        for behind in ("hello", "MODE", "1", "你好", " \nhello", "`x`", "```\nx\n```", "__REPLY__hello"):
            text = f"{before}{marker}{reasoning}{behind}"
            assert gate(text).verdict is Verdict.SILENT, text


@pytest.mark.parametrize(("text", "sent"), [
    ("__REPLY__<think>a</think>hello", "hello"),
    ("**__REPLY__**<think>a</think>\nhello", "hello"),
    ("__REPLY__\n<think>a</think>__SILENT__ 的用法", "__SILENT__ 的用法"),
    ("答<think>a</think>__SILENT__", "答"),
    ("答\n__SILENT__<think>a</think>", "答"),
    ("答\n<think>a</think>**__SILENT__**<think>b</think>", "答"),
    ("答<think>a</think>__SILENT__<think>b</think>__REPLY__\n", "答"),
    ("__REPLY__答<think>a</think>\n\n`__SILENT__`", "答"),
    ("口令<think>a</think>是 __SILENT__ 。", "口令是 __SILENT__ 。"),
])
def test_reasoning_parts_a_marker_from_what_is_said(text: str, sent: str) -> None:
    assert (gate(text).verdict, gate(text).text) == (Verdict.SEND, sent)


@pytest.mark.parametrize("text", ["__SIL<think>a</think>ENT__", "__SIL<think>a</think>ENT__<think>b</think>hello"])
def test_a_marker_that_reasoning_tears_apart_is_one_all_the_same(text: str) -> None:
    assert gate(text).verdict is Verdict.SILENT


@pytest.mark.parametrize(("text", "sent"), [
    ("`__SILENT__` 是静默口令", "`__SILENT__` 是静默口令"),
    ("**__SILENT__** 不是粗体", "**__SILENT__** 不是粗体"),
    ("> __SILENT__\n\n它表示不回。", "> __SILENT__\n\n它表示不回。"),
    ("```\n__SILENT__\n```\n这样写。", "```\n__SILENT__\n```\n这样写。"),
    ("用法：\n```\n__SILENT__\n```", "用法：\n```\n__SILENT__\n```"),
    ("__SILENT__1", "__SILENT__1"),
    (f"__SILENT__{Z}MODE", f"__SILENT__{Z}MODE"),
    ("_SILENT_", "_SILENT_"),
    ("__Silent__", "__Silent__"),
    ("**__REPLY__**\n你好", "你好"),
    ("__REPLY__\n\n    code\n", "    code\n"),
    ("__REPLY__答\n\n__SILENT__", "答"),
    ("答\r\n__REPLY__\r\n", "答"),
    ("__REPLY__。", "。"),
    ("答\n\n**__SILENT__**\n`__SILENT__`\n", "答"),
    ("答\n__SILENT__\n完", "答\n__SILENT__\n完"),
    ("你好\n", "你好\n"),
    (" 你好 ", " 你好 "),
    ("snake_case 与 a < b", "snake_case 与 a < b"),
])
def test_what_is_text_is_sent_as_it_is(text: str, sent: str) -> None:
    assert (gate(text).verdict, gate(text).text) == (Verdict.SEND, sent)


@pytest.mark.parametrize(("text", "count"), [
    ("你好", 0), ("__SILENT__", 0), ("__reply__你好", 1), ("口令是 __SILENT__ 或 __REPLY__。", 2),
    ("**SILENT**", 1),
    ("__SILENT__MODE", 1), (r"用 \_\_SILENT\_\_ 吧", 1), ("SILENT 是一个词", 0), ("a_b", 0),
])
def test_near_misses_of_a_marker_are_counted(text: str, count: int) -> None:
    assert gate(text).near_misses == count


@pytest.mark.parametrize(("text", "rest"), [
    ("<think>a</think>b", "b"),
    ("<Thinking>\na\n</THINKING>\n\n  b", "  b"),
    ("<reasoning mode='x'>a</reasoning>b", "b"),
    ("<reflection>a</reflection><scratchpad>b</scratchpad>c", "c"),
    ("<seed:think>a</seed:think>b", "b"),
    ("[THINK]a[/THINK]b", "b"),
    ("◁think▷a◁/think▷b", "b"),
    ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
    ("甲<think>乙</think>丙", "甲丙"),
    ("甲\n<think>乙", "甲"),
    ("甲</think>乙", "乙"),
    ("甲</think>乙</thinking>丙", "丙"),
    ("<think>a <think> b</think>c", "c"),
    ("<think>写 `</think>` 才对</think>好", "好"),
    ("<think>``` 没关</think>好", "好"),
    ("```\n<think>\n```\n好", "```\n<think>\n```\n好"),
    ("``<think>` ``", "``<think>` ``"),
    ("~~~xml\n</think>", "~~~xml\n</think>"),
    ("</think>```\n<think>\n```", "```\n<think>\n```"),
    ("` 一个反引号 <think>x</think>好", "` 一个反引号 好"),
    ("<thinker>好", "<thinker>好"),
    ("<b>好</b>", "<b>好</b>"),
])
def test_reasoning_goes_and_code_stays(text: str, rest: str) -> None:
    assert strip_reasoning(text) == rest


def test_every_format_character_counts_as_invisible() -> None:
    # up to the end of the planes in use; later Unicode versions may add some
    formats = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) == "Cf"]
    assert [c for c in formats if not is_blank(c)] == []
    assert "\n" not in INVISIBLE


PIECES = st.lists(st.sampled_from([
    "__SILENT__", "__REPLY__", "__", "_", "*", "**", "`", "```", "\n", " ", Z, "\ufeff", "<think>",
    "</think>", "<b>", "你好", "a",
    "SILENT", "__silent__", ">", "[", "]", "\\_", "。", "##list_sessions##", "##总结##", "##", "\u3000",
    "＿＿", '{"a":', "~~~",
]), max_size=12).map("".join)


@settings(max_examples=400, deadline=None)
@given(PIECES)
def test_what_is_sent_never_starts_with_a_marker_that_acts(text: str) -> None:
    gated = gate(text)
    if gated.verdict is not Verdict.SEND:
        assert gated.text == ""
        return
    assert not is_blank(gated.text)
    again = gate(gated.text)
    if again.verdict is not Verdict.SEND:
        # only what stood behind __REPLY__ may look like a marker: it is not read again
        assert "REPLY" in strip_reasoning(text).replace(Z, "")[:strip_reasoning(text).find(gated.text)]


@settings(max_examples=300, deadline=None)
@given(
    PIECES,
    st.sampled_from(["", "\n", Z, "\ufeff ", "<think>x</think>", "\n\u3000"]),
    st.sampled_from(["\n", "<think>x</think>", f"{Z}<think>__REPLY__</think>", " "]),
)
def test_behind_silence_nothing_gets_out(rest: str, before: str, between: str) -> None:
    rest = rest.replace("</think>", "")  # one that nothing opened would take the marker back
    assert gate(f"{before}__SILENT__{between}{rest}").verdict is Verdict.SILENT


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="你好ab ，.\n", min_size=1),
    st.sampled_from(["__SILENT__", "__REPLY__", "**__SILENT__**"]),
)
def test_a_marker_on_the_last_line_is_never_sent(text: str, marker: str) -> None:
    gated = gate(f"字{text}\n{marker}")
    assert gated.verdict is Verdict.SEND
    assert gated.text == f"字{text}".rstrip()


@pytest.mark.parametrize(("raw", "kind"), [
    (None, ReadingKind.EMPTY), ("", ReadingKind.EMPTY), ("<think>x</think>", ReadingKind.EMPTY),
    ("__SILENT__##help##", ReadingKind.SILENT), ("__REPLY__##help##", ReadingKind.COMMANDS),
    ("##help##\n__SILENT__", ReadingKind.COMMANDS), ("你好", ReadingKind.TEXT),
    ("##总结##", ReadingKind.TEXT),
])
def test_a_reply_is_one_of_four_things(raw: str | None, kind: ReadingKind) -> None:
    assert read_reply(raw, known={"help"}, taken_in=frozenset()).kind is kind


def test_what_the_model_said_has_neither_reasoning_nor_markers() -> None:
    raw = "<think>嗯</think>__REPLY__先看 ##help##\n\n__SILENT__"
    reading = read_reply(raw, known={"help"}, taken_in=frozenset())
    assert reading.said == "先看 ##help##"
    assert reading.text == ""
