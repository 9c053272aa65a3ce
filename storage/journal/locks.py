"""Two locks with different jobs.

*Exclusion*: :func:`lock` on the journal itself, held for one append, so that any number of processes
may append to one session. It is needed although a record is one ``write``: a process killed in the
middle of one leaves half a line, and the next writer has to cut it off before writing.

*Ownership*: :class:`OwnerLock` on a file beside it, held as long as a process runs the session.
Both vanish with the process that held them, whatever ended it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from storage.journal.errors import JournalBusy

if sys.platform == "win32":
    import msvcrt

    _FAR = 2**62  # a byte that no journal has: Windows would keep others from reading a locked one

    def lock(fd: int, *, shared: bool = False, wait: bool = True) -> bool:
        """Take the lock; False where another holds it and ``wait`` is False. ``shared`` for readers."""
        while True:
            os.lseek(fd, _FAR, os.SEEK_SET)
            try:
                msvcrt.locking(fd, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False

    def unlock(fd: int) -> None:
        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def lock(fd: int, *, shared: bool = False, wait: bool = True) -> bool:
        """Take the lock; False where another holds it and ``wait`` is False. ``shared`` for readers."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class OwnerLock:
    """Says that this process runs the session of ``journal``; names it by its process id."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.path = journal.with_name(journal.name + ".lock")
        self._fd: int | None = None

    def acquire(self) -> None:
        """Raises :class:`JournalBusy` at once where somebody else owns it, in this process or another."""
        while self._fd is None:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if not lock(fd, wait=False):
                    raise JournalBusy(self.journal, _pid(os.read(fd, 32)))
                if is_at(fd, self.path):  # else its last owner removed it between our open and our lock
                    os.ftruncate(fd, 0)
                    os.lseek(fd, 0, os.SEEK_SET)
                    os.write(fd, str(os.getpid()).encode())
                    self._fd, fd = fd, -1
            finally:
                if fd >= 0:
                    os.close(fd)

    def release(self) -> None:
        """May be called twice."""
        if (fd := self._fd) is None:
            return
        self._fd = None
        with suppress(OSError):  # Windows keeps an open file
            os.unlink(self.path)
        os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    """Whether ``fd`` is still the file at ``path``: a migration puts another one in its place."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _pid(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() else None
