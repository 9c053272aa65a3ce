"""Whether an agent's own server answers just now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fsm.ports import SourceError

log = logging.getLogger(__name__)

PAUSE = 2.0
"""Seconds for which a "no" is believed, so that not every look-up waits for a server that is not there."""


class Reach:
    """``look`` asks the server once and raises :class:`SourceError` where it does not answer as it should; ``name``
    is for the log, which hears of every change."""

    def __init__(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        self._name, self._look = name, look
        self._problem, self._until = "", 0.0

    async def problem(self) -> str:
        """Why it cannot be talked to, empty where it can."""
        if self._problem and asyncio.get_running_loop().time() < self._until:
            return self._problem
        try:
            await self._look()
        except SourceError as error:
            self.lost(error)
        else:
            if self._problem:
                log.info("%s can be reached again", self._name)
            self._problem = ""
        return self._problem

    def lost(self, error: SourceError) -> None:
        """It was found out in some other way that it does not answer."""
        if not self._problem:
            log.warning("%s cannot be reached, its sessions are only read: %s", self._name, error)
        self._problem = str(error)
        self._until = asyncio.get_running_loop().time() + PAUSE
