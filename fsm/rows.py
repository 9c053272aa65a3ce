"""What a row of the table is. Read ``table.py`` first; this is only its grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from fsm.constants import Limits
from fsm.conversation import Conversation, State
from fsm.effects import Effect
from fsm.events import Event

E = TypeVar("E", bound=Event)
Outcome = tuple[Conversation, tuple[Effect, ...]]
Reaction = Callable[[Conversation, E, Limits], Outcome]
Guard = Callable[[Conversation, E, Limits], bool]


class Go(Enum):
    """Destinations that depend on the moment."""

    SAME = "unchanged"
    REST = "rest"
    """Idle, or silenced while a mute is ahead."""
    AS_FROM_REST = "as from rest"
    """To rest, and the same event is answered again there."""
    AS_FROM_IDLE = "as from idle"
    """To idle, and the same event is answered again there; a mute stays until its time."""

    @property
    def again(self) -> bool:
        return self in (Go.AS_FROM_REST, Go.AS_FROM_IDLE)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: in these states, on these events, only when the guard holds."""

    states: tuple[State, ...]
    events: tuple[type[Event], ...]
    goes: State | Go
    do: Reaction[Any]
    when: Guard[Any] | None = None

    @property
    def name(self) -> str:
        """Names the row for coverage, trails and errors; unique in the table."""
        state = (
            self.states[0].value
            if len(self.states) == 1
            else "any"
            if len(self.states) == len(State)
            else "+".join(s.value for s in self.states)
        )
        when = f" [{self.when.__name__}]" if self.when else ""
        return f"{state}: {'/'.join(e.__name__ for e in self.events)}{when} -> {self.do.__name__}"


def on(
    states: State | tuple[State, ...],
    events: type[E] | tuple[type[E], ...],
    goes: State | Go,
    do: Reaction[E],
    when: Guard[E] | None = None,
) -> Row:
    """A row. The type variable lets mypy reject a reaction or guard paired with the wrong event."""
    return Row(
        states if isinstance(states, tuple) else (states,),
        events if isinstance(events, tuple) else (events,),
        goes,
        do,
        when,
    )
