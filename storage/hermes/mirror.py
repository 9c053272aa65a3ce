"""A few keys of ours in Hermes' own ``state_meta``, for programs that look for them there.

Hermes writes to that file all the time, and files with several writers have been damaged in the
field, mostly by programs that open and close it often or that close last and delete the -wal under a
gateway that is still writing. So: one connection that stays, one short transaction for each write, no
pragma, no table made, and a closing that leaves the -wal where it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from storage.codec import clean
from storage.readonly import TIMEOUT, kept_open

log = logging.getLogger(__name__)

T = TypeVar("T")

_SET = ("INSERT INTO state_meta (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value")
_DROP = "DELETE FROM state_meta WHERE key = ?"
_GET = "SELECT value FROM state_meta WHERE key = ?"
_TRY = 0.1
"""Seconds of one try for the lock. SQLite asks less and less often while it waits; beside a gateway that
writes without a pause, beginning anew gets in where one long wait does not."""


class StateMetaMirror:
    """``state_meta`` of the file ``path``. What cannot be done is a warning in the log, never an error:
    the engine's own store holds the truth.

    Everything runs in one thread of its own; ``timeout`` is how many seconds it waits for another
    writer. A file that is missing is not made, and is looked for again with the next call.
    """

    def __init__(self, path: Path, *, timeout: float = TIMEOUT) -> None:
        self.path = Path(path)
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hermes-mirror")
        self._opened: _Opened | None = None
        self._closed = False

    async def write(self, key: str, value: str | None) -> bool:
        """Whether ``value`` now stands under ``key`` (None takes the key away)."""
        def work(connection: sqlite3.Connection) -> bool:
            self._begin(connection)
            try:
                if value is None:
                    connection.execute(_DROP, (clean(key),))
                else:
                    connection.execute(_SET, (clean(key), clean(value)))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            return True

        return await self._try("written", key, work) or False

    async def read(self, key: str) -> str | None:
        """The value under ``key``; None where there is none, or the file cannot be read."""
        def work(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(_GET, (clean(key),)).fetchone()
            return None if row is None or row[0] is None else str(row[0])

        return await self._try("read", key, work)

    async def close(self) -> None:
        """Let go of the file. May be called twice; what is called afterwards does nothing."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
            self._thread.shutdown(wait=False)

    async def _try(self, done: str, key: str, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._closed:
            log.warning("The mirror in %s is closed: %s was not %s.", self.path, key, done)
            return None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, done, key, work)

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self, done: str, key: str, work: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            opened = self._open()
            found = work(opened.connection)
            opened.look_at_wal()
            return found
        except (sqlite3.Error, OSError, ValueError) as error:
            log.warning("%s was not %s in Hermes' database %s (%s): the engine goes on with its own store.",
                        key, done, self.path, error)
            if not _is_busy(error):
                self._let_go()
            return None

    def _begin(self, connection: sqlite3.Connection) -> None:
        for left in reversed(range(max(1, round(self._timeout / _TRY)))):
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not left or not _is_busy(error):
                    raise

    def _open(self) -> _Opened:
        if self._opened is not None and not self._opened.is_current(self.path):
            self._let_go()
        if self._opened is None:
            self._opened = _Opened(self.path, min(self._timeout, _TRY))
        return self._opened

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            try:
                opened.close()
            except sqlite3.Error as error:
                log.warning("Hermes' database %s was not closed cleanly (%s).", self.path, error)


class _Opened:
    """One connection to one file, which writes, and behind it one that cannot."""

    def __init__(self, path: Path, timeout: float) -> None:
        path = Path(os.path.realpath(path))  # the -wal stands beside the file itself, not beside a link to it
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        if not found.st_size:
            raise OSError("it is empty")  # never opened: SQLite deletes the -wal beside an empty file
        self._file = found.st_dev, found.st_ino
        self._path, self._wal_path = path, f"{path}-wal"
        self._wal: int | None = None
        with ExitStack() as stack:
            stack.enter_context(kept_open(found))
            # SQLite's last connection to leave deletes the -wal, unless it cannot write. This one leaves
            # after the writing one, which then is not the last.
            keeper = stack.enter_context(closing(self._connect("ro", timeout)))
            self.connection = stack.enter_context(closing(self._connect("rw", timeout)))
            for connection in (self.connection, keeper):  # in this order: who comes first makes the -shm
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            self.look_at_wal()
            self._stack = stack.pop_all()

    def _connect(self, mode: str, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._path.as_uri()}?mode={mode}", uri=True, timeout=timeout,
                               isolation_level=None)

    def look_at_wal(self) -> None:
        """Remember which -wal the connection has come to use."""
        self._wal = self._wal_now()

    def is_current(self, path: Path) -> bool:
        """Whether the file, and its -wal, are still the ones that this connection has open."""
        found = os.stat(path)
        return (found.st_dev, found.st_ino) == self._file and self._wal in (None, self._wal_now())

    def _wal_now(self) -> int | None:
        try:
            return os.stat(self._wal_path).st_ino
        except OSError:
            return None

    def close(self) -> None:
        self._stack.close()


def _is_busy(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
