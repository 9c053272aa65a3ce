"""Deadlines in a heap. A timer is a note of when to look; whether it still matters the machine decides."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

from fsm.conversation import Key
from fsm.ports import Clock
from fsm.values import Value


class Timer(Value, order=True):
    """``due`` in unix seconds, ``meant`` without what it is late; ``what`` and ``fence`` say what to tell the
    conversation of ``key``."""

    due: float
    order: int
    key: Key
    what: str
    fence: str
    started: float
    meant: float


class Timers:
    """``late`` seconds are added to every timer (only scenarios do that)."""

    def __init__(self, clock: Clock, fire: Callable[[list[Timer]], None]) -> None:
        self._clock, self._fire = clock, fire
        self._heap: list[Timer] = []
        self._waiting: set[tuple[float, Key, str, str]] = set()
        self._order = itertools.count()
        self._earlier = asyncio.Event()
        self.late = 0.0

    def add(self, due: float, key: Key, what: str, fence: str, started: float = 0.0) -> None:
        """Set a timer; one that is set already stays the one it is."""
        name = (due, key, what, fence)
        if math.isinf(due) or name in self._waiting:
            return
        self._waiting.add(name)
        timer = Timer(due + self.late, next(self._order), key, what, fence, started, due)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._earlier.set()

    def next_due(self) -> float:
        """When the earliest timer is due; infinity where there is none."""
        return self._heap[0].due if self._heap else math.inf

    def fire_due(self) -> None:
        """Hand over everything that is due now, in order, as one batch."""
        now = self._clock.now()
        due: list[Timer] = []
        while self._heap and self._heap[0].due <= now:
            timer = heapq.heappop(self._heap)
            self._waiting.discard((timer.meant, timer.key, timer.what, timer.fence))
            due.append(timer)
        if due:
            self._fire(due)

    async def run(self) -> None:
        """Fire whatever comes due, until cancelled."""
        while True:
            self.fire_due()
            self._earlier.clear()
            sleep = asyncio.ensure_future(self._clock.sleep_until(self.next_due()))
            earlier = asyncio.ensure_future(self._earlier.wait())
            try:
                await asyncio.wait((sleep, earlier), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
                earlier.cancel()
