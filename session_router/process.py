"""Settings of the whole process, for a program that runs the engine and owns its process."""

from __future__ import annotations

import gc

GC_THRESHOLD = (300_000, 50, 100)
"""Allocations before the garbage collector looks at the youngest objects, and how often it looks at older ones.
Nearly nothing here is a cycle, and each look goes through all that is there, a tenth of a second for 100,000 objects.
A message under way is some fifty: with Python's own 700 a busy engine spends more time on looking than on anything
else, and as long as two thousand messages set off a look by themselves a tenth of it."""


def tune() -> None:
    """Make this process a good place for an engine. (The interpreter's switch interval stays: with a shorter one the
    store's thread gets its turn sooner, and everything together takes longer.)"""
    gc.set_threshold(*GC_THRESHOLD)


def settle_memory() -> None:
    """After start-up: what is there now stays, so the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
