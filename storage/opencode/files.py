"""Opening OpenCode's database so that nothing is created, written or held up.

Measured with OpenCode 1.18 and SQLite 3.40: it keeps the file in WAL mode with a writer open, and
a reader that stays connected stops its checkpoints, so every read here opens, reads and closes.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from fsm.ports import SourceError

NAME = "opencode"
TIMEOUT = 2.0
"""Seconds to wait for a lock. Only an exclusive lock makes a reader wait at all."""

T = TypeVar("T")


class Identity(NamedTuple):
    """Which file was read; another one in its place is another identity."""

    path: str
    device: int
    inode: int


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where OpenCode itself looks: ``OPENCODE_DB`` (absolute, or relative to the data folder), else
    ``opencode.db`` in ``$XDG_DATA_HOME/opencode``, else in ``~/.local/share/opencode``."""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    return data / (environ.get("OPENCODE_DB") or "opencode.db")


def read(path: Path, work: Callable[[sqlite3.Connection, Identity], T], timeout: float = TIMEOUT) -> T:
    """What ``work`` reads over a short read-only connection, all of it from one snapshot.

    ``work`` also gets the file's identity, and may be called twice. Raises :class:`SourceError`.
    """
    try:
        path = Path(os.path.realpath(path))  # the -wal stands beside the file itself, not beside a link to it
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    wal = f"{path}-wal"
    before = _look_at(path)
    identity = Identity(str(path), before.st_dev, before.st_ino)
    # Quoted: in a bare path a "#" or "?" would cut off mode=ro, and SQLite would make a file.
    uri = f"{path.as_uri()}?mode=ro"
    try:
        if not os.path.exists(wal) and _is_wal_file(path):
            # A WAL file without a -wal has nobody at it. Opened by mode=ro it would get a -wal and a
            # -shm, or fail where the folder may not be written; immutable=1 does neither but sees no
            # writer, so what was read counts only if none came meanwhile.
            try:
                found = _connected(f"{uri}&immutable=1", timeout, identity, work)
            except (sqlite3.Error, SourceError):
                if _untouched(path, wal, before):
                    raise
            else:
                if _untouched(path, wal, before):
                    return found
        return _connected(uri, timeout, identity, work)
    except sqlite3.Error as error:
        _refuse(path, error)
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error


def _untouched(path: Path, wal: str, before: os.stat_result) -> bool:
    now = os.stat(path)
    return not os.path.exists(wal) and (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _connected(uri: str, timeout: float, identity: Identity,
               work: Callable[[sqlite3.Connection, Identity], T]) -> T:
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
    try:
        connection.execute("BEGIN")
        try:
            return work(connection, identity)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) is not None or "decode" not in str(error):
                raise
            connection.text_factory = _text  # some text is not UTF-8; all reads this way would be slower
            return work(connection, identity)
    finally:
        connection.close()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _look_at(path: Path) -> os.stat_result:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _error("missing", f"OpenCode's database was not found at {path}: start OpenCode once, or set "
                     "OPENCODE_DB to where it is.") from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from error
    if stat.S_ISDIR(found.st_mode):
        raise _error("unreadable", f"{path} is a folder, not OpenCode's database: name the file in it, "
                     "usually opencode.db.")
    if not stat.S_ISREG(found.st_mode):
        raise _unreadable(path, "not a regular file")
    if found.st_size == 0:  # never opened: SQLite deletes the -wal beside an empty file
        raise nothing_in(path)
    return found


def _is_wal_file(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"  # "file format read/write version" of the SQLite header


def nothing_in(path: object) -> SourceError:
    """The error for a file without tables."""
    return _error("empty", f"OpenCode's database {path} holds no tables yet: start OpenCode once so that it "
                  "makes them.")


def _refuse(path: Path, error: sqlite3.Error) -> NoReturn:
    code = getattr(error, "sqlite_errorname", "") or ""
    detail = f"{code or type(error).__name__}: {error}"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        raise _error("locked", f"OpenCode's database {path} is locked by another program: try again in a "
                     "moment, or close the program that holds it.", detail) from error
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT")):
        raise _error("damaged", f"The file {path} is damaged or not a database at all: put a backup in its "
                     "place, or move it away and start OpenCode once.", detail) from error
    raise _unreadable(path, detail) from error


def _unreadable(path: Path, reason: str) -> SourceError:
    return _error("unreadable", f"OpenCode's database {path} cannot be read ({reason}): run as the user who "
                  "runs OpenCode, or let this user read the file and its folder.", reason)


def _error(kind: str, message: str, detail: str = "") -> SourceError:
    return SourceError(message, kind=kind, source=NAME, detail=detail)
