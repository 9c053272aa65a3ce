"""The pure step: a conversation and an event in, the new conversation and the effects owed out.

The only module that knows ``transitions``. One synchronous machine serves the whole process and
holds no models: each step lends it a throwaway slotted carrier (registering models costs
kilobytes each and compares them with ``==``), and reactions run in ``before``, where an exception
moves nothing. The table is checked when this module is imported.

:func:`step` walks the machine's own transitions by itself: the library's trigger does the same, at half as much again
for a whole step, spent on callbacks that nobody registered, and a start after a long night takes a hundred
thousand steps. A test lets the two run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from msgspec.structs import replace
from transitions import Machine, Transition

from fsm.constants import Limits
from fsm.conversation import Conversation, Edge, State
from fsm.effects import Effect
from fsm.events import EVENTS, Event
from fsm.guards import is_muted
from fsm.reactions import ignore
from fsm.rows import Go, Guard, Row
from fsm.table import TABLE

TRAIL_LENGTH = 6
"""Edges that a conversation remembers, for the live picture and for ``/why``."""

DEFAULTS = Limits()


class TableError(Exception):
    """The table itself is wrong; raised at import, naming the row."""


class NoTransition(Exception):
    """No row answers this event in this state; nothing has changed. A checked table never raises it."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{state.value} has no row for {type(event).__name__}")
        self.state, self.event = state, event


class _Carrier:
    """What one step lends to the shared machine."""

    __slots__ = ("conversation", "effects", "event", "limits", "row", "state")

    def __init__(self, conversation: Conversation, event: Event, limits: Limits) -> None:
        self.state = conversation.state.value
        self.conversation, self.event, self.limits = conversation, event, limits
        self.effects: list[Effect] = []
        self.row: Row | None = None


def check(table: Sequence[Row]) -> None:
    """Raise :class:`TableError` unless every state answers every event, no row is shadowed or named
    twice, and every state can be reached from idle."""
    names = [row.name for row in table]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"two rows are the same: {name}")
    for state in State:
        for event in EVENTS:
            rows = [row for row in table if state in row.states and event in row.events]
            if not rows or rows[-1].when is not None:
                last = f"its last row is guarded: {rows[-1].name}" if rows else "there is no row"
                raise TableError(f"{state.value} does not always answer {event.__name__}: {last}")
            for row in rows[:-1]:
                if row.when is None:
                    raise TableError(f"{rows[rows.index(row) + 1].name} is shadowed by {row.name}")
    reached = {State.IDLE}
    while True:
        more = {to for row in table if reached & set(row.states) for to in destinations(row)} - reached
        if not more:
            break
        reached |= more
    if unreachable := set(State) - reached:
        raise TableError(f"no row leads to {', '.join(sorted(s.value for s in unreachable))}")


def destinations(row: Row) -> tuple[State, ...]:
    """The states that a row can lead to, itself left out where it says unchanged."""
    match row.goes:
        case State() as state:
            return (state,)
        case Go.SAME:
            return ()
        case Go.AS_FROM_IDLE:
            return (State.IDLE,)
        case Go.REST | Go.AS_FROM_REST:
            return (State.IDLE, State.SILENCED)


def _rests_silenced(now: Conversation, event: Event, limits: Limits) -> bool:
    return is_muted(now, event.at)


class _Reaction:
    """What a transition does, as the library calls it."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __call__(self, carrier: _Carrier) -> None:
        carrier.conversation, effects = self.row.do(carrier.conversation, carrier.event, carrier.limits)
        carrier.effects.extend(effects)
        carrier.row = self.row


class _Condition:
    """When a transition holds, as the library calls it."""

    def __init__(self, guard: Guard[Any]) -> None:
        self.guard = guard

    def __call__(self, carrier: _Carrier) -> bool:
        return self.guard(carrier.conversation, carrier.event, carrier.limits)


def _compile(table: Sequence[Row]) -> Machine:
    """The table as one machine. A trigger takes the carrier twice: as the model that it moves, and as
    what it hands to guards and reactions."""
    machine = Machine(
        model=None,
        states=[state.value for state in State],
        initial=State.IDLE.value,
        auto_transitions=False,
    )
    rests_silenced = _Condition(_rests_silenced)

    def add(row: Row) -> None:
        react = _Reaction(row)
        conditions: list[Any] = [] if row.when is None else [_Condition(row.when)]
        for event in row.events:
            for state in row.states:
                add_edge = machine.add_transition
                name = event.__name__
                if row.goes in (Go.REST, Go.AS_FROM_REST):
                    add_edge(name, state.value, State.SILENCED.value, [*conditions, rests_silenced], before=react)
                    add_edge(name, state.value, State.IDLE.value, conditions, before=react)
                else:
                    to = destinations(row)
                    add_edge(name, state.value, to[0].value if to else None, conditions, before=react)

    for row in table:
        add(row)
    return machine


@dataclass(frozen=True, slots=True)
class _Way:
    """A row as :func:`step` walks it: what are one or two transitions of the machine, read once."""

    guard: Guard[Any] | None
    row: Row
    to: str | None
    if_muted: str | None
    """Where it leads instead while a mute is ahead."""
    again: bool
    """The same event is answered once more, by the state that this leads to."""
    names: tuple[str, str] | None
    """What it did and on which event, for the trail; None where nothing happens."""


def _way(row: Row, event: type[Event], transitions: Sequence[Transition]) -> _Way:
    muted = transitions[0].dest if len(transitions) == 2 else None
    names = (row.do.__name__, event.__name__) if row.do is not ignore else None
    return _Way(row.when, row, transitions[-1].dest, muted, isinstance(row.goes, Go) and row.goes.again, names)


def _ways(machine: Machine) -> dict[str, dict[type[Event], tuple[_Way, ...]]]:
    """The machine's transitions for each state and event, in the order in which they are tried."""
    return {
        state.value: {
            event: tuple(
                _way(row, event, list(some))
                for row, some in groupby(
                    machine.events[event.__name__].transitions[state.value],
                    lambda transition: cast(_Reaction, transition.before[0]).row,
                )
            )
            for event in EVENTS
        }
        for state in State
    }


check(TABLE)
MACHINE = _compile(TABLE)
_WAYS = _ways(MACHINE)
_STATES = {state.value: state for state in State}
_IDLE = State.IDLE  # the way to an Enum's member is a long one


def step(
    now: Conversation,
    event: Event,
    limits: Limits = DEFAULTS,
    *,
    seen: Callable[[Row], None] | None = None,
) -> tuple[Conversation, tuple[Effect, ...]]:
    """What the table makes of ``event``. Same conversation, same event, same answer.

    ``seen`` is told every row that was taken, for coverage. A late event gives back ``now`` itself.

    Raises:
        NoTransition: no row answers; nothing has changed.
    """
    then = now
    before: str = now.state._value_  # ``value`` is a property in Python, and takes as long as a guard
    effects: tuple[Effect, ...] = ()
    edges: tuple[Edge, ...] = ()
    while True:
        for way in _WAYS[before].get(type(event), ()):
            guard = way.guard
            if guard is None or guard(then, event, limits):
                break
        else:
            raise NoTransition(_STATES[before], event)
        row = way.row
        after = way.if_muted if way.if_muted and is_muted(then, event.at) else way.to or before
        then, owed = row.do(then, event, limits)
        effects += owed
        if seen is not None:
            seen(row)
        if (names := way.names) is not None:
            edges += (Edge(event.at, names[0], names[1], before, after),)
        before = after
        if not way.again:
            break
    if not edges:
        return now, effects
    state = _STATES[after]
    if state is _IDLE and then.silence_due is not None:
        # A mute that has run out while its timer is still on the way: idle means not muted.
        then = replace(then, muted_until=None, silence_due=None, silence_from=None)
    trail = (then.trail + edges)[-TRAIL_LENGTH:]
    return replace(then, state=state, trail=trail), effects
