"""Which commands stand in a model's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm.constants import CMD_RE
from fsm.conversation import Command
from fsm.language.commands import parse_commands
from fsm.language.reply import ReadingKind, read_reply

KNOWN = frozenset({"list_sessions", "switch_session", "select_session"})
FILE = Path(__file__).parents[1] / "cases" / "command_parse.yaml"
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))
EXAMPLES = [
    pytest.param(example, id=f"{case['id']}-{number}")
    for case in CASES
    for number, example in enumerate(case["examples"], 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_commands_are_parsed_as_the_case_says(example: dict[str, Any]) -> None:
    parsed = parse_commands(example["in"], KNOWN)
    assert [[c.name, c.argument] for c in parsed.commands if c.known] == example["execute"]
    if "regex_hits" in example:
        assert list(parsed.hits) == example["regex_hits"] == CMD_RE.findall(example["in"])


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_reply_runs_its_commands_or_is_sent_unchanged(example: dict[str, Any]) -> None:
    reading = read_reply(example["in"], known=KNOWN, taken_in=frozenset())
    if reading.kind is ReadingKind.COMMANDS:
        assert reading.text == ""
    else:
        assert reading.kind is ReadingKind.TEXT
        assert example["execute"] == []
        assert reading.text == (example["in"] if "<think>" not in example["in"] else "不用切。")


def test_an_unregistered_ascii_name_that_stands_alone_is_answered_not_sent() -> None:
    for text in ("##LIST_SESSIONS##", "先试 ##dummy##。", "（##dummy:x##）", "`##dummy##`"):
        reading = read_reply(text, known=KNOWN, taken_in=frozenset())
        assert reading.kind is ReadingKind.COMMANDS
        assert [c.known for c in reading.commands] == [False]


@pytest.mark.parametrize("text", [
    "a##b##c", "1##b##", "###dummy##", "##dummy###", "字##dummy##", "##总结##", "##123##",
    "https://h.example/##dummy##",
    "## dummy ##", "＃＃dummy＃＃", "x ## list_sessions ##", "## list_sessions ## x", "##list_sessions",
    "####", "## ##",
    "`##list_sessions##` `##list_sessions##`", "```\n##list_sessions##\n##list_sessions##\n```",
    "> ```\n> ##list_sessions##\n> ```\n引", "1. 例\n   ```sh\n   ##list_sessions##\n   ```",
    "例\n\n\t##list_sessions##",
    "\ufeff```\n\n##list_sessions##\n\n```\n例", "例\n\u200b~~~\n##list_sessions##\n\u2060~~~",
    "    ##list_sessions##", "\t##list_sessions##", "\n  \t## list_sessions ##", "    `##list_sessions##`",
    "\ufeff    ##dummy##", "<think>a</think>\n    ##list_sessions##", "    先看\n    ##list_sessions##",
    "    ##list_sessions##\n    ##dummy##",
    "# 例\n    ##list_sessions##", "```\nx\n```\n    ##list_sessions##", "例\n\n\u200b    ##list_sessions##",
    "例\n\n    a\n\n    ##list_sessions##", "`` `##list_sessions##` `` 例",
])
def test_what_is_not_meant_is_text(text: str) -> None:
    assert parse_commands(text, KNOWN).commands == ()


@pytest.mark.parametrize(("text", "command"), [
    ("##list_sessions:##", Command("list_sessions", "")),
    ("##list_sessions:   ##", Command("list_sessions", "")),
    ("##list_sessions##", Command("list_sessions", None)),
    ("##switch_session: a:b ##", Command("switch_session", "a:b")),
    ("  ＃＃ switch_session ： ses_b ＃＃ ", Command("switch_session", "ses_b")),
    ("#＃list_sessions＃#", Command("list_sessions", None)),
    ("\ufeff## list_sessions ##", Command("list_sessions", None)),
    ("**##list_sessions##**", Command("list_sessions", None)),
    ("看看\n    ##list_sessions##", Command("list_sessions", None)),
    ("   ##list_sessions##", Command("list_sessions", None)),
    ("<think>a</think>    ##list_sessions##", Command("list_sessions", None)),
    ("    ```\n    ##list_sessions##\n    ```", Command("list_sessions", None)),
    ("字##list_sessions##字", Command("list_sessions", None)),
    ("```\n## list_sessions ##\n```", Command("list_sessions", None)),
    ("<think>a</think>`##list_sessions##`", Command("list_sessions", None)),
    ("<think>a</think>## list_sessions ##", Command("list_sessions", None)),
    ("想 `x</think>## list_sessions ##", Command("list_sessions", None)),
    ("##switch_session:C＃##", Command("switch_session", "C＃")),
    ("一个 ` 和 ##list_sessions##", Command("list_sessions", None)),
])
def test_what_is_meant_runs(text: str, command: Command) -> None:
    assert parse_commands(text, KNOWN).commands == (command,)


SHARDS = st.lists(st.sampled_from([
    "##", "#", "＃", "＃＃", "list_sessions", "dummy", "总结", ":", "：", " ", "\n", "    ", "`", "```",
    "a", "<think>", "</think>", "x:",
]), max_size=14).map("".join)


@settings(max_examples=500, deadline=None)
@given(SHARDS, st.booleans())
def test_a_text_that_is_sent_holds_no_command_that_could_act(text: str, all_foreign: bool) -> None:
    taken_in = frozenset({"##list_sessions##", "##dummy##"}) if all_foreign else frozenset()
    reading = read_reply(text, known=KNOWN, taken_in=taken_in)
    if reading.kind is ReadingKind.TEXT:
        assert parse_commands(reading.text, KNOWN).commands == ()
    else:
        assert reading.text == ""
