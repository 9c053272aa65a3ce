"""Who counts what the engine does: metrics, a log of dispositions."""

from __future__ import annotations

from typing import Protocol

from fsm.conversation import Conversation, Key
from fsm.effects import Disposition
from fsm.ports import Reply


class Observer(Protocol):
    """Told of things as they happen, from the event loop: every method has to return at once and raise nothing."""

    def moved(self, key: Key, then: Conversation) -> None:
        """A step was committed, and this is how the conversation stands."""

    def settled(self, key: Key, message: str, disposition: Disposition, reason: str) -> None:
        """An inbound message has its final disposition."""

    def model_called(self, agent: str, seconds: float, reply: Reply | None, failure: str) -> None:
        """A model call has ended after so many ``seconds``: with ``reply``, or a ``failure`` of that kind."""

    def counted(self, agent: str, what: str, many: int) -> None:
        """Something rare that is worth counting: ``stale``, ``near_miss``, ``empty_reply``, ``command``, …"""
