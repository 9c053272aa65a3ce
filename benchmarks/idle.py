"""Three agents that sit in a room where nobody says anything: what that costs, and whether it grows.

``python -m benchmarks.idle [--minutes N] [--save NAME]``: a whole ``run`` from a config, on a Prosody of its own on
loopback. Exit code 1 where the number of tasks grows, memory by more than 5 %, or the processor is busy more than 1 %.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

if __package__ in (None, ""):  # started as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import machine
from session_router.config import load
from session_router.run import Service
from tests.support.xmpp_servers import HOST, Prosody, Server, free_port, running

RESULTS = Path(__file__).parent / "results"
AGENTS = ("mohe", "zhiwei", "xiaoguo")
ROOM = f"team@rooms.{HOST}"
MEMORY_GROWTH, CPU_SHARE = 0.05, 0.01
WARM_UP = 70.0
"""Seconds before the first look: long enough for every agent to have looked once after its server and its room."""


@dataclass(frozen=True, slots=True)
class Sample:
    """``rss`` in MiB, ``cpu`` in seconds of this process, ``at`` on the monotonic clock."""

    at: float
    tasks: int
    rss: float
    cpu: float


def sample() -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    times = os.times()
    rss = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Sample(time.monotonic(), len(asyncio.all_tasks()), rss, times.user + times.system)


@dataclass(frozen=True, slots=True)
class Idle:
    """What was seen. A figure at the start or end is the median of that tenth of the samples, so that a look after the
    server that happens to be under way does not count as growth."""

    seconds: float
    joined: int
    first: Sample
    last: Sample
    cpu_share: float

    @property
    def growth(self) -> float:
        return self.last.rss / self.first.rss - 1

    @property
    def problems(self) -> list[str]:
        found = []
        if self.joined < len(AGENTS):
            found.append(f"{len(AGENTS) - self.joined} agents were not in their room all the time")
        if self.last.tasks > self.first.tasks:
            found.append(f"tasks grew from {self.first.tasks} to {self.last.tasks}")
        if self.growth > MEMORY_GROWTH:
            found.append(f"memory grew by {self.growth:.1%}")
        if self.cpu_share > CPU_SHARE:
            found.append(f"the processor was busy {self.cpu_share:.2%} of the time")
        return found


def config(server: Server) -> str:
    agents = "".join(
        f"[agents.{name}]\njid = '{name}@{HOST}'\npassword_env = 'PASSWORD_{name.upper()}'\nnick = '{name}'\n"
        f"[agents.{name}.xmpp]\nhost = '127.0.0.1'\nport = {server.port}\nplaintext_loopback = true\n"
        f"[agents.{name}.groups.'{ROOM}']\nallow = ['alice@{HOST}']\n"
        for name in AGENTS
    )
    # Nobody is asked, so nobody needs to be at that address.
    model = f"[model]\nbase_url = 'http://127.0.0.1:{free_port()}/v1'\nmodel = 'nobody'\n"
    return f"language = 'en'\ndata_dir = 'data'\n[sources]\nopencode = false\nhermes = false\n{model}{agents}"


async def watch(server: Server, folder: Path, seconds: float) -> Idle:
    """Let the agents sit there. Raises TimeoutError where they do not get into their room."""
    file = folder / "session-router.toml"
    file.write_text(config(server), encoding="utf-8")
    environ = {"HOME": str(folder), **{f"PASSWORD_{name.upper()}": f"pw-{name}" for name in AGENTS}}
    service = Service(lambda: load(file, environ), environ=environ)
    run = asyncio.create_task(service.run())

    def joined() -> int:
        return sum(state.up for agent in service.served.values() for state in agent.states.values())

    try:
        async with asyncio.timeout(30):
            while joined() < len(AGENTS) and not run.done():
                await asyncio.sleep(0.05)
        await asyncio.sleep(min(WARM_UP, seconds / 4))
        samples, there = [sample()], joined()
        while samples[-1].at - samples[0].at < seconds:
            await asyncio.sleep(min(1.0, seconds / 20))
            samples.append(sample())
            there = min(there, joined())
    finally:
        service.signals.put_nowait("stop")
        await run
    return Idle(
        samples[-1].at - samples[0].at, there, _median(samples[: max(len(samples) // 10, 1)]),
        _median(samples[-max(len(samples) // 10, 1) :]),
        (samples[-1].cpu - samples[0].cpu) / (samples[-1].at - samples[0].at),
    )  # fmt: skip


def _median(samples: Sequence[Sample]) -> Sample:
    return Sample(
        samples[0].at, int(statistics.median(s.tasks for s in samples)), statistics.median(s.rss for s in samples),
        samples[0].cpu,
    )  # fmt: skip


def table(idle: Idle) -> list[tuple[str, str, str]]:
    return [
        ("time", f"{idle.seconds / 60:.1f} min", ""),
        ("agents in the room all the time", f"{idle.joined}", f"{len(AGENTS)}"),
        ("tasks", f"{idle.first.tasks} → {idle.last.tasks}", "no growth"),
        ("memory", f"{idle.first.rss:.1f} → {idle.last.rss:.1f} MiB ({idle.growth:+.1%})", f"<= {MEMORY_GROWTH:.0%}"),
        ("processor", f"{idle.cpu_share:.3%}", f"<= {CPU_SHARE:.0%}"),
    ]


def report(idle: Idle) -> str:
    lines = ["# Three agents idle in a room", "", "Written by `python -m benchmarks.idle --save NAME`.", ""]
    facts = machine.describe() | {"slixmpp": version("slixmpp")}
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| what | seen | limit |", "|---|---|---|"]
    lines += [f"| {what} | {seen} | {limit or '-'} |" for what, seen, limit in table(idle)]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where nothing grows, 1 where something does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--save", metavar="NAME", help="also write results/NAME.md")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        here, data = Path(folder) / "server", Path(folder) / "data"
        here.mkdir()
        data.mkdir()
        with running(Prosody, here) as server:
            idle = asyncio.run(watch(server, data, asked.minutes * 60))
    for what, seen, limit in table(idle):
        print(f"{what:34}{seen:30}{limit}".rstrip())
    for problem in idle.problems:
        print(f"WRONG: {problem}")
    if asked.save:
        (RESULTS / f"{asked.save}.md").write_text(report(idle), encoding="utf-8")
    return 1 if idle.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
