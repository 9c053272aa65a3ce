"""Sessions of our own, for agents without a program that keeps any.

A session is one row of metadata, ``session:ID`` in ``state_meta``, and the lines kept under its id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fsm.ports import Line, SessionInfo, SourceError, Store, StoreError
from storage.codec import clean

PREFIX = "session:"


class OwnSessions:
    """:class:`fsm.ports.WritableSource` over an engine store that somebody else opens and closes."""

    name = "own"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._creating = asyncio.Lock()

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """All of them, most recently active first, then by id; also those that nobody wrote in yet,
        since each was made on purpose."""
        async with self._reading():
            rows = await self._store.meta_with_prefix(PREFIX)
            ids = [key.removeprefix(PREFIX) for key, _ in rows]
            newest = await self._store.newest_lines(ids)
        found = [_info(name, data, newest.get(name)) for name, (_, data) in zip(ids, rows, strict=True)]
        found.sort(key=lambda info: (-info.active_at, info.id))
        return found if limit is None else found[: max(limit, 0)]

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """Those whose title contains ``words``, case folded, or whose id equals it; none for blanks."""
        wanted = words.strip().casefold()
        if not wanted:
            return []
        found = [
            info for info in await self.list() if wanted in info.title.casefold() or info.id == words.strip()
        ]
        return found if limit is None else found[: max(limit, 0)]

    async def latest(self) -> SessionInfo | None:
        return next(iter(await self.list(1)), None)

    async def find(self, session_id: str) -> SessionInfo | None:
        async with self._reading():
            data = await self._store.get_meta(PREFIX + session_id)
            if data is None:
                return None
            newest = await self._store.newest_lines([session_id])
        return _info(session_id, data, newest.get(session_id))

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        """Its newest lines, oldest first; none for an unknown session."""
        async with self._reading():
            return await self._store.lines(session_id, limit)

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo:
        """Make a session; ``at`` (unix seconds) counts as its activity until it has a line."""
        async with self._creating:  # two tasks that find none would each make one
            found = await self.find(session_id)
            if found is not None:
                return found
            data = json.dumps({"title": clean(title), "created_at": at}, ensure_ascii=False)
            async with self._reading():
                await self._store.set_meta(PREFIX + session_id, data)
            return _info(session_id, data, None)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        try:
            yield
        except StoreError as error:
            raise SourceError(str(error), kind="unreadable", source=self.name) from error


def _info(session_id: str, data: str, newest_line: float | None) -> SessionInfo:
    """Metadata that somebody spoiled costs a session its title, not its place in the list."""
    try:
        held = json.loads(data)
        title, created_at = str(held["title"]), float(held["created_at"])
    except (ValueError, TypeError, KeyError):
        title, created_at = "", 0.0
    return SessionInfo(session_id, title, OwnSessions.name, max(created_at, newest_line or 0.0))
