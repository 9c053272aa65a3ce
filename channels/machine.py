"""The grammar of a channel's own table: like ``fsm.rows``, for states and values of any kind.

A table is checked when it is made: every state answers every event, no row is shadowed, every state can
be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, Generic, TypeVar

from fsm.rows import Go

S = TypeVar("S", bound=Enum)
E = TypeVar("E")
V = TypeVar("V")
F = TypeVar("F")


class ChannelTableError(Exception):
    """The table itself is wrong; raised when it is made, naming the row."""


@dataclass(frozen=True, slots=True)
class Row(Generic[S, V, F]):
    """In these states, on these events, only when the guard holds. ``goes`` is a state or ``Go.SAME``."""

    states: tuple[S, ...]
    events: tuple[type[Any], ...]
    goes: S | Go
    do: Callable[[V, Any], tuple[V, tuple[F, ...]]]
    when: Callable[[V, Any], bool] | None = None

    @property
    def name(self) -> str:
        """Names the row in errors; unique in a table."""
        when = f" [{self.when.__name__}]" if self.when else ""
        states, events = "+".join(str(s.value) for s in self.states), "/".join(e.__name__ for e in self.events)
        return f"{states}: {events}{when} -> {self.do.__name__}"


class Table(Generic[S, V, F]):
    """Rows that have been checked. Rows for one state and event are tried downward; the last has no guard.

    Raises :class:`ChannelTableError`, naming the row that is wrong or missing.
    """

    def __init__(self, rows: Sequence[Row[S, V, F]], *, initial: S, events: Sequence[type[Any]]) -> None:
        self.rows, self.initial, self.events = tuple(rows), initial, tuple(events)
        self._answers: dict[tuple[S, type[Any]], tuple[Row[S, V, F], ...]] = {}
        self._check()

    def answer(self, state: S, now: V, event: object) -> tuple[S, V, tuple[F, ...]]:
        """What the table makes of ``event``: the state to go to, the value, and the effects owed."""
        row = next(row for row in self._answers[state, type(event)] if row.when is None or row.when(now, event))
        then, effects = row.do(now, event)
        return state if isinstance(row.goes, Go) else row.goes, then, effects

    def _check(self) -> None:
        states = tuple(type(self.initial))
        names = [row.name for row in self.rows]
        for row in self.rows:
            if names.count(row.name) > 1:
                raise ChannelTableError(f"two rows are the same: {row.name}")
            if isinstance(row.goes, Go) and row.goes is not Go.SAME:
                raise ChannelTableError(f"{row.name} goes to {row.goes.value!r}, which only the conversation knows")
        for state in states:
            for event in self.events:
                rows = tuple(row for row in self.rows if state in row.states and event in row.events)
                if not rows or rows[-1].when is not None:
                    last = f"its last row is guarded: {rows[-1].name}" if rows else "there is no row"
                    raise ChannelTableError(f"{state.value} does not always answer {event.__name__}: {last}")
                for row, below in pairwise(rows):
                    if row.when is None:
                        raise ChannelTableError(f"{below.name} is shadowed by {row.name}")
                self._answers[state, event] = rows
        reached = {self.initial}
        while more := {
            row.goes for row in self.rows if not isinstance(row.goes, Go) and reached & set(row.states)
        } - reached:
            reached |= more
        if unreachable := set(states) - reached:
            raise ChannelTableError(f"no row leads to {', '.join(sorted(str(s.value) for s in unreachable))}")
