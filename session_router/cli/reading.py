"""Store and sessions for commands that only look, whether or not the store may be written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsm.sessions import Sessions
    from session_router.config import Config
    from storage.sqlite import SqliteStore


@asynccontextmanager
async def reading(config: Config) -> AsyncIterator[tuple[SqliteStore | None, Sessions]]:
    """As :func:`session_router.compose.reading`. A store on a read-only medium, or in another user's folder, is read
    from a copy."""
    from fsm.ports import StoreError
    from session_router import compose
    from storage.readonly import copied, may_be_written

    path = config.store.path
    if not path.exists() or may_be_written(path):
        async with compose.reading(config) as found:
            yield found
        return
    with copied(path) as copy:
        store = config.store.model_copy(update={"path": copy})
        try:
            async with compose.reading(config.model_copy(update={"store": store})) as found:
                yield found
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(path))) from error
