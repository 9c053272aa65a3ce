"""What only the SQLite store can get wrong: crashes, other processes, other people's files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from fsm.conversation import Conversation, Key
from fsm.ports import Change, Inbound, Settled, StoreError
from storage.schema import APPLICATION_ID, VERSION
from storage.sqlite import SqliteStore
from tests.support.stores import admit

ROOT = Path(__file__).resolve().parents[2]
HMO = Key("mohe", "xmpp", "hmo")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def arrival(name: str) -> Inbound:
    return Inbound("xmpp", "hmo", "在吗", name, 1.0, "hmo")


async def refusal(path: Path) -> str:
    """What opening says; whatever is there must be as it was, with nothing new beside it."""
    before = {one: one.read_bytes() for one in path.parent.iterdir() if one.is_file()}
    with pytest.raises(StoreError) as raised:
        await SqliteStore(path).open()
    assert {one: one.read_bytes() for one in path.parent.iterdir() if one.is_file()} == before
    return str(raised.value)


# -- crashes -----------------------------------------------------------------------------------------

TALKER = """
import asyncio, sys
from fsm.conversation import Conversation, Key
from fsm.ports import Change, Inbound, Settled
from storage.sqlite import SqliteStore

async def talk(store, n):
    key = Key("mohe", "xmpp", f"u{n}")
    for count in range(1_000_000):
        name = f"m{n}-{count}"
        await store.commit(Change(key, arrival=Inbound("xmpp", key.sender, "hi", name, 1.0, "to")))
        print("admitted", name, flush=True)
        await store.commit(Change(key, Conversation(count=count), settled=(Settled(name, "replied"),)))
        print("replied", name, flush=True)

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await asyncio.gather(*(talk(store, n) for n in range(40)))

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 40, 2000])
async def test_whatever_was_acknowledged_outlives_kill_9(tmp_path: Path, after: int) -> None:
    path = tmp_path / "engine.db"
    said = talk_and_be_killed(path, after)
    assert len(said) >= after

    async with opened(path) as store:
        replied = {name for word, name in said if word == "replied"}
        for name in {name for _, name in said}:
            row = await store.message(HMO, name)
            assert row is not None
            assert name not in replied or row.disposition == "replied"
        for key, conversation in await store.conversations():
            # A conversation and the disposition of its message were one change.
            row = await store.message(key, f"m{key.sender[1:]}-{conversation.count}")
            assert row is not None
            assert row.disposition == "replied"


def talk_and_be_killed(path: Path, after: int) -> list[list[str]]:
    """What a child said that it had written: at least ``after`` lines, then it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", TALKER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, env=_with_project()
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline() for _ in range(after)]
    child.kill()
    rest, _ = child.communicate()
    said = [line.decode().split() for line in (b"".join(acknowledged) + rest).splitlines(keepends=True)
            if line.endswith(b"\n")]  # fmt: skip
    return said


def _with_project() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_an_engine_that_dies_without_closing_its_store_does_not_hang(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from storage.sqlite import SqliteStore

async def main():
    global store
    store = SqliteStore(sys.argv[1])
    await store.open()
    raise SystemExit(3)

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "engine.db")],
        env=_with_project(), timeout=20, check=False, capture_output=True,
    )  # fmt: skip
    assert ended.returncode == 3


async def test_the_file_itself_says_what_it_is_before_anything_leaves_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path / "engine.db"):
        head = (tmp_path / "engine.db").read_bytes()[:100]

    assert int.from_bytes(head[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(head[60:64], "big") == VERSION


# -- several at once -----------------------------------------------------------------------------------


async def test_two_stores_on_one_file_agree_on_what_is_new(tmp_path: Path) -> None:
    one, two = (SqliteStore(tmp_path / "engine.db") for _ in range(2))
    await asyncio.gather(one.open(), two.open())
    try:
        names = [f"m{n}" for n in range(100)]
        admitted = await asyncio.gather(
            *(admit(store, HMO, arrival(name)) for name in names for store in (one, two))
        )
        pairs = zip(admitted[::2], admitted[1::2], strict=True)
        assert all(first + second == 1 for first, second in pairs)

        await one.commit(Change(HMO, Conversation(count=5)))
        assert await two.load(HMO) == Conversation(count=5)
    finally:
        await one.close()
        await two.close()


async def test_a_repeated_delivery_is_counted(tmp_path: Path) -> None:
    async with opened(tmp_path / "engine.db") as store:
        await asyncio.gather(*(admit(store, HMO, arrival(name)) for name in ("m1", "m2", "m1", "m1")))

    with raw(tmp_path / "engine.db") as connection:
        counted = connection.execute("SELECT id, repeats FROM inbox ORDER BY id").fetchall()
    assert counted == [("m1", 2), ("m2", 0)]


async def test_a_lock_that_stays_fails_the_writes_names_its_mend_and_leaves_reads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.schema.BUSY_SECONDS", 0.05)
    async with opened(tmp_path / "engine.db") as store:
        await store.set_meta("k", "v")
        with raw(tmp_path / "engine.db") as other:
            other.execute("BEGIN IMMEDIATE")
            calls = [store.set_meta(f"k{n}", "v") for n in range(500)]
            *outcomes, read = await asyncio.gather(*calls, store.get_meta("k"), return_exceptions=True)
            other.execute("ROLLBACK")

        assert read == "v"
        assert {type(outcome) for outcome in outcomes} == {StoreError}
        assert "locked by another program. Close that program" in str(outcomes[0])
        await store.set_meta("k", "w")
        assert await store.get_meta("k") == "w"


# -- files that are not ours ---------------------------------------------------------------------------


async def test_a_store_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    async with opened(path):
        pass
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")

    assert "newer version of Session Router (schema 2, this one reads up to 1)" in await refusal(path)


async def test_a_newer_version_that_only_the_log_knows_of_is_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    async with opened(path):
        pass
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        with pytest.raises(StoreError, match="newer version"):
            await SqliteStore(path).open()


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
async def test_a_database_of_another_program_is_refused_untouched(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "other.db"
    with raw(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)")

    assert "database of another program (tables: state_meta)" in await refusal(path)


@pytest.mark.parametrize("content", [b"hello\n", b"SQLite format 3\x00", b"\x00" * 4096, b"# notes\n" * 500])
async def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)

    assert "is not an SQLite database. Name another file" in await refusal(path)


async def test_a_folder_or_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="Check that its folder exists"):
        await SqliteStore(tmp_path / "file" / "engine.db").open()


async def test_an_empty_file_or_an_empty_database_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with raw(tmp_path / "bare") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert (tmp_path / "bare").stat().st_size > 0

    for name in ("empty", "bare", "new/in/new/folders"):
        async with opened(tmp_path / name) as store:
            await store.set_meta("k", "v")
            assert await store.get_meta("k") == "v"


async def test_a_store_that_was_refused_can_be_opened_once_that_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    path.write_text("in the way")
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        await store.open()
    path.unlink()

    await store.open()
    await store.set_meta("k", "v")
    await store.close()


@contextmanager
def another_user() -> Iterator[None]:
    """Root may write everything; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="file modes of POSIX")
async def test_a_store_that_may_only_be_read_is_refused_when_it_is_opened() -> None:
    folder = tempfile.mkdtemp()  # not tmp_path, which another user cannot enter
    path = Path(folder, "engine.db")
    try:
        async with opened(path) as store:
            await store.set_meta("k", "v")
        os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        with another_user():
            said = await refusal(path)
        assert "is read-only. Give this user the right to write" in said
    finally:
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


# -- a disk that fails -----------------------------------------------------------------------------------


async def test_a_write_that_the_disk_refuses_is_a_store_error_and_later_ones_go_on(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # POSIX alone can limit the size of a file
    async with opened(tmp_path / "engine.db") as store:
        await store.set_meta("k", "v")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            big = Change(HMO, Conversation(lang="x" * 1_000_000), meta=(("k", "w"),))
            outcomes = await asyncio.gather(
                store.commit(big), store.set_meta("small", "1"), return_exceptions=True
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert isinstance(outcomes[0], StoreError)
        assert "The disk that holds the store" in str(outcomes[0])
        assert outcomes[1] is None
        assert (await store.load(HMO), await store.get_meta("k")) == (None, "v")
        await store.commit(big)
        assert await store.get_meta("k") == "w"


async def test_a_full_disk_is_named_as_such(tmp_path: Path) -> None:
    async with opened(tmp_path / "engine.db") as store:
        # SQLite's own limit on pages gives the very error that a full disk gives.
        await store._do(lambda db: db.execute("PRAGMA max_page_count = 1").fetchone(), writes=False)
        with pytest.raises(StoreError, match=r"is full\. Free some space"):
            await store.set_meta("k", "x" * 100_000)


async def test_a_damaged_store_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    async with opened(path) as store:
        await asyncio.gather(*(admit(store, HMO, arrival(f"m{n}")) for n in range(500)))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(StoreError, match=r"is damaged .* backup"):
        async with opened(path) as store:
            await store.open_work()


async def test_an_unreadable_conversation_is_named_and_holds_up_no_other(tmp_path: Path) -> None:
    other = HMO._replace(sender="xxm")
    async with opened(tmp_path / "engine.db") as store:
        for key in (HMO, other):
            await store.commit(Change(key, Conversation(count=1)))
        with raw(tmp_path / "engine.db") as connection:
            connection.execute("UPDATE conversations SET data = '{' WHERE sender = 'hmo'")

        outcomes = await asyncio.gather(store.load(HMO), store.load(other), return_exceptions=True)

        assert isinstance(outcomes[0], StoreError)
        assert "sender='hmo'" in str(outcomes[0])
        assert outcomes[1] == Conversation(count=1)


async def test_unreadable_conversations_are_named_at_a_start_and_hold_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    xxm, owner = (HMO._replace(sender=name) for name in ("xxm", "owner"))
    async with opened(tmp_path / "engine.db") as store:
        for key, name in ((HMO, "m1"), (xxm, "m2")):
            await admit(store, key, arrival(name))
            await store.commit(Change(key, Conversation(queue=(name,)), due=5.0))
        await store.commit(Change(owner, due=4.0, conversation=Conversation(count=1)))
        with raw(tmp_path / "engine.db") as connection:
            connection.execute("UPDATE conversations SET data = '{' WHERE sender = 'hmo'")

        work = await store.open_work()
        named_by_open_work = caplog.messages.copy()
        caplog.clear()
        loaded = await store.load_many([owner, HMO, xxm])
        named_by_load_many = caplog.messages.copy()
        caplog.clear()
        listed = await store.conversations("mohe", "xmpp")

    assert work.turns == [(xxm, Conversation(queue=("m2",)))]
    assert work.overdue == [(owner, 4.0, 0.0), (xxm, 5.0, 0.0)]
    assert [row.message.id for row in work.messages] == ["m1", "m2"]
    assert loaded == {owner: Conversation(count=1), xxm: Conversation(queue=("m2",))}
    assert listed == [(owner, Conversation(count=1)), (xxm, Conversation(queue=("m2",)))]
    for said in (named_by_open_work, named_by_load_many, caplog.messages):
        assert len(said) == 1
        assert "agent='mohe' channel='xmpp' sender='hmo' cannot be read" in said[0]
        assert "Delete its row from the table conversations" in said[0]
    assert {record.levelname for record in caplog.records} == {"ERROR"}


async def test_many_changes_that_fail_on_the_last_statement_leave_nothing_but_their_neighbours(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "engine.db") as store:
        with raw(tmp_path / "engine.db") as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON state_meta WHEN NEW.key = 'bad' "
                "BEGIN SELECT RAISE(FAIL, 'no room'); END"
            )
        keys = [HMO._replace(sender=f"u{n}") for n in range(1000)]
        changes = [Change(key, Conversation(count=1), meta=((key.sender, "v"),)) for key in keys]
        changes.append(Change(HMO, meta=(("bad", "v"),)))

        outcomes = await asyncio.gather(
            store.set_meta("before", "v"), store.commit_many(changes), store.set_meta("behind", "v"),
            return_exceptions=True,
        )  # fmt: skip

        assert (outcomes[0], outcomes[2]) == (None, None)
        assert isinstance(outcomes[1], StoreError)
        assert "no room" in str(outcomes[1])
        assert await store.conversations() == []
        assert [name for name, _ in await store.meta_with_prefix("")] == ["before", "behind"]


async def test_a_writer_that_was_cancelled_leaves_no_caller_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path / "engine.db") as store:
        await admit(store, HMO, arrival("m1"))
        calls = [asyncio.create_task(store.set_meta(f"k{n}", "v")) for n in range(10)]
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name() == "store-writer":
                task.cancel()

        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, StoreError) for outcome in outcomes)
        with pytest.raises(StoreError):
            await store.commit(Change(HMO, settled=(Settled("m1", "silent"),)))


async def test_what_people_wrote_is_for_the_owner_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    await store.set_meta("k", "v")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    await store.close()

    assert modes
    assert set(modes.values()) == {0o600}
