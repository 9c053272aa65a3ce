"""What can be wrong with a journal as a whole.

    SessionRouterError
     └─ JournalError            it cannot be read or written; nothing was changed
         ├─ JournalMissing      there is no such session
         ├─ JournalBusy         another process owns the session
         ├─ JournalForeign      what is there is no journal of ours
         ├─ JournalVersionError a record of a version that this program cannot read
         └─ JournalIdError      no file may be called after that session id

A line that cannot be read is none of these: it is skipped, counted and named (:class:`Complaint`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsm.ports import SessionRouterError


class JournalError(SessionRouterError):
    """A journal cannot be read or written. ``kind`` as in :class:`fsm.ports.SourceError`."""

    kind = "unreadable"


class JournalMissing(JournalError):
    """No file is there under ``path``."""

    kind = "missing"

    def __init__(self, path: Path) -> None:
        super().__init__(f"There is no session journal {path}: check the name, or list the sessions.")
        self.path = path


class JournalBusy(JournalError):
    """The session is owned by process ``pid`` (None where it could not be told)."""

    kind = "locked"

    def __init__(self, path: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"The session journal {path} is in use by {who}: end that one, or take another session.")
        self.path, self.pid = path, pid


class JournalForeign(JournalError):
    """What stands at ``path`` is nothing that records may be added to; the text says why."""

    kind = "foreign"

    @classmethod
    def link(cls, path: Path) -> JournalForeign:
        return cls(f"{path} is a symbolic link, which a session journal may not be: put the file itself there, or name "
                   "the folder that it lies in as journal under [sources].")

    @classmethod
    def no_record(cls, path: Path) -> JournalForeign:
        return cls(f"No line of {path} is a record of a session, so nothing is added to it: move it out of the folder "
                   "of session journals.")


class JournalVersionError(JournalError):
    """A record of version ``version`` that cannot be brought to ``known``; ``line`` from 1, 0 if unknown."""

    kind = "foreign"

    def __init__(self, path: Path | str, version: int, known: int, line: int = 0) -> None:
        where = f"{path}, line {line}" if line else str(path)
        if version > known:
            text = (f"{where}: this record has version {version} and was written by a newer program; this one reads "
                    f"up to version {known}. Nothing was changed: update the program.")
        else:
            text = (f"{where}: there is no step from version {version} to the next, so version {known} cannot be "
                    "reached. Nothing was changed: open the file with the program that wrote it.")
        super().__init__(text)
        self.version, self.known, self.line = version, known, line


class JournalIdError(JournalError):
    """``session_id`` cannot name a file in the sessions folder."""

    kind = "missing"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(f"No session can be called {session_id[:80]!r}: {why}.")
        self.session_id = session_id


@contextmanager
def told(path: Path, doing: str) -> Iterator[None]:
    """Turn what the operating system says into a :class:`JournalError` for a person."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise JournalMissing(path) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise JournalError(f"The session journal {path} cannot be {doing} ({reason}): check the disk and who may "
                           "use the file. Every earlier record is kept.") from error
