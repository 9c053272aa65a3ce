"""The clock that runs: the wall clock read once, carried on by the monotonic clock.

Deadlines are absolute instants on this clock, so a wall clock that jumps neither fires nor delays
anything while the process runs; at the next start the wall clock counts again.
"""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """``fsm.ports.Clock`` for real time. Reads ``time`` through the module, so that freezegun, which
    patches it there, freezes this clock as well."""

    def __init__(self) -> None:
        self._wall = time.time()
        self._mono = time.monotonic()

    def now(self) -> float:
        return self._wall + (time.monotonic() - self._mono)

    async def sleep_until(self, at: float) -> None:
        # In slices: the loop's own clock and ours part when the machine sleeps.
        while (left := at - self.now()) > 0:
            await asyncio.sleep(min(left, 60.0))
