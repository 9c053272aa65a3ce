"""The mirror in Hermes' ``state_meta``: it writes beside a living gateway, and where it cannot it says so."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sqlite3
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from pathlib import Path

import pytest

from fsm.binding import ACTIVE_SENDER_KEY
from storage.hermes import HermesSource, StateMetaMirror
from storage.readonly import kept_open

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "hermes" / "state.db"
KEY = f"{ACTIVE_SENDER_KEY}:mohe"
VALUE = json.dumps({"session_id": "api-20261001-bbbb", "timestamp": 1000.5, "source": "cli"})


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURE, tmp_path / "state.db"))


@asynccontextmanager
async def mirror(path: Path, patience: float = 0.05) -> AsyncIterator[StateMetaMirror]:
    opened = StateMetaMirror(path, timeout=patience)
    yield opened
    await opened.close()


def meta(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, value FROM state_meta"))


async def degrades(path: Path, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Neither call raises, both say no, and the log says why."""
    with caplog.at_level(logging.WARNING):
        async with mirror(path) as meta_mirror:
            assert await meta_mirror.write(KEY, VALUE) is False
            assert await meta_mirror.read(KEY) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert KEY in caplog.text
    assert why in caplog.text
    assert "own store" in caplog.text


async def test_what_is_written_is_read_by_anybody_and_hermes_own_keys_stay(real: Path) -> None:
    async with mirror(real) as meta_mirror:
        assert await meta_mirror.read(KEY) is None
        assert await meta_mirror.write(KEY, "first")
        assert await meta_mirror.write(KEY, VALUE)
        assert await meta_mirror.write(ACTIVE_SENDER_KEY, "once\ud800")
        assert await meta_mirror.read(KEY) == VALUE
        assert meta(real) == {"research_probe": "written by SessionDB.set_meta", KEY: VALUE,
                              ACTIVE_SENDER_KEY: "once\ufffd"}
        assert await meta_mirror.write(ACTIVE_SENDER_KEY, None)
        assert await meta_mirror.read(ACTIVE_SENDER_KEY) is None
    assert meta(real).keys() == {"research_probe", KEY}


async def test_the_tables_stay_as_hermes_made_them(real: Path) -> None:
    def made() -> tuple[object, ...]:
        with closing(sqlite3.connect(real)) as connection:
            return (connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall(),
                    *(connection.execute(f"PRAGMA {name}").fetchone()
                      for name in ("schema_version", "user_version", "journal_mode", "application_id")))

    before = made()
    async with mirror(real) as meta_mirror:
        assert await meta_mirror.write(KEY, VALUE)
    assert made() == before


async def test_a_file_with_a_rollback_journal_is_written_as_well(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)")
    async with mirror(path) as meta_mirror:
        assert await meta_mirror.write(KEY, VALUE)
    assert meta(path) == {KEY: VALUE}


async def test_beside_a_busy_writer_every_write_of_both_is_there(real: Path) -> None:
    stop, written, failures = threading.Event(), [0], list[Exception]()

    def gateway() -> None:
        with closing(sqlite3.connect(real, timeout=5, isolation_level=None)) as live:
            while not stop.is_set():
                try:
                    live.execute("BEGIN IMMEDIATE")
                    live.execute("INSERT INTO messages(session_id, role, content, timestamp) "
                                 "VALUES ('cli-20261001-aaaa', 'tool', 'x', ?)", (written[0],))
                    live.execute("COMMIT")
                    written[0] += 1
                    live.execute("SELECT * FROM messages_fts WHERE content LIKE '%reply%'").fetchall()
                except sqlite3.Error as error:
                    failures.append(error)
                    return

    thread = threading.Thread(target=gateway)
    thread.start()
    try:
        async with mirror(real, patience=20) as meta_mirror:
            for number in range(50):
                assert await meta_mirror.write(f"{ACTIVE_SENDER_KEY}:{number}", str(number))
                assert len(await HermesSource(real).list()) == 5
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert written[0] > 0
    with closing(sqlite3.connect(real)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT count(*) FROM messages WHERE content = 'x'").fetchone()[0]
    assert rows == written[0]
    assert {meta(real)[f"{ACTIVE_SENDER_KEY}:{number}"] for number in range(50)} == {str(n) for n in range(50)}


async def test_a_locked_file_is_given_up_and_written_once_it_is_free(
        real: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with mirror(real) as meta_mirror:
        with closing(sqlite3.connect(real, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await meta_mirror.write(KEY, VALUE) is False
            assert "locked" in caplog.text
            assert await meta_mirror.read(KEY) is None
            other.execute("COMMIT")
        assert await meta_mirror.write(KEY, VALUE)
        assert await meta_mirror.read(KEY) == VALUE


async def test_a_missing_file_is_not_made_and_found_once_it_is_there(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state.db"
    await degrades(path, caplog, "No such file")
    assert list(tmp_path.iterdir()) == []
    async with mirror(path) as meta_mirror:
        assert await meta_mirror.write(KEY, VALUE) is False
        shutil.copy(FIXTURE, path)
        assert await meta_mirror.write(KEY, VALUE)


@pytest.mark.parametrize(("content", "why"), [
    (b"", "empty"), (b"not a database file" * 100, "not a database"), (FIXTURE.read_bytes()[:5000], "malformed")])
async def test_a_damaged_or_empty_file_is_left_as_it_is(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, why: str) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    await degrades(path, caplog, why)
    assert path.read_bytes() == content


async def test_a_file_without_the_table_gets_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (a)")
    before = path.read_bytes()
    await degrades(path, caplog, "no such table")
    assert path.read_bytes() == before


async def test_a_folder_a_pipe_and_a_nul_are_no_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("a\0b")):
        async with mirror(path) as meta_mirror:
            assert await meta_mirror.write(KEY, VALUE) is False
    assert len(caplog.records) == 3


async def test_another_file_in_its_place_is_written_instead(real: Path, tmp_path: Path) -> None:
    async with mirror(real) as meta_mirror:
        assert await meta_mirror.write(KEY, "to the old one")
        os.replace(shutil.copy(FIXTURE, tmp_path / "new.db"), real)
        for left in ("-wal", "-shm"):
            Path(f"{real}{left}").unlink()
        assert await meta_mirror.read(KEY) is None
        assert await meta_mirror.write(KEY, VALUE)
    assert meta(real)[KEY] == VALUE


async def test_a_closed_mirror_does_nothing(real: Path, caplog: pytest.LogCaptureFixture) -> None:
    meta_mirror = StateMetaMirror(real)
    await meta_mirror.close()
    await meta_mirror.close()
    assert await meta_mirror.write(KEY, VALUE) is False
    assert await meta_mirror.read(KEY) is None
    assert "closed" in caplog.text


async def test_waiting_for_a_lock_holds_up_nobody_else(real: Path) -> None:
    async with mirror(real, patience=5) as meta_mirror:
        assert await meta_mirror.write(KEY, "before")
        with closing(sqlite3.connect(real, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(meta_mirror.write(KEY, VALUE))
            assert await HermesSource(real).list()
            assert not writing.done()
            other.execute("COMMIT")
        assert await writing


# -- the locks of others -------------------------------------------------------------------------

GATEWAY = """
import sqlite3, sys
live = sqlite3.connect(sys.argv[1], isolation_level=None)
live.execute("PRAGMA wal_autocheckpoint=0")
live.execute("INSERT INTO state_meta VALUES ('gateway', 'before')")
open(sys.argv[1], "rb").close()  # what a backup inside the gateway does: its locks on the file are gone
print("ready", flush=True)
sys.stdin.readline()
live.execute("UPDATE state_meta SET value = 'after' WHERE key = 'gateway'")
print("written", flush=True)
sys.stdin.readline()
"""


async def test_closing_leaves_the_wal_of_a_gateway_that_lost_its_locks(real: Path) -> None:
    live = await asyncio.create_subprocess_exec(sys.executable, "-c", GATEWAY, str(real), stdin=PIPE, stdout=PIPE)
    assert live.stdin
    assert live.stdout
    try:
        assert await live.stdout.readline() == b"ready\n"
        wal = os.stat(f"{real}-wal").st_ino
        async with mirror(real, patience=5) as meta_mirror:
            assert await meta_mirror.write(KEY, VALUE)
        assert os.stat(f"{real}-wal").st_ino == wal
        live.stdin.write(b"\n")
        assert await live.stdout.readline() == b"written\n"
    finally:
        live.kill()
        await live.communicate()
    assert meta(real).items() >= {"gateway": "after", KEY: VALUE}.items()


EXCLUSIVE = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
"""


@pytest.mark.parametrize("kept", [True, False])
async def test_a_read_leaves_the_locks_on_a_file_that_this_process_keeps_open(real: Path, kept: bool) -> None:
    with closing(sqlite3.connect(real)) as connection:
        connection.execute("PRAGMA journal_mode=delete")  # without a -wal, so that its kind is asked of the file
    with closing(sqlite3.connect(real, isolation_level=None)) as reading:
        reading.execute("BEGIN")
        reading.execute("SELECT * FROM sessions").fetchone()
        with kept_open(os.stat(real)) if kept else nullcontext():
            assert await HermesSource(real).list()
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", EXCLUSIVE, str(real), stderr=PIPE)
        said = (await other.communicate())[1].decode()
        assert ("locked" in said) is kept, said
