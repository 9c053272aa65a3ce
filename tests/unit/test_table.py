"""The table is total, reachable and unambiguous, and the check that says so notices when it is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import fsm.events
from fsm.constants import Limits
from fsm.conversation import Conversation, State
from fsm.events import (
    ANSWERS,
    EVENTS,
    BackoffOver,
    CommandsDone,
    Event,
    ModelFailed,
    ModelReplied,
    PermissionAsked,
    PermissionLapsed,
    SelectionExpired,
    SessionFree,
    SilenceExpired,
    TextArrived,
    TurnExpired,
    TurnResumed,
)
from fsm.language.reply import Reading, ReadingKind
from fsm.machine import TableError, check, destinations, step
from fsm.reactions import ignore
from fsm.rows import Go, Row
from fsm.table import TABLE

IDLE, AWAITING, LOOPING, SILENCED = State

EACH_ROW = [pytest.param(n, id=row.name) for n, row in enumerate(TABLE)]


def without(dropped: Row) -> tuple[Row, ...]:
    return tuple(row for row in TABLE if row is not dropped)


def with_change(changed: Row, **change: object) -> tuple[Row, ...]:
    return tuple(replace(row, **change) if row is changed else row for row in TABLE)  # type: ignore[arg-type]


def last_for(state: State, event: type[Event]) -> Row:
    return [row for row in TABLE if state in row.states and event in row.events][-1]


# -- the table as it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_state_answers_every_event_and_no_row_is_shadowed(state: State, event: type[Event]) -> None:
    rows = [row for row in TABLE if state in row.states and event in row.events]

    assert rows, "nobody answers"
    *above, last = rows
    assert last.when is None, f"{last.name} may refuse"
    assert [row.name for row in above if row.when is None] == []


def test_every_state_can_be_reached_from_idle() -> None:
    reached = {IDLE}
    for _ in State:
        reached |= {to for row in TABLE if reached & set(row.states) for to in destinations(row)}

    assert reached == set(State)


def test_every_row_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(row.name for row in TABLE).items() if times > 1] == []


def test_every_event_that_exists_is_in_the_list_of_events() -> None:
    kinds = [kind for kind in vars(fsm.events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    leaves = {kind for kind in kinds if not any(issubclass(other, kind) for other in kinds if other is not kind)}

    assert leaves == set(EVENTS)


def test_a_silent_row_never_moves_the_conversation() -> None:
    assert {row.goes for row in TABLE if row.do is ignore} == {Go.SAME}


def test_the_table_passes_its_own_check() -> None:
    check(TABLE)


# -- tables that are wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [n for n, row in enumerate(TABLE) if row.when is None])
def test_a_table_without_one_of_its_unguarded_rows_is_refused(n: int) -> None:
    dropped = TABLE[n]

    with pytest.raises(TableError) as refused:
        check(without(dropped))

    assert any(state.value in str(refused.value) for state in dropped.states)
    assert any(event.__name__ in str(refused.value) for event in dropped.events)


def test_the_guarded_row_that_would_then_be_the_last_is_named() -> None:
    with pytest.raises(TableError) as refused:
        check(without(last_for(LOOPING, ModelFailed)))

    assert str(refused.value) == (
        "command_looping does not always answer ModelFailed: its last row is guarded: "
        "command_looping: ModelFailed [reply_is_owed] -> apologise"
    )


@pytest.mark.parametrize("n", [n for n, row in enumerate(TABLE) if row.when is not None])
def test_a_guard_taken_away_makes_a_shadow_that_is_refused(n: int) -> None:
    row = TABLE[n]
    bare = replace(row, when=None)

    with pytest.raises(TableError) as refused:
        check(with_change(row, when=None))

    assert bare.name in str(refused.value)
    assert "is shadowed by" in str(refused.value) or "two rows are the same" in str(refused.value)


def test_a_row_below_an_unguarded_one_is_named_with_the_one_that_shadows_it() -> None:
    above = last_for(LOOPING, ModelReplied)
    below = replace(above, do=ignore)

    with pytest.raises(TableError) as refused:
        check((*TABLE, below))

    assert str(refused.value) == f"{below.name} is shadowed by {above.name}"


@pytest.mark.parametrize("n", EACH_ROW)
def test_a_row_written_twice_is_refused_by_name(n: int) -> None:
    with pytest.raises(TableError) as refused:
        check((*TABLE, TABLE[n]))

    assert str(refused.value) == f"two rows are the same: {TABLE[n].name}"


def test_a_state_that_no_row_leads_to_is_named() -> None:
    kept = tuple(replace(row, goes=IDLE) if row.goes is AWAITING else row for row in TABLE)

    with pytest.raises(TableError, match=r"^no row leads to awaiting_selection$"):
        check(kept)


# -- silence --------------------------------------------------------------------------------------

LATE: dict[type[Event], Event] = {
    SessionFree: SessionFree(9.0, turn="old"),
    ModelReplied: ModelReplied(9.0, turn="old", call=1, reading=Reading(ReadingKind.TEXT, "late")),
    ModelFailed: ModelFailed(9.0, turn="old", call=1),
    PermissionAsked: PermissionAsked(9.0, turn="old", call=1, ask="a1", what="bash"),
    PermissionLapsed: PermissionLapsed(9.0, turn="old", call=1, ask="a1"),
    BackoffOver: BackoffOver(9.0, turn="old", call=1),
    CommandsDone: CommandsDone(9.0, turn="old", call=1, results=()),
    TurnExpired: TurnExpired(9.0, turn="old", due=9.0),
    TurnResumed: TurnResumed(9.0, turn="old"),
    SelectionExpired: SelectionExpired(9.0, number=7),
    SilenceExpired: SilenceExpired(9.0, due=9.0),
}


def test_there_is_a_late_event_here_for_every_row_that_ignores() -> None:
    assert {event for row in TABLE if row.do is ignore for event in row.events} == set(LATE)
    assert set(ANSWERS) <= set(LATE)


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
@pytest.mark.parametrize("event", LATE.values(), ids=lambda event: type(event).__name__)
def test_a_late_event_gives_back_the_very_same_conversation(state: State, event: Event) -> None:
    now = Conversation(state)
    taken: list[Row] = []

    then, effects = step(now, event, Limits(), seen=taken.append)

    assert then is now
    assert [row.do for row in taken] == [ignore]
    assert [type(effect).__name__ for effect in effects] == ["Count"]


def test_what_is_not_late_is_not_ignored() -> None:
    """Otherwise the test above could not fail."""
    now = Conversation(SILENCED, silence_due=9.0, silence_from=1.0)

    then, _ = step(now, SilenceExpired(9.0, due=9.0))

    assert then.state is IDLE
    assert last_for(IDLE, TextArrived).goes is LOOPING
