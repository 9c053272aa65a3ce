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
    clock; None without one, and while nothing is final."""
    if disposition in INTERIM or change.conversation is None or not change.conversation.trail:
        return None
    return change.conversation.trail[-1].at


def admitted_at(message: Inbound, disposition: str) -> float | None:
    """When a message that arrives with its final disposition (refused, muted) was settled: on arrival."""
    return None if disposition in INTERIM else message.at


def check_admission(key: Key, message: Inbound, disposition: str) -> None:
    """Raises :class:`StoreError` for a message that is admitted to a conversation of another channel,
    since it could not be found again under its own name, and for an unknown disposition."""
    check_known(disposition)
    if message.channel != key.channel:
        raise StoreError(
            f"Message {message.id!r} of channel {message.channel!r} was admitted to a conversation of "
            f"channel {key.channel!r}. Admit it under the channel that it came from."
        )
