"""Memory that forgets the oldest: ids come without end, and only recent ones come back."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

KEPT = 20_000


class Recent(dict[K, V]):
    """A dict of the newest entries; setting a key again makes it the newest."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._kept = kept

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._kept:
            del self[next(iter(self))]
