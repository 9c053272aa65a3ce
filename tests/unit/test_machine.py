"""The step against the library that the table is built on: they must never part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.step import script
from fsm.conversation import Conversation, State
from fsm.events import EVENTS
from fsm.machine import _WAYS, DEFAULTS, MACHINE, _Carrier, _rests_silenced, _Way, step
from fsm.rows import Go, Guard, Row


def test_a_step_takes_the_row_that_the_library_would_take() -> None:
    now = Conversation()
    for taken in script():
        carrier = _Carrier(now, taken.event, DEFAULTS)
        rows: list[Row] = []
        # One trigger is one row: what is answered again is triggered again.
        while not rows or rows[-1].goes in (Go.AS_FROM_REST, Go.AS_FROM_IDLE):
            assert MACHINE.events[type(taken.event).__name__].trigger(carrier, carrier)
            assert carrier.row is not None
            rows.append(carrier.row)

        seen: list[Row] = []
        now, effects = step(now, taken.event, seen=seen.append)

        assert seen == rows
        assert now.state.value == carrier.state
        assert list(effects) == carrier.effects


def test_every_transition_of_the_library_is_one_that_the_step_walks() -> None:
    walked = {(event, state): ways for state, some in _WAYS.items() for event, ways in some.items()}
    assert walked.keys() == {(event, state.value) for event in EVENTS for state in State}
    for (event, state), ways in walked.items():
        theirs = MACHINE.events[event.__name__].transitions[state]
        assert [leg for way in ways for leg in legs(way)] == [
            (one.before[0].row, one.dest, [condition.func.guard for condition in one.conditions]) for one in theirs
        ]
        assert all(way.guard is way.row.when for way in ways)
        assert all(len(one.before) == 1 for one in theirs)
        # Whatever else the library could call would be passed over by the step.
        assert all(not one.after and not one.prepare and all(c.target for c in one.conditions) for one in theirs)


def legs(way: _Way) -> Iterator[tuple[Row, str | None, list[Guard[Any]]]]:
    """The library's transitions that stand for it: row, where to, guards."""
    guards = [] if way.guard is None else [way.guard]
    if way.if_muted is not None:
        yield way.row, way.if_muted, [*guards, _rests_silenced]
    yield way.row, way.to, guards
