"""Run the comparisons, print the table, and say by the exit code whether every ratio holds.

``python -m benchmarks [--quick] [--only NAME] [--save NAME]``. ``--quick`` runs each in miniature, to see that it
runs: its ratios mean nothing and are not judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

if __package__ in (None, ""):  # started as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import engine, journal, machine, memory, opencode, prompt, startup, step
from benchmarks.measure import Row

RESULTS = Path(__file__).parent / "results"


class Comparison(Protocol):
    def __call__(self, *, quick: bool = False) -> list[Row]: ...


COMPARISONS: dict[str, Comparison] = {
    "step": step.compare,
    "engine": engine.compare,
    "memory": memory.compare,
    "startup": startup.compare,
    "opencode": opencode.compare,
    "prompt": prompt.compare,
    "journal": journal.compare,
}

HEAD = ("what", "ours", "peer", "ratio", "limit", "ok")


def cells(row: Row, *, judged: bool) -> tuple[str, ...]:
    """A row of the table as text."""
    verdict = "-" if row.limit is None or not judged else "yes" if row.ok else "NO"
    return row.name, row.ours, row.peer, f"{row.ratio:.3g}", row.limit_text, verdict


def show(rows: Sequence[tuple[str, ...]], write: Callable[[str], object]) -> None:
    """Columns as wide as their widest cell."""
    table = [HEAD, *rows]
    widths = [max(len(line[n]) for line in table) for n in range(len(HEAD))]
    for line in table:
        write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def report(rows: Sequence[Row]) -> str:
    """The result as a page: the machine, the table, and what each peer does."""
    lines = ["# Performance, as ratios", "", "Written by `python -m benchmarks --save NAME`.", ""]
    lines += [f"- {name}: {value}" for name, value in machine.describe().items()]
    lines += ["", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(row, judged=True)) + " |" for row in rows]
    lines += ["", *(f"- **{row.name}**: {row.how}" for row in rows), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every ratio holds, 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Performance, as ratios.")
    parser.add_argument("--quick", action="store_true", help="in miniature, to see that it runs; nothing is judged")
    parser.add_argument("--only", choices=list(COMPARISONS), action="append", help="this one alone (may be repeated)")
    parser.add_argument("--save", metavar="NAME", help="also write results/NAME.md")
    asked = parser.parse_args(arguments)
    rows: list[Row] = []
    for name, compare in COMPARISONS.items():
        if not asked.only or name in asked.only:
            print(f"{name} …", file=sys.stderr, flush=True)
            rows += compare(quick=asked.quick)
    show([cells(row, judged=not asked.quick) for row in rows], print)
    print()
    for row in rows:
        print(f"{row.name}: {row.how}")
    if asked.save:
        (RESULTS / f"{asked.save}.md").write_text(report(rows), encoding="utf-8")
    return 0 if asked.quick or all(row.ok for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
