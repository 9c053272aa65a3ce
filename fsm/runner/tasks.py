"""The tasks of an engine, and the pieces of work that they do.

A message is four pieces of work: it is taken in, the model is asked, its answer is taken, the text goes out. Each ends
with starting the next. A task goes on with what it has started last, if that is one thing only, instead of having
another made for it: a task costs as much as a step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVarTuple

from msgspec import Struct

log = logging.getLogger("session_router.engine")

Arguments = TypeVarTuple("Arguments")

STOPPING = 5.0
"""Seconds that work which was cancelled may take to end. A bridge is other people's code, and may not want to."""


class Job(Struct, eq=False):
    """A piece of work. ``task`` is at it until it has ``ended``; it may have been at others before, and may be at
    others afterwards."""

    work: Callable[..., Coroutine[Any, Any, Job | None]]
    arguments: tuple[Any, ...]
    task: asyncio.Task[None] | None = None
    ended: bool = False


class Tasks:
    """All tasks that run."""

    def __init__(self) -> None:
        self._watchers: list[asyncio.Future[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._held: list[Job] | None = None

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, task: object) -> bool:
        return task in self._running

    def changes(self) -> asyncio.Future[None]:
        """Done as soon as a piece of work or a task ends after this call."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        return watcher

    def tell(self) -> None:
        """Let whoever watches look again."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def spawn(self, work: Callable[[*Arguments], Coroutine[Any, Any, Job | None]], *arguments: *Arguments) -> Job:
        """Start a piece of work. What it gives back (see :meth:`last`) is done by its task after it."""
        job = Job(work, arguments)
        if self._held is None:
            self.begin(job)
        else:
            self._held.append(job)
        return job

    def last(self, act: Callable[[*Arguments], None], *arguments: *Arguments) -> Job | None:
        """Do ``act`` as the last thing in a piece of work. Where it starts one other, that one is given back and has
        not begun: it is to be given back by the work itself, or else to :meth:`begin`. Several begin at once."""
        held: list[Job] = []
        self._held = held
        try:
            act(*arguments)
            return held.pop() if len(held) == 1 else None
        finally:
            self._held = None
            for job in held:
                self.begin(job)

    def begin(self, job: Job) -> None:
        """Make a task for a piece of work."""
        job.task = asyncio.create_task(self._do(job))
        self._running.add(job.task)

    async def _do(self, job: Job) -> None:
        task = job.task
        assert task is not None
        try:
            while True:
                try:
                    work, job.arguments = job.work(*job.arguments), ()  # which may hold the job: no cycle is left
                    following = await work
                finally:
                    job.ended = True
                    if self._watchers:
                        self.tell()
                if following is None:
                    return
                if task.cancelling():  # it was meant for what is over now
                    self.begin(following)
                    return
                job, job.task = following, task
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            log.error("a task failed: %s", error, exc_info=error)
        finally:
            self._gone(task)

    def cancel(self, jobs: Collection[Job]) -> list[asyncio.Task[None]]:
        """Cancel whatever of these has not ended; the tasks that were at it."""
        return self._cancel([job.task for job in jobs if job.task is not None and not job.ended])

    def cancel_all(self) -> list[asyncio.Task[None]]:
        return self._cancel(list(self._running))

    def _cancel(self, tasks: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        for task in tasks:
            task.add_done_callback(self._gone)  # one that has not begun cannot say so itself
            task.cancel()
        return tasks

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.tell()


async def stopped(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait for the end of tasks that were cancelled, but not for ever."""
    if tasks:
        _, stubborn = await asyncio.wait(tasks, timeout=STOPPING)
        if stubborn:
            log.error("work that was cancelled goes on all the same, and is left behind (tasks: %d)", len(stubborn))
