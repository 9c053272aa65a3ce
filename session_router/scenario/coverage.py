"""Which rows of the conversation table a set of runs took, and which none of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fsm.table import TABLE
from session_router.scenario.play import Run


@dataclass(frozen=True, slots=True)
class Coverage:
    """``taken``: how often each row was taken, all rows in table order, 0 for one that never was;
    ``missing``: the names of those, in table order."""

    taken: dict[str, int]
    missing: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Of the table's rows, 100 only when not one is missing."""
        return 100.0 * (len(self.taken) - len(self.missing)) / len(self.taken)


def rows_taken(runs: Iterable[Run]) -> Coverage:
    """The rows that these runs took together."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.rows)
    taken = {row.name: total[row.name] for row in TABLE}
    return Coverage(taken, tuple(name for name, times in taken.items() if not times))


def report(coverage: Coverage) -> str:
    """A table for people: a line a row with how often it was taken, what is missing marked and then
    named again at the end, below the percentage (cut, never rounded up)."""
    width = max(len(str(times)) for times in coverage.taken.values())
    lines = [f"{times or '-':>{width}}  {name}" for name, times in coverage.taken.items()]
    taken, whole = len(coverage.taken) - len(coverage.missing), len(coverage.taken)
    lines += ["", f"{taken} of {whole} rows taken ({int(coverage.percent * 10) / 10:g} %)"]
    if coverage.missing:
        lines += ["", "Never taken:", *(f"  {name}" for name in coverage.missing)]
    return "\n".join(lines)
