"""OpenCode as a session source, and the plain function that only formats a session's history."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from fsm.constants import RECENT_MSG_LIMIT
from fsm.language.context import format_context
from fsm.ports import Line, SessionInfo
from storage.opencode import reading
from storage.opencode.files import NAME, default_path, read
from storage.opencode.reading import Context, Probe, SessionNotFound
from storage.opencode.schema import Schema, schema_of
from storage.readonly import TIMEOUT, storable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class OpenCodeSource:
    """The sessions in OpenCode's database; implements :class:`fsm.ports.SessionSource`.

    ``path`` is the file, by default where OpenCode keeps it (looked up once, here); ``timeout`` the
    seconds to wait for a lock. Nothing is opened before the first call, nothing stays open after
    one, nothing is ever written. Every method raises :class:`SourceError`, whose text says what to do.
    """

    name = NAME

    def __init__(self, path: Path | None = None, *, timeout: float = TIMEOUT) -> None:
        self.path = default_path() if path is None else Path(path)
        self._timeout = timeout
        self._warned: set[str] = set()

    @property
    def skipped(self) -> int:
        """Rows met so far whose JSON is broken; each was skipped, and named in a warning once."""
        return len(self._warned)

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """Root sessions that hold a message, not archived, most recently active first, then by id."""
        return await self._read(reading.list_sessions, limit)

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """Those whose title contains ``words`` (case folded, no wildcards), or whose id equals it."""
        wanted = words.strip().casefold()
        if not wanted:
            return ()
        named = words.strip()
        found = [info for info in await self.list() if wanted in info.title.casefold() or info.id == named]
        return found if limit is None else found[: max(limit, 0)]

    async def latest(self) -> SessionInfo | None:
        """The most recently active one."""
        return next(iter(await self.list(1)), None)

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session, archived ones, empty ones and children included; None when there is none."""
        if not storable(session_id):
            return None
        return await self._read(reading.find_session, session_id)

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT) -> Sequence[Line]:
        """Its newest ``limit`` messages with text, oldest first. Raises :class:`SessionNotFound`.

        Starts at the summary of the last compaction; what the user undid is left out; a last answer
        without an end carries :data:`STILL_ANSWERING`.
        """
        if not storable(session_id):
            raise SessionNotFound(session_id)
        found = await self._read(reading.read_context, session_id, limit)
        self._warned.update(_warn(session_id, found, self._warned))
        return found.lines

    async def probe(self) -> Probe:
        """What the file is, for a person who wonders why sessions do not show."""
        return await self._read(reading.probe, str(self.path))

    async def _read(self, query: Callable[Concatenate[sqlite3.Connection, Schema, P], T], *args: P.args,
                    **named: P.kwargs) -> T:
        return await asyncio.to_thread(lambda: _run(self.path, self._timeout, query, *args, **named))


def extract_session_context(session_id: str, limit: int = RECENT_MSG_LIMIT, *,
                            path: str | os.PathLike[str] | None = None) -> str:
    """The newest ``limit`` messages of an OpenCode session as text, a ``用户: …`` or ``小小莫: …`` each.

    Raises :class:`SessionNotFound` for an id that OpenCode does not know and :class:`SourceError`
    for a database that cannot be read: an empty text always means a session without messages.
    """
    if not storable(session_id):
        raise SessionNotFound(session_id)
    file = default_path() if path is None else Path(path)
    found = _run(file, TIMEOUT, reading.read_context, session_id, limit)
    _warn(session_id, found, frozenset())
    return format_context(found.lines)


def _run(path: Path, timeout: float, query: Callable[Concatenate[sqlite3.Connection, Schema, P], T],
         *args: P.args, **named: P.kwargs) -> T:
    return read(path, lambda connection, file: query(connection, schema_of(connection, file), *args, **named),
                timeout)


def _warn(session_id: str, found: Context, known: frozenset[str] | set[str]) -> set[str]:
    """The rows that could not be understood and were not known yet, after naming them in the log."""
    new = {str(row) for row in found.skipped} - known
    if new:
        log.warning("OpenCode session %s: %d rows are not JSON and were skipped: %s", session_id, len(new),
                    ", ".join(sorted(new)[:5]))
    return new
