"""Hermes as a session source."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from fsm.constants import RECENT_MSG_LIMIT
from fsm.ports import Line, SessionInfo
from storage.hermes import reading
from storage.hermes.files import NAME, PROGRAM, default_path
from storage.hermes.own_lines import tag_own
from storage.hermes.reading import Context, Probe, SessionNotFound
from storage.hermes.schema import Schema, schema_of
from storage.readonly import TIMEOUT, read, storable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class HermesSource:
    """The sessions in Hermes' ``state.db``; implements :class:`fsm.ports.SessionSource`.

    ``path`` is the file, by default where Hermes keeps it (looked up once, here); ``own_names`` what the
    agent is called, for the lines that it said itself; ``timeout`` the seconds to wait for a lock.
    Nothing is opened before the first call, nothing stays open after one, nothing is ever written.
    Every method raises :class:`SourceError`, whose text says what to do.
    """

    name = NAME

    def __init__(self, path: Path | None = None, *, own_names: Sequence[str] = (),
                 timeout: float = TIMEOUT) -> None:
        self.path = default_path() if path is None else Path(path)
        self.own_names = tuple(own_names)
        self._timeout = timeout
        self._warned: set[int] = set()

    @property
    def skipped(self) -> int:
        """Messages met so far whose content is broken; each was skipped, and named in a warning once."""
        return len(self._warned)

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """Sessions and branches that hold a message, neither ended, archived nor hidden, most recently
        active first, then by id. A compressed one stands there once, under the id in which it goes on."""
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
        """That session, whatever a list leaves out included; None when there is none."""
        if not storable(session_id):
            return None
        return await self._read(reading.find_session, session_id)

    async def goes_on_as(self, session_id: str) -> str:
        """The id under which Hermes takes what is said next: another one once the session was compressed
        into a new one, which Hermes' API does not follow by itself. An unknown id stays as it is."""
        if not storable(session_id):
            return session_id
        return await self._read(reading.newest_part, session_id)

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT, *,
                      own_names: Sequence[str] | None = None) -> Sequence[Line]:
        """Its newest ``limit`` messages with text, oldest first. Raises :class:`SessionNotFound`.

        Where the session was compressed these are the messages of where it goes on; what the user took
        back is left out. Lines spoken by one of ``own_names`` (by default the source's) begin with
        :data:`storage.hermes.YOU`.
        """
        if not storable(session_id):
            raise SessionNotFound(session_id)
        found = await self._read(reading.read_context, session_id, limit)
        self._warn(session_id, found)
        return tag_own(found.lines, self.own_names if own_names is None else own_names)

    async def probe(self) -> Probe:
        """What the file is, for a person who wonders why sessions do not show."""
        return await self._read(reading.probe, str(self.path))

    async def _read(self, query: Callable[Concatenate[sqlite3.Connection, Schema, P], T], *args: P.args,
                    **named: P.kwargs) -> T:
        return await asyncio.to_thread(
            read, self.path, PROGRAM,
            lambda connection, file: query(connection, schema_of(connection, file), *args, **named),
            self._timeout)

    def _warn(self, session_id: str, found: Context) -> None:
        new = set(found.skipped) - self._warned
        if new:
            log.warning("Hermes session %s: %d messages cannot be understood and were skipped: %s", session_id,
                        len(new), ", ".join(str(number) for number in sorted(new)[:5]))
            self._warned |= new
