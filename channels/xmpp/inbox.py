"""Messages on their way in: each told from its repetitions, and handed over in order."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from channels.xmpp.recent import Recent
from channels.xmpp.stanzas import Heard
from fsm.ports import Clock, Inbound, SessionRouterError

log = logging.getLogger("session_router.xmpp")

PAUSES = (1.0, 4.0, 15.0, 30.0)
"""Seconds between tries to hand over a message that the engine cannot take just now; the last one stands for all later
ones. It is never given up: a full disk has room again some day, and until then nobody is told that it came."""

Receive = Callable[[Inbound], Awaitable[object]]


class Inbox:
    """``receive`` is awaited for one message of a channel after the other; channels do not wait for each other."""

    def __init__(self, receive: Receive, clock: Clock) -> None:
        self._receive, self._clock = receive, clock
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._put_off: set[str] = set()
        """Ids of messages that are tried again."""
        self._by_stanza_id: Recent[tuple[str, str], None] = Recent()
        self._by_message_id: Recent[tuple[str, str], None] = Recent()
        """Of messages that came without a stanza id."""
        self._by_origin_id: Recent[tuple[str, str, str], None] = Recent()
        """With channel and sender. A client that does not know whether its message arrived sends it again under the
        same one; plain ids some clients count from 1 in every session."""
        self.reported: Recent[tuple[str, str], str] = Recent()

    def put(self, heard: Heard, taken: Callable[[], None] | None = None) -> bool:
        """Hand it over unless it has been before; ``taken`` is called once it is safe. False for a repetition."""
        channel = heard.inbound.channel
        if heard.stanza_id and (channel, heard.stanza_id) in self._by_stanza_id:
            return False
        message_id = f"{heard.address}\n{heard.message_ids[0]}" if heard.message_ids else ""
        if message_id and (channel, message_id) in self._by_message_id:
            return False
        origin = (channel, heard.inbound.sender, heard.origin_id)
        if heard.origin_id and not heard.inbound.edited:
            if origin in self._by_origin_id:
                return False
            self._by_origin_id[origin] = None
        if heard.stanza_id:
            self._by_stanza_id[channel, heard.stanza_id] = None
        elif message_id:
            self._by_message_id[channel, message_id] = None
        if not heard.inbound.edited:
            for id in heard.message_ids:
                self.reported[heard.address, id] = heard.inbound.id
        before = self._last.get(channel)
        task = asyncio.create_task(self._hand_over(heard.inbound, before, taken))
        self._last[channel] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(channel, done))
        return True

    def _forget(self, channel: str, done: asyncio.Task[None]) -> None:
        self._tasks.discard(done)
        if self._last.get(channel) is done:
            del self._last[channel]

    @property
    def waiting(self) -> bool:
        """Whether anything that was put in may not have been handed over yet."""
        return bool(self._tasks)

    async def taken(self) -> None:
        """Return once everything put in so far has been handed over."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Drop what nobody takes. Whoever waits for ``taken`` must be gone: it would look as if it had been."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hand_over(
        self, inbound: Inbound, before: asyncio.Task[None] | None, taken: Callable[[], None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
                try:
                    await self._receive(inbound)
                except SessionRouterError as error:
                    self._puts_off(inbound, error)
                    await self._clock.sleep_until(self._clock.now() + pause)
                else:
                    break
        except Exception:
            log.exception("message %s could not be taken and is lost", inbound.id)
            taken = None
        self._goes_on(inbound)
        if taken is not None:
            taken()

    def _puts_off(self, inbound: Inbound, error: SessionRouterError) -> None:
        """Said once, however many messages wait and however often they are tried."""
        if not self._put_off:
            log.error("message %s cannot be taken yet; it and all behind it wait: %s", inbound.id, error)
        self._put_off.add(inbound.id)

    def _goes_on(self, inbound: Inbound) -> None:
        if inbound.id in self._put_off:
            self._put_off.discard(inbound.id)
            if not self._put_off:
                log.info("messages are taken again")
