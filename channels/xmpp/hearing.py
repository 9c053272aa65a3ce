"""What arrives: rooms as they are entered and caught up with, messages as they are told from their repetitions,
from what is history, and from what is our own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement

from channels.xmpp.account import XmppAccount, bare, resource
from channels.xmpp.archive import Archive, QueryFailed, stamp
from channels.xmpp.events import (
    Cause,
)
from channels.xmpp.inbox import Inbox
from channels.xmpp.places import DIRECT, Places
from channels.xmpp.recent import Recent
from channels.xmpp.sending import Sender
from channels.xmpp.stanzas import (
    CLIENT,
    FEATURE_ARCHIVE,
    FEATURE_NON_ANONYMOUS,
    FEATURE_STANZA_IDS,
    HINTS,
    MUC,
    RECEIPTS,
    Archived,
    Entered,
    Heard,
    Known,
    Left,
    Refused,
    RoomView,
    error_may_pass,
    is_subject,
    read_configuration,
    read_direct_message,
    read_error,
    read_presence,
    read_room_message,
)
from fsm.ports import Clock, DeliveryError

if TYPE_CHECKING:
    from channels.xmpp.wire import Wire

log = logging.getLogger("session_router.xmpp")

LOST_ROOM = {"not-acceptable": Cause.TECHNICAL, "gone": Cause.DESTROYED, "item-not-found": Cause.DESTROYED}
"""Errors of a room for a message to it that say that we are not in it (any more)."""

SKEW = 300.0
"""Seconds by which a server's clock may differ from ours; what is read twice for it is told by its id."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a room, and of itself: whoever listens has the table decide."""

    entered: Callable[[str, bool], None]
    left: Callable[[str, Cause, str], None]
    refused: Callable[[str, str, str], None]
    hidden: Callable[[str, str], None]
    """(room, text): nobody in the room can be recognised."""


@dataclass(slots=True)
class Seat:
    """Our place in one room, kept while the link comes and goes."""

    view: RoomView
    last: str = ""
    """Id in the room's archive of the newest message that we know."""
    since: float = 0.0
    """When we last knew everything that was said (unix seconds); 0 before the first time."""
    waiting: list[Element] | None = None
    """Live messages that came while the archive was being read."""
    subject: asyncio.Event = field(default_factory=asyncio.Event)
    warned: bool = False


class Hearing:
    """``wire`` gives the wire of the moment, ``spawn`` starts a task."""

    def __init__(
        self,
        account: XmppAccount,
        inbox: Inbox,
        sender: Sender,
        clock: Clock,
        *,
        wire: Callable[[], Wire],
        told: Told,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._account, self._inbox, self._sender, self._clock = account, inbox, sender, clock
        self._wire, self._told, self._spawn = wire, told, spawn
        self._me = bare(account.jid)
        self.seats = {bare(room): Seat(RoomView(bare(room), account.nick, name=room)) for room in account.rooms}
        self.own_ids: Recent[str, None] = Recent()
        """Ids that our own messages can be replied to under."""
        within = account.timing.answer
        self.archive = Archive(self._me, lambda to, query: wire().query(to, "set", query, within))
        self._places = Places(account.places)
        self.greeted = asyncio.Event()
        """Set once we are available."""
        self._has_stanza_ids = False
        self._direct_last, self._direct_since = "", 0.0
        self._direct_waiting: list[Element] | None = None

    # -- over a restart --------------------------------------------------------------------------

    def remember(self) -> None:
        """Take up where an earlier process left the rooms and the direct chats."""
        for room, (last, since) in self._places.load(self._clock.now(), self._account.answer_missed).items():
            if room == DIRECT and not self._direct_since:
                self._direct_last, self._direct_since = last, since
            elif (seat := self.seats.get(room)) is not None and not seat.since:
                seat.last, seat.since = last, since

    async def keep(self, rooms: Collection[str]) -> None:
        """Keep where rooms and direct chats stand, once that is safe; in ``rooms`` everything is known up to now."""
        now = self._clock.now()
        places = {
            room: (seat.last, now if room in rooms else seat.since) for room, seat in self.seats.items() if seat.since
        }
        if self._direct_since:
            places[DIRECT] = self._direct_last, self._direct_since
        await self._inbox.taken()
        self._places.save(places)

    # -- a new session ---------------------------------------------------------------------------

    async def greet(self) -> None:
        """Be available, and read what was missed in direct chats, then what came meanwhile, in this order."""
        features: frozenset[str] = frozenset()
        with suppress(QueryFailed):
            features = await self._wire().features(self._me, self._account.timing.answer)
        self._has_stanza_ids = bool({FEATURE_STANZA_IDS, FEATURE_ARCHIVE} & features)
        self._direct_waiting = self._direct_waiting or []
        presence = Element(f"{CLIENT}presence")
        if self._account.priority:
            SubElement(presence, f"{CLIENT}priority").text = str(self._account.priority)
        self._wire().send(presence)
        self.greeted.set()
        if FEATURE_ARCHIVE in features and self._account.priority >= 0:
            await self._read_direct_archive()
        waiting, self._direct_waiting = self._direct_waiting, None
        for message in waiting:
            self._hear_direct(message)

    async def _read_direct_archive(self) -> None:
        try:
            if self._direct_since:
                missed = await self._missed("", self._direct_last, self._direct_since)
                for message, archived in missed:
                    self._hear_direct(message, archived)
            else:
                # What came before the first start our server hands over by itself; this is for the id alone.
                missed = await self.archive.newest("", 1)
            if missed:
                self._direct_last = missed[-1][1].id
        except QueryFailed as error:
            log.warning("%s: what was missed in direct chats cannot be read: %s", self._me, error)
        else:
            self._direct_since = self._clock.now()

    async def enter(self, room: str) -> None:
        """Ask to be let in; what comes of it is told."""
        seat = self.seats[room]
        seat.view.forget()
        seat.view.nick = self._account.nick
        seat.subject.clear()
        await self.greeted.wait()
        await self._learn_features(seat)
        seat.waiting = []
        presence = Element(f"{CLIENT}presence", {"to": f"{room}/{self._account.nick}"})
        history = SubElement(SubElement(presence, f"{MUC}x"), f"{MUC}history")
        if seat.view.has_archive:
            history.set("maxstanzas", "0")
        elif seat.since:
            history.set("since", stamp(seat.since - SKEW))
        else:
            history.set("maxstanzas", str(self._account.history))
        self._wire().send(presence)

    async def catch_up(self, room: str) -> None:
        """Read what was missed in a room, then what came meanwhile, in this order."""
        seat = self.seats[room]
        over = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + self._account.timing.answer))
        subject = asyncio.ensure_future(seat.subject.wait())
        try:
            # It comes behind the history, which some rooms have instead of an archive.
            await asyncio.wait({over, subject}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            subject.cancel()
        if not seat.view.features:  # the room was made by our entering it
            await self._learn_features(seat)
        self._warn_of_hidden_people(seat)
        if await self._read_archive(seat):
            seat.since = self._clock.now()
        waiting, seat.waiting = seat.waiting or [], None
        for message in waiting:
            self._hear_room(seat, message)

    async def look(self, room: str) -> None:
        """Read from the room's archive whatever we do not know yet."""
        if room and self.seats[room].view.has_archive:
            await self._read_archive(self.seats[room])

    async def _learn_features(self, seat: Seat) -> None:
        try:
            features = await self._wire().features(seat.view.address, self._account.timing.answer)
        except QueryFailed:
            return  # it may not be there yet, or may not say
        seat.view.features = features
        seat.view.non_anonymous = FEATURE_NON_ANONYMOUS in features

    async def _read_archive(self, seat: Seat) -> bool:
        """Hear what the archive has beyond what we know; False when it cannot be read."""
        view, answer_from = seat.view, self._clock.now() - self._account.answer_missed
        if not view.has_archive:
            return True
        try:
            if seat.since:
                missed = await self._missed(view.address, seat.last, seat.since)
            else:
                # At least one, for its id: only the archive's own ids say for sure what is new later on.
                missed = await self.archive.newest(view.address, max(self._account.history, 1))
                answer_from = float("inf")
        except QueryFailed as error:
            log.warning("%s: what was missed in %s cannot be read: %s", self._me, view.address, error)
            return False
        if not seat.since and not self._account.history:
            seat.last = missed[-1][1].id if missed else ""
            return True
        for message, archived in missed:
            self._hear_room(seat, message, archived, answer_from)
        return True

    async def _missed(self, of: str, last: str, since: float) -> list[tuple[Element, Archived]]:
        try:
            return await self.archive.after(of, last, since - SKEW)
        except QueryFailed as error:
            if not last or error.condition != "item-not-found":
                raise
            # The archive has forgotten that message, or the room is a new one.
            return await self.archive.after(of, "", since - SKEW)

    def _warn_of_hidden_people(self, seat: Seat) -> None:
        if seat.warned or not seat.view.hides_people:
            return
        seat.warned = True
        text = (
            f"{seat.view.address} hides addresses, so nobody in it can be recognised, and nobody is answered but by a "
            "nick that the config trusts; have its owner make it non-anonymous"
        )
        self._told.hidden(seat.view.address, text)

    # -- stanzas ---------------------------------------------------------------------------------

    def presence(self, xml: Element) -> None:
        """Take a presence; only those of our rooms say anything."""
        room = bare(xml.get("from", ""))
        if (seat := self.seats.get(room)) is None:
            return
        match read_presence(xml, seat.view):
            case Entered(created):
                self._told.entered(room, created)
            case Left(cause, text):
                self._told.left(room, cause, text)
            case Refused(condition, text):
                self._told.refused(room, condition, text)
            case None:
                pass

    def message(self, xml: Element) -> None:
        """Take a message of any kind."""
        if self.archive.take(xml):
            return
        kind = xml.get("type", "normal")
        seat = self.seats.get(bare(xml.get("from", "")))
        if kind == "error":
            self._hear_error(xml, seat)
        elif seat is not None and read_configuration(xml, seat.view):
            self._spawn(self._learn_features(seat))
        elif kind != "groupchat":
            self._hear_receipt(xml)
            if self._direct_waiting is None:
                self._hear_direct(xml)
            else:
                self._direct_waiting.append(xml)
        elif seat is not None and seat.view.present:  # else it is what a dead session had not taken; the archive has it
            if is_subject(xml):
                seat.subject.set()
            elif seat.waiting is not None and seat.subject.is_set():
                seat.waiting.append(xml)
            else:
                self._hear_room(seat, xml)

    def _known(self) -> Known:
        return Known(
            self._me, self._clock.now(), self.own_ids, self._sender.under_way, self._inbox.reported,
            self._has_stanza_ids,
        )  # fmt: skip

    def _hear_room(
        self, seat: Seat, xml: Element, archived: Archived | None = None, answer_from: float = 0.0
    ) -> None:
        heard = read_room_message(xml, seat.view, self._known(), archived=archived, answer_from=answer_from)
        if heard is None:
            return
        if heard.stanza_id:
            seat.last = heard.stanza_id
        if seat.since:
            seat.since = self._clock.now()
        if not heard.inbound.own:
            self._inbox.put(heard)
            return
        for id in (heard.stanza_id, *heard.message_ids):
            self.own_ids[id] = None
            self._sender.confirmed(id)

    def _hear_direct(self, xml: Element, archived: Archived | None = None) -> None:
        address = xml.get("from", "")
        if archived is not None and bare(address) == self._me:
            # What we sent ourselves, and so arrived; a room has to say so itself.
            if xml.get("type") != "groupchat":
                self._sender.confirmed(xml.get("id", ""))
            return
        seat = self.seats.get(bare(address))
        heard = read_direct_message(xml, self._known(), room=seat.view if seat else None, archived=archived)
        if heard is None or heard.inbound.own:
            return
        if heard.stanza_id and self._direct_since:
            self._direct_last = heard.stanza_id
        if heard.receipt and seat is None:
            self._sender.confirms_receipt[bare(address)] = None
        self._inbox.put(heard, (lambda: self._confirm_receipt(heard)) if heard.receipt else None)

    def _hear_receipt(self, xml: Element) -> None:
        received = xml.find(f"{RECEIPTS}received")
        if received is not None and (id := received.get("id", "")):
            self._sender.received(id, xml.get("from", ""))

    def _confirm_receipt(self, heard: Heard) -> None:
        if not self._wire().is_up:
            return
        message = Element(f"{CLIENT}message", {"to": heard.address, "type": "chat"})
        SubElement(message, f"{RECEIPTS}received", {"id": heard.receipt})
        SubElement(message, f"{HINTS}store")
        self._wire().send(message)

    def _hear_error(self, xml: Element, seat: Seat | None) -> None:
        id = xml.get("id", "")
        condition, text = read_error(xml)
        said_by_room = seat is not None and not resource(xml.get("from", ""))
        if seat is not None and said_by_room and condition in LOST_ROOM and self._sender.not_there(id):
            why = text or "the room says that we are not in it"
            self._told.left(seat.view.address, LOST_ROOM[condition], why)
            return
        said = f"{xml.get('from', 'the server')} refused the text: {condition}" + (f" ({text})" if text else "")
        self._sender.rejected(id, DeliveryError(said, final=not error_may_pass(xml)))
