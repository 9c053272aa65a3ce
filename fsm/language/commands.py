"""Which commands a model's text contains.

``CMD_RE`` says what a command looks like. What looks like one is not always meant: an example stands in
code, a heading is written ``##总结##``, C pastes tokens with ``a##b##c``. And what is meant does not always
look like one: full-width signs, spaces inside. So the name decides, and where the text stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from fsm.constants import CMD_RE
from fsm.conversation import Command
from fsm.language.spans import FENCE_LINE, INVISIBLE, mask, strip_reasoning, trim

_WHOLE_LINE = re.compile(r"[#＃]{2}[^\S\n]*(\w+)[^\S\n]*(?:[:：]([^#＃\n]*))?[#＃]{2}")
_INDENTED = re.compile(rf"(?:(?!\x01)[{INVISIBLE}])*(?: {{4}}| {{0,3}}\t)")  # U+0001 is reasoning that was masked
_HEADING = re.compile(r" {0,3}#{1,6}(?:[^\S\n]|$)")
_FENCED = re.compile(r"(?P<bar>`{3,}+|~{3,}+)[^\n]*\n(?P<inner>.*?)(?:\n[^\S\n]*(?P=bar)[`~]*)?", re.DOTALL)
_INLINE = re.compile(r"(?P<bar>`+)(?!`)(?P<inner>.*?)(?<!`)(?P=bar)", re.DOTALL)
_ADDRESS_BEFORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!-~]*\Z")
_LETTER = re.compile(r"[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Commands:
    """``commands`` to run or to answer, in order; ``hits`` are all matches of ``CMD_RE`` outside code and
    reasoning, those that are only text included."""

    commands: tuple[Command, ...] = ()
    hits: tuple[str, ...] = ()


class Found(NamedTuple):
    """A command and where it stands: ``text[start:end]``."""

    start: int
    end: int
    command: Command


def parse_commands(text: str, known: Collection[str]) -> Commands:
    """The commands in what a model wrote; ``known`` holds the registered names.

    Code (fenced, inline, or indented where no paragraph goes on) and reasoning do not count, save that a
    text which is nothing but one command in backticks or a fence is that command. A hit runs when its name
    is registered. A line that is nothing but a near miss of a registered name runs. An unregistered ASCII
    name that stands alone (glued to no letter, digit or ``#``, and no part of an address) is a command that
    is not ``known``. Everything else is text.
    Arguments lose the spaces at their ends; ``##x##`` has none (None), ``##x:##`` an empty one.
    """
    if "#" not in text and "＃" not in text:
        return Commands()
    found, hits = find_commands(text, known)
    return Commands(tuple(one.command for one in found), tuple(hits))


def find_commands(text: str, known: Collection[str]) -> tuple[list[Found], list[str]]:
    """The commands of :func:`parse_commands` with their places, and the hits."""
    if (only := _only_command(text, known)) is not None:
        return [Found(0, len(text), only[0])], only[1]
    found: list[Found] = []
    hits: list[str] = []
    at = 0
    in_paragraph, in_code = False, False
    for line in mask(text).split("\n"):
        start, at = at, at + len(line) + 1
        bare = trim(line)
        in_code = bool(bare) and not in_paragraph and _INDENTED.match(line) is not None
        fence = not bare.strip("\ufffc") and FENCE_LINE.match(text, start) is not None
        in_paragraph = bool(bare) and not in_code and not fence and _HEADING.match(line) is None
        if in_code or ("##" not in line and "＃" not in line):
            continue
        in_line = list(CMD_RE.finditer(line))
        hits += [hit[0] for hit in in_line]
        if (near := _near_miss(bare, known)) is not None:
            found.append(Found(start, start + len(line), near))
            continue
        for hit in in_line:
            if (command := _meant(hit, line, known)) is not None:
                found.append(Found(start + hit.start(), start + hit.end(), command))
    return found, hits


def _only_command(text: str, known: Collection[str]) -> tuple[Command, list[str]] | None:
    """The command when a text is nothing else but it, in backticks or in a fence too."""
    text = strip_reasoning(text)
    body = trim(text)
    fenced = _FENCED.fullmatch(body)
    if fenced is None and _INDENTED.match(text, text.rfind("\n", 0, text.find(body)) + 1):
        return None
    wrapped = fenced or _INLINE.fullmatch(body)
    body = trim(wrapped["inner"]) if wrapped else body
    hit = CMD_RE.fullmatch(body)
    command = _near_miss(body, known) or (_meant(hit, body, known) if hit else None)
    return (command, [body] if hit else []) if command else None


def _near_miss(line: str, known: Collection[str]) -> Command | None:
    match = _WHOLE_LINE.fullmatch(line)
    if match is None or match[1] not in known:
        return None
    return Command(match[1], match[2] if match[2] is None else match[2].strip())


def _meant(hit: re.Match[str], line: str, known: Collection[str]) -> Command | None:
    name, colon, argument = hit[0][2:-2].partition(":")
    is_known = name in known
    if not is_known and not (could_be_name(name) and stands_alone(line, hit.start(), hit.end())):
        return None
    return Command(name, argument.strip() if colon else None, known=is_known)


def could_be_name(name: str) -> bool:
    """Whether an unregistered name is answered as one that somebody meant for a command."""
    return name.isascii() and _LETTER.search(name) is not None


def stands_alone(line: str, start: int, end: int) -> bool:
    """Whether ``line[start:end]`` is glued to no letter, digit or ``#`` and is no part of an address."""
    around = line[start - 1 : start] + line[end : end + 1]
    if any(sign.isalnum() or sign in "#＃" for sign in around):
        return False
    return _ADDRESS_BEFORE.search(line, max(0, start - 2000), start) is None
