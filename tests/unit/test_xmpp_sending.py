"""Texts are held, confirmed, and sent again only where they did not arrive; time stands still until moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from channels.xmpp.events import Timing
from channels.xmpp.inbox import Inbox
from channels.xmpp.sending import Sender, Text
from channels.xmpp.stanzas import Heard
from fsm.ports import DeliveryError, Inbound, StoreError

ROOM, ANN = "r@muc.example", "ann@example.org"


class HandMoved:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep_until(self, at: float) -> None:
        if at <= self._now:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((at, over))
        await over

    async def moves(self, seconds: float) -> None:
        await settle()
        self._now += seconds
        for at, over in self._waiting:
            if at <= self._now and not over.done():
                over.set_result(None)
        await settle()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Desk:
    """A sender with its clock, and what it handed to the stream."""

    def __init__(self) -> None:
        self.clock = HandMoved()
        self.sent: list[str] = []
        self.looked: list[str] = []
        self.probes = 0
        self.in_archive: list[str] = []
        self.sender = Sender(
            [ROOM], clock=self.clock, timing=Timing(confirm=30, receipt=10, hold=3600),
            transmit=lambda text: self.sent.append(text.id), look=self._look, probe=self._probe,
        )  # fmt: skip

    async def _look(self, room: str) -> None:
        self.looked.append(room)
        for id in self.in_archive:
            self.sender.confirmed(id)

    def _probe(self) -> None:
        self.probes += 1

    def begins(self, id: str, to: str = ROOM) -> asyncio.Future[None]:
        room = ROOM if to.startswith(ROOM) else ""
        return asyncio.ensure_future(self.sender.deliver(Text(id, to, "hi", room)))

    def opens(self, *, fresh: bool = True) -> None:
        self.sender.release(["", ROOM], fresh=fresh)

    def holds(self) -> None:
        self.sender.hold(["", ROOM])


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def test_a_text_waits_for_its_room_and_for_the_room_to_send_it_back(desk: Desk) -> None:
    delivery = desk.begins("1")
    await settle()
    assert desk.sent == []

    desk.opens()
    await settle()
    assert (desk.sent, delivery.done()) == (["1"], False)

    desk.sender.acked("1")
    await settle()
    assert not delivery.done(), "that the server took it over says nothing about the room"

    desk.sender.confirmed("1")
    await delivery
    await desk.begins("1")
    assert desk.sent == ["1"], "what has arrived is not sent again"


async def test_a_short_cut_repeats_nothing_and_a_new_session_what_was_not_seen(desk: Desk) -> None:
    desk.opens()
    first, second = desk.begins("1"), desk.begins("2")
    await settle()
    desk.holds()
    desk.opens(fresh=False)
    await settle()
    assert desk.sent == ["1", "2"]

    desk.holds()
    desk.sender.confirmed("1")  # read from the archive while catching up
    desk.opens()
    await settle()
    assert desk.sent == ["1", "2", "2"]
    desk.sender.confirmed("2")
    await asyncio.gather(first, second)


async def test_the_time_to_confirm_does_not_run_while_the_room_is_away(desk: Desk) -> None:
    desk.opens()
    delivery = desk.begins("1")
    await settle()
    desk.holds()
    await desk.clock.moves(300)
    assert not delivery.done()

    desk.opens()
    await desk.clock.moves(29)
    assert not delivery.done()
    await desk.clock.moves(1)
    with pytest.raises(DeliveryError, match=r"r@muc\.example did not confirm the text within 30 seconds") as failed:
        await delivery
    assert (failed.value.final, desk.probes) == (False, 1)


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_second_try_looks_first_whether_the_first_arrived(desk: Desk, arrived: bool) -> None:
    desk.opens()
    first = desk.begins("1")
    await desk.clock.moves(30)
    assert isinstance(first.exception(), DeliveryError)
    desk.in_archive = ["1"] if arrived else []

    second = desk.begins("1")
    await settle()

    assert desk.looked == [ROOM]
    assert desk.sent == (["1"] if arrived else ["1", "1"])
    assert second.done() is arrived
    desk.sender.confirmed("1")
    await second


async def test_a_room_that_does_not_come_back_is_not_waited_for_for_ever(desk: Desk) -> None:
    delivery = desk.begins("1")
    await desk.clock.moves(3600)

    with pytest.raises(DeliveryError, match="could not be reached for 3600 seconds"):
        await delivery


async def test_a_failed_room_fails_what_waits_and_what_comes_until_it_is_held_again(desk: Desk) -> None:
    waiting = desk.begins("1")
    await settle()
    desk.sender.fail([ROOM], "banned", final=True)
    for delivery in (waiting, desk.begins("2")):
        with pytest.raises(DeliveryError, match="banned") as failed:
            await delivery
        assert failed.value.final

    desk.holds()
    later = desk.begins("1")
    desk.opens()
    await settle()
    desk.sender.confirmed("1")
    await later


async def test_a_room_that_says_we_are_not_in_it_gets_the_text_once_we_are(desk: Desk) -> None:
    desk.opens()
    delivery = desk.begins("1")
    await settle()
    assert desk.sender.not_there("1") == ROOM
    desk.holds()
    desk.opens()
    await settle()

    assert desk.sent == ["1", "1"]
    desk.sender.confirmed("1")
    await delivery


async def test_a_text_for_a_person_is_delivered_once_our_server_has_it(desk: Desk) -> None:
    desk.opens()
    delivery = desk.begins("1", ANN)
    await settle()
    desk.sender.acked("1")
    await delivery


async def test_where_a_persons_client_confirms_that_is_waited_for_but_not_for_long(desk: Desk) -> None:
    desk.opens()
    desk.sender.confirms_receipt[ANN] = None
    first = desk.begins("1", f"{ANN}/phone")
    await settle()
    desk.sender.acked("1")
    await settle()
    assert not first.done()
    desk.sender.received("1", "mallory@example.org/x")
    await settle()
    assert not first.done(), "only the person himself can say so"
    desk.sender.received("1", f"{ANN}/laptop")
    await first

    second = desk.begins("2", ANN)
    await settle()
    desk.sender.acked("2")
    await desk.clock.moves(10)
    await second
    third = desk.begins("3", ANN)
    await settle()
    desk.sender.acked("3")
    await asyncio.wait_for(third, 5)


async def test_a_text_that_comes_back_as_an_error_fails(desk: Desk) -> None:
    desk.opens()
    delivery = desk.begins("1", ANN)
    await settle()
    desk.sender.rejected("1", DeliveryError("no such person", final=True))

    with pytest.raises(DeliveryError, match="no such person"):
        await delivery
    assert not desk.sender.busy


async def test_a_room_that_is_not_ours_is_refused_with_what_to_do(desk: Desk) -> None:
    with pytest.raises(DeliveryError, match="is not one of this account's rooms; add it to them") as failed:
        await desk.sender.deliver(Text("1", "x@muc.example", "hi", "x@muc.example"))
    assert failed.value.final


async def test_a_delivery_that_is_given_up_leaves_nothing_behind(desk: Desk) -> None:
    delivery = desk.begins("1")
    await settle()
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)

    assert not desk.sender.busy
    assert desk.sender.gates[ROOM].waiting == set()


# -- the inbox ------------------------------------------------------------------------------------


def heard(text: str, channel: str = "xmpp", stanza_id: str = "", *ids: str) -> Heard:
    inbound = Inbound(channel, ANN, text, stanza_id or "/".join(ids) or text, 0.0, ANN)
    return Heard(inbound, f"{ANN}/phone", ids, stanza_id)


async def test_a_channel_is_taken_in_order_and_another_does_not_wait_for_it() -> None:
    gate: dict[str, asyncio.Event] = {"first": asyncio.Event()}
    taken: list[str] = []

    async def receive(message: Inbound) -> None:
        if message.text in gate:
            await gate[message.text].wait()
        taken.append(message.text)

    inbox = Inbox(receive, HandMoved())
    for one in (heard("first"), heard("second"), heard("elsewhere", "xmpp:r")):
        assert inbox.put(one)
    await settle()
    assert taken == ["elsewhere"]

    gate["first"].set()
    await inbox.taken()
    assert taken == ["elsewhere", "first", "second"]


async def test_what_the_store_cannot_take_now_is_tried_again_and_not_confirmed_before() -> None:
    clock, tries, confirmed = HandMoved(), 0, []

    async def receive(message: Inbound) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreError("the disk is full")

    inbox = Inbox(receive, clock)
    inbox.put(heard("hi"), lambda: confirmed.append("hi"))
    await clock.moves(1)
    assert (tries, confirmed) == (2, [])
    await clock.moves(4)

    assert (tries, confirmed) == (3, ["hi"])


async def test_a_disk_that_stays_full_loses_no_message_and_changes_no_order(caplog: pytest.LogCaptureFixture) -> None:
    clock, full, taken, confirmed = HandMoved(), True, [], []

    async def receive(message: Inbound) -> None:
        if full:
            raise StoreError("the disk is full")
        taken.append(message.text)

    inbox = Inbox(receive, clock)
    for text in ("first", "second"):
        inbox.put(heard(text), lambda text=text: confirmed.append(text))  # type: ignore[misc]
    inbox.put(heard("elsewhere", "xmpp:r"))
    for _ in range(200):
        await clock.moves(60)
    assert inbox.waiting
    assert [record.levelname for record in caplog.records] == ["ERROR"]

    full = False
    await clock.moves(60)

    assert [text for text in taken if text != "elsewhere"] == confirmed == ["first", "second"]
    assert (len(taken), inbox.waiting) == (3, False)


async def test_a_message_that_no_code_can_take_holds_up_none_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    taken, confirmed = [], []

    async def receive(message: Inbound) -> None:
        if message.text == "odd":
            raise ValueError("nobody foresaw this")
        taken.append(message.text)

    inbox = Inbox(receive, HandMoved())
    inbox.put(heard("odd"), lambda: confirmed.append("odd"))
    inbox.put(heard("even"), lambda: confirmed.append("even"))
    await inbox.taken()

    assert (taken, confirmed) == (["even"], ["even"])
    assert "could not be taken and is lost" in caplog.text


@pytest.mark.parametrize(
    ("second", "new"),
    [
        (lambda: heard("b", "xmpp", "s1", "m2"), False),
        (lambda: heard("b", "xmpp:r", "s1", "m2"), True),
        (lambda: heard("b", "xmpp", "s2", "m1"), True),
    ],
    ids=["same stanza id", "same stanza id elsewhere", "same message id"],
)
async def test_a_repetition_is_told_by_the_id_that_is_proven(second: Callable[[], Heard], new: bool) -> None:
    async def receive(message: Inbound) -> None: ...

    inbox = Inbox(receive, HandMoved())
    assert inbox.put(heard("a", "xmpp", "s1", "m1"))

    assert inbox.put(second()) is new
    await inbox.close()


async def test_a_message_seen_without_a_stanza_id_is_known_when_the_archive_brings_it_with_one() -> None:
    async def receive(message: Inbound) -> None: ...

    inbox = Inbox(receive, HandMoved())
    assert inbox.put(heard("a", "xmpp", "", "m1"))

    assert not inbox.put(heard("a", "xmpp", "s1", "m1"))
    await inbox.close()
