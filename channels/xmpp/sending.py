"""Texts on their way out: held until they can be confirmed, and sent again only where they did not arrive.

A text for a room has arrived when the room sends it back under our id. One for a person has arrived when
he confirms it (XEP-0184), or when our server has taken it over (XEP-0198, or an answer to a ping behind it).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from channels.xmpp.events import (
    Timing,
)
from channels.xmpp.recent import Recent
from fsm.ports import Clock, DeliveryError

log = logging.getLogger("session_router.xmpp")


@dataclass(frozen=True, slots=True)
class Text:
    """``room`` is the room that it needs us in, empty for none. ``private``: it is for one occupant of that
    room, whose address there is ``to``, and only if that still is the person of this sender name."""

    id: str
    to: str
    body: str
    room: str = ""
    private: str = ""

    @property
    def is_for_a_room(self) -> bool:
        return bool(self.room) and not self.private

    @property
    def person(self) -> str:
        return self.to.partition("/")[0].lower()


@dataclass(slots=True)
class Gate:
    """``session`` counts the times that we came anew: what was under way then is known not to have arrived."""

    opened: bool = False
    session: int = 0
    failure: tuple[str, bool] | None = None
    """Why nothing can be delivered, and whether that is final."""
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def wake(self) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()


@dataclass(slots=True)
class _Pending:
    text: Text
    done: asyncio.Future[None]
    sent_in: int | None = None
    """The session of the gate in which it was handed to the stream."""


class Sender:
    """``transmit`` hands a text to the stream, or raises :class:`DeliveryError`; ``look`` reads from a room's
    archive whether something arrived that we did not see; ``probe`` is called when nothing comes back, for the
    link may be dead."""

    def __init__(
        self,
        rooms: Iterable[str],
        *,
        clock: Clock,
        timing: Timing,
        transmit: Callable[[Text], None],
        look: Callable[[str], Awaitable[None]],
        probe: Callable[[], None],
    ) -> None:
        self._clock, self._timing = clock, timing
        self._transmit, self._look, self._probe = transmit, look, probe
        self.gates: dict[str, Gate] = {room: Gate() for room in ("", *rooms)}
        self._pending: dict[str, _Pending] = {}
        self._unsure: Recent[str, int] = Recent()
        """Texts that nobody confirmed in time, and the session they went out in."""
        self.arrived: Recent[str, None] = Recent()
        self.confirms_receipt: Recent[str, None] = Recent()
        """Bare addresses of people whose client says what it got."""

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    async def idle(self) -> None:
        """Return once nothing is under way any more."""
        while self._pending:
            await asyncio.wait({pending.done for pending in self._pending.values()})
            await asyncio.sleep(0)

    @property
    def under_way(self) -> Collection[str]:
        """Ids of texts that have not been seen to arrive."""
        return self._pending.keys() | self._unsure.keys()

    # -- the gates -------------------------------------------------------------------------------

    def hold(self, rooms: Iterable[str]) -> None:
        for room in rooms:
            gate = self.gates[room]
            gate.opened, gate.failure = False, None
            gate.wake()

    def release(self, rooms: Iterable[str], *, fresh: bool) -> None:
        for room in rooms:
            gate = self.gates[room]
            gate.opened, gate.failure = True, None
            gate.session += fresh
            gate.wake()

    def fail(self, rooms: Iterable[str] | None, reason: str, *, final: bool) -> None:
        """Refuse what waits and what comes. One that is not final lasts only until the next hold or release."""
        for gate in [self.gates[room] for room in rooms] if rooms is not None else self.gates.values():
            gate.opened, gate.failure = False, (reason, final)
            gate.wake()

    # -- what comes back -------------------------------------------------------------------------

    def confirmed(self, id: str) -> None:
        """It arrived."""
        self.arrived[id] = None
        if (pending := self._pending.get(id)) is not None and not pending.done.done():
            pending.done.set_result(None)

    def acked(self, id: str) -> None:
        """Our server has taken it over; for a room that says nothing yet."""
        pending = self._pending.get(id)
        if pending is None or pending.done.done() or pending.text.is_for_a_room:
            return
        person = pending.text.person
        if pending.text.private or person not in self.confirms_receipt:
            self.confirmed(id)
            return

        async def wait_for_receipt(done: asyncio.Future[None]) -> None:
            await self._clock.sleep_until(self._clock.now() + self._timing.receipt)
            if not done.done():
                # Its client is gone, or does not say any more what it gets. The server has the text.
                self.confirms_receipt.pop(person, None)
                self.confirmed(id)

        waiting = asyncio.ensure_future(wait_for_receipt(pending.done))
        pending.done.add_done_callback(lambda _: waiting.cancel())

    def received(self, id: str, by: str) -> None:
        """A person's client says that it got it."""
        pending = self._pending.get(id)
        if pending is not None and not pending.text.room and pending.text.person == by.partition("/")[0].lower():
            self.confirms_receipt[pending.text.person] = None
            self.confirmed(id)

    def rejected(self, id: str, error: DeliveryError) -> None:
        """It came back as an error."""
        if (pending := self._pending.get(id)) is not None and not pending.done.done():
            pending.done.set_exception(error)
        elif id in self.arrived:
            # The server had taken it over before it knew; some servers look for the person only then.
            log.warning("text %s came back after it was taken for delivered: %s", id, error)

    def not_there(self, id: str) -> str:
        """The room says that we are not in it: it has to go out again. The room, or nothing if unknown."""
        if (pending := self._pending.get(id)) is None:
            return ""
        pending.sent_in = None
        return pending.text.room

    # -- delivering ------------------------------------------------------------------------------

    async def deliver(self, text: Text) -> None:
        """Return once it has arrived. Raises :class:`DeliveryError`."""
        gate = self.gates.get(text.room)
        if gate is None:
            raise DeliveryError(f"{text.room} is not one of this account's rooms; add it to them", final=True)
        if text.id in self.arrived:
            return
        pending = self._pending[text.id] = _Pending(text, asyncio.get_running_loop().create_future())
        unsure = self._unsure.get(text.id)
        hold_until = self._clock.now() + self._timing.hold
        try:
            while not pending.done.done():
                await self._until_open(gate, pending, hold_until)
                if pending.done.done():
                    break
                if unsure is not None and unsure == gate.session:
                    unsure = None
                    await self._look(text.room)
                    continue
                if pending.sent_in != gate.session:
                    pending.sent_in = gate.session
                    self._transmit(text)
                await self._until_confirmed(gate, pending)
            pending.done.result()
        finally:
            del self._pending[text.id]
            if text.id in self.arrived:
                self._unsure.pop(text.id, None)
            elif pending.sent_in is not None and not pending.done.done():
                self._unsure[text.id] = pending.sent_in
            if pending.done.done():
                pending.done.exception()  # seen, also where something else is raised
            else:
                pending.done.cancel()

    async def _until_open(self, gate: Gate, pending: _Pending, until: float) -> None:
        while not gate.opened and not pending.done.done():
            if gate.failure is not None:
                reason, final = gate.failure
                raise DeliveryError(reason, final=final)
            if not await self._either(gate, pending, until):
                where = pending.text.room or "the server"
                raise DeliveryError(f"{where} could not be reached for {self._timing.hold:g} seconds")

    async def _until_confirmed(self, gate: Gate, pending: _Pending) -> None:
        until = self._clock.now() + self._timing.confirm
        while gate.opened and not pending.done.done() and pending.sent_in == gate.session:
            if not await self._either(gate, pending, until):
                self._probe()
                where = pending.text.room or "the server"
                raise DeliveryError(f"{where} did not confirm the text within {self._timing.confirm:g} seconds")

    async def _either(self, gate: Gate, pending: _Pending, until: float) -> bool:
        """Wait for news of the gate or the text; False when the time is over first."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate.waiting.add(news)
        over = asyncio.ensure_future(self._clock.sleep_until(until))
        try:
            done, _ = await asyncio.wait({news, pending.done, over}, return_when=asyncio.FIRST_COMPLETED)
            return bool(done - {over})
        finally:
            gate.waiting.discard(news)
            over.cancel()
