"""Tokens and cost of a session, every model call counted once.

Several records may tell of one model call, the later ones with the better numbers: a call is known
by an id (``usage.id``, else ``request_id``, else ``id`` of the data) and the last word on it counts.
Without an id each ``usage`` is a call of its own. A ``turn_end`` whose usage has ``calls`` (how many
it adds up) speaks for the whole turn and replaces what its records said one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from storage.journal.reading import Complaints, Wanted

_Amount = tuple[int, int, float]
_NOTHING: _Amount = (0, 0, 0.0)


class UsageTotals:
    """``input`` and ``output`` in tokens, ``cost`` in the currency of whoever wrote it."""

    def __init__(self, complain: Complaints) -> None:
        self._complain = complain
        self.input = self.output = 0
        self.cost = 0.0
        self._begun = _NOTHING
        self._calls: dict[str, _Amount] = {}
        self._turns: dict[int, _Amount] = {}
        """What the records of each turn said so far; turns may overlap."""

    def begin(self, line: int, tokens: Any, cost: Any) -> None:
        """What was spent before this file began, as a header says it; null leaves what was said."""
        held = tokens if isinstance(tokens, Mapping) else {}
        before = self._begun
        self._begun = (self._count(line, "totalTokens.input", held.get("input"), before[0]),
                       self._count(line, "totalTokens.output", held.get("output"), before[1]),
                       self._money(line, "sessionCost", cost, before[2]))
        self._add(_minus(self._begun, before))

    def turn_started(self, turn: int) -> None:
        self._turns.pop(turn, None)

    def take(self, line: int, turn: int, event: str, at: str, data: Wanted) -> None:
        """Count the ``usage`` and ``cost`` of a record."""
        usage = data.usage
        if usage is None:
            usage = {}
        elif not isinstance(usage, Mapping):
            self._complain(line, "usage is no object: not counted")
            usage = {}
        whole_turn = event == "turn_end" and usage.get("calls") is not None
        # Of a turn's sum a copy of the line has the same instant, another turn of that number has not.
        name = f"turn {turn} {at}" if whole_turn else _name(usage, data)
        before = self._calls.get(name, _NOTHING) if name else _NOTHING
        now = (self._count(line, "usage.input_tokens", usage.get("input_tokens"), before[0]),
               self._count(line, "usage.output_tokens", usage.get("output_tokens"), before[1]),
               self._money(line, "cost", usage.get("cost") if data.cost is None else data.cost, before[2]))
        if name:
            self._calls[name] = now
        more = _minus(now, before)
        said = self._turns.pop(turn, _NOTHING)
        if whole_turn:
            more = _minus(more, said)
        elif event != "turn_end":
            self._turns[turn] = (said[0] + more[0], said[1] + more[1], said[2] + more[2])
        self._add(more)

    def _add(self, more: _Amount) -> None:
        self.input += more[0]
        self.output += more[1]
        self.cost = round(self.cost + more[2], 10)  # keeps 0.1 + 0.2 from showing as 0.30000000000000004

    def _count(self, line: int, field: str, value: Any, otherwise: int) -> int:
        if value is None:
            return otherwise
        if type(value) is int and value >= 0:
            return value
        if type(value) is float and value >= 0 and value.is_integer():
            return int(value)
        self._complain(line, f"{field} is {_shown(value)}, not a number of tokens: not counted")
        return otherwise

    def _money(self, line: int, field: str, value: Any, otherwise: float) -> float:
        if value is None:
            return otherwise
        if type(value) in (int, float) and 0 <= value < 1e15:
            return float(value)
        self._complain(line, f"{field} is {_shown(value)}, not an amount: not counted")
        return otherwise


def turn_usage(calls: Iterable[tuple[int, int]], cost: float | None = None) -> dict[str, Any]:
    """The ``usage`` of a ``turn_end`` out of the (input, output) tokens of all model calls of the turn."""
    each = list(calls)
    usage: dict[str, Any] = {"input_tokens": sum(one[0] for one in each), "output_tokens": sum(one[1] for one in each),
                             "calls": len(each)}
    return usage if cost is None else {**usage, "cost": cost}


def _name(usage: Mapping[str, Any], data: Wanted) -> str:
    for value in (usage.get("id"), data.request_id, data.requestId, data.id):
        if isinstance(value, str | int) and value != "":
            return f"call {value}"
    return ""


def _minus(one: _Amount, other: _Amount) -> _Amount:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _shown(value: Any) -> str:
    return repr(value)[:40]
