"""How a turn reaches a model: the bridge that wraps one, and brings the sources its sessions are in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fsm.ports import ChatMessage, LanguageModel, Reply, SessionSource


class SessionBridge:
    """Wraps a language model and the session sources that belong to it.

    Anything with ``async chat(messages, *, session_id)`` that returns a text, a :class:`Reply` or
    None will do in its place. ``sources`` None means the ones of this machine.
    """

    def __init__(self, model: LanguageModel, sources: Sequence[SessionSource] | None = None) -> None:
        self.model = model
        self.sources = sources

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        """The model's whole answer.

        Raises:
            ModelError: there is none.
        """
        return await self.model.complete(messages, session_id=session_id)

    def stream(self, messages: Sequence[ChatMessage], *, session_id: str) -> AsyncIterator[str | Reply]:
        """The answer in pieces, then whole with its usage."""
        return self.model.stream(messages, session_id=session_id)

    async def close(self) -> None:
        await self.model.close()
