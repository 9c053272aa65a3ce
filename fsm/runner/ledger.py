"""The debts of a step as rows: all that it writes, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from fsm.conversation import Conversation, Key, deadlines
from fsm.effects import Effect, KeepLine, Record, Send, SendAgain, Settle, TellRoom
from fsm.owed import JOURNAL, record_text
from fsm.ports import Change, Inbound, KeptLine, Outgoing, Settled, StepRecord
from fsm.runner import rooms

NOTHING = Change(Key("", "", ""))
"""A step that writes nothing: a late answer, a timer that no longer matters."""


def outgoing(key: Key, effect: Send | Record) -> Outgoing:
    """A text that is owed. The record of a turn goes the same way: in order, kept until it is written, and
    written again under the same name where a crash leaves it open whether it was."""
    if isinstance(effect, Send):
        return Outgoing(effect.id, key, effect.channel, effect.to, effect.text, effect.message)
    text = record_text(effect.turn, effect.event, effect.data, effect.at)
    return Outgoing(effect.id, key, JOURNAL, effect.session, text)


def change(
    key: Key,
    now: Conversation,
    then: Conversation,
    effects: Iterable[Effect],
    on_its_way: Callable[[str], Outgoing | None],
    steps: tuple[StepRecord, ...] = (),
    arrival: Inbound | None = None,
) -> Change:
    """What the step from ``now`` to ``then`` writes; ``NOTHING`` itself where that is nothing.

    ``on_its_way`` finds a text that is being delivered by its id.
    """
    sends: tuple[Outgoing, ...] = ()
    settled: tuple[Settled, ...] = ()
    lines: tuple[KeptLine, ...] = ()
    delivered: tuple[str, ...] = ()
    meta: tuple[tuple[str, str | None], ...] = ()
    for effect in effects:  # what comes most stands first
        if type(effect) is KeepLine:
            lines += (KeptLine(effect.session, effect.line),)
        elif type(effect) is Send:
            if effect.to:
                sends += (outgoing(key, effect),)
        elif type(effect) is Settle:
            # ``value`` is a property in Python, and takes longer than the rest of the line.
            settled += (Settled(effect.message, effect.disposition._value_, effect.reason),)
        elif type(effect) is Record:
            sends += (outgoing(key, effect),)
        elif type(effect) is SendAgain:
            if effect.at is None:
                delivered += (effect.send,)
            elif (text := on_its_way(effect.send)) is not None:
                sends += (replace(text, due=effect.at),)
        elif type(effect) is TellRoom:
            meta += (rooms.stored(key, then, effect.seconds),)
    if then is now and arrival is None and not (sends or settled or lines or delivered or meta or steps):
        return NOTHING
    next_one = deadlines(then)
    return Change(
        key,
        conversation=then if then is not now else None,
        due=next_one[0].due if next_one else None,
        started=next_one[0].started if next_one else None,
        sends=sends,
        delivered=delivered,
        settled=settled,
        lines=lines,
        steps=steps,
        meta=meta,
        arrival=arrival,
    )
