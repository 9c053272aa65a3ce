"""Which disposition may follow which. Both stores ask here, so both keep the same rule."""

from __future__ import annotations

from fsm.conversation import Key
from fsm.ports import Change, Inbound, StoreError

INTERIM = ("queued", "running")
"""Where a message stands that is not done with."""
FINAL = ("replied", "silent", "muted", "duplicate", "refused", "failed", "stopped")
"""What can have become of one."""


def check_known(disposition: str) -> None:
    """Raises :class:`StoreError` for a word that is no disposition."""
    if disposition not in INTERIM + FINAL:
        known = ", ".join(INTERIM + FINAL)
        raise StoreError(f"There is no disposition {disposition!r}. Use one of: {known}.")


def may_follow(before: str, after: str) -> bool:
    """A final disposition stays, save that a reply may turn out to be undeliverable."""
    return before in INTERIM or (before == "replied" and after == "failed")


def settled_at(change: Change, disposition: str) -> float | None:
    """When a change settles a message: the instant of the edge that it took, since a store reads no
    clock, or of an arrival that needed no step; None without either, and while nothing is final."""
    if disposition in INTERIM:
        return None
    if change.conversation is not None and change.conversation.trail:
        return change.conversation.trail[-1].at
    return None if change.arrival is None else change.arrival.at


def check_arrival(key: Key, message: Inbound) -> None:
    """Raises :class:`StoreError` for a message that is admitted to a conversation of another channel,
    since it could not be found again under its own name."""
    if message.channel != key.channel:
        raise StoreError(
            f"Message {message.id!r} of channel {message.channel!r} was admitted to a conversation of "
            f"channel {key.channel!r}. Admit it under the channel that it came from."
        )
