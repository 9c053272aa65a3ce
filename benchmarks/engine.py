"""The whole engine against group commits of the rows that it writes, with nothing around them.

What the engine writes for a message is taken down from the engine itself at work on one, commit by commit. Two
writers then write the same for every message, none of which decides, reads or sends anything:

- *group commit*: the changes, ready made, handed to the store: it encodes them, groups them and commits them through
  aiosqlite. What the engine takes beyond that is the engine's own. With the reads that a message needs, too, it is
  shown beside.
- *bare statements*: the SQL with all its values made before the clock starts, in as many commits a message as the
  engine needs to keep its promises (what arrived is on disk before it is acknowledged, an answer before it is sent).
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiosqlite
from msgspec.structs import asdict

from benchmarks.measure import Row, by_turns
from benchmarks.world import World, person, session
from session_router.process import settle_memory, tune
from storage.schema import prepare

LIMIT = 0.5
"""Messages a second of the engine to those of group commit alone.

The bare statements are shown and not judged: they leave out what any writer of these rows has to do in Python (two
conversations as JSON, some eighty values a message), of which the engine's share is what is judged.
"""
PERSONS = 10_000
BATCH = 1000
"""Commits in one transaction of a raw writer at most, as in the engine's store."""

Statement = tuple[str, tuple[Any, ...]]
Commits = Sequence[Sequence[Statement]]
"""What is written for a message: commits in order, each with its statements."""


class _TakingDown:
    """A connection that notes every write that goes through it."""

    def __init__(self, connection: sqlite3.Connection, commits: list[list[Statement]]) -> None:
        self._connection, self._commits = connection, commits

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        match sql.split(None, 1)[0].upper():
            case "BEGIN":
                self._commits.append([])
            case "COMMIT" | "SELECT":
                pass
            case _:
                self._commits[-1].append((sql, tuple(parameters)))
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Any]) -> sqlite3.Cursor:
        self._commits[-1] += [(sql, tuple(row)) for row in rows]
        return self._connection.executemany(sql, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def commits_of_a_message(folder: Path) -> Commits:
    """What the engine writes from the arrival of one message of a known person to its delivered answer."""
    world, found = World(folder), list[list[Statement]]()
    await world.engine.start()
    await world.bind(range(1))
    await world.talk(world.inbounds(range(1), 6), 1)  # fill the trail, so that the conversation has its usual size
    store = cast(Any, world.store)
    in_thread = store._commits._in_thread
    store._commits._in_thread = lambda work: in_thread(lambda raw: work(_TakingDown(raw, found)))
    await world.talk(world.inbounds(range(1), 1), 1)
    await world.engine.close()
    return [commit for commit in found if commit]


def _renamed(text: str, number: int) -> str:
    """A text of the sample as it reads for another message and its person: all names have the same length but the
    person's, so the rows have the same size."""
    who = number % PERSONS
    named = text.replace(person(0), person(who)).replace(session(0), session(who))
    return named.replace("msg-000000000007", f"raw-{number:012}")


def _filled_in(commits: Commits, number: int) -> Commits:
    def fill(value: Any) -> Any:
        return _renamed(value, number) if isinstance(value, str) else value

    return [[(sql, tuple(map(fill, values))) for sql, values in commit] for commit in commits]


class _Raw:
    """Group commit and nothing else: whoever waits is written in the next transaction."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._waiting: deque[tuple[Sequence[Statement], asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()

    def submit(self, statements: Sequence[Statement]) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((statements, done))
        self._wake.set()
        return done

    async def run(self) -> None:
        connection = cast(Any, self._connection)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                statements = [statement for some, _ in batch for statement in some]
                await connection._execute(partial(_write, connection._conn, statements))
                for _, done in batch:
                    done.set_result(None)


def _write(raw: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    raw.execute("BEGIN IMMEDIATE")
    for sql, values in statements:
        raw.execute(sql, values)
    raw.execute("COMMIT")


async def _raw(folder: Path, messages: Sequence[Commits], in_flight: int) -> float:
    """Messages a second: each waits for its commits in turn."""
    path = folder / "engine.db"
    connection = aiosqlite.connect(path, isolation_level=None)
    await connection
    inner = cast(Any, connection)
    await inner._execute(lambda: prepare(inner._conn, path, "FULL"))
    raw = _Raw(connection)
    writer = asyncio.create_task(raw.run())
    waiting = iter(messages)

    async def one_after_another() -> None:
        for commits in waiting:
            for statements in commits:
                await raw.submit(statements)

    start = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    seconds = time.perf_counter() - start
    writer.cancel()
    await connection.close()
    return len(messages) / seconds


class Call(NamedTuple):
    """What the engine asked of its store; ``waited`` for unless it is the mark that an answer is out."""

    method: str
    arguments: tuple[Any, ...]
    waited: bool = True


CALLED = ("load", "lines", "message", "steps", "get_meta", "commit", "commit_soon")
"""Methods of the store that a message may need."""


async def calls_of_a_message(folder: Path, *, first: bool) -> Sequence[Call]:
    """Everything that the engine asks of its store for one message of a known person; with ``first`` the first one
    since the start, for which the conversation has to be read."""
    world, found = World(folder), list[Call]()
    await world.engine.start()
    await world.bind(range(1))
    await world.talk(world.inbounds(range(1), 6), 1)
    if first:
        messages = world.messages
        await world.engine.close()
        world = World(folder, messages=messages)
        await world.engine.start()
    for name in CALLED:
        setattr(world.store, name, _noting(found, name, getattr(world.store, name)))
    await world.talk(world.inbounds(range(1), 1), 1)
    await world.engine.close()
    return found


def _noting(found: list[Call], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        found.append(Call(name, arguments, waited=name != "commit_soon"))
        return method(*arguments)

    return call


def _made_for(value: Any, number: int) -> Any:
    """A value with the person, the session and the message in it replaced, however deep they stand."""
    match value:
        case str():
            return _renamed(value, number)
        case Enum() | None | bool() | int() | float():
            return value
        case _ if callable(value):  # who hears of a failure
            return value
        case frozenset():
            return frozenset(_made_for(part, number) for part in value)
        case tuple() if hasattr(value, "_fields"):  # a named tuple
            return type(value)(*(_made_for(part, number) for part in value))
        case tuple():
            return tuple(_made_for(part, number) for part in value)
        case _:
            return type(value)(**{name: _made_for(part, number) for name, part in asdict(value).items()})


async def _store_alone(folder: Path, messages: Sequence[Sequence[Call]], in_flight: int) -> float:
    """Messages a second of the store, each asking in turn what the engine asks for it."""
    world = World(folder)
    store = world.store
    await store.open()
    await world.bind(range(min(PERSONS, len(messages))))
    waiting = iter(messages)

    async def one_after_another() -> None:
        for calls in waiting:
            for method, arguments, waited in calls:
                answer = getattr(store, method)(*arguments)
                if waited:
                    await answer

    start = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    seconds = time.perf_counter() - start
    await store.close()
    return len(messages) / seconds


async def _ours(folder: Path, persons: int, messages: int, in_flight: int) -> float:
    """Messages a second."""
    world = World(folder)
    await world.engine.start()
    await world.bind(range(persons))
    ready = list(world.inbounds(range(persons), messages))  # as the peer's changes are
    seconds = await world.talk(ready, in_flight)
    await world.engine.close()
    return messages / seconds


def _size(quick: bool) -> tuple[int, int, int]:
    """(persons, messages, in flight)"""
    return (200, 600, 100) if quick else (PERSONS, 20_000, 2_000)


def _round(quick: bool, backwards: bool) -> dict[str, float]:
    """Messages a second of each, once, in a database of its own."""
    persons, messages, in_flight = _size(quick)
    tune()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folders = _folders(Path(name))
        sample = asyncio.run(commits_of_a_message(next(folders)))
        bare = [_filled_in(sample, number) for number in range(messages)]
        calls = [asyncio.run(calls_of_a_message(next(folders), first=first)) for first in (True, False)]
        ready = [[_made_for(call, number) for call in calls[number >= persons]] for number in range(messages)]
        commits = [[call for call in calls if call.method.startswith("commit")] for calls in ready]
        settle_memory()  # as a program does once it has started
        contestants: dict[str, Callable[[], float]] = {
            "group commit": lambda: asyncio.run(_store_alone(next(folders), commits, in_flight)),
            "with reads": lambda: asyncio.run(_store_alone(next(folders), ready, in_flight)),
            "bare": lambda: asyncio.run(_raw(next(folders), bare, in_flight)),
            "ours": lambda: asyncio.run(_ours(next(folders), persons, messages, in_flight)),
        }
        return by_turns(dict(reversed(contestants.items())) if backwards else contestants, rounds=1)


def compare(*, quick: bool = False) -> list[Row]:
    """The median of nine rounds, each in a process of its own: how the objects happen to lie in one makes some percent
    for as long as it lives."""
    persons, messages, in_flight = _size(quick)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        rounds = [fresh.submit(_round, quick, number % 2 == 1).result() for number in range(1 if quick else 9)]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        sample = asyncio.run(commits_of_a_message(Path(name)))
    figure = {name: f"{value:,.0f} msg/s" for name, value in medians.items()}
    written = sum(len(commit) for commit in sample)
    setting = (
        f"{messages:,} messages of {persons:,} persons, {in_flight:,} in flight, synchronous FULL, WAL, an instant "
        f"model. A message takes {len(sample)} commits with {written} statements. "
    )

    def row(name: str, peer: str, limit: float | None, how: str) -> Row:
        ratio = medians["ours"] / medians[peer]
        return Row(name, figure["ours"], figure[peer], ratio, limit, "at least", how=setting + how)

    return [
        row("engine / group commit", "group commit", LIMIT,
            "The peer commits the same changes, ready made, through the same group commit on aiosqlite, each message "
            "in as many commits, and does nothing else."),
        row("engine / group commit and reads", "with reads", None,
            "The same with what the engine reads for a message (its conversation the first time, and what was said "
            "before). Not judged: the limit is meant for commits alone."),
        row("engine / bare statements", "bare", None,
            "The peer runs the same SQL with all values made beforehand, in as many commits a message. Not judged: no "
            "writer has its values for nothing."),
    ]  # fmt: skip


def _folders(parent: Path) -> Iterator[Path]:
    for number in range(1000):
        folder = parent / str(number)
        folder.mkdir()
        yield folder
