"""XMPP as a channel: what the connection's table decides is carried out here, and what arrives is told to it."""

from __future__ import annotations

import asyncio
import logging
import random as chance
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never
from xml.etree.ElementTree import Element, SubElement
from xml.sax.saxutils import escape

from channels.splitting import split
from channels.xmpp.account import XmppAccount, bare, resource
from channels.xmpp.archive import Archive, QueryFailed, stamp
from channels.xmpp.connection import (
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
    WaitToConnect,
    WaitToEnter,
    step,
)
from channels.xmpp.inbox import Inbox, Receive
from channels.xmpp.recent import Recent
from channels.xmpp.sending import Sender, Text
from channels.xmpp.stanzas import (
    CLIENT,
    FEATURE_ARCHIVE,
    FEATURE_STANZA_IDS,
    MUC,
    MUC_USER,
    RECEIPTS,
    SID,
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
from fsm.ports import Clock, DeliveryError, Outgoing, SessionRouterError

if TYPE_CHECKING:
    from channels.xmpp.wire import Wire

log = logging.getLogger("session_router.xmpp")

CHATSTATES = "{http://jabber.org/protocol/chatstates}"
HINTS = "{urn:xmpp:hints}"
LOST_ROOM = {"not-acceptable": Cause.TECHNICAL, "gone": Cause.DESTROYED, "item-not-found": Cause.DESTROYED}
"""Errors of a room for a message to it that say that we are not in it (any more)."""
SKEW = 300.0
"""Seconds by which a server's clock may differ from ours; what is read twice for it is told by its id."""


class XmppMissing(SessionRouterError):
    """The XMPP library is not installed; the message says how to."""


@dataclass(slots=True)
class _Seat:
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


class XmppChannel:
    """One account with its direct chats (channel ``xmpp``) and its rooms (``xmpp:ROOM``).

    ``receive`` is awaited for every message, in order within a channel; a message counts as taken when it
    returns. ``random`` gives numbers from 0 to 1 for the back-off. ``on_state`` is told every change of the
    connection, ``on_notice`` what a person should know: the account was refused, a room was made anew or does
    not let us in, the link was lost. Both are logged as well.
    """

    def __init__(
        self,
        account: XmppAccount,
        receive: Receive,
        *,
        clock: Clock,
        random: Callable[[], float] = chance.random,
        on_state: Callable[[Connection], None] | None = None,
        on_notice: Callable[[Tell], None] | None = None,
    ) -> None:
        self.account = account
        self._clock, self._random = clock, random
        self._on_state, self._on_notice = on_state, on_notice
        self._me = bare(account.jid)
        self._seats = {
            bare(room): _Seat(RoomView(bare(room), account.nick, name=room)) for room in account.rooms
        }
        self._now = Connection(tuple(Room(room) for room in self._seats), timing=account.timing)
        self._changed = asyncio.Condition()
        self._inbox = Inbox(receive, clock)
        self._sender = Sender(
            self._seats, clock=clock, timing=account.timing, transmit=self._transmit, look=self._look,
            probe=lambda: self._poke.set(),
        )  # fmt: skip
        self._archive = Archive(self._me, lambda to, query: self._wire.query(to, "set", query, account.timing.answer))
        self._own_ids: Recent[str, None] = Recent()
        self._stanza_ids = False
        self._direct_last, self._direct_since = "", 0.0
        self._direct_waiting: list[Element] | None = None
        self._events: deque[Event] = deque()
        self._running = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loose: set[asyncio.Task[None]] = set()
        self._poke = asyncio.Event()
        self._greeted = asyncio.Event()
        self._greeting = False
        self._on_the_wire = 0
        self._up_at = 0.0
        self._wire_or_none: Wire | None = None

    # -- for whoever composes it -----------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._now.state

    @property
    def connection(self) -> Connection:
        """The connection with the standing of every room."""
        return self._now

    async def start(self) -> None:
        """Begin to connect, and return; :meth:`reached` waits for what comes of it.

        Raises :class:`XmppMissing` without the library, ``ValueError`` for an address that cannot be one, and
        what the account's ``password`` raises.
        """
        try:
            from channels.xmpp.wire import Listener, Wire
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "slixmpp":
                raise
            raise XmppMissing('XMPP needs slixmpp: pip install "session-router[xmpp]"') from error
        if self.state in (State.OFFLINE, State.REFUSED):
            if self._wire_or_none is not None:
                await self._wire_or_none.close()
            listener = Listener(
                self._up, self._lost, self._login_refused, self._displaced, self._hear, self._see, self._sender.acked,
                self._inbox.taken,
            )  # fmt: skip
            self._wire_or_none = Wire(self.account, self.account.password(), listener, self._spawn)
        self._take(Started())

    async def reached(self, *states: State) -> State:
        """Wait until the connection is in one of ``states``; the one that it is in."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state in states)
        return self.state

    async def close(self, drain: bool = True) -> None:
        """End the connection; with ``drain`` first let out what is under way, for ``confirm`` seconds."""
        if drain and self.state in (State.JOINING, State.JOINED) and self._sender.busy:
            until = self._clock.now() + self.account.timing.confirm
            over = asyncio.ensure_future(self._clock.sleep_until(until))
            idle = asyncio.ensure_future(self._sender.idle())
            await asyncio.wait({over, idle}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            idle.cancel()
        self._take(Stopped())
        if drain:
            await self._inbox.taken()
        if self._wire_or_none is not None:
            await self._wire_or_none.close()
            self._wire_or_none = None
        await self._inbox.close()
        tasks = [*self._tasks.values(), *self._loose]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the channel -----------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> None:
        """Deliver a text, in pieces where it is long; it waits while the connection is coming back.

        Pieces go under ids made from the text's own, and one that has arrived is not sent again. Raises
        :class:`fsm.ports.DeliveryError`, ``final`` where a person has to act first.
        """
        room = self._seats.get(bare(outgoing.to))
        private = room is not None and "/" in outgoing.to
        to = bare(outgoing.to) if room is not None and not private else outgoing.to
        needs = bare(outgoing.to) if room is not None or outgoing.channel != "xmpp" else ""
        for n, piece in enumerate(split(sendable(outgoing.text), self.account.body_bytes, wire_bytes), start=1):
            id = outgoing.id if n == 1 else f"{outgoing.id}.{n}"
            await self._sender.deliver(Text(id, to, piece, needs, outgoing.key.sender if private else ""))

    async def typing(self, to: str, on: bool) -> None:
        """Show or clear the typing indicator; nothing where it cannot be seen."""
        room = bare(to) if bare(to) in self._seats else ""
        if not self._sender.gates[room].opened:
            return
        is_room = bool(room) and "/" not in to
        message = Element(f"{CLIENT}message", {"to": bare(to) if is_room else to})
        message.set("type", "groupchat" if is_room else "chat")
        SubElement(message, f"{CHATSTATES}{'composing' if on else 'active'}")
        SubElement(message, f"{HINTS}no-store")
        if room and not is_room:
            SubElement(message, f"{MUC_USER}x")
        self._wire.send(message)

    # -- the table at work -----------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        """Step, and carry out what is owed. An event that comes of that is taken next, in order."""
        self._events.append(event)
        if self._running:
            return
        self._running = True
        try:
            while self._events:
                before = self._now
                self._now, effects = step(before, self._events.popleft())
                for effect in effects:
                    self._do(effect)
                if self._now is not before:
                    self._tell_state(before)
        finally:
            self._running = False

    def _tell_state(self, before: Connection) -> None:
        if before.state is not self.state:
            log.info("%s: %s", self.account.jid, self.state.value)

            async def tell() -> None:
                async with self._changed:
                    self._changed.notify_all()

            self._spawn(tell())
        if self._on_state is not None:
            self._on_state(self._now)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Connect(link, within):
                self._run("link", self._open(link))
                self._after("connect", within, lambda: ConnectTimedOut(link, self._random()))
            case Disconnect(politely):
                self._end_link()
                if not politely and self._wire_or_none is not None:
                    self._wire.abort()
            case WaitToConnect(link, seconds):
                self._after("connect", seconds, lambda: BackoffOver(link))
            case Greet():
                self._greeted.clear()
                self._greeting = True
                self._run("greet", self._greet(self._now.link))
            case EnterRoom(room, within):
                link = self._now.link
                self._run(f"enter {room}", self._enter(room, link))
                self._after(f"limit {room}", within, lambda: RoomRefused(
                    link, room, "remote-server-timeout", f"no answer within {within:g} seconds", self._random()
                ))  # fmt: skip
            case WaitToEnter(room, seconds):
                link = self._now.link
                self._cancel(f"enter {room}")
                self._after(f"limit {room}", seconds, lambda: RoomRetryDue(link, room))
            case CatchUp(room):
                self._cancel(f"limit {room}")
                self._run(f"enter {room}", self._catch_up(room, self._now.link))
            case HoldOutput(rooms):
                # Who is in the rooms is kept: a resumed session does not tell it again.
                self._sender.hold(rooms)
            case ReleaseOutput(rooms, fresh):
                self._sender.release(rooms, fresh=fresh)
            case FailOutput(rooms, reason, final):
                for room in self._seats if rooms is None else rooms:
                    self._cancel(f"limit {room}")
                    self._cancel(f"enter {room}")
                    self._seats[room].waiting = None
                self._sender.fail(rooms, reason, final=final)
            case Tell(kind, text):
                level = logging.ERROR if kind == "refused" else logging.WARNING
                log.log(level, "%s: %s", self.account.jid, text)
                if self._on_notice is not None:
                    self._on_notice(effect)
            case _:
                assert_never(effect)

    def _end_link(self) -> None:
        for name in list(self._tasks):
            # The back-off is set behind this, in the same step.
            self._cancel(name)

    # -- tasks and timers ------------------------------------------------------------------------

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start work under a name; what ran under it before is cancelled."""
        self._cancel(name)
        task = asyncio.ensure_future(work)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %s", name or "a task", error, exc_info=error)

    def _cancel(self, name: str) -> None:
        if (task := self._tasks.pop(name, None)) is not None and task is not asyncio.current_task():
            task.cancel()

    def _after(self, name: str, seconds: float, make: Callable[[], Event]) -> None:
        async def wait() -> None:
            await self._clock.sleep_until(self._clock.now() + seconds)
            self._take(make())

        self._run(name, wait())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._loose.add(task)
        task.add_done_callback(self._loose_ended)

    def _loose_ended(self, task: asyncio.Task[None]) -> None:
        self._loose.discard(task)
        self._ended("", task)

    @property
    def _wire(self) -> Wire:
        assert self._wire_or_none is not None, "not started"
        return self._wire_or_none

    # -- the link --------------------------------------------------------------------------------

    async def _open(self, link: int) -> None:
        def began() -> None:
            self._on_the_wire = link

        await self._wire.open(began)

    def _up(self, resumed: bool) -> None:
        self._cancel("connect")
        self._up_at = self._clock.now()
        for seat in self._seats.values():
            if not resumed:
                seat.view.forget()
        self._take(LinkUp(self._on_the_wire, resumed))
        if self.state in (State.JOINING, State.JOINED):
            self._run("watch", self._watch())
            if resumed and self._greeting:  # the link broke before it was done
                self._run("greet", self._greet(self._now.link))

    def _lost(self, reason: str) -> None:
        lasted = self._clock.now() - self._up_at if self.state in (State.JOINING, State.JOINED) else 0.0
        self._take(LinkLost(self._on_the_wire, reason, self._random(), lasted))

    def _login_refused(self, reason: str) -> None:
        self._take(LoginRefused(self._on_the_wire, reason))

    def _displaced(self, reason: str) -> None:
        self._take(Displaced(self._on_the_wire, reason))

    async def _greet(self, link: int) -> None:
        """Be available, read what was missed in direct chats, and let texts for persons out."""
        timing = self.account.timing
        features: frozenset[str] = frozenset()
        with suppress(QueryFailed):
            features = await self._wire.features(self._me, timing.answer)
        self._stanza_ids = FEATURE_STANZA_IDS in features
        self._direct_waiting = self._direct_waiting or []
        self._wire.send(Element(f"{CLIENT}presence"))
        self._greeted.set()
        if FEATURE_ARCHIVE in features:
            await self._read_direct_archive()
        waiting, self._direct_waiting = self._direct_waiting, None
        for message in waiting:
            self._hear_direct(message)
        self._greeting = False
        if self._now.link == link:
            self._sender.release([""], fresh=True)

    async def _read_direct_archive(self) -> None:
        """Hear what came for us while nobody was there. The first time our server has kept it for us anyway."""
        try:
            if self._direct_since:
                missed = await self._archive.after("", self._direct_last, self._direct_since - SKEW)
                for message, archived in missed:
                    self._hear_direct(message, archived)
            else:
                missed = await self._archive.newest("", 1)
            if missed:
                self._direct_last = missed[-1][1].id
        except QueryFailed as error:
            log.warning("%s: what was missed in direct chats cannot be read: %s", self._me, error)
        else:
            self._direct_since = self._clock.now()

    async def _watch(self) -> None:
        """Notice a server that is gone without a word, and a room that has put us out without one."""
        timing = self.account.timing
        while True:
            self._poke.clear()
            over = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + timing.ping))
            poked = asyncio.ensure_future(self._poke.wait())
            try:
                await asyncio.wait({over, poked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                over.cancel()
                poked.cancel()
            link = self._now.link
            try:
                await self._wire.ping("", timing.answer)
            except QueryFailed as error:
                if not error.condition:
                    self._lost("the server does not answer")
                    return
            for address, seat in self._seats.items():
                room = self._now.room(address)
                if room is None or room.standing is not Standing.IN:
                    continue
                try:
                    await self._wire.ping(f"{address}/{seat.view.nick}", timing.answer)
                except QueryFailed as error:
                    # XEP-0410: other errors come from the other clients of our account, or say nothing.
                    if error.condition in ("not-acceptable", "item-not-found"):
                        self._lost_room(address, Cause.TECHNICAL, "the room says that we are not in it", link)

    # -- rooms -----------------------------------------------------------------------------------

    async def _enter(self, room: str, link: int) -> None:
        seat = self._seats[room]
        seat.view.forget()
        seat.view.nick = self.account.nick
        seat.subject.clear()
        await self._greeted.wait()
        await self._learn_features(seat)
        seat.waiting = []
        presence = Element(f"{CLIENT}presence", {"to": f"{room}/{self.account.nick}"})
        history = SubElement(SubElement(presence, f"{MUC}x"), f"{MUC}history")
        if seat.view.has_archive:
            history.set("maxstanzas", "0")
        elif seat.since:
            history.set("since", stamp(seat.since - SKEW))
        else:
            history.set("maxstanzas", str(self.account.history))
        with suppress(QueryFailed):
            self._wire.send(presence)

    async def _learn_features(self, seat: _Seat) -> None:
        try:
            seat.view.features = await self._wire.features(seat.view.address, self.account.timing.answer)
        except QueryFailed:
            seat.view.features = frozenset()  # it may not exist yet
        seat.view.non_anonymous = "muc_nonanonymous" in seat.view.features

    async def _catch_up(self, room: str, link: int) -> None:
        """Read what was missed, then what came meanwhile, in this order."""
        seat, timing = self._seats[room], self.account.timing
        over = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + timing.answer))
        subject = asyncio.ensure_future(seat.subject.wait())
        try:
            # It comes behind the history, which some rooms have instead of an archive.
            await asyncio.wait({over, subject}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            subject.cancel()
        if self._seats[room].view.features == frozenset():
            await self._learn_features(seat)
        self._warn_of_hidden_people(seat)
        if await self._read_archive(seat):
            seat.since = self._clock.now()
        waiting, seat.waiting = seat.waiting or [], None
        for message in waiting:
            self._hear_room(seat, message)
        self._take(RoomCaughtUp(link, room))

    async def _look(self, room: str) -> None:
        if room and self._seats[room].view.has_archive:
            await self._read_archive(self._seats[room])

    async def _read_archive(self, seat: _Seat) -> bool:
        """Hear what the archive has beyond what we know; False when it cannot be read."""
        view, answer_from = seat.view, self._clock.now() - self.account.answer_missed
        if not view.has_archive:
            return True
        try:
            if seat.since:
                missed = await self._missed(seat)
            else:
                # At least one, for its id: only the archive's own ids say for sure what is new later on.
                missed = await self._archive.newest(view.address, max(self.account.history, 1))
                answer_from = float("inf")
        except QueryFailed as error:
            log.warning("%s: what was missed in %s cannot be read: %s", self._me, view.address, error)
            return False
        if not seat.since and not self.account.history:
            seat.last = missed[-1][1].id if missed else ""
            return True
        for message, archived in missed:
            self._hear_room(seat, message, archived, answer_from)
        return True

    async def _missed(self, seat: _Seat) -> list[tuple[Element, Archived]]:
        try:
            return await self._archive.after(seat.view.address, seat.last, seat.since - SKEW)
        except QueryFailed as error:
            if not seat.last or error.condition != "item-not-found":
                raise
            # The archive has forgotten that message, or the room is a new one.
            return await self._archive.after(seat.view.address, "", seat.since - SKEW)

    def _warn_of_hidden_people(self, seat: _Seat) -> None:
        if seat.warned or not seat.view.hides_people:
            return
        seat.warned = True
        if self.account.trust_nicks:
            text = f"{seat.view.address} hides addresses, and nicks are trusted: anybody can take an allowed nick"
        else:
            text = (
                f"{seat.view.address} hides addresses, so nobody in it can be recognised and nobody is answered; "
                "have its owner make it non-anonymous"
            )
        self._do(Tell("room anonymous", text, seat.view.address))

    def _lost_room(self, room: str, cause: Cause, text: str, link: int) -> None:
        self._seats[room].view.forget()
        self._take(RoomLost(link, room, cause, text, self._random()))

    # -- what arrives ----------------------------------------------------------------------------

    def _see(self, xml: Element) -> None:
        room = bare(xml.get("from", ""))
        if (seat := self._seats.get(room)) is None:
            return
        link = self._on_the_wire
        match read_presence(xml, seat.view):
            case Entered(created):
                self._take(RoomEntered(link, room, created))
            case Left(cause, text):
                self._lost_room(room, cause, text, link)
            case Refused(condition, text):
                self._cancel(f"limit {room}")
                self._take(RoomRefused(link, room, condition, text, self._random()))
            case None:
                pass

    def _hear(self, xml: Element) -> None:
        if self._archive.take(xml):
            return
        address, kind = xml.get("from", ""), xml.get("type", "normal")
        seat = self._seats.get(bare(address))
        if kind == "error":
            self._hear_error(xml, seat)
        elif kind == "groupchat":
            if seat is not None:
                self._hear_groupchat(seat, xml)
        elif seat is not None and read_configuration(xml, seat.view):
            self._spawn(self._learn_features(seat))
        else:
            self._hear_receipt(xml)
            if self._direct_waiting is None:
                self._hear_direct(xml)
            else:
                self._direct_waiting.append(xml)

    def _hear_groupchat(self, seat: _Seat, xml: Element) -> None:
        if read_configuration(xml, seat.view):
            self._spawn(self._learn_features(seat))
        if is_subject(xml):
            seat.subject.set()
        elif seat.waiting is not None and seat.subject.is_set():
            seat.waiting.append(xml)
        else:
            self._hear_room(seat, xml)

    def _known(self) -> Known:
        return Known(
            self._me, self._clock.now(), self._own_ids, self._sender.under_way, self._inbox.reported, self._stanza_ids
        )

    def _hear_room(
        self, seat: _Seat, xml: Element, archived: Archived | None = None, answer_from: float = 0.0
    ) -> None:
        heard = read_room_message(xml, seat.view, self._known(), archived=archived, answer_from=answer_from)
        if heard is None:
            return
        if heard.stanza_id:
            seat.last = heard.stanza_id
        if seat.since:
            seat.since = self._clock.now()
        if heard.inbound.own:
            for id in filter(None, (heard.stanza_id, heard.message_id)):
                self._own_ids[id] = None
            self._sender.confirmed(heard.message_id)
        else:
            self._inbox.put(heard)

    def _hear_direct(self, xml: Element, archived: Archived | None = None) -> None:
        address = xml.get("from", "")
        if bare(address) == self._me and bare(xml.get("to", "")) != self._me:
            # From our own archive: what we sent ourselves, and so arrived.
            self._sender.confirmed(xml.get("id", ""))
            return
        seat = self._seats.get(bare(address))
        heard = read_direct_message(xml, self._known(), room=seat.view if seat else None, archived=archived)
        if heard is None or heard.inbound.own:
            return
        if heard.stanza_id and self._direct_since:
            self._direct_last = heard.stanza_id
        if xml.find(f"{RECEIPTS}request") is not None:
            self._sender.confirms_receipt[bare(address)] = None
        self._inbox.put(heard, (lambda: self._confirm_receipt(heard)) if heard.receipt else None)

    def _hear_receipt(self, xml: Element) -> None:
        received = xml.find(f"{RECEIPTS}received")
        if received is not None and (id := received.get("id", "")):
            self._sender.received(id, xml.get("from", ""))

    def _confirm_receipt(self, heard: Heard) -> None:
        if self.state not in (State.JOINING, State.JOINED):
            return
        message = Element(f"{CLIENT}message", {"to": heard.address, "type": "chat"})
        SubElement(message, f"{RECEIPTS}received", {"id": heard.message_id})
        SubElement(message, f"{HINTS}store")
        self._wire.send(message)

    def _hear_error(self, xml: Element, seat: _Seat | None) -> None:
        id = xml.get("id", "")
        condition, text = read_error(xml)
        said_by_room = seat is not None and not resource(xml.get("from", ""))
        if seat is not None and said_by_room and condition in LOST_ROOM and self._sender.not_there(id):
            why = text or "the room says that we are not in it"
            self._lost_room(seat.view.address, LOST_ROOM[condition], why, self._on_the_wire)
            return
        said = f"{xml.get('from', 'the server')} refused the text: {condition}" + (f" ({text})" if text else "")
        self._sender.rejected(id, DeliveryError(said, final=not error_may_pass(xml)))

    # -- what goes out ---------------------------------------------------------------------------

    def _check_occupant(self, text: Text) -> None:
        """A private answer must not go to whoever has taken the nick since."""
        view, nick = self._seats[text.room].view, resource(text.to)
        there = view.occupants.get(nick)
        if there is None or text.private not in (there.jid, there.id, f"{view.address}/{nick}"):
            raise DeliveryError(f"{text.private} is no longer in {view.address} as {nick}", final=True)

    def _transmit(self, text: Text) -> None:
        if text.private:
            self._check_occupant(text)
        message = Element(f"{CLIENT}message", {"to": text.to, "id": text.id})
        message.set("type", "groupchat" if text.is_for_a_room else "chat")
        SubElement(message, f"{CLIENT}body").text = text.body
        SubElement(message, f"{SID}origin-id", {"id": text.id})
        SubElement(message, f"{CHATSTATES}active")
        if text.private:
            SubElement(message, f"{MUC_USER}x")
        if not text.is_for_a_room:
            self._own_ids[text.id] = None
            SubElement(message, f"{RECEIPTS}request")
        self._wire.send(message)
        if text.is_for_a_room:
            return
        if self._wire.has_acks:
            self._wire.ask_for_ack()
        else:
            self._spawn(self._confirm_by_ping(text.id))

    async def _confirm_by_ping(self, id: str) -> None:
        """Without acknowledgements: a server takes stanzas in order, so an answer says that it took ours."""
        try:
            await self._wire.ping("", self.account.timing.answer)
        except QueryFailed as error:
            if not error.condition:
                return
        self._sender.acked(id)


def sendable(text: str) -> str:
    """``text`` without what XML cannot hold, each replaced by U+FFFD: a server ends the stream over it."""
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" or c >= "\U00010000" else "\ufffd"
        for c in text.replace("\r\n", "\n").replace("\r", "\n")
    )


def wire_bytes(text: str) -> int:
    """Bytes of a text as XML."""
    return len(escape(text).encode())
