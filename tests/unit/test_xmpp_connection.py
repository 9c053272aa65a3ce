"""What is done about every loss and refusal: the connection's table, told as stories and checked as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.machine import ChannelTableError, Row, Table
from channels.xmpp.connection import RETRYABLE, TABLE, delay, ignore, step
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

OFFLINE, CONNECTING, JOINING, JOINED, BACKING_OFF, REFUSED = State
A, B = "a@muc.example", "b@muc.example"
SAMPLES: dict[type[Event], Event] = {
    type(event): event
    for event in (
        Started(), Stopped(), BackoffOver(1), ConnectTimedOut(1, 0.5), LinkUp(1), Greeted(1),
        LinkLost(1, "reset", 0.5),
        LoginRefused(1, "no"), Displaced(1, "twice"), RoomEntered(1, A), RoomCaughtUp(1, A),
        RoomRefused(1, A, "forbidden", "", 0.5), RoomLost(1, A, Cause.KICKED, "", 0.5), RoomRetryDue(1, A),
    )
}  # fmt: skip


class Story:
    """A connection and what it had to do since last asked."""

    def __init__(self, *rooms: str, **timing: float) -> None:
        self.now = Connection(tuple(Room(room) for room in rooms), timing=Timing(**timing))
        self._owed: list[Effect] = []

    def sees(self, *events: Event) -> State:
        for event in events:
            self.now, effects = step(self.now, event)
            self._owed += effects
        return self.now.state

    @property
    def owed(self) -> list[Effect]:
        owed, self._owed = self._owed, []
        return owed

    def standing(self, room: str) -> Standing:
        found = self.now.room(room)
        assert found is not None
        return found.standing


def joined(*rooms: str, **timing: float) -> Story:
    story = Story(*rooms, **timing)
    story.sees(Started(), LinkUp(1), Greeted(1))
    for room in rooms:
        story.sees(RoomEntered(1, room), RoomCaughtUp(1, room))
    assert story.now.state is JOINED
    assert story.owed
    return story


# -- stories --------------------------------------------------------------------------------------


def test_a_start_connects_greets_enters_and_catches_up_before_anything_is_said() -> None:
    story = Story(A, B)

    assert story.sees(Started()) is CONNECTING
    assert story.owed == [HoldOutput(("", A, B)), Connect(1, 30.0)]
    assert story.sees(LinkUp(1)) is JOINING
    assert story.owed == [HoldOutput(("", A, B)), Greet(), EnterRoom(A, 30.0), EnterRoom(B, 30.0)]
    assert story.sees(Greeted(1)) is JOINING
    assert story.owed == [ReleaseOutput(("",), fresh=True)]
    assert story.sees(RoomEntered(1, A)) is JOINING
    assert story.owed == [CatchUp(A)]
    assert story.sees(RoomCaughtUp(1, A)) is JOINING
    assert story.owed == [ReleaseOutput((A,), fresh=True)]
    assert story.sees(RoomEntered(1, B), RoomCaughtUp(1, B)) is JOINED


def test_an_account_without_rooms_is_joined_once_it_can_be_reached() -> None:
    story = Story()

    assert story.sees(Started(), LinkUp(1)) is JOINING
    assert story.owed[-1] == Greet()
    assert story.sees(Greeted(1)) is JOINED


def test_a_room_that_is_quick_does_not_make_the_account_reachable() -> None:
    story = Story(A)

    assert story.sees(Started(), LinkUp(1), RoomEntered(1, A), RoomCaughtUp(1, A)) is JOINING
    assert story.sees(Greeted(1)) is JOINED


def test_a_lost_link_is_waited_for_longer_each_time_and_holds_what_is_to_be_said() -> None:
    story = joined(A, base=1.0, cap=8.0)
    waits = []
    for link in range(1, 7):
        assert story.sees(LinkLost(link, "reset", 1.0)) is BACKING_OFF
        owed = story.owed
        assert owed[:2] == [HoldOutput(("", A)), Disconnect()]
        waits += [effect.seconds for effect in owed if isinstance(effect, WaitToConnect)]
        assert story.sees(BackoffOver(link)) is CONNECTING
        assert story.owed == [Connect(link + 1, 30.0)]

    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_link_that_held_begins_the_back_off_anew() -> None:
    story = joined(A)
    story.now = replace(story.now, failures=9)

    story.sees(LinkLost(1, "reset", 1.0, lasted=60.0))

    assert story.now.failures == 1


def test_a_resumed_session_goes_on_where_it_was() -> None:
    story = joined(A)
    story.sees(LinkLost(1, "reset", 0.0), BackoffOver(1))
    story.owed.clear()

    assert story.sees(LinkUp(2, resumed=True)) is JOINED
    assert story.owed == [ReleaseOutput(("", A), fresh=False)]


def test_a_resumed_session_goes_on_with_what_was_not_done() -> None:
    story = Story(A, B)
    story.sees(Started(), LinkUp(1), RoomEntered(1, A), LinkLost(1, "reset", 0.0), BackoffOver(1))
    story.owed.clear()

    assert story.sees(LinkUp(2, resumed=True)) is JOINING
    assert story.owed == [ReleaseOutput((), fresh=False), Greet(), EnterRoom(B, 30.0), CatchUp(A)]
    story.sees(Greeted(2), LinkLost(2, "reset", 0.0), BackoffOver(2))
    story.owed.clear()
    story.sees(LinkUp(3, resumed=True))
    assert story.owed == [ReleaseOutput(("",), fresh=False), EnterRoom(B, 30.0), CatchUp(A)]


def test_a_new_session_enters_every_room_anew_also_those_that_refused() -> None:
    story = Story(A, B)
    story.sees(Started(), LinkUp(1), Greeted(1), RoomEntered(1, A), RoomCaughtUp(1, A))
    story.sees(RoomRefused(1, B, "forbidden", "", 0.0))
    assert (story.now.state, story.standing(B)) == (JOINED, Standing.OUT)
    story.sees(LinkLost(1, "reset", 0.0), BackoffOver(1))
    story.owed.clear()

    assert story.sees(LinkUp(2)) is JOINING
    assert story.owed == [HoldOutput(("", A, B)), Greet(), EnterRoom(A, 30.0), EnterRoom(B, 30.0)]


def test_a_server_that_never_answers_is_given_up() -> None:
    story = Story()
    story.sees(Started())
    story.owed.clear()

    assert story.sees(ConnectTimedOut(1, 0.0)) is BACKING_OFF
    assert story.owed[1:3] == [Disconnect(), WaitToConnect(1, 0.5)]


@pytest.mark.parametrize("fatal", [LoginRefused(1, "wrong password"), Displaced(1, "logged in elsewhere")])
def test_what_only_a_person_can_mend_is_not_tried_again(fatal: LoginRefused | Displaced) -> None:
    story = joined(A)

    assert story.sees(fatal) is REFUSED
    assert story.owed == [Disconnect(), FailOutput(None, fatal.reason, True), Tell("refused", fatal.reason)]
    assert story.sees(LinkLost(1, "closed", 0.0), BackoffOver(1)) is REFUSED
    assert story.owed == []
    assert story.sees(Started()) is CONNECTING


@pytest.mark.parametrize("condition", sorted(RETRYABLE))
def test_a_refusal_that_may_pass_is_tried_again(condition: str) -> None:
    story = Story(A)
    story.sees(Started(), LinkUp(1), Greeted(1))
    story.owed.clear()

    assert story.sees(RoomRefused(1, A, condition, "", 1.0)) is JOINING
    assert story.owed[:2] == [HoldOutput((A,)), WaitToEnter(A, 1.0)]
    assert story.sees(RoomRetryDue(1, A)) is JOINING
    assert story.owed == [EnterRoom(A, 30.0)]
    story.sees(RoomRefused(1, A, condition, "", 1.0))
    assert WaitToEnter(A, 2.0) in story.owed


@pytest.mark.parametrize("condition", ["forbidden", "registration-required", "not-authorized", "not-allowed", "gone"])
def test_a_refusal_that_stands_fails_what_is_to_be_said_there(condition: str) -> None:
    story = Story(A)
    story.sees(Started(), LinkUp(1), Greeted(1))
    story.owed.clear()

    assert story.sees(RoomRefused(1, A, condition, "no bots", 0.0)) is JOINED
    text = f"{A}: {condition} (no bots); not trying again"
    assert story.owed == [FailOutput((A,), text, True), Tell("room out", text, A)]
    assert story.standing(A) is (Standing.GONE if condition == "gone" else Standing.OUT)


def test_a_bot_that_was_put_out_by_a_fault_comes_back_and_one_by_a_person_does_not() -> None:
    story = joined(A, B)

    assert story.sees(RoomLost(1, A, Cause.TECHNICAL, "", 0.0)) is JOINING
    assert story.standing(A) is Standing.WANTED
    assert story.sees(RoomRetryDue(1, A), RoomEntered(1, A), RoomCaughtUp(1, A)) is JOINED
    assert story.sees(RoomLost(1, A, Cause.KICKED, "", 0.0)) is JOINED
    assert (story.standing(A), story.standing(B)) == (Standing.OUT, Standing.IN)


def test_a_start_tries_again_the_rooms_that_we_were_put_out_of_and_no_other() -> None:
    story = joined(A, B)
    story.sees(RoomLost(1, A, Cause.KICKED, "", 0.0))
    assert story.owed

    assert story.sees(Started()) is JOINING
    assert story.owed == [HoldOutput((A,)), EnterRoom(A, 30.0)]
    assert story.sees(RoomEntered(1, A), RoomCaughtUp(1, A)) is JOINED
    assert story.owed == [CatchUp(A), ReleaseOutput((A,), fresh=True)]
    assert story.sees(Started(), RoomLost(1, B, Cause.DESTROYED, "", 0.0), Started()) is JOINED
    assert story.standing(B) is Standing.GONE


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.DESTROYED])
def test_a_text_that_comes_back_after_a_kick_is_no_reason_to_go_in_again(cause: Cause) -> None:
    story = Story(A)
    story.sees(Started(), LinkUp(1), Greeted(1), RoomEntered(1, A), RoomCaughtUp(1, A))
    story.sees(RoomLost(1, A, Cause.KICKED, "", 0.0))
    assert story.owed

    assert story.sees(RoomLost(1, A, cause, "not in the room", 0.0)) is JOINED

    assert (story.standing(A), story.owed) == (Standing.OUT, [])


def test_a_room_that_is_lost_while_it_is_caught_up_with_is_not_taken_for_entered() -> None:
    story = Story(A)
    story.sees(Started(), LinkUp(1), Greeted(1), RoomEntered(1, A), RoomLost(1, A, Cause.KICKED, "", 0.0))

    assert story.sees(RoomCaughtUp(1, A)) is JOINED
    assert story.standing(A) is Standing.OUT


def test_a_destroyed_room_is_never_entered_again() -> None:
    story = joined(A)
    story.sees(RoomLost(1, A, Cause.DESTROYED, "", 0.0), LinkLost(1, "reset", 0.0), BackoffOver(1))
    story.owed.clear()

    assert story.sees(LinkUp(2), Greeted(2)) is JOINED
    assert [effect for effect in story.owed if isinstance(effect, EnterRoom)] == []
    story.sees(Stopped())
    story.owed.clear()
    story.sees(Started())
    assert FailOutput((A,), "", True) in story.owed, "texts for it still fail"


def test_a_room_that_does_not_let_us_in_fails_texts_also_while_the_link_is_mended() -> None:
    story = joined(A, B)
    story.sees(RoomLost(1, A, Cause.BANNED, "", 0.0))
    story.owed.clear()

    story.sees(LinkLost(1, "reset", 0.0))

    assert story.owed[0] == HoldOutput(("", B))


def test_a_room_that_our_entering_made_is_told() -> None:
    story = Story(A)
    story.sees(Started(), LinkUp(1), Greeted(1))
    story.owed.clear()

    story.sees(RoomEntered(1, A, created=True))

    tell, catch_up = story.owed
    assert isinstance(tell, Tell)
    assert (tell.kind, tell.room, catch_up) == ("room created", A, CatchUp(A))


def test_what_an_earlier_link_still_says_is_ignored() -> None:
    story = joined(A)
    story.sees(LinkLost(1, "reset", 0.0), BackoffOver(1), LinkUp(2), Greeted(2))
    before, _ = story.now, story.owed

    story.sees(LinkLost(1, "late", 0.0), RoomLost(1, A, Cause.KICKED, "", 0.0), LoginRefused(1, "late"))

    assert story.now is before
    assert story.owed == []


def test_a_stop_ends_everything_and_keeps_what_is_owed() -> None:
    story = joined(A)

    assert story.sees(Stopped()) is OFFLINE
    assert story.owed == [FailOutput(None, "the connection is closed", False), Disconnect(politely=True)]
    assert story.sees(LinkLost(1, "closed", 0.0)) is OFFLINE


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0.01, 10), st.floats(10, 1000))
def test_a_wait_is_between_half_and_all_of_what_the_failures_say(
    failures: int, chance: float, base: float, cap: float
) -> None:
    timing = Timing(base=base, cap=cap)
    whole = min(cap, base * 2.0 ** min(max(failures - 1, 0), 100))

    assert whole / 2 <= delay(failures, chance, timing) <= whole * (1 + 1e-12)


@given(st.lists(st.sampled_from(sorted(SAMPLES, key=lambda kind: kind.__name__)), max_size=30), st.data())
def test_no_order_of_events_breaks_it(kinds: list[type[Event]], data: st.DataObject) -> None:
    """Whatever happens, it is connecting or waiting to, up, or told to be neither; and output is never let out
    while nothing is up."""
    now = Connection((Room(A), Room(B)))
    for kind in kinds:
        event = SAMPLES[kind]
        if hasattr(event, "link"):
            event = replace(event, link=data.draw(st.sampled_from([now.link, now.link - 1])))  # type: ignore[call-arg]
        if hasattr(event, "room"):
            event = replace(event, room=data.draw(st.sampled_from([A, B, "strange@muc.example"])))  # type: ignore[call-arg]
        then, effects = step(now, event)
        if any(isinstance(effect, ReleaseOutput) for effect in effects):
            assert then.state in (JOINING, JOINED)
        if then.state is BACKING_OFF and now.state is not BACKING_OFF:
            assert any(isinstance(effect, WaitToConnect) for effect in effects)
        if then.state is CONNECTING and now.state is not CONNECTING:
            assert Connect(then.link, 30.0) in effects
        if then.state is JOINED:
            assert then.greeted
            assert all(room.settled for room in then.rooms)
        now = then


# -- the table as a whole -------------------------------------------------------------------------


def test_there_is_a_sample_of_every_event() -> None:
    assert set(SAMPLES) == set(EVENTS)


def test_a_silent_row_moves_nothing() -> None:
    assert {row.goes.value for row in TABLE if row.do is ignore} == {"unchanged"}


def checked(rows: tuple[Row[State, Connection, Effect], ...]) -> None:
    Table(rows, initial=OFFLINE, events=EVENTS)


@pytest.mark.parametrize("n", [n for n, row in enumerate(TABLE) if row.when is None])
def test_a_table_without_one_of_its_unguarded_rows_is_refused(n: int) -> None:
    with pytest.raises(ChannelTableError, match="does not always answer"):
        checked(TABLE[:n] + TABLE[n + 1 :])


@pytest.mark.parametrize("n", [n for n, row in enumerate(TABLE) if row.when is not None])
def test_a_guard_taken_away_makes_a_shadow_that_is_refused(n: int) -> None:
    with pytest.raises(ChannelTableError, match=r"is shadowed by|two rows are the same"):
        checked((*TABLE[:n], replace(TABLE[n], when=None), *TABLE[n + 1 :]))


def test_a_row_written_twice_is_refused() -> None:
    with pytest.raises(ChannelTableError, match="two rows are the same"):
        checked((*TABLE, TABLE[0]))


def test_a_state_that_no_row_leads_to_is_named() -> None:
    kept = tuple(replace(row, goes=OFFLINE) if row.goes is REFUSED else row for row in TABLE)

    with pytest.raises(ChannelTableError, match="no row leads to refused"):
        checked(kept)
