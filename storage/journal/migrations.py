"""Records of older versions, one step at a time.

Version 1 is the oldest form: no ``v``, no header, no totals. Version 2 added ``totalTokens`` to
what describes the session; version 3 made the text in ``config`` an object. A description is a
header, or any record that carries one of its fields; other records only change their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from storage.journal.errors import JournalVersionError
from storage.journal.records import HEADER, VERSION, parse

Line = dict[str, Any]
Step = Callable[[Line], Line]


def is_header(line: Mapping[str, Any]) -> bool:
    """A line that tells of the session rather than of a turn, whoever wrote it: its ``event`` says
    so, or it has none."""
    return bool(line.get("event", HEADER) == HEADER)


def add_totals(line: Line) -> Line:
    """1 → 2: a header says what was spent before the file began; nothing, unless it knows better."""
    if not is_header(line):
        return line
    held = line.get("data")
    if isinstance(held, dict):
        return {**line, "data": {"totalTokens": {"input": 0, "output": 0}, **held}}
    return {"totalTokens": {"input": 0, "output": 0}, **line}


def config_as_object(line: Line) -> Line:
    """2 → 3: ``config``, on the line or in its data, is an object.

    A text that is no JSON object was a model's bare name; JSON that is broken is kept as ``unread``.
    """
    held = line.get("data")
    if isinstance(held, dict) and isinstance(held.get("config"), str):
        line = {**line, "data": {**held, "config": _config(held["config"])}}
    if isinstance(line.get("config"), str):
        line = {**line, "config": _config(line["config"])}
    return line


def _config(text: str) -> dict[str, Any]:
    try:
        value = parse(text.encode())
    except ValueError:
        return {"unread": text} if text.lstrip()[:1] in ("{", "[") else {"model": text}
    return value if isinstance(value, dict) else {"model": text}


STEPS: Mapping[int, Step] = {1: add_totals, 2: config_as_object}
"""From a version to the next."""


def version_of(line: Mapping[str, Any]) -> int:
    """Raises ValueError, whose text is fit for a person, for what is no version."""
    version = line.get("v", 1)
    if type(version) is not int or version < 1:
        raise ValueError(f"{version!r} is no version: a whole number from 1 is expected")
    return version


def migrate(line: Line, *, to: int = VERSION, steps: Mapping[int, Step] = STEPS, path: object = "",
            number: int = 0) -> Line:
    """The line in version ``to``, the very same where it is that already.

    Raises :class:`JournalVersionError` where a step is missing or the version lies ahead, and
    ValueError for what is no version. ``path`` and ``number`` say in the error where it stands.
    """
    version = version_of(line)
    if version > to:
        raise JournalVersionError(str(path), version, to, number)
    if version == to:
        return line
    for at in range(version, to):
        step = steps.get(at)
        if step is None:
            raise JournalVersionError(str(path), at, to, number)
        line = step(line)
    return {"v": to, **{name: value for name, value in line.items() if name != "v"}}
