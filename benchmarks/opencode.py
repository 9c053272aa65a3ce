"""The newest 200 of 100,000 messages of an OpenCode session, against the three SELECTs that this takes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, by_turns
from storage.opencode import OpenCodeSource

LIMIT = 2.0
"""Milliseconds of ours to milliseconds of the queries."""
LINES = 200
SESSION = "ses_3f9a1c7e2ffeKq0bTz1mWn4Xy2"
AT = 1_768_464_000_000

REAL = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "opencode" / "fixture.db"
"""A file that OpenCode 1.18 itself made; its tables and indexes are taken from it."""

QUESTION = "Could you look at the nightly build? It has failed since the billing tables moved, on the ledger test."
ANSWER = "The ledger test reads a table that the migration renames. " * 6


def _fill(path: Path, messages: int) -> None:
    """One session: questions of one part, answers of four (a step, a tool call, the text, the step's end)."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        with closing(sqlite3.connect(f"{REAL.as_uri()}?mode=ro&immutable=1", uri=True)) as real:
            for (statement,) in real.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
                connection.execute(statement)
        connection.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated) "
            "VALUES (?, 'global', 'billing', '/home/a/billing', 'Billing', '1.18', ?, ?)",
            (SESSION, AT, AT + messages * 1000),
        )
        rows, parts = [], []
        for number in range(messages):
            at, message = AT + number * 1000, f"msg_{number:026}"
            if number % 2 == 0:
                data: dict[str, Any] = {
                    "role": "user", "time": {"created": at}, "agent": "build",
                    "model": {"providerID": "anthropic", "modelID": "claude"}, "summary": {"diffs": []},
                }  # fmt: skip
                contents: list[dict[str, Any]] = [{"type": "text", "text": f"{QUESTION} ({number})"}]
            else:
                data = {
                    "role": "assistant", "time": {"created": at, "completed": at + 900}, "mode": "build", "cost": 0.01,
                    "parentID": f"msg_{number - 1:026}", "modelID": "claude", "providerID": "anthropic",
                    "path": {"cwd": "/home/a/billing", "root": "/home/a/billing"}, "finish": "stop",
                    "tokens": {"input": 1200, "output": 90, "reasoning": 0, "cache": {"read": 900, "write": 0}},
                }  # fmt: skip
                contents = [
                    {"type": "step-start", "snapshot": "4b825dc642cb6eb9a060e54bf8d69288fbee4904"},
                    {"type": "tool", "tool": "bash", "callID": f"call_{number}", "state": {
                        "status": "completed", "input": {"command": "make test"}, "output": "ledger FAILED\n" * 12}},
                    {"type": "text", "text": f"{ANSWER} ({number})"},
                    {"type": "step-finish", "reason": "stop", "cost": 0.01, "tokens": data["tokens"]},
                ]  # fmt: skip
            rows.append((message, SESSION, at, at, json.dumps(data)))
            parts += [
                (f"prt_{number:022}{place:04}", message, SESSION, at, at, json.dumps(content))
                for place, content in enumerate(contents)
            ]
        connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", parts)


def _raw(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT revert FROM session WHERE id = ?", (SESSION,)).fetchone() is not None
        rows = connection.execute(
            "SELECT id, time_created, data FROM message WHERE session_id = ? "
            "ORDER BY time_created DESC, id DESC LIMIT ?",
            (SESSION, LINES),
        ).fetchall()
        marks = ",".join("?" * len(rows))
        connection.execute(
            f"SELECT id, message_id, data FROM part WHERE message_id IN ({marks}) ORDER BY message_id, id",
            [row[0] for row in rows],
        ).fetchall()


def compare(*, quick: bool = False) -> list[Row]:
    """Milliseconds of both, in a warm file that another program keeps open, as OpenCode does."""
    messages, repeat = (1_000, 2) if quick else (100_000, 20)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        path = Path(folder) / "opencode.db"
        _fill(path, messages)
        with closing(sqlite3.connect(path)) as opencode:
            # So there is a log, as beside every database that somebody writes.
            opencode.execute("UPDATE session SET time_updated = time_updated + 1")
            opencode.commit()
            source = OpenCodeSource(path)
            assert len(asyncio.run(_context(source))) == LINES

            def times(work: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], float]:
                async def run() -> float:
                    start = time.perf_counter()
                    for _ in range(repeat):
                        await work()
                    return (time.perf_counter() - start) / repeat * 1000

                return lambda: asyncio.run(run())

            medians = by_turns(
                {"raw": times(lambda: asyncio.to_thread(_raw, path)), "ours": times(lambda: _context(source))},
                rounds=1 if quick else 15,
            )
    figure = {name: f"{value:.2f} ms" for name, value in medians.items()}
    return [
        Row("OpenCode context / raw queries", figure["ours"], figure["raw"], medians["ours"] / medians["raw"], LIMIT,
            how=f"The newest {LINES} of {messages:,} messages. Raw: in a thread, sqlite3 opens the file, reads the "
            "session, its newest messages and their parts (three SELECTs), and closes it; no JSON is decoded. Ours: "
            "OpenCodeSource.context, which also checks the file, decodes, and makes the lines."),
    ]  # fmt: skip


async def _context(source: OpenCodeSource) -> list[object]:
    return list(await source.context(SESSION, LINES))
