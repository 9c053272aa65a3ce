"""One journal file: whole records in, whole records out, whatever happens in between.

An append takes the file's lock, cuts off what a killed writer left at its end, writes its line with
``O_APPEND``, and where that fails puts the file back to its old length. It is on disk (fdatasync)
where a turn begins or ends; a crash of the machine, not of the program, may lose what came between.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.journal import blobs
from storage.journal.errors import JournalError, JournalForeign, JournalVersionError, told
from storage.journal.lines import BOM, CHUNK, LONGEST, backwards, is_begun, judge_tail
from storage.journal.locks import is_at, lock, unlock
from storage.journal.reading import BadLine, Loaded, load, whole
from storage.journal.records import HEADER, MAX_RECORD, VERSION, Record, encode, parse

log = logging.getLogger(__name__)

DURABLE = frozenset({"turn_start", "turn_end", HEADER})
"""Events after which the file is on disk when ``append`` returns."""

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync
_FLAGS = os.O_RDWR | os.O_APPEND
for _name in ("O_BINARY", "O_NONBLOCK", "O_NOFOLLOW"):  # not every system has each of them
    _FLAGS |= getattr(os, _name, 0)


@dataclass(slots=True)
class Alone:
    """A journal while nobody else appends to it; it is ``length`` bytes long. What is put into ``records`` is
    appended when it is let go: all of it or nothing."""

    path: Path
    length: int
    records: list[Record] = field(default_factory=list)

    def newest(self) -> Iterator[Record]:
        """The records there are, from the newest back; bad lines are left out."""
        with open(self.path, "rb", buffering=0) as file:
            for line in backwards(file, self.length):
                with suppress(BadLine):
                    yield whole(line.removeprefix(BOM).strip(b"\0"), path=self.path)[0]


class JournalFile:
    """``path`` is the file; it and its folder are made at the first append. Safe for many threads
    and, with one object each, for many processes. Methods block and raise :class:`JournalError`.
    Without ``durable`` nothing waits for the disk: what a killed process wrote is there, what a power
    failure takes is not."""

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self.path = Path(path)
        self._durable = durable
        self._fd: int | None = None
        self._mutex = threading.Lock()
        self._length = -1  # after our own last append: somebody else's has to be looked at

    def append(self, *records: Record, header: Record | None = None) -> None:
        """Write records at the end, in order and with nothing between them: all of them or none.

        ``header`` goes before them where the file is new or empty. A record that is larger than 1 MiB
        is shortened and its data stored beside the file. Raises ValueError or TypeError, before
        anything is written, for what is no record.
        """
        if records:
            self._write(records, header)

    def begin(self, header: Record) -> bool:
        """Write a header where the file is new or empty. False where something is there already."""
        return self._write((), header)

    @contextmanager
    def alone(self) -> Iterator[Alone]:
        """The file with nobody else appending to it meanwhile, for whoever has to look before writing.

        Raises :class:`JournalMissing` where there is no such file; none is made.
        """
        with told(self.path, "written"), self._locked(make=False) as fd:
            size = os.fstat(fd).st_size
            self._length = self._mend(fd, size)
            alone = Alone(self.path, self._length)
            yield alone
            if alone.records:
                self._append(fd, [self._line(record) for record in alone.records], self._length,
                             durable=any(record.event in DURABLE for record in alone.records))

    @property
    def length(self) -> int:
        """Bytes behind our own last append; negative where that is not known."""
        return self._length

    def load(self) -> Loaded:
        """Every record, and what is wrong with the file; changes nothing."""
        return load(self.path)

    def repair(self) -> None:
        """Cut off a torn end now rather than at the next append."""
        with told(self.path, "repaired"):
            if self.path.exists():
                with self._locked() as fd:
                    self._length = self._mend(fd, os.fstat(fd).st_size)

    def blob(self, sha256: str) -> Any:
        """The whole ``data`` of a record that was shortened."""
        return blobs.get(self.path.parent / blobs.FOLDER, sha256)

    def close(self) -> None:
        """May be called twice; the next append opens the file again."""
        with self._mutex:
            self._close()

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, records: Sequence[Record], header: Record | None = None) -> bool:
        first = [] if header is None else [encode(header)]
        with told(self.path, "written"):
            lines = [self._line(record) for record in records]
            with self._locked() as fd:
                size = os.fstat(fd).st_size
                if size != self._length or _read(fd, size - 1, 1) != b"\n":
                    size = self._mend(fd, size)
                if size == 0:
                    lines = first + lines
                if not lines:
                    return False
                self._append(fd, lines, size, durable=any(record.event in DURABLE for record in records))
        return True

    def _line(self, record: Record) -> bytes:
        line = encode(record)
        return line if len(line) <= MAX_RECORD else blobs.shortened(record, self.path.parent / blobs.FOLDER)

    def _append(self, fd: int, lines: Sequence[bytes], size: int, *, durable: bool) -> None:
        """Write at the end of the locked file, which is ``size`` bytes long: all of it or nothing."""
        self._length = -1
        try:
            for line in lines:
                _write_all(fd, line)
        except BaseException:
            os.ftruncate(fd, size)
            raise
        self._length = size + sum(map(len, lines))
        if self._durable and (size == 0 or durable):
            _sync(fd)
            if size == 0:
                blobs.sync_folder(self.path.parent)

    @contextmanager
    def _locked(self, *, make: bool = True) -> Iterator[int]:
        with self._mutex:
            while True:
                fd = self._opened(make)
                lock(fd)
                if is_at(fd, self.path):
                    break
                self._close()  # replaced by a migration, or deleted; closing unlocks
            try:
                yield fd
            finally:
                unlock(fd)

    def _opened(self, make: bool) -> int:
        if self._fd is None:
            if make:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                fd = os.open(self.path, _FLAGS | (os.O_CREAT if make else 0), 0o600)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise JournalForeign.link(self.path) from error
                raise
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise JournalError(f"{self.path} is no file: a session journal cannot be written there.")
            self._fd, self._length = fd, -1
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._length = None, -1

    def _mend(self, fd: int, size: int) -> int:
        """Make the file end in a whole line and give its length; refuses one from the future, and one that is none of
        ours."""
        if size == 0:
            return 0
        if self._length < 0:
            head = _read(fd, 0, min(size, CHUNK))
            self._refuse_future(head.partition(b"\n")[0])
            self._refuse_foreign(head, size)
        start, tail, last = _end(fd, size)
        self._refuse_future(last)
        if not tail:
            return size
        if len(tail) > LONGEST:  # too much to judge, so nothing of it is thrown away
            return size + _write_all(fd, b"\n")
        kept, problem = judge_tail(tail)
        if kept is not None:
            self._refuse_future(kept)
        end = start + len(kept or b"")
        if problem:
            log.warning("session journal %s: %s", self.path, problem)
        if end < size:
            os.ftruncate(fd, end)
        return end if kept is None else end + _write_all(fd, b"\n")

    def _refuse_foreign(self, head: bytes, size: int) -> None:
        if is_begun(head):
            return
        with suppress(BadLine):  # as good as always it is the first line
            whole(head.partition(b"\n")[0].removeprefix(BOM).strip(b"\0"), path=self.path, first=True)
            return
        with open(self.path, "rb", buffering=0) as file:
            for line in backwards(file, size):
                with suppress(BadLine):
                    whole(line.removeprefix(BOM).strip(b"\0"), path=self.path, first=True)
                    return
        raise JournalForeign.no_record(self.path)

    def _refuse_future(self, line: bytes) -> None:
        try:
            held = parse(line.removeprefix(BOM).strip(b"\0"))
        except ValueError:
            return
        version = held.get("v") if isinstance(held, dict) else None
        if type(version) is int and version > VERSION:
            raise JournalVersionError(self.path, version, VERSION)


def _end(fd: int, size: int) -> tuple[int, bytes, bytes]:
    """Where the bytes behind the last line feed begin, those bytes, and the line before it (empty
    where it does not lie wholly within what was read)."""
    step, start, read = 4096, size, b""
    while start > 0 and len(read) <= LONGEST:
        begin = max(start - step, 0)
        read, start, step = _read(fd, begin, start - begin) + read, begin, min(step * 16, CHUNK)
        feed = read.rfind(b"\n")
        if feed >= 0:
            before = read.rfind(b"\n", 0, feed)
            if before < 0 and start > 0 and len(read) < CHUNK:
                continue
            return start + feed + 1, read[feed + 1 :], read[before + 1 : feed] if before >= 0 or start == 0 else b""
    return start, read, b""


def _read(fd: int, start: int, count: int) -> bytes:
    os.lseek(fd, start, os.SEEK_SET)  # appends do not care where we are
    parts = []
    while count > 0 and (part := os.read(fd, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write_all(fd: int, line: bytes) -> int:
    """Mostly one write; the lock keeps others out of the rest of a short one."""
    left = memoryview(line)
    while left:
        left = left[os.write(fd, left) :]
    return len(line)
