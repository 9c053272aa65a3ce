"""Turns by the names that the engine gives them: which number each has in a journal, and what stands there already.

An engine that was killed may hand over its last records once more. They are told from new ones by what the
end of the file holds: the turn's name, the event and the id of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.journal.records import HEADER, Record

LOOK_BACK = 500
"""Records from the end among which one that was written before is looked for."""
KEPT = 1000

Name = tuple[str, str, str]
"""The turn's name, the event, the id of the data."""


def name_of(turn: str, event: str, data: Mapping[str, Any]) -> Name:
    return turn, event, str(data.get("id", ""))


@dataclass(slots=True)
class Tail:
    """What the end of one journal holds, as long as the file is ``length`` bytes long. ``highest`` is the highest
    number of a turn."""

    length: int = -1
    highest: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    names: dict[Name, None] = field(default_factory=dict)

    @classmethod
    def read(cls, newest: Iterator[Record], length: int) -> Tail:
        """From the newest records back, until enough of them tell."""
        tail = cls(length)
        for many, record in enumerate(newest, start=1):
            tail._note(record)
            if many >= LOOK_BACK and tail.highest:
                break
        return tail

    def number(self, turn: str) -> int:
        """The number of that turn: the next one where it is new here."""
        return self.numbers.get(turn, self.highest + 1)

    def take(self, record: Record, length: int) -> None:
        """A record was appended, and the file is ``length`` bytes long now."""
        self._note(record)
        self.length = length
        for kept in (self.names, self.numbers):
            while len(kept) > KEPT:
                kept.pop(next(iter(kept)))  # type: ignore[call-overload]

    def _note(self, record: Record) -> None:
        if record.event == HEADER:
            return
        self.highest = max(self.highest, record.turn)
        turn = record.data.get("turn") if isinstance(record.data, Mapping) else None
        if isinstance(turn, str):
            self.numbers.setdefault(turn, record.turn)
            self.names[name_of(turn, record.event, record.data)] = None
