"""XMPP as a channel: what the connection's table decides is carried out here, and what arrives is told to it."""

from __future__ import annotations

import asyncio
import logging
import random as chance
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, assert_never
from xml.etree.ElementTree import Element, SubElement
from xml.sax.saxutils import escape

from channels.splitting import split
from channels.xmpp.account import XmppAccount, bare, resource
from channels.xmpp.archive import QueryFailed
from channels.xmpp.connection import step
from channels.xmpp.events import (
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
    WaitToConnect,
    WaitToEnter,
)
from channels.xmpp.hearing import Hearing, Told
from channels.xmpp.inbox import Inbox, Receive
from channels.xmpp.sending import Sender, Text
from channels.xmpp.stanzas import CHATSTATES, CLIENT, HINTS, MUC_USER, RECEIPTS, SID
from fsm.ports import Clock, DeliveryError, Outgoing, SessionRouterError

if TYPE_CHECKING:
    from channels.xmpp.wire import Wire

log = logging.getLogger("session_router.xmpp")


class XmppMissing(SessionRouterError):
    """The XMPP library is not installed; the message says how to."""


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
        rooms = [bare(room) for room in account.rooms]
        self._now = Connection(tuple(Room(room) for room in rooms), timing=account.timing)
        self._changed = asyncio.Condition()
        self._inbox = Inbox(receive, clock)
        self._sender = Sender(
            rooms, clock=clock, timing=account.timing, transmit=self._transmit,
            look=lambda room: self._hearing.look(room), probe=lambda: self._poke.set(),
        )  # fmt: skip
        self._hearing = Hearing(
            account, self._inbox, self._sender, clock, wire=lambda: self._wire, spawn=self._spawn,
            told=Told(self._entered, self._left, self._refused, self._hidden),
        )  # fmt: skip
        self._events: deque[Event] = deque()
        self._running = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loose: set[asyncio.Task[None]] = set()
        self._poke = asyncio.Event()
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
        """Begin to connect, or try again what a person may have mended meanwhile: an account or a room that refused us.
        It returns at once; :meth:`reached` waits for what comes of it.

        Raises :class:`XmppMissing` without the library, ``ValueError`` for an address that cannot be one, and
        what the account's ``password`` raises.
        """
        try:
            from channels.xmpp.wire import Listener, Wire
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "slixmpp":
                raise
            raise XmppMissing('XMPP needs slixmpp: in the folder of Session Router, pip install ".[xmpp]"') from error
        if self.state in (State.OFFLINE, State.REFUSED):
            if self._wire_or_none is not None:
                await self._wire_or_none.close()
            listener = Listener(
                self._up, self._lost, self._login_refused, self._displaced, self._hearing.message,
                self._hearing.presence, self._sender.acked, self._inbox.taken, lambda: self._inbox.waiting,
            )  # fmt: skip
            self._wire_or_none = Wire(self.account, self.account.password(), listener, self._spawn)
            self._hearing.remember()
        self._take(Started())

    async def reached(self, *states: State) -> State:
        """Wait until the connection is in one of ``states``; the one that it is in."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state in states)
        return self.state

    async def close(self, drain: bool = True) -> None:
        """End the connection; with ``drain`` first let out what is under way, for ``confirm`` seconds."""
        until = self._clock.now() + self.account.timing.confirm
        if drain and self.state in (State.JOINING, State.JOINED) and self._sender.busy:
            await self._until(until, self._sender.idle())
        entered = self._entered_rooms()
        self._take(Stopped())
        if drain:
            await self._until(until, self._hearing.keep(entered))
        if self._wire_or_none is not None:
            await self._wire_or_none.close()
            self._wire_or_none = None
        # First whoever would confirm or note that the inbox is empty, for it is not when it has dropped what it had.
        tasks = [*self._tasks.values(), *self._loose]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._inbox.close()

    async def _until(self, at: float, work: Coroutine[Any, Any, None]) -> None:
        """Leave ``work`` when that instant has come."""
        over, doing = asyncio.ensure_future(self._clock.sleep_until(at)), asyncio.ensure_future(work)
        try:
            await asyncio.wait({over, doing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            doing.cancel()

    # -- the channel -----------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> None:
        """Deliver a text, in pieces where it is long; it waits while the connection is coming back.

        Pieces go under ids made from the text's own, and one that has arrived is not sent again. Raises
        :class:`fsm.ports.DeliveryError`, ``final`` where a person has to act first.
        """
        room = self._hearing.seats.get(bare(outgoing.to))
        private = room is not None and "/" in outgoing.to
        to = bare(outgoing.to) if room is not None and not private else outgoing.to
        needs = bare(outgoing.to) if room is not None or outgoing.channel != "xmpp" else ""
        for n, piece in enumerate(split(sendable(outgoing.text), self.account.body_bytes, wire_bytes), start=1):
            id = outgoing.id if n == 1 else f"{outgoing.id}.{n}"
            await self._sender.deliver(Text(id, to, piece, needs, outgoing.key.sender if private else ""))

    async def typing(self, to: str, on: bool) -> None:
        """Show or clear the typing indicator; nothing where it cannot be seen."""
        room = bare(to) if bare(to) in self._hearing.seats else ""
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
                    try:
                        self._do(effect)
                    except Exception:  # the next one is owed all the same
                        log.exception("%s: %s could not be done", self.account.jid, effect)
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
            try:
                self._on_state(self._now)
            except Exception:
                log.exception("%s: on_state failed", self.account.jid)

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
                self._hearing.greeted.clear()
                self._run("greet", self._greet(self._now.link))
            case EnterRoom(room, within):
                link = self._now.link
                self._run(f"enter {room}", self._hearing.enter(room))
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
                for room in self._hearing.seats if rooms is None else rooms:
                    self._cancel(f"limit {room}")
                    self._cancel(f"enter {room}")
                    self._hearing.seats[room].waiting = None
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
            if name != "keep":
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
        if not resumed:
            for seat in self._hearing.seats.values():
                seat.view.forget()
        self._take(LinkUp(self._on_the_wire, resumed))
        if self.state in (State.JOINING, State.JOINED):
            self._run("watch", self._watch())

    def _lost(self, reason: str) -> None:
        lasted = self._clock.now() - self._up_at if self.state in (State.JOINING, State.JOINED) else 0.0
        self._take(LinkLost(self._on_the_wire, reason, self._random(), lasted))

    def _login_refused(self, reason: str) -> None:
        self._take(LoginRefused(self._on_the_wire, reason))

    def _displaced(self, reason: str) -> None:
        self._take(Displaced(self._on_the_wire, reason))

    async def _greet(self, link: int) -> None:
        await self._hearing.greet()
        self._take(Greeted(link))
        self._keep()

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
            try:
                await self._wire.ping("", timing.answer)
            except QueryFailed as error:
                if not error.condition:
                    self._lost("the server does not answer")
                    return
            for address, seat in self._hearing.seats.items():
                room = self._now.room(address)
                if room is None or room.standing is not Standing.IN:
                    continue
                try:
                    await self._wire.ping(f"{address}/{seat.view.nick}", timing.answer)
                except QueryFailed as error:
                    # XEP-0410: other errors come from the other clients of our account, or say nothing.
                    if error.condition in ("not-acceptable", "item-not-found"):
                        self._left(address, Cause.TECHNICAL, "the room says that we are not in it")
            self._keep()

    def _keep(self) -> None:
        """Beside everything else, since it waits for what was heard to be safe; a later one stands for those before."""
        self._run("keep", self._hearing.keep(self._entered_rooms()))

    # -- what is heard of rooms ------------------------------------------------------------------

    async def _catch_up(self, room: str, link: int) -> None:
        await self._hearing.catch_up(room)
        self._take(RoomCaughtUp(link, room))
        self._keep()

    def _entered_rooms(self) -> frozenset[str]:
        """Those in which nothing can be said that is not heard, as far as is known."""
        if self.state not in (State.JOINING, State.JOINED):
            return frozenset()
        return frozenset(room.address for room in self._now.rooms if room.standing is Standing.IN)

    def _entered(self, room: str, created: bool) -> None:
        self._take(RoomEntered(self._on_the_wire, room, created))

    def _left(self, room: str, cause: Cause, text: str) -> None:
        self._hearing.seats[room].view.forget()
        self._take(RoomLost(self._on_the_wire, room, cause, text, self._random()))

    def _refused(self, room: str, condition: str, text: str) -> None:
        self._cancel(f"limit {room}")
        self._take(RoomRefused(self._on_the_wire, room, condition, text, self._random()))

    def _hidden(self, room: str, text: str) -> None:
        self._do(Tell("room anonymous", text, room))

    # -- what goes out ---------------------------------------------------------------------------

    def _check_occupant(self, text: Text) -> None:
        """A private answer must not go to whoever has taken the nick since."""
        view, nick = self._hearing.seats[text.room].view, resource(text.to)
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
            self._hearing.own_ids[text.id] = None
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
