"""A clock that stands still until it is moved, and then stops at every due moment on the way."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any


@dataclass(slots=True, order=True)
class Sleeper:
    """Somebody who waits: for ``at``, or to be woken by hand."""

    at: float
    order: int
    woken: asyncio.Future[None] = field(compare=False)
    counted: bool = field(compare=False)
    off: bool = field(default=False, compare=False)


class SteppedClock:
    """``fsm.ports.Clock`` for scenarios. The wall clock can jump; ``now()`` follows the monotonic one."""

    def __init__(self, start: float) -> None:
        self._wall = start
        self._mono = 0.0
        self._anchor()
        self._sleepers: list[Sleeper] = []
        self._order = itertools.count()
        self.parked = 0
        """Engine tasks that wait for this clock."""
        self.counts: Callable[[asyncio.Task[Any] | None], bool] = lambda task: True
        self.on_park: Callable[[], None] = lambda: None

    def _anchor(self) -> None:
        self._anchor_wall, self._anchor_mono = self.wall(), self.mono()

    # What the two clocks of a machine show, for a subclass to replace.
    def wall(self) -> float:
        return self._wall

    def mono(self) -> float:
        return self._mono

    def _pass(self, seconds: float) -> None:
        self._wall += seconds
        self._mono += seconds

    def now(self) -> float:
        return self._anchor_wall + (self.mono() - self._anchor_mono)

    def jump(self, seconds: float) -> None:
        """The wall clock jumps; monotonic time does not."""
        self._wall += seconds

    def restarted(self) -> None:
        """A new process reads the wall clock anew; whoever slept is gone."""
        self._sleepers.clear()
        self.parked = 0
        self._anchor()

    def next_sleeper(self) -> float:
        while self._sleepers and self._sleepers[0].woken.done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0].at if self._sleepers else math.inf

    def move_to(self, at: float) -> None:
        """Let time pass until ``now()`` is ``at`` and wake whoever slept until then."""
        if (seconds := at - self.now()) > 0:
            self._pass(seconds)
            self._correct(at)
        while self._sleepers and self._sleepers[0].at <= self.now():
            self.wake(heapq.heappop(self._sleepers))

    def _correct(self, at: float) -> None:
        """Sums of floats miss by a hair; a deadline that is due must not."""
        self._mono += at - self.now()

    async def sleep_until(self, at: float) -> None:
        if at > self.now():
            await self._sleep(self._sleeper(at))

    def ticket(self, at: float = math.inf) -> Sleeper:
        """To wait for something other than time, until ``at`` at the latest: ``await hold(ticket)`` until
        somebody calls ``wake(ticket)``."""
        return self._sleeper(at)

    async def hold(self, ticket: Sleeper) -> None:
        await self._sleep(ticket)

    def wake(self, sleeper: Sleeper) -> None:
        if not sleeper.woken.done():
            self._count_off(sleeper)
            sleeper.woken.set_result(None)

    def _sleeper(self, at: float) -> Sleeper:
        loop, counted = asyncio.get_running_loop(), self.counts(asyncio.current_task())
        return Sleeper(at, next(self._order), loop.create_future(), counted)

    async def _sleep(self, sleeper: Sleeper) -> None:
        if sleeper.at < math.inf:
            heapq.heappush(self._sleepers, sleeper)
        if sleeper.counted:
            self.parked += 1
            self.on_park()
        try:
            await sleeper.woken
        except asyncio.CancelledError:
            self._count_off(sleeper)
            raise

    def _count_off(self, sleeper: Sleeper) -> None:
        """A task counts as parked until the moment it is woken, not until it gets to run."""
        if sleeper.counted and not sleeper.off:
            sleeper.off = True
            self.parked -= 1


class FrozenClock(SteppedClock):
    """The same on freezegun's frozen time: ``freezer`` is what ``freeze_time(…, real_asyncio=True)``
    gives. Code under test that reads ``time`` or ``datetime`` sees the same instant as the engine."""

    def __init__(self, freezer: Any) -> None:
        self._freezer = freezer
        super().__init__(time.time())

    def wall(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()

    def _pass(self, seconds: float) -> None:
        self._freezer.tick(timedelta(seconds=seconds))

    def _correct(self, at: float) -> None:
        # Frozen time counts whole microseconds: go on to the first one that is not before.
        while self.now() < at:
            self._freezer.tick(timedelta(microseconds=1))

    def jump(self, seconds: float) -> None:
        raise NotImplementedError("freezegun moves both clocks; use the engine's own clock to let the wall jump")
