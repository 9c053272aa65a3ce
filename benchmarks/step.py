"""One step of the conversation table, against the library beneath it and against a plain dict.

The raw machine walks the same states with as many events, one unguarded row and one callback for each, and does
nothing there. Ours tries the table's guards from the top, builds the new conversation and the effects, and keeps
the trail.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from transitions import EventData, Machine

from benchmarks.measure import Row, by_turns, timed
from fsm.conversation import Bound, Command, Conversation, Message, State
from fsm.events import (
    CancelSaid,
    CommandsDone,
    Event,
    ListAsked,
    ModelReplied,
    MuteAsked,
    NumberGiven,
    Result,
    SelectionExpired,
    SessionFree,
    SilenceExpired,
    TextArrived,
    TurnExpired,
    UnmuteAsked,
)
from fsm.language.reply import read_reply
from fsm.machine import step
from fsm.ports import SessionInfo

LIMIT = 6.0
"""Steps to raw events. A step walks the transitions that the library compiled from the table: up to six guarded rows
tried before the one that is taken, the new conversation, its effects and its trail.
Beyond six raw events a step would cost as much as all the rest of a message's way, and more than its share on disk."""

AT = 1_768_464_000.0
COMMANDS = frozenset({"help"})


@dataclass(slots=True)
class Taken:
    """One event of the script, with the states before and after it."""

    event: Event
    before: State
    after: State


def script() -> list[Taken]:
    """27 events from idle to idle: two plain turns, a list answered by numbers, one that expires and one that is
    cancelled, a command loop, a mute taken back, a silence in a group, and a turn whose time runs out."""
    sessions = tuple(SessionInfo(f"ses_{n:020}", f"Session {n}", "opencode", AT - n) for n in range(5))
    bound = Bound(sessions[0].id, "auto", sessions[0].title, "opencode")
    numbers = itertools.count(1)
    now = Conversation()
    taken: list[Taken] = []

    def do(event: Event) -> None:
        nonlocal now
        then, _ = step(now, event)
        taken.append(Taken(event, now.state, then.state))
        now = then

    def message(text: str, *, room: bool = False) -> Message:
        number, channel = next(numbers), "xmpp:room@example.org" if room else "xmpp"
        ref, tag = f"bot/{channel}/m{number}", f"[{channel}]"
        return Message(ref, f"m{number}", channel, "alice@example.org", text, f"{tag} {text}", tag, not room, "en",
                       in_room=room)  # fmt: skip

    def begin(text: str, *, room: bool = False) -> str:
        said = message(text, room=room)
        do(TextArrived(AT, message=said, binding=bound))
        do(SessionFree(AT, turn=said.ref))
        return said.ref

    def reply(turn: str, text: str, call: int = 1) -> None:
        do(ModelReplied(AT, turn=turn, call=call, reading=read_reply(text, known=COMMANDS, taken_in=frozenset())))

    def ask_for_list() -> int:
        do(ListAsked(AT, message=message("/sessions"), binding=bound, matches=sessions))
        assert now.shown is not None
        return now.shown.number

    reply(begin("How is the build?"), "It is green.")
    reply(begin("And the tests?"), "All of them pass.")
    ask_for_list()
    do(NumberGiven(AT, message=message("9"), binding=bound, number=9))
    do(NumberGiven(AT, message=message("2"), binding=bound, number=2, session=sessions[1]))
    do(SelectionExpired(AT + 120, number=ask_for_list()))
    ask_for_list()
    do(CancelSaid(AT, message=message("cancel"), binding=bound))
    turn = begin("Help me")
    reply(turn, "##help##")
    do(CommandsDone(AT, turn=turn, call=1, results=(Result(Command("help", None), "[help] Nothing to see here."),)))
    reply(turn, "That is all there is.", 2)
    do(MuteAsked(AT, seconds=600.0, message=message("be quiet")))
    do(UnmuteAsked(AT, message=message("you can talk")))
    reply(begin("Good morning all", room=True), "__SILENT__")
    do(SilenceExpired(AT + 600, due=AT + 600))
    do(TurnExpired(AT + 300, turn=begin("One more"), due=AT + 300))
    assert now.state is State.IDLE
    return taken


class _Carrier:
    __slots__ = ("event", "state", "steps")

    def __init__(self) -> None:
        self.state, self.steps = State.IDLE.value, 0
        self.event: Event | None = None


def _raw(taken: list[Taken]) -> Callable[[], None]:
    """The script on a shared machine of the library, with a carrier that is never registered."""
    machine = Machine(
        model=None, states=[s.value for s in State], initial=State.IDLE.value, auto_transitions=False, send_event=True
    )

    def note(data: EventData) -> None:
        cast(_Carrier, data.model).steps += 1

    triggers = []
    known: set[tuple[str, str]] = set()
    for one in taken:
        name = f"{type(one.event).__name__}_{one.after.value}"
        if (name, one.before.value) not in known:
            known.add((name, one.before.value))
            machine.add_transition(name, one.before.value, one.after.value, before=note)
        triggers.append(machine.events[name].trigger)

    def run() -> None:
        carrier = _Carrier()
        for trigger in triggers:
            trigger(carrier)
        assert carrier.state == State.IDLE.value
        assert carrier.steps == len(triggers)

    return run


def _dispatch(taken: list[Taken]) -> Callable[[], None]:
    """The script by hand: a dict from state and event to a function that gives the next state."""

    def to(state: State) -> Callable[[_Carrier, Event], State]:
        def react(carrier: _Carrier, event: Event) -> State:
            carrier.steps += 1
            return state

        return react

    table = {(one.before, type(one.event), one.after): to(one.after) for one in taken}
    events = [(type(one.event), one.after, one.event) for one in taken]

    def run() -> None:
        carrier, state = _Carrier(), State.IDLE
        for kind, after, event in events:
            state = table[state, kind, after](carrier, event)
        assert state is State.IDLE
        assert carrier.steps == len(events)

    return run


def compare(*, quick: bool = False) -> list[Row]:
    """Microseconds an event of the three."""
    taken = script()
    events = [one.event for one in taken]
    repeat = 5 if quick else 100

    def ours() -> None:
        now = Conversation()
        for event in events:
            now, _ = step(now, event)
        assert now.state is State.IDLE

    def times(run: Callable[[], None]) -> Callable[[], float]:
        def runs() -> None:
            for _ in range(repeat):
                run()

        return lambda: timed(runs) / repeat / len(events) * 1e6

    medians = by_turns(
        {"ours": times(ours), "raw": times(_raw(taken)), "dict": times(_dispatch(taken))}, rounds=3 if quick else 15
    )
    figure = {name: f"{value:.2f} µs/event" for name, value in medians.items()}
    return [
        Row("step / raw transitions", figure["ours"], figure["raw"], medians["ours"] / medians["raw"], LIMIT,
            how=f"{len(events)} events on one shared transitions machine (model=None), one unguarded row and one "
            "callback each, on a slotted carrier that is never registered; nothing is decided, built or kept."),
        Row("step / dict dispatch", figure["ours"], figure["dict"], medians["ours"] / medians["dict"], None,
            how="The same events by a dict from (state, event) to a function that gives the next state: the floor, "
            "shown to see how far away it is, and not judged, since nothing that explains itself can reach it."),
    ]  # fmt: skip
