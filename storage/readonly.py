"""Reading a database so that nothing is created, written or held up: another program's, or one of ours where
it may not be written.

Measured with SQLite 3.40: OpenCode and Hermes keep their files in WAL mode with a writer open, and
a reader that stays connected stops its checkpoints, so every read here opens, reads and closes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from fsm.ports import SourceError

TIMEOUT = 2.0
"""Seconds to wait for a lock. Only an exclusive lock makes a reader wait at all."""

T = TypeVar("T")


class Identity(NamedTuple):
    """Which file was read; another one in its place is another identity."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Program:
    """Whose database it is, as the error messages say it.

    ``source`` names the session source, ``file`` is what the database is usually called, ``mend``
    says how to point at another one (``set OPENCODE_DB to where it is``).
    """

    source: str
    name: str
    file: str
    mend: str

    @property
    def whose(self) -> str:
        """``OpenCode's``, ``Hermes'``."""
        return f"{self.name}'" if self.name.endswith("s") else f"{self.name}'s"

    def error(self, kind: str, message: str, detail: str = "") -> SourceError:
        return SourceError(message, kind=kind, source=self.source, detail=detail)

    def nothing_in(self, path: object) -> SourceError:
        """The error for a file without tables."""
        return self.error("empty", f"{self.whose} database {path} holds no tables yet: start {self.name} once "
                          "so that it makes them.")

    def foreign(self, path: object, missing: str, present: str) -> SourceError:
        """The error for a file that holds something else."""
        return self.error("foreign", f"The schema of {path} is none that is known from {self.name} (missing "
                          f"{missing}): name {self.whose} own database, or update Session Router.",
                          f"schema: missing {missing}; present {present}")

    def unreadable(self, path: object, reason: str) -> SourceError:
        return self.error("unreadable", f"{self.whose} database {path} cannot be read ({reason}): run as the "
                          f"user who runs {self.name}, or let this user read the file and its folder.", reason)


def read(path: Path, program: Program, work: Callable[[sqlite3.Connection, Identity], T],
         timeout: float = TIMEOUT) -> T:
    """What ``work`` reads over a short read-only connection, all of it from one snapshot.

    ``work`` also gets the file's identity, and may be called twice. Raises :class:`SourceError`.
    """
    try:
        path = Path(os.path.realpath(path))  # the -wal stands beside the file itself, not beside a link to it
    except (OSError, ValueError) as error:
        raise program.unreadable(path, str(error)) from error
    wal = f"{path}-wal"
    before = _look_at(path, program)
    identity = Identity(str(path), before.st_dev, before.st_ino)
    # Quoted: in a bare path a "#" or "?" would cut off mode=ro, and SQLite would make a file.
    uri = f"{path.as_uri()}?mode=ro"
    try:
        if not os.path.exists(wal) and _is_wal_file(identity):
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
        _refuse(path, program, error)
    except OSError as error:
        raise program.unreadable(path, error.strerror or type(error).__name__) from error


def lacking(needed: Mapping[str, Set[str]], tables: Mapping[str, Set[str]]) -> list[str]:
    """What is not there, as ``table`` or ``table.column``."""
    found: list[str] = []
    for table, columns in needed.items():
        if table not in tables:
            found.append(table)
        else:
            found.extend(f"{table}.{column}" for column in sorted(columns - tables[table]))
    return found


def storable(session_id: str) -> bool:
    """A lone surrogate cannot reach SQLite, so no session is called that."""
    try:
        session_id.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- a store that may not be written -------------------------------------------------------------


def may_be_written(path: Path) -> bool:
    """Whether SQLite can work on the file as it does: it writes the file, and others beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """A copy of a database with what its -wal holds, in a folder that goes afterwards. Nothing is made or
    changed where it comes from. Raises ``OSError`` where it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="session-router-") as folder:
        copy = Path(folder) / path.name
        try:
            # From one snapshot, where a writer is at it and has left its -shm.
            uri = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        except sqlite3.Error:
            # On a read-only medium nobody writes; SQLite takes up the -wal of the copy by itself.
            shutil.copyfile(path, copy)
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        yield copy


# -- files that this process keeps open ----------------------------------------------------------

_guard = threading.Lock()
_kept_open: Counter[tuple[int, int]] = Counter()


@contextmanager
def kept_open(found: os.stat_result) -> Iterator[None]:
    """While a connection of this process stays at the file: no read opens it beside SQLite.

    Closing any descriptor of a file drops all POSIX locks that the process has on it. SQLite minds
    that for its own; a descriptor of ours would take from the connection the lock that tells others
    that the -wal is in use, and the next program to close would delete it.
    """
    name = found.st_dev, found.st_ino
    with _guard:
        _kept_open[name] += 1
    try:
        yield
    finally:
        with _guard:
            _kept_open[name] -= 1
            if not _kept_open[name]:
                del _kept_open[name]


def _is_wal_file(identity: Identity) -> bool:
    with _guard:
        if (identity.device, identity.inode) in _kept_open:
            return False  # not asked; somebody is at it, so the ordinary way is the right one
        with open(identity.path, "rb") as file:
            return file.read(20)[18:20] == b"\x02\x02"  # "file format read/write version" of the header


# -- reading -------------------------------------------------------------------------------------


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


def _look_at(path: Path, program: Program) -> os.stat_result:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise program.error("missing", f"{program.whose} database was not found at {path}: start {program.name} "
                            f"once, or {program.mend}.") from error
    except (OSError, ValueError) as error:
        raise program.unreadable(path, getattr(error, "strerror", None) or str(error)) from error
    if stat.S_ISDIR(found.st_mode):
        raise program.error("unreadable", f"{path} is a folder, not {program.whose} database: name the file in "
                            f"it, usually {program.file}.")
    if not stat.S_ISREG(found.st_mode):
        raise program.unreadable(path, "not a regular file")
    if found.st_size == 0:  # never opened: SQLite deletes the -wal beside an empty file
        raise program.nothing_in(path)
    return found


def _refuse(path: Path, program: Program, error: sqlite3.Error) -> NoReturn:
    code = getattr(error, "sqlite_errorname", "") or ""
    detail = f"{code or type(error).__name__}: {error}"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        raise program.error("locked", f"{program.whose} database {path} is locked by another program: try again "
                            "in a moment, or close the program that holds it.", detail) from error
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT")):
        raise program.error("damaged", f"The file {path} is damaged or not a database at all: put a backup in its "
                            f"place, or move it away and start {program.name} once.", detail) from error
    raise program.unreadable(path, detail) from error
