"""What a comparison gives, and how two contestants are compared."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    ``ours`` and ``peer`` are figures with their unit, for reading; ``ratio`` is what is judged: at
    most ``limit``, or at least, as ``bound`` says. ``limit`` None: shown and not judged. ``how``
    says what the peer does, in a sentence or two.
    """

    name: str
    ours: str
    peer: str
    ratio: float
    limit: float | None
    bound: Literal["at most", "at least"] = "at most"
    how: str = ""

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return self.ratio <= self.limit if self.bound == "at most" else self.ratio >= self.limit

    @property
    def limit_text(self) -> str:
        if self.limit is None:
            return "-"
        return f"{'<=' if self.bound == 'at most' else '>='} {self.limit:g}"


def by_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each contestant returns over ``rounds``, all of them once a round.

    Whatever else the machine does meanwhile then slows all of them alike. Odd rounds go backwards, so
    that nobody always runs behind the same neighbour.
    """
    results: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        names = list(contestants)
        for name in reversed(names) if number % 2 else names:
            gc.collect()
            results[name].append(contestants[name]())
    return {name: statistics.median(values) for name, values in results.items()}


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
