"""The whole engine against a bare group commit of the rows that it writes.

The statements and their values are taken down from the engine itself at work on one message, so the raw writer
writes the same rows by the same SQL. It decides nothing, reads nothing, and needs one transaction where the engine
needs four in turn (the admission, which the channel waits for; the turn; the answer; the delivery).
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import aiosqlite

from benchmarks.measure import Row, by_turns
from benchmarks.world import World, person
from session_router.process import tune
from storage.schema import prepare

LIMIT = 0.5
"""Messages a second of the engine to those of the raw writer."""
BATCH = 1000
"""Messages in one transaction of the raw writer at most, as in the engine's store."""

Statement = tuple[str, tuple[Any, ...]]


class _TakingDown:
    """A connection that notes every write that goes through it."""

    def __init__(self, connection: sqlite3.Connection, statements: list[Statement]) -> None:
        self._connection, self._statements = connection, statements

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if not sql.split(None, 1)[0].upper().startswith(("SELECT", "BEGIN", "COMMIT")):
            self._statements.append((sql, tuple(parameters)))
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Any]) -> sqlite3.Cursor:
        self._statements += [(sql, tuple(row)) for row in rows]
        return self._connection.executemany(sql, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def statements_of_a_message(folder: Path) -> list[Statement]:
    """What the engine writes from the arrival of one message of a known person to its delivered answer."""
    world, found = World(folder), list[Statement]()
    await world.engine.start()
    await world.bind(range(1))
    await world.talk(range(1), 6, 1)  # fill the trail, so that the conversation has its usual size
    store = cast(Any, world.store)
    in_thread = store._commits._in_thread
    store._commits._in_thread = lambda work: in_thread(lambda raw: work(_TakingDown(raw, found)))
    await world.talk(range(1), 1, 1)
    await world.engine.close()
    return found


class _Raw:
    """Group commit and nothing else: whoever waits is written in the next transaction."""

    def __init__(self, connection: aiosqlite.Connection, kinds: Sequence[str]) -> None:
        self._connection, self._kinds = connection, kinds
        self._waiting: deque[tuple[list[tuple[Any, ...]], asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self.transactions = 0

    def submit(self, rows: list[tuple[Any, ...]]) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, done))
        self._wake.set()
        return done

    async def run(self) -> None:
        connection = cast(Any, self._connection)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                await connection._execute(lambda: self._write(connection._conn, batch))
                self.transactions += 1
                for _, done in batch:
                    done.set_result(None)

    def _write(self, raw: sqlite3.Connection, batch: list[tuple[list[tuple[Any, ...]], asyncio.Future[None]]]) -> None:
        raw.execute("BEGIN IMMEDIATE")
        for index, sql in enumerate(self._kinds):
            raw.executemany(sql, [rows[index] for rows, _ in batch])
        raw.execute("COMMIT")


def _rows(sample: Sequence[Statement], persons: int, messages: int) -> Iterator[list[tuple[Any, ...]]]:
    """The sample's rows for each message, under its own ids. Ids of the same length: the rows have the same size."""
    whose, which = person(0), "msg-000000000007"
    for number in range(messages):
        me, mine = person(number % persons), f"raw-{number:012}"
        yield [
            tuple(v.replace(whose, me).replace(which, mine) if isinstance(v, str) else v for v in parameters)
            for _, parameters in sample
        ]


async def _raw(folder: Path, sample: Sequence[Statement], persons: int, messages: int, in_flight: int) -> float:
    """Messages a second."""
    path = folder / "engine.db"
    connection = aiosqlite.connect(path, isolation_level=None)
    await connection
    await cast(Any, connection)._execute(lambda: prepare(cast(Any, connection)._conn, path, "FULL"))
    raw = _Raw(connection, [sql for sql, _ in sample])
    writer = asyncio.create_task(raw.run())
    rows = list(_rows(sample, persons, messages))
    waiting = iter(rows)

    async def one_after_another() -> None:
        for some in waiting:
            await raw.submit(some)

    start = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    seconds = time.perf_counter() - start
    writer.cancel()
    await connection.close()
    return messages / seconds


async def _ours(folder: Path, persons: int, messages: int, in_flight: int) -> float:
    """Messages a second."""
    world = World(folder)
    await world.engine.start()
    await world.bind(range(persons))
    start = time.perf_counter()
    await world.talk(range(persons), messages, in_flight)
    seconds = time.perf_counter() - start
    await world.engine.close()
    return messages / seconds


def compare(*, quick: bool = False) -> list[Row]:
    """Messages a second of the two, each in a database of its own in every round."""
    persons, messages, in_flight = (200, 600, 100) if quick else (10_000, 20_000, 2_000)
    tune()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        numbers = iter(range(1000))

        def folder() -> Path:
            made = Path(name) / str(next(numbers))
            made.mkdir()
            return made

        sample = asyncio.run(statements_of_a_message(folder()))
        medians = by_turns(
            {
                "raw": lambda: asyncio.run(_raw(folder(), sample, persons, messages, in_flight)),
                "ours": lambda: asyncio.run(_ours(folder(), persons, messages, in_flight)),
            },
            rounds=1 if quick else 5,
        )
    figure = {name: f"{value:,.0f} msg/s" for name, value in medians.items()}
    return [
        Row("engine / raw group commit", figure["ours"], figure["raw"], medians["ours"] / medians["raw"], LIMIT, "at least",
            how=f"{messages:,} messages of {persons:,} persons, {in_flight:,} in flight, synchronous FULL, WAL. Raw: "
            f"aiosqlite, the {len(sample)} statements that the engine runs for a message with values made beforehand, "
            f"as executemany over what waits (at most {BATCH:,} messages), one transaction a batch; it decides "
            "nothing, reads nothing back and waits once a message. The engine waits for the disk four times a "
            "message, one after the other, and reads the session's kept lines."),
    ]  # fmt: skip
