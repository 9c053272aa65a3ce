"""What a conversation costs that nothing is happening to.

In a process of its own, since memory that an earlier comparison used and gave back would hide the need for more.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Row
from benchmarks.world import World
from fsm.runner.engine import CACHED
from session_router.process import tune

LIMIT = 1.0
"""KB a conversation."""


def _resident() -> int:
    """Bytes of this process in memory just now. Where the system does not say, the most that it ever were, which
    can only count against us."""
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


async def _measure(folder: Path, persons: int, in_flight: int) -> float:
    """Bytes a conversation: ``persons`` are each talked to once, after a warm-up with other persons that leaves
    caches, pools and the peak of work in flight behind."""
    world = World(folder)
    warm_up = 2 * in_flight
    await world.engine.start()
    await world.bind(range(warm_up + persons))
    await world.talk(world.inbounds(range(warm_up), warm_up), in_flight)
    before = _resident()
    await world.talk(world.inbounds(range(warm_up, warm_up + persons), persons), in_flight)
    after = _resident()
    await world.engine.close()
    return (after - before) / persons


def compare(*, quick: bool = False) -> list[Row]:
    """Kilobytes a conversation, from the resident memory of a child process."""
    persons, in_flight = (3_000, 200) if quick else (100_000, 2_000)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", str(persons), str(in_flight)],
        cwd=Path(__file__).resolve().parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    kilobytes = json.loads(done.stdout) / 1024
    return [
        Row("memory / idle conversation", f"{kilobytes:.2f} KB", "1 KB", kilobytes, LIMIT,
            how=f"Growth of the resident memory of a process whose engine has answered {persons:,} persons once each "
            f"(of whom it keeps {CACHED:,} decoded, and reads the others again when they write), "
            "after garbage collection, divided by them; everything counts: cache, timers, rate limits, SQLite. "
            "The peer is the limit itself."),
    ]  # fmt: skip


def _child() -> None:
    tune()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        print(json.dumps(asyncio.run(_measure(Path(folder), int(sys.argv[1]), int(sys.argv[2])))))


if __name__ == "__main__":
    _child()
