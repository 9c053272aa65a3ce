"""The models of a running process: one for all agents that are set up alike, let go of when nobody needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fsm.ports import ChatMessage, LanguageModel, Reply
from session_router.choose_model import Chosen, choose
from session_router.model_settings import ModelSettings

CLOSE_SECONDS = 5.0
"""How long the end of the process waits for models to close."""


class _Shared:
    """A model that closes only when its last call has ended."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.name = model.name
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def _begin(self) -> None:
        self._calls += 1
        self._idle.clear()

    def _end(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        self._begin()
        try:
            return await self._model.complete(messages, session_id=session_id)
        finally:
            self._end()

    async def stream(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> AsyncIterator[str | Reply]:
        self._begin()
        try:
            async for piece in self._model.stream(messages, session_id=session_id):
                yield piece
        finally:
            self._end()

    async def close(self) -> None:
        await self._idle.wait()
        await self._model.close()


@dataclass(slots=True)
class _Lease:
    chosen: Chosen
    users: int


class Models:
    """Each ``lease`` is paid back with one ``release`` for the same settings."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._leases: dict[ModelSettings | None, _Lease] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def lease(self, settings: ModelSettings | None) -> Chosen:
        """The model for these settings. Raises ModelError."""
        if (held := self._leases.get(settings)) is None:
            chosen = await choose(settings, self._environ)
            chosen = replace(chosen, model=_Shared(chosen.model))
            held = self._leases[settings] = _Lease(chosen, 0)
        held.users += 1
        return held.chosen

    def release(self, settings: ModelSettings | None) -> None:
        """One user fewer; the last one closes it, as soon as no call runs on it any more."""
        held = self._leases[settings]
        held.users -= 1
        if not held.users:
            del self._leases[settings]
            task = asyncio.create_task(held.chosen.model.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Let go of everything that was released. Nothing may be calling any more."""
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=CLOSE_SECONDS)
