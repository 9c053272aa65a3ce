"""Many callers, one writer: whatever waits is committed together.

On a disk that is told to mean it, a commit costs far more than the rows in it, so the jobs of all
tasks that wait share one transaction. The whole transaction is one function that runs in
the connection's thread: a batch costs one hop to that thread and back, and no cancelled task can
leave it half done.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from storage.schema import is_busy

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""What a job does inside the transaction; it runs in another thread and may run twice."""

BATCH = 1000
"""Jobs in one transaction at most."""


@dataclass(slots=True, eq=False)
class _Job:
    work: Work[Any]
    writes: bool
    done: asyncio.Future[Any]


class GroupCommit:
    """Runs jobs in transactions, in the order in which they came.

    ``in_thread`` runs a function with the connection in the thread that owns it.
    """

    def __init__(self, in_thread: Callable[[Work[Any]], Awaitable[Any]]) -> None:
        self._in_thread = in_thread
        self._waiting: deque[_Job] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._writer = asyncio.create_task(self._write(), name="store-writer")

    def submit(self, work: Work[T], *, writes: bool) -> asyncio.Future[T]:
        """Queue a job; its future is resolved once the transaction that it was part of is on disk.

        The future carries whatever the work or the commit raised. A job whose future is cancelled
        before its batch begins is not run.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing or self._writer.done():
            done.set_exception(ConnectionError("the writer has stopped"))
            return done
        self._waiting.append(_Job(work, writes, done))
        self._wake.set()
        return done

    async def close(self) -> None:
        """Finish what was submitted, then stop."""
        self._closing = True
        self._wake.set()
        await asyncio.wait([self._writer])

    async def _write(self) -> None:
        batch: list[_Job] = []
        try:
            while not self._closing or self._waiting:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                    batch = [job for job in batch if not job.done.done()]
                    if batch:
                        _resolve(batch, await self._in_thread(partial(_run, batch)))
        finally:
            # Reached with jobs only where the task itself was cancelled or the thread is gone: nobody
            # may wait for ever.
            left = [*batch, *self._waiting]
            self._waiting.clear()
            _resolve(left, [ConnectionError("the writer has stopped")] * len(left))


def _resolve(batch: Sequence[_Job], outcomes: Sequence[object]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        if job.done.done():
            continue
        if isinstance(outcome, Exception):
            job.done.set_exception(outcome)
        else:
            job.done.set_result(outcome)


def _run(jobs: Sequence[_Job], connection: sqlite3.Connection) -> list[object]:
    """One transaction for all, or, if that fails, one for each: a bad job fails alone.

    Returns a job's result or its exception, in the order of the jobs.
    """
    outcomes: list[object]
    try:
        connection.execute("BEGIN IMMEDIATE" if any(job.writes for job in jobs) else "BEGIN")
        outcomes = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
        return outcomes
    except Exception as error:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors
            connection.execute("ROLLBACK")
        if len(jobs) == 1:
            return [error]
        locked = error if is_busy(error) else None
    outcomes = []
    for job in jobs:
        if locked is not None and job.writes:
            outcomes.append(locked)  # each would wait the whole busy timeout again; readers need no lock
            continue
        outcome = _run([job], connection)[0]
        if isinstance(outcome, Exception) and is_busy(outcome):
            locked = outcome
        outcomes.append(outcome)
    return outcomes
