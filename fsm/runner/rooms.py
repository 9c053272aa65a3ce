"""Mutes that hold for a whole room: every conversation in it hears of them, and later ones begin with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fsm.conversation import Conversation, Key, State
from fsm.events import Event, MuteAsked, UnmuteAsked

PREFIX = "mute:"
"""Begins the keys under which the last mute or un-mute of each room is stored."""

Room = tuple[str, str]
"""(agent, channel)"""


class RoomMute(NamedTuple):
    """When a mute was given (unix seconds) and for how many seconds."""

    started: float
    seconds: float

    @property
    def until(self) -> float:
        return self.started + self.seconds


def given(then: Conversation, seconds: float) -> RoomMute:
    """The mute that the step to ``then`` gave; a longer one than allowed was cut by it."""
    assert then.muted_until is not None
    assert then.silence_from is not None
    mute = RoomMute(then.silence_from, seconds)
    return mute if mute.until == then.muted_until else mute._replace(seconds=then.muted_until - mute.started)


def stored(key: Key, then: Conversation, seconds: float | None) -> tuple[str, str]:
    """What to store of a mute (``seconds``) or an un-mute (None), under which key. An un-mute is kept too: a
    start sees by it whom it has not reached."""
    mute = None if seconds is None else given(then, seconds)
    return f"{PREFIX}{key.agent}/{key.channel}", "" if mute is None else f"{mute.started!r} {mute.seconds!r}"


class RoomMutes:
    """The mutes that are ahead, by room."""

    def __init__(self) -> None:
        self._mutes: dict[Room, RoomMute] = {}

    def take(self, room: Room, then: Conversation, seconds: float | None) -> None:
        """A mute or an un-mute was given in ``room``."""
        if seconds is None:
            self._mutes.pop(room, None)
        else:
            self._mutes[room] = given(then, seconds)

    def fresh(self, key: Key, at: float) -> Conversation:
        """A new conversation; in a muted room it is muted from the start."""
        mute = self._mutes.get((key.agent, key.channel)) if self._mutes else None
        if mute is not None and mute.until > at:
            return Conversation(
                state=State.SILENCED, muted_until=mute.until, silence_due=mute.until, silence_from=mute.started
            )
        return Conversation()

    def read(self, rows: Iterable[tuple[str, str]], agents: Collection[str], at: float) -> list[Room]:
        """Take up what is stored for these agents; the rooms whose last mute or un-mute may not have reached
        everybody, since a crash may have come between. A mute from the future is over, as every deadline is."""
        rooms: list[Room] = []
        for name, value in rows:
            agent, _, channel = name.removeprefix(PREFIX).partition("/")
            if agent not in agents:
                continue
            started, _, seconds = value.partition(" ")
            if not started:
                rooms.append((agent, channel))
            elif (mute := RoomMute(float(started), float(seconds))).until > at >= mute.started:
                self._mutes[agent, channel] = mute
                rooms.append((agent, channel))
        return rooms

    def untold(
        self, room: Room, conversations: Mapping[Key, Conversation | None], busy: Collection[Key], at: float
    ) -> list[tuple[Key, Event]]:
        """What the conversations of a room must hear to be as quiet as the room. One at rest that is so
        already is left alone. What the others hear is when and for how long the mute was given, so hearing
        it again changes nothing."""
        mute = self._mutes.get(room)
        until = None if mute is None else mute.until
        found: list[tuple[Key, Event]] = []
        for key in sorted(conversations):
            now = conversations[key]
            if key not in busy and now is not None and now.muted_until == until:
                continue
            if mute is None:
                found.append((key, UnmuteAsked(at)))
            elif mute.until > at:
                found.append((key, MuteAsked(mute.started, seconds=mute.seconds)))
        return found

    def drop(self, agent: str) -> None:
        """That agent is served no more."""
        self._mutes = {room: mute for room, mute in self._mutes.items() if room[0] != agent}
