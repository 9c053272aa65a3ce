"""Store and sessions for whoever only looks, whether or not the store is there and may be written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fsm.closing import close_all
from fsm.ports import StoreError
from fsm.sessions import Sessions
from session_router.clock import SystemClock
from session_router.config import Config
from session_router.sources import sources_of
from storage.memory import MemoryStore
from storage.readonly import copied, may_be_written
from storage.sqlite import SqliteStore


@asynccontextmanager
async def reading(config: Config) -> AsyncIterator[tuple[SqliteStore | None, Sessions]]:
    """Store and sessions to look at. A store that is not there yet is not made: it comes as None. One on a read-only
    medium, or in another user's folder, is read from a copy.

    Raises:
        StoreError: the store cannot be read.
    """
    with _readable(config.store.path) as path:
        store = SqliteStore(path, synchronous=config.store.synchronous) if path is not None else None
        lines = store if store is not None else MemoryStore()
        await lines.open()
        sessions = Sessions(sources_of(config, store), lines, now=SystemClock().now)
        try:
            yield store, sessions
        finally:
            await close_all([sessions.close, lines.close])


@contextmanager
def _readable(path: Path) -> Iterator[Path | None]:
    """Where SQLite can work on that store; None where there is none."""
    if not path.exists():
        yield None
    elif may_be_written(path):
        yield path
    else:
        with copied(path) as copy:
            try:
                yield copy
            except StoreError as error:
                raise StoreError(str(error).replace(str(copy), str(path))) from error
