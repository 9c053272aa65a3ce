"""What a sender, or the channel for it, gets to know of one message."""

from __future__ import annotations

import asyncio

from fsm.effects import Disposition


class Receipt:
    """What becomes of one message. ``admitted`` is done when it is on disk, ``done`` when it has its
    disposition (None for what is no message to answer); ``texts`` are the answers to it, in order."""

    __slots__ = ("_admitted", "_failure", "_is_in", "disposition", "done", "reason", "texts")

    def __init__(self) -> None:
        self.done: asyncio.Future[Disposition | None] = asyncio.get_running_loop().create_future()
        self.texts: list[str] = []
        self.disposition: Disposition | None = None
        self.reason = ""
        self._admitted: asyncio.Future[None] | None = None
        self._is_in = False
        self._failure: Exception | None = None

    @property
    def admitted(self) -> asyncio.Future[None]:
        if self._admitted is None:  # only now does anybody care
            self._admitted = self.done.get_loop().create_future()
            if self._is_in:
                self._admitted.set_result(None)
            elif self._failure is not None:
                _fail(self._admitted, self._failure)
        return self._admitted

    def admit(self) -> None:
        """It is on disk."""
        self._is_in = True
        if self._admitted is not None and not self._admitted.done():
            self._admitted.set_result(None)

    def resolve(self, disposition: Disposition | None, reason: str = "") -> None:
        self.disposition, self.reason = disposition, reason
        self.admit()
        if not self.done.done():
            self.done.set_result(disposition)

    def fail(self, error: Exception) -> None:
        self._failure = error
        for future in (self._admitted, self.done):
            if future is not None and not future.done():
                _fail(future, error)


def _fail(future: asyncio.Future[None] | asyncio.Future[Disposition | None], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # whoever cares awaits it; an unread one is no news
