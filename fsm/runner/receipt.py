"""What a sender, or the channel for it, gets to know of one message."""

from __future__ import annotations

import asyncio

from fsm.effects import Disposition


class Receipt:
    """What becomes of one message. ``admitted`` is done when it is on disk, ``done`` when it has its
    disposition (None for what is no message to answer); ``texts`` are the answers to it, in order."""

    __slots__ = ("admitted", "disposition", "done", "reason", "texts")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.admitted: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[Disposition | None] = loop.create_future()
        self.texts: list[str] = []
        self.disposition: Disposition | None = None
        self.reason = ""

    def resolve(self, disposition: Disposition | None, reason: str = "") -> None:
        self.disposition, self.reason = disposition, reason
        for future, value in ((self.admitted, None), (self.done, disposition)):
            if not future.done():
                future.set_result(value)  # type: ignore[arg-type]

    def fail(self, error: Exception) -> None:
        for future in (self.admitted, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever cares awaits it; an unread one is no news
