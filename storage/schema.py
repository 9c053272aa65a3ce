"""The engine store's tables, and whether a file may be taken for one.

A file that is not ours is recognised from its first hundred bytes and its list of tables, before
anything opens it for writing: whatever is refused here stays as it was.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from fsm.ports import StoreError
from storage.dispositions import FINAL, INTERIM

VERSION = 1
"""``PRAGMA user_version`` of the schema below."""
APPLICATION_ID = 0x5352_7472
"""``PRAGMA application_id``: "SRtr"."""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process to let go of the file."""


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _one_of(column: str, words: tuple[str, ...]) -> str:
    """``IN``, written out: for more than two words SQLite makes a table of them, anew for each row that it checks."""
    return " OR ".join(f"{column} = '{word}'" for word in words)


OPEN_MESSAGE = f"disposition IN ({_quoted(INTERIM)})"
"""Said the same way in the index and in the query, or SQLite would not use the one for the other."""

# Strict tables came with SQLite 3.37; before that the same tables do without the type checks.
_STRICT = " STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""

SCHEMA = f"""
CREATE TABLE conversations (
    agent TEXT NOT NULL, channel TEXT NOT NULL, sender TEXT NOT NULL,
    state TEXT NOT NULL,
    busy INTEGER NOT NULL,            -- 1 with a running turn or a queue: read at every start
    due REAL, started REAL,           -- the next deadline, and the instant from which it counts
    data TEXT NOT NULL,               -- the conversation as JSON, without its defaults
    PRIMARY KEY (agent, channel, sender)
){_STRICT};

CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY,
    agent TEXT NOT NULL, channel TEXT NOT NULL, id TEXT NOT NULL,
    sender TEXT NOT NULL,             -- of the conversation
    author TEXT NOT NULL,             -- as the channel named the sender
    text TEXT NOT NULL, at REAL NOT NULL, reply_to TEXT NOT NULL,
    nick TEXT NOT NULL, real_jid TEXT NOT NULL,
    mentioned INTEGER NOT NULL, own INTEGER NOT NULL, delayed INTEGER NOT NULL,
    edited INTEGER NOT NULL, bot INTEGER NOT NULL,
    disposition TEXT NOT NULL CHECK ({_one_of("disposition", INTERIM + FINAL)}),
    reason TEXT NOT NULL, settled_at REAL,
    repeats INTEGER NOT NULL DEFAULT 0,  -- how often it was delivered again
    UNIQUE (channel, id, agent)
){_STRICT};
CREATE INDEX inbox_of_conversation ON inbox (agent, channel, sender);
CREATE INDEX inbox_open ON inbox (seq) WHERE {OPEN_MESSAGE};

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL, channel TEXT NOT NULL, sender TEXT NOT NULL,  -- the conversation that owes it
    via TEXT NOT NULL,                -- the channel that it goes out by
    recipient TEXT NOT NULL, text TEXT NOT NULL,
    message TEXT NOT NULL, tries INTEGER NOT NULL, due REAL NOT NULL
){_STRICT};

CREATE TABLE steps (
    seq INTEGER PRIMARY KEY,
    turn TEXT NOT NULL, call INTEGER NOT NULL, idx INTEGER NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL, at REAL NOT NULL,
    UNIQUE (turn, call, idx, kind)
){_STRICT};

CREATE TABLE lines (
    seq INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    id TEXT,                          -- NULL for a line without one: such a line repeats nothing
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text TEXT NOT NULL, tag TEXT NOT NULL, at REAL NOT NULL,
    UNIQUE (session, id)
){_STRICT};
CREATE INDEX lines_by_time ON lines (session, at);

CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT){_STRICT};
"""

_ADVICE = "Name another file for the store, or move this one away."


def make_private(path: Path) -> None:
    """Make a missing file for its owner alone: it will hold what people wrote. SQLite gives the files
    beside it the same rights."""
    with suppress(OSError):  # it is there already, or opening it says better what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def check_file(path: Path) -> None:
    """Refuse a path that cannot be, or must not become, an engine store; make its folder.

    Raises :class:`StoreError`. Nothing is written but the missing parent folders.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise StoreError(f"The store {path} is a folder. {_ADVICE}")
        head = b""
        if path.exists():
            with path.open("rb") as file:
                head = file.read(100)
    except OSError as error:
        raise StoreError(
            f"The store {path} cannot be opened ({error.strerror or error}). "
            "Check that its folder exists and that this user may write there."
        ) from error
    if not all(_writable(place) for place in (path.parent, path) if place.exists()):
        raise StoreError(read_only(path))
    # With a rollback journal beside it the file may be half of a transaction that was cut off:
    # SQLite mends that on opening, and prepare() looks again afterwards.
    if not head or path.with_name(path.name + "-journal").exists():
        return
    if len(head) < 100 or not head.startswith(b"SQLite format 3\x00"):
        raise StoreError(f"The file {path} is not an SQLite database. {_ADVICE}")
    if int.from_bytes(head[68:72], "big") == APPLICATION_ID:
        _check_version(path, int.from_bytes(head[60:64], "big"))
    elif tables := _tables_of(path):
        raise StoreError(foreign(path, tables))


def prepare(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    """Make the tables where there are none and set the connection up.

    Raises :class:`StoreError` for a foreign file or a newer version, ``sqlite3.Error`` otherwise.
    """
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("BEGIN IMMEDIATE")  # a second process may be making the same tables
    try:
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if ours:
            _check_version(path, connection.execute("PRAGMA user_version").fetchone()[0])
        elif tables := _table_names(connection):
            raise StoreError(foreign(path, tables))
        else:
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    # Only now: made under a rollback journal, the file itself says from its first day on what it is,
    # even if a crash leaves all later pages in the log.
    _switch_to_wal(connection)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    # A log of some 32 MB before it is folded in, where SQLite takes 4: message ids land all over their
    # index, and a page that changed a hundred times is then written back once.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # SQLite does not wait out busy_timeout here when two processes switch at once.
    for patience in range(100, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not patience:
                raise
        time.sleep(BUSY_SECONDS / 100)


def _writable(place: Path) -> bool:
    # SQLite would silently open such a file for reading only, and fail at the first message.
    return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _check_version(path: Path, version: int) -> None:
    if version > VERSION:
        raise StoreError(
            f"The store {path} was written by a newer version of Session Router (schema {version}, this "
            f"one reads up to {VERSION}). Upgrade Session Router, or name another file for the store."
        )


def _tables_of(path: Path) -> list[str]:
    # Even a reader leaves its two files beside a database that keeps a log; one that has no log just
    # now can be read as if nobody could ever write it.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    try:
        uri = f"{path.absolute().as_uri()}?{mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
            return _table_names(connection)
    except sqlite3.Error as error:
        raise StoreError(explain(error, path)) from error


def _table_names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    return [name for (name,) in rows]


# -- what went wrong, in words for a person -------------------------------------------------------


def is_busy(error: BaseException) -> bool:
    """Whether another process holds the file, so that more tries now would only wait again."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def read_only(path: Path) -> str:
    return f"The store {path} is read-only. Give this user the right to write the file and its folder."


def foreign(path: Path, tables: list[str]) -> str:
    shown = ", ".join(tables[:5]) + (", …" if len(tables) > 5 else "")
    return f"The file {path} is a database of another program (tables: {shown}). {_ADVICE}"


def explain(error: Exception, path: Path) -> str:
    """One sentence on what failed and one on what mends it."""
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"The store {path} is locked by another program. Close that program, then try again."
        case sqlite3.SQLITE_FULL:
            return f"The disk that holds the store {path} is full. Free some space, then try again."
        case sqlite3.SQLITE_READONLY:
            return read_only(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                f"The store {path} is damaged ({error}). Stop the engine, keep a copy of the file, and "
                f"bring back a backup or what `sqlite3 {path.name} .recover` can save."
            )
        case sqlite3.SQLITE_IOERR:
            return (
                f"The disk that holds the store {path} reports an error ({error}). "
                "Check its free space, its quota and its health, then try again."
            )
        case sqlite3.SQLITE_CANTOPEN:
            return (
                f"The store {path} cannot be opened ({error}). "
                "Check that its folder exists and that this user may write there."
            )
        case _:
            return f"The store {path} did not take this: {error}"


def _code(error: BaseException) -> int:
    # The low byte is the kind of error, the rest its variety.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
