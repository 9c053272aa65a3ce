"""Texts on their way out: in order for each address, the same id at every try.

A text that could not be delivered holds up the ones behind it for the same address until it is
delivered or given up, which the machine decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from fsm.foreign import is_theirs
from fsm.ports import Channel, DeliveryError, Outgoing
from fsm.runner.tasks import Job, Tasks

log = logging.getLogger("session_router.delivery")

Address = tuple[str, str, str]
"""(agent, channel, route)"""


class _Line(Struct):
    waiting: deque[Outgoing] = field(default_factory=deque)
    running: bool = False
    held: bool = False
    job: Job | None = None


class Delivery:
    """``tasks`` do the work; ``delivered`` and ``failed`` report each outcome; ``touch`` is told
    right before and right after every send."""

    def __init__(
        self,
        channels: Mapping[tuple[str, str], Channel],
        *,
        tasks: Tasks,
        delivered: Callable[[Outgoing], None],
        failed: Callable[[Outgoing, bool], None],
        touch: Callable[[str, str], None] | None,
    ) -> None:
        self._channels = channels
        self._tasks, self._delivered, self._failed, self._touch = tasks, delivered, failed, touch
        self._lines: dict[Address, _Line] = {}
        self._by_id: dict[str, Address] = {}

    def channel(self, agent: str, channel: str) -> Channel | None:
        """The adapter for a channel: its own, that of its kind (``xmpp`` for ``xmpp:ROOM``), or the
        one that takes everything (``*``)."""
        if (found := self._channels.get((agent, channel))) is not None:
            return found
        if (found := self._channels.get((agent, channel.partition(":")[0]))) is not None:
            return found
        return self._channels.get((agent, "*"))

    def owe(self, outgoing: Outgoing) -> None:
        """Deliver a text as soon as those before it are out; one that is on its way is left alone."""
        if outgoing.id in self._by_id:
            return
        address = (outgoing.key.agent, outgoing.channel, outgoing.to)
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line()
        line.waiting.append(outgoing)
        self._by_id[outgoing.id] = address
        self._go_on(address, line)

    def again(self, send: str) -> None:
        """The wait of a failed text is over."""
        if (address := self._by_id.get(send)) is not None and (line := self._lines.get(address)) is not None:
            line.held = False
            self._go_on(address, line)

    def find(self, send: str) -> Outgoing | None:
        address = self._by_id.get(send)
        line = self._lines.get(address) if address else None
        return line.waiting[0] if line and line.waiting and line.waiting[0].id == send else None

    def give_up(self, send: str) -> None:
        """Take a failed text off the line; the next one goes out."""
        if (address := self._by_id.pop(send, None)) is None or (line := self._lines.get(address)) is None:
            return
        if line.waiting and line.waiting[0].id == send:
            line.waiting.popleft()
        line.held = False
        self._go_on(address, line)

    async def written(self, channel: str, to: str) -> None:
        """Return once nothing is on its way to that address, save what has to wait for another try."""
        for address, line in list(self._lines.items()):
            if address[1:] == (channel, to) and line.running and line.job is not None and line.job.task is not None:
                await asyncio.wait({line.job.task})

    def is_busy(self, agent: str) -> bool:
        """Whether a text of that agent is on its way just now."""
        return any(line.running for address, line in self._lines.items() if address[0] == agent)

    def drop(self, agent: str) -> list[Job]:
        """Forget the texts of an agent, which the store keeps; the work of sending them, to be cancelled."""
        jobs = []
        for address, line in list(self._lines.items()):
            if address[0] != agent:
                continue
            del self._lines[address]
            for outgoing in line.waiting:
                self._by_id.pop(outgoing.id, None)
            if line.job is not None:
                jobs.append(line.job)
        return jobs

    def _go_on(self, address: Address, line: _Line) -> None:
        if line.running or line.held:
            return
        if not line.waiting:
            self._lines.pop(address, None)
            return
        line.running = True
        line.job = self._tasks.spawn(self._deliver, address, line)

    async def _deliver(self, address: Address, line: _Line) -> None:
        try:
            while line.waiting and not line.held:
                outgoing = line.waiting[0]
                if self._touch is not None:
                    self._touch("send", "before")
                try:
                    channel = self.channel(outgoing.key.agent, outgoing.channel)
                    if channel is None:
                        raise DeliveryError(f"no channel named {outgoing.channel!r} is open", final=True)
                    await channel.send(outgoing)
                except BaseException as error:  # an adapter's surprise is a failed delivery like any other
                    if not is_theirs(error):
                        raise
                    if isinstance(error, DeliveryError):
                        log.warning("text %s was not delivered: %s", outgoing.id, error)
                    else:
                        log.exception("channel %s failed", outgoing.channel)
                    line.held = True
                    line.waiting[0] = replace(outgoing, tries=outgoing.tries + 1)
                    self._failed(line.waiting[0], isinstance(error, DeliveryError) and error.final)
                    return
                if self._touch is not None:
                    self._touch("send", "after")
                self._delivered(outgoing)
                line.waiting.popleft()
                self._by_id.pop(outgoing.id, None)
        finally:
            line.running = False
            if not line.waiting:
                self._lines.pop(address, None)
