"""Messages in a store that no engine put there."""

from __future__ import annotations

from fsm.conversation import Key
from fsm.ports import Change, Inbound, Settled, Store


async def admit(store: Store, key: Key, message: Inbound, *, disposition: str = "running", reason: str = "") -> bool:
    """Record an arrival, standing at ``disposition`` already; False for a message that is known."""
    settled = () if disposition == "running" else (Settled(message.id, disposition, reason),)
    return await store.commit(Change(key, arrival=message, settled=settled))
