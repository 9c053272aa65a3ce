"""The connection to an XMPP server, whole: this table decides what is done about every loss and refusal.

It is read like the conversation's table (``fsm/table.py``): in which state, on which event, where it goes,
what it does, and only when. One connection carries all rooms; each of them has a standing of its own, and
``joined`` means that every room which lets us in has been entered and caught up with.

Pure: no clock, no chance, no network. Delays come from :func:`delay`, whose chance arrives with the event.
A link is one TCP connection with its stream; what arrives from an earlier one is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from channels.machine import Row, Table
from channels.xmpp.events import (
    EVENTS,
    BackoffOver,
    CatchUp,
    Cause,
    Connect,
    Connection,
    ConnectTimedOut,
    Disconnect,
    Displaced,
    Effect,
    EnterRoom,
    Event,
    FailOutput,
    Greet,
    Greeted,
    HoldOutput,
    LinkLost,
    LinkUp,
    LoginRefused,
    OfLink,
    OfRoom,
    ReleaseOutput,
    Room,
    RoomCaughtUp,
    RoomEntered,
    RoomLost,
    RoomRefused,
    RoomRetryDue,
    Standing,
    Started,
    State,
    Stopped,
    Tell,
    Timing,
    WaitToConnect,
    WaitToEnter,
)
from fsm.rows import Go

Outcome = tuple[Connection, tuple[Effect, ...]]

# -- waits ---------------------------------------------------------------------------------------

RETRYABLE = frozenset({
    "conflict", "item-not-found", "internal-server-error", "recipient-unavailable", "remote-server-not-found",
    "remote-server-timeout", "resource-constraint", "service-unavailable", "undefined-condition",
})  # fmt: skip
"""Join errors that may pass: a ghost of ours that holds the nick, a room that is full, locked or restarting."""


def delay(failures: int, chance: float, timing: Timing) -> float:
    """Seconds until the next try after so many failures in a row: doubling up to the cap, and of that
    between half and all, as ``chance`` (0 to 1) has it, so that many clients do not come back at once."""
    # 2 ** 30 is beyond any cap, and larger powers overflow a float one day.
    whole = min(timing.cap, timing.base * 2.0 ** min(max(failures - 1, 0), 30))
    return whole * (0.5 + 0.5 * chance)


# -- guards --------------------------------------------------------------------------------------


def is_of_another_link(now: Connection, event: OfLink) -> bool:
    """It comes from a link that is gone, or from a timer that was set for it."""
    return event.link != now.link


def is_of_no_room(now: Connection, event: OfRoom) -> bool:
    """The room is not ours, or no longer in a standing that could bring this."""
    room = now.room(event.room)
    if room is None or room.standing is Standing.GONE:
        return True
    # A text that was on its way when we were put out comes back as "you are not in it": no reason to go back in.
    return room.standing is Standing.OUT and isinstance(event, RoomLost) and event.cause is not Cause.DESTROYED


def is_out_of_turn(now: Connection, event: RoomCaughtUp) -> bool:
    """The room was lost again before it was caught up with."""
    return (room := now.room(event.room)) is None or room.standing is not Standing.CATCHING_UP


def is_resumed_and_settled(now: Connection, event: LinkUp) -> bool:
    """The session of before goes on, and nothing was left to do in it."""
    return event.resumed and now.greeted and all(room.settled for room in now.rooms)


def is_resumed(now: Connection, event: LinkUp) -> bool:
    """The session of before goes on."""
    return event.resumed


def has_no_room_left(now: Connection, event: Greeted) -> bool:
    """No room is left to enter."""
    return all(room.settled for room in now.rooms)


def is_the_last(now: Connection, event: OfRoom) -> bool:
    """Everything but this room is settled."""
    return now.greeted and all(room.settled for room in now.rooms if room.address != event.room)


def may_pass(now: Connection, event: RoomRefused) -> bool:
    """The refusal is one that may be over at the next try."""
    return event.condition in RETRYABLE


def was_technical(now: Connection, event: RoomLost) -> bool:
    """Nobody put us out on purpose."""
    return event.cause is Cause.TECHNICAL


def has_a_room_out(now: Connection, event: Started) -> bool:
    """A room does not let us in, and a person asks to try again."""
    return any(room.standing is Standing.OUT for room in now.rooms)


def is_wanted(now: Connection, event: RoomRetryDue) -> bool:
    """The room is still waiting to be entered."""
    return (room := now.room(event.room)) is not None and room.standing is Standing.WANTED


# -- reactions -----------------------------------------------------------------------------------


def ignore(now: Connection, event: object) -> Outcome:
    """Nothing happens."""
    return now, ()


def begin(now: Connection, event: Started) -> Outcome:
    """Hold what is to be said, and open a link."""
    then, opened = _connect(now)
    gone = tuple(
        FailOutput((room.address,), room.reason, True) for room in now.rooms if room.standing is Standing.GONE
    )
    return then, (HoldOutput(("", *_enterable(now))), *gone, *opened)


def try_again(now: Connection, event: Started) -> Outcome:
    """Try the rooms once more that did not let us in, and hold what is to be said there."""
    out = tuple(room.address for room in now.rooms if room.standing is Standing.OUT)
    rooms = tuple(_entering(room) if room.address in out else room for room in now.rooms)
    return replace(now, rooms=rooms), (HoldOutput(out), *(EnterRoom(room, now.timing.join) for room in out))


def connect(now: Connection, event: BackoffOver) -> Outcome:
    """Open a link, and allow it ``connect`` seconds."""
    return _connect(now)


def disconnect(now: Connection, event: Stopped) -> Outcome:
    """Close the stream; texts under way stay owed."""
    then = replace(_outside(now), link=now.link + 1, failures=0, reason="")
    return then, (FailOutput(None, "the connection is closed", False), Disconnect(politely=True))


def back_off(now: Connection, event: LinkLost) -> Outcome:
    """Hold what is to be said, wait a while, longer after each failure, and connect again."""
    failures = 1 if event.lasted >= now.timing.stable else now.failures + 1
    return _back_off(now, failures, event.reason, event.chance)


def give_up_connecting(now: Connection, event: ConnectTimedOut) -> Outcome:
    """Abandon a server that accepts and does not answer, wait a while and connect again."""
    reason = f"no session within {now.timing.connect:g} seconds"
    return _back_off(now, now.failures + 1, reason, event.chance)


def refuse(now: Connection, event: LoginRefused | Displaced) -> Outcome:
    """Stay away until a person has acted: no further try, every text fails."""
    then = replace(_outside(now), reason=event.reason)
    return then, (Disconnect(), FailOutput(None, event.reason, True), Tell("refused", event.reason))


def take_up_again(now: Connection, event: LinkUp) -> Outcome:
    """Go on in the session of before: the server repeats what was missed, rooms included."""
    ready = tuple(room.address for room in now.rooms if room.standing is Standing.IN)
    waiting = tuple(
        room.address for room in now.rooms if room.standing in (Standing.WANTED, Standing.ENTERING)
    )
    entering = tuple(EnterRoom(room, now.timing.join) for room in waiting)
    under_way = tuple(
        CatchUp(room.address) for room in now.rooms if room.standing is Standing.CATCHING_UP
    )
    rooms = tuple(_entering(room) if room.address in waiting else room for room in now.rooms)
    greeting = () if now.greeted else (Greet(),)
    direct = ("",) if now.greeted else ()
    release = ReleaseOutput((*direct, *ready), fresh=False)
    return replace(now, rooms=rooms), (release, *greeting, *entering, *under_way)


def enter_rooms(now: Connection, event: LinkUp) -> Outcome:
    """Be available, and enter every room anew: a new session is in none."""
    rooms = tuple(room if room.standing is Standing.GONE else _entering(room) for room in now.rooms)
    entered = [EnterRoom(room.address, now.timing.join) for room in rooms if room.standing is Standing.ENTERING]
    return replace(now, rooms=rooms, greeted=False), (HoldOutput(("", *_enterable(now))), Greet(), *entered)


def release_chats(now: Connection, event: Greeted) -> Outcome:
    """Say to persons what was held back, and again what is known not to have arrived."""
    return replace(now, greeted=True), (ReleaseOutput(("",), fresh=True),)


def enter(now: Connection, event: RoomRetryDue) -> Outcome:
    """Try the room once more."""
    return _with(now, event, _entering), (EnterRoom(event.room, now.timing.join),)


def catch_up(now: Connection, event: RoomEntered) -> Outcome:
    """Read what was missed before anything is said; tell if the room had not been there."""
    then = _with(now, event, lambda room: replace(
        room, standing=Standing.CATCHING_UP, failures=0, reason="", created=room.created or event.created
    ))  # fmt: skip
    if not event.created:
        return then, (CatchUp(event.room),)
    text = (
        f"{event.room} did not exist: entering it has made a new room with default settings, owned by this "
        "account; if it should have existed, its settings and members are lost"
    )
    return then, (Tell("room created", text, event.room), CatchUp(event.room))


def release(now: Connection, event: RoomCaughtUp) -> Outcome:
    """Say what was held back, and again what is known not to have arrived."""
    then = _with(now, event, lambda room: replace(room, standing=Standing.IN))
    return then, (ReleaseOutput((event.room,), fresh=True),)


def retry_the_room(now: Connection, event: RoomRefused | RoomLost) -> Outcome:
    """Hold what is to be said there and try again after a while, longer after each failure."""
    room = now.room(event.room)
    assert room is not None
    failures = room.failures + 1
    then = _with(now, event, lambda room: replace(
        room, standing=Standing.WANTED, failures=failures, reason=event.text
    ))  # fmt: skip
    wait = WaitToEnter(event.room, delay(failures, event.chance, now.timing))
    return then, (HoldOutput((event.room,)), wait, Tell("room out", _left(event, "trying again"), event.room))


def stay_out(now: Connection, event: RoomRefused | RoomLost) -> Outcome:
    """Leave it to a person: texts for the room fail."""
    gone = (isinstance(event, RoomLost) and event.cause is Cause.DESTROYED) or (
        isinstance(event, RoomRefused) and event.condition == "gone"
    )
    standing = Standing.GONE if gone else Standing.OUT
    then = _with(now, event, lambda room: replace(room, standing=standing, reason=event.text))
    text = _left(event, "not trying again")
    return then, (FailOutput((event.room,), text, True), Tell("room out", text, event.room))


def _connect(now: Connection) -> Outcome:
    then = replace(now, link=now.link + 1, reason="")
    return then, (Connect(then.link, now.timing.connect),)


def _enterable(now: Connection) -> tuple[str, ...]:
    return tuple(room.address for room in now.rooms if room.standing is not Standing.GONE)


def _back_off(now: Connection, failures: int, reason: str, chance: float) -> Outcome:
    then = replace(now, failures=failures, reason=reason)
    held = tuple(room.address for room in now.rooms if room.standing not in (Standing.OUT, Standing.GONE))
    wait = WaitToConnect(now.link, delay(failures, chance, now.timing))
    return then, (
        HoldOutput(("", *held)),
        Disconnect(),
        wait,
        Tell("link", f"{reason}; connecting again in {wait.seconds:.1f} seconds"),
    )


def _outside(now: Connection) -> Connection:
    rooms = tuple(
        room if room.standing is Standing.GONE else replace(room, standing=Standing.WANTED) for room in now.rooms
    )
    return replace(now, rooms=rooms)


def _entering(room: Room) -> Room:
    return replace(room, standing=Standing.ENTERING)


def _with(now: Connection, event: OfRoom, change: Callable[[Room], Room]) -> Connection:
    return replace(now, rooms=tuple(change(room) if room.address == event.room else room for room in now.rooms))


def _left(event: RoomRefused | RoomLost, then: str) -> str:
    what = event.condition if isinstance(event, RoomRefused) else event.cause.value
    return f"{event.room}: {what}" + (f" ({event.text})" if event.text else "") + f"; {then}"


# -- the table -----------------------------------------------------------------------------------

OFFLINE, CONNECTING, JOINING, JOINED, BACKING_OFF, REFUSED = State
SAME = Go.SAME

EVERYWHERE = tuple(State)
AWAY = (OFFLINE, BACKING_OFF, REFUSED)
UP = (JOINING, JOINED)
ASLEEP = (OFFLINE, REFUSED)
NOT_CONNECTING = (OFFLINE, JOINING, JOINED, BACKING_OFF, REFUSED)
NOT_UP = (OFFLINE, CONNECTING, BACKING_OFF, REFUSED)

FROM_LINK: tuple[type[OfLink], ...] = (
    BackoffOver, ConnectTimedOut, LinkUp, Greeted, LinkLost, LoginRefused, Displaced,
    RoomEntered, RoomCaughtUp, RoomRefused, RoomLost, RoomRetryDue,
)  # fmt: skip
FROM_ROOM: tuple[type[OfRoom], ...] = (RoomEntered, RoomCaughtUp, RoomRefused, RoomLost, RoomRetryDue)
FATAL: tuple[type[LoginRefused | Displaced], ...] = (LoginRefused, Displaced)

E = TypeVar("E")


def on(
    states: State | tuple[State, ...],
    events: type[E] | tuple[type[E], ...],
    goes: State | Go,
    do: Callable[[Connection, E], Outcome],
    when: Callable[[Connection, E], bool] | None = None,
) -> Row[State, Connection, Effect]:
    """A row. The type variable lets mypy reject a reaction or guard paired with the wrong event."""
    return Row(
        states if isinstance(states, tuple) else (states,),
        events if isinstance(events, tuple) else (events,),
        goes,
        do,
        when,
    )


# fmt: off
TABLE = (
    # in state          on event         goes to      do                   only when
    on(EVERYWHERE,      FROM_LINK,       SAME,        ignore,              is_of_another_link),

    on(ASLEEP,          Started,         CONNECTING,  begin),
    on(UP,              Started,         JOINING,     try_again,           has_a_room_out),
    on((CONNECTING, BACKING_OFF, *UP), Started, SAME, ignore),
    on(OFFLINE,         Stopped,         SAME,        ignore),
    on((CONNECTING, BACKING_OFF, REFUSED, *UP), Stopped, OFFLINE, disconnect),

    on(CONNECTING,      LinkUp,          JOINED,      take_up_again,       is_resumed_and_settled),
    on(CONNECTING,      LinkUp,          JOINING,     take_up_again,       is_resumed),
    on(CONNECTING,      LinkUp,          JOINING,     enter_rooms),
    on(CONNECTING,      ConnectTimedOut, BACKING_OFF, give_up_connecting),
    on((CONNECTING, *UP), LinkLost,      BACKING_OFF, back_off),
    on((CONNECTING, *UP), FATAL,         REFUSED,     refuse),
    on(BACKING_OFF,     BackoffOver,     CONNECTING,  connect),

    on(UP,              Greeted,         JOINED,      release_chats,       has_no_room_left),
    on(UP,              Greeted,         SAME,        release_chats),
    on(UP,              FROM_ROOM,       SAME,        ignore,              is_of_no_room),
    on(UP,              RoomEntered,     JOINING,     catch_up),
    on(UP,              RoomCaughtUp,    SAME,        ignore,              is_out_of_turn),
    on(UP,              RoomCaughtUp,    JOINED,      release,             is_the_last),
    on(UP,              RoomCaughtUp,    SAME,        release),
    on(UP,              RoomRefused,     JOINING,     retry_the_room,      may_pass),
    on(UP,              RoomRefused,     JOINED,      stay_out,            is_the_last),
    on(UP,              RoomRefused,     SAME,        stay_out),
    on(UP,              RoomLost,        JOINING,     retry_the_room,      was_technical),
    on(UP,              RoomLost,        JOINED,      stay_out,            is_the_last),
    on(UP,              RoomLost,        SAME,        stay_out),
    on(UP,              RoomRetryDue,    JOINING,     enter,               is_wanted),
    on(UP,              RoomRetryDue,    SAME,        ignore),

    on(NOT_CONNECTING,  LinkUp,          SAME,        ignore),
    on(NOT_CONNECTING,  ConnectTimedOut, SAME,        ignore),
    on(AWAY,            LinkLost,        SAME,        ignore),
    on(AWAY,            FATAL,           SAME,        ignore),
    on((OFFLINE, CONNECTING, JOINING, JOINED, REFUSED), BackoffOver, SAME, ignore),
    on(NOT_UP,          Greeted,         SAME,        ignore),
    on(NOT_UP,          FROM_ROOM,       SAME,        ignore),
)
# fmt: on

MACHINE = Table(TABLE, initial=State.OFFLINE, events=EVENTS)


def step(now: Connection, event: Event) -> Outcome:
    """What the table makes of ``event``. Same connection, same event, same answer."""
    state, then, effects = MACHINE.answer(now.state, now, event)
    return (then if then.state is state else replace(then, state=state)), effects
