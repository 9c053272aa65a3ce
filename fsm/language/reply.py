"""A model's reply, read once: what it says, what it wants done, what may be sent."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from fsm.conversation import Command
from fsm.language.commands import parse_commands
from fsm.language.inert import canonical, make_inert
from fsm.language.markers import Verdict, gate
from fsm.values import Value


class ReadingKind(Enum):
    """What a reply amounts to."""

    SILENT = "silent"
    EMPTY = "empty"
    COMMANDS = "commands"
    TEXT = "text"


class Reading(Value):
    """What a model's reply amounts to.

    ``text`` may be sent (TEXT only, else empty): it has no marker that acts and no command that could.
    ``commands`` run in order. ``refused`` are the canonical spellings of commands that only echo what came
    in from outside. ``said`` is the model's own text without reasoning and markers, for the turn's
    exchange and for history. ``near_misses`` counts markers that stayed text.
    """

    kind: ReadingKind
    text: str = ""
    commands: tuple[Command, ...] = ()
    near_misses: int = 0
    refused: tuple[str, ...] = ()
    said: str = ""


_TEXT = ReadingKind.TEXT


def read_reply(raw: str | None, *, known: Collection[str], taken_in: frozenset[str]) -> Reading:
    """Read what a model answered (None: it answered nothing).

    ``known`` holds the registered command names, ``taken_in`` the canonical spellings that came in from
    outside during the turn (:func:`fsm.language.inert.spellings`): a command spelt like one of those is not
    run. Where other commands remain, those run; else the reply is text, with the echoes made inert.
    """
    gated = gate(raw or "")
    text, near = gated.text, gated.near_misses
    if not text:
        return Reading(ReadingKind.SILENT if gated.verdict is Verdict.SILENT else ReadingKind.EMPTY)
    if "#" not in text and "＃" not in text:
        return Reading(_TEXT, text, (), near, (), text)
    found = parse_commands(text, known).commands
    run = tuple(command for command in found if canonical(command) not in taken_in)
    refused = tuple(canonical(command) for command in found if canonical(command) in taken_in)
    if run:
        return Reading(ReadingKind.COMMANDS, "", run, near, refused, text)
    if refused:
        text = make_inert(text)
    return Reading(ReadingKind.TEXT, text, (), near, refused, text)
