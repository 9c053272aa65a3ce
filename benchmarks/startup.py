"""A start after a long night: every stored conversation has a deadline that came due meanwhile."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections import deque
from contextlib import closing
from pathlib import Path

from benchmarks.measure import Row, by_turns, timed
from benchmarks.world import World, key_of
from fsm.conversation import Bound, Conversation, Edge, Shown, State
from fsm.ports import Change
from session_router.process import tune

LIMIT = 10.0
"""Seconds of the start to seconds of reading the rows."""

AT = 1_768_464_000.0


def _stored(number: int) -> Conversation:
    """By turns: a list that nobody answered, a mute that has run out, a list with a mute behind it, a silence that the
    model chose. All with the trail of a conversation that has lived for a while."""
    trail = tuple(Edge(AT + n, "reply", "ModelReplied", "command_looping", "idle") for n in range(6))
    bound = Bound(f"ses_{number:020}", "manual", "Billing", "memory")
    ids = tuple(f"ses_{number + n:020}" for n in range(5))
    shown = Shown(9, f"bot/xmpp/m{number}", ids, AT, AT + 120, "xmpp", f"person{number}@example.org/phone", "en")
    match number % 4:
        case 0:
            return Conversation(State.AWAITING_SELECTION, shown=shown, manual=bound, listed=ids, count=9, trail=trail)
        case 1:
            return Conversation(State.SILENCED, manual=bound, count=9, trail=trail, muted_until=AT + 1800,
                                silence_due=AT + 1800, silence_from=AT)  # fmt: skip
        case 2:
            return Conversation(State.AWAITING_SELECTION, shown=shown, manual=bound, listed=ids, count=9, trail=trail,
                                muted_until=AT + 1800, silence_due=AT + 1800, silence_from=AT)  # fmt: skip
        case _:
            return Conversation(State.SILENCED, manual=bound, count=9, trail=trail, silence_due=AT + 600,
                                silence_from=AT)  # fmt: skip


async def _fill(folder: Path, conversations: int) -> None:
    world = World(folder)
    await world.store.open()
    for first in range(0, conversations, 1000):
        changes = []
        for number in range(first, min(first + 1000, conversations)):
            stored = _stored(number)
            due = AT + 120 if stored.shown else stored.silence_due
            changes.append(Change(key_of(number), stored, due=due, started=AT))
        await world.store.commit_many(changes)
    await world.store.close()


async def _start(folder: Path) -> float:
    """Seconds until every deadline that is overdue has been handled, durably."""
    world = World(folder)
    start = time.perf_counter()
    await world.engine.start()
    await world.engine.drain()
    seconds = time.perf_counter() - start
    await world.engine.close()
    return seconds


def _check(path: Path, conversations: int) -> None:
    """Every conversation is at rest, on disk: a start that skips its work is not fast."""
    with closing(sqlite3.connect(path)) as connection:
        states = connection.execute("SELECT state, due, count(*) FROM conversations GROUP BY state, due").fetchall()
    assert states == [("idle", None, conversations)], states


def compare(*, quick: bool = False) -> list[Row]:
    """Seconds of both, each round on a fresh copy of one filled database."""
    conversations = 2_000 if quick else 100_000
    tune()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        filled = Path(name) / "filled"
        filled.mkdir()
        asyncio.run(_fill(filled, conversations))
        template = (filled / "engine.db").read_bytes()
        numbers = iter(range(1000))

        def ours() -> float:
            folder = Path(name) / str(next(numbers))
            folder.mkdir()
            path = folder / "engine.db"
            path.write_bytes(template)
            seconds = asyncio.run(_start(folder))
            _check(path, conversations)
            path.unlink()
            return seconds

        def read() -> list[str]:
            with closing(sqlite3.connect(filled / "engine.db")) as connection:
                rows = connection.execute(
                    "SELECT agent, channel, sender, state, busy, due, started, data FROM conversations"
                ).fetchall()
            assert len(rows) == conversations
            return [row[-1] for row in rows]

        medians = by_turns(
            {
                "raw": lambda: timed(read),
                "decoded": lambda: timed(lambda: deque(map(json.loads, read()), maxlen=0)),
                "ours": ours,
            },
            rounds=1 if quick else 5,
        )
    figure = {name: f"{value:.2f} s" for name, value in medians.items()}
    return [
        Row("start-up / reading the rows", figure["ours"], figure["decoded"],
            medians["ours"] / medians["decoded"], LIMIT,
            how=f"{conversations:,} conversations, all overdue: lists, mutes, lists with a mute behind them, silences. "
            "Ours: from engine.start() until each is decided and committed with synchronous FULL. Raw: sqlite3 opens "
            "the file, fetches every column of the same rows, and json.loads their JSON; nothing is decided or "
            "written."),
        Row("start-up / fetching the rows", figure["ours"], figure["raw"], medians["ours"] / medians["raw"], None,
            how="The same without json.loads: fetched and left as they are; shown and not judged, since nobody can act "
            "on a row that he has not read."),
    ]  # fmt: skip
