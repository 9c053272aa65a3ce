"""A session journal of 100 MB, read for going on with its session, against a bare scan of its lines.

Alone: ``python -m benchmarks.journal [--quick]``; exit code 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from benchmarks.measure import Row, by_turns, timed
from storage.journal import record, resume
from storage.journal.records import encode

LIMIT = 2.0
"""Seconds of ours to seconds of the scan."""
MEMORY_LIMIT = 64.0
"""MiB of peak memory on top of the scan's."""
SIZE = 100_000_000
MESSAGES = 200
AT = 1_768_464_000.0

_PEAK = """
import sys
from pathlib import Path
from benchmarks.journal import peak, raw_scan, reopen
before = peak()
{work}(Path(sys.argv[1]))
print(peak() - before)
"""


def peak() -> float:
    """MiB that this process ever held at once. (``ru_maxrss`` would begin with what its parent held.)"""
    return int(Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 1024


def fill(path: Path, size: int) -> int:
    """Turns of one question, three commands with their results, and an answer; gives their number."""
    turn = 0
    with path.open("wb") as file:
        while file.tell() < size:
            turn += 1
            at = AT + turn * 10
            question = {"content": f"{turn}: 今天的构建为什么又失败了？" * 8, "tag": "[xmpp]", "id": f"m{turn}"}
            lines = [record(turn, "turn_start", question, at)]
            for n in range(3):
                call = f"call_{turn}_{n}"
                arguments = {"words": "nightly build ledger test " * 10}
                result = [{"type": "text", "text": "The ledger test reads a table that was renamed. " * 22}]
                lines.append(record(turn, "tool_call", {"id": call, "name": "grep", "input": arguments}, at + n))
                lines.append(record(turn, "tool_result", {"id": call, "content": result}, at + n))
            usage = {"id": f"r{turn}", "input_tokens": 1200, "output_tokens": 90}
            text = "因为 migration 改了表名。" * 20 + "Rename it back. " * 20
            answer = {"content": text, "usage": usage, "cost": 0.001}
            lines.append(record(turn, "turn_end", answer, at + 9))
            file.write(b"".join(map(encode, lines)))
    return turn


def raw_scan(path: Path) -> int:
    """Every line decoded and thrown away."""
    count = 0
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
            count += 1
    return count


def reopen(path: Path) -> int:
    """Totals, open work and the newest messages; gives the number of records."""
    return resume(path, "ses_bench", messages=MESSAGES).records


def _peak(path: Path, work: str) -> float:
    root = Path(__file__).resolve().parents[1]
    told = subprocess.run([sys.executable, "-c", _PEAK.format(work=work), str(path)], cwd=root, check=True,
                          capture_output=True, text=True)
    return float(told.stdout)


def compare(*, quick: bool = False) -> list[Row]:
    """Time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ses_bench.jsonl"
        turns = fill(path, SIZE // 100 if quick else SIZE)
        found = resume(path, "ses_bench", messages=MESSAGES)
        # A contestant that skipped its work would win.
        assert found.records == raw_scan(path) == turns * 8
        assert len(found.snapshot.messages) == MESSAGES
        assert (found.snapshot.total_tokens.input, found.snapshot.turn_count) == (1200 * turns, turns)
        contestants: dict[str, Callable[[], float]] = {
            "ours": lambda: timed(lambda: reopen(path)),
            "scan": lambda: timed(lambda: raw_scan(path)),
        }
        seconds = by_turns(contestants, 2 if quick else 9)
        memory = {work: _peak(path, work) for work in ("raw_scan", "reopen")}
    megabytes = SIZE // 100 / 1e6 if quick else SIZE / 1e6
    ours, scan = (seconds[name] * 1000 for name in ("ours", "scan"))
    return [
        Row("journal / raw line scan", f"{ours:.0f} ms", f"{scan:.0f} ms", ours / scan, LIMIT,
            how=f"{megabytes:g} MB reopened. The peer iterates the file's lines and decodes each with orjson, nothing "
                "else; ours gives the totals, the open work, what is wrong with the file and the newest "
                f"{MESSAGES} messages."),
        Row("journal / memory, MiB", f"{memory['reopen']:.1f} MiB", f"{memory['raw_scan']:.1f} MiB",
            memory["reopen"] - memory["raw_scan"], MEMORY_LIMIT,
            how="Growth of the peak resident size in a fresh process; the figure judged is the difference in MiB."),
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where both limits hold, 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="in miniature, to see that it runs; nothing is judged")
    asked = parser.parse_args(arguments)
    rows = compare(quick=asked.quick)
    for row in rows:
        verdict = "-" if asked.quick else "yes" if row.ok else "NO"
        print(f"{row.name}: {row.ours} to {row.peer}, {row.ratio:.3g} (limit {row.limit_text}): {verdict}")
    return 0 if asked.quick or all(row.ok for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
