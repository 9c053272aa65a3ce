"""Closing several things, whatever one of them raises: what stays open holds locks, files and connections."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger("session_router.closing")


async def close_all(closings: Iterable[Callable[[], Awaitable[object] | None]]) -> None:
    """Call each of them, in order. The first error is raised at the end, the others are logged."""
    first: BaseException | None = None
    for close in closings:
        try:
            if inspect.isawaitable(waiting := close()):
                await waiting
        except BaseException as error:
            if first is None:
                first = error
            else:
                log.error("not closed: %s", error, exc_info=error)
    if first is not None:
        raise first


def closings_of(things: Iterable[object]) -> list[Callable[[], Awaitable[object] | None]]:
    """What closes them, of those that can be closed."""
    return [close for thing in things if (close := getattr(thing, "close", None)) is not None]
