"""Telling the model which lines of a history are its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from fsm.ports import Line

YOU = "[YOU] "
"""Stands before a line that the agent itself said."""


def tag_own(lines: Sequence[Line], names: Sequence[str]) -> list[Line]:
    """The lines, those that begin with one of ``names`` as their speaker tagged with :data:`YOU`, once.

    A speaker is written as people and Hermes write it: ``mohe: …`` or ``[mohe] …``, in any case and
    width of colon and brackets. A name without such a border is somebody who calls the agent
    (``mohe, please …``), and a name may be the beginning of another one.
    """
    wanted = tuple(sorted({name.strip() for name in names if name.strip()}))
    if not wanted:
        return list(lines)
    begins = _speaker(wanted)
    return [replace(line, text=YOU + line.text) if begins.match(line.text) else line for line in lines]


@lru_cache(maxsize=64)
def _speaker(names: tuple[str, ...]) -> re.Pattern[str]:
    spelt = "|".join(map(re.escape, names))
    # Hermes writes [name] in shared sessions, and [name|id] where it only listens.
    return re.compile(rf"\s*(?:(?:{spelt})\s*[:：]|[\[［【]\s*(?:{spelt})\s*(?:\|[^\]］】\n]*)?[\]］】])",
                      re.IGNORECASE)
