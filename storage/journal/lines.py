"""A journal's bytes as lines: forwards with numbers, backwards without, in bounded memory.

Lines end at 0x0A and nowhere else: ``str.splitlines`` would also cut at U+2028, which JSON texts may
hold. A line longer than :data:`LONGEST` is passed over; none that was written here is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from storage.journal.errors import JournalError, told
from storage.journal.locks import lock, unlock
from storage.journal.records import parse

LONGEST = 4 * 1024 * 1024
"""Bytes of the longest line that is read."""
CHUNK = 64 * 1024
BOM = b"\xef\xbb\xbf"

Complain = Callable[[int, str], None]


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file for reading and the length up to which it consists of finished appends.

    Raises :class:`JournalMissing`, or :class:`JournalError` for what is no readable file.
    """
    with told(path, "read"):
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: a pipe would hold us up for ever
            raise JournalError(f"{path} is no file: name a session journal, ID.jsonl.")
        file = open(path, "rb", buffering=0)  # noqa: SIM115
    with file, told(path, "read"):
        lock(file.fileno(), shared=True)  # without it an append under way would look like a torn one
        try:
            size = os.fstat(file.fileno()).st_size
        finally:
            unlock(file.fileno())
        file.seek(0)
        yield file, size


def numbered(file: BinaryIO, size: int, complain: Complain, *, pass_over: Callable[[bytes], object] = len
             ) -> Iterator[tuple[int, list[bytes]]]:
    """Lines without their line feeds, in runs, with the number of each run's first.

    A last line without a line feed comes as the others do where it is a whole record; otherwise it
    is dropped with a complaint. ``pass_over`` gets the bytes of lines that are too long, in pieces.
    """
    number, carry, passed, left = 1, b"", 0, size
    while left > 0 and (chunk := file.read(min(CHUNK, left))):
        left -= len(chunk)
        if passed:
            end = chunk.find(b"\n")
            pass_over(chunk if end < 0 else chunk[: end + 1])
            if end < 0:
                passed += len(chunk)
                continue
            complain(number, too_long(passed + end))
            number, passed, chunk = number + 1, 0, chunk[end + 1:]
        lines = (carry + chunk).split(b"\n")
        carry = lines.pop()
        if lines:
            yield number, lines
            number += len(lines)
        if len(carry) > LONGEST:
            pass_over(carry)
            passed, carry = len(carry), b""
    if passed:
        complain(number, too_long(passed))
    elif carry:
        kept, problem = judge_tail(carry)
        if problem:
            complain(number, problem)
        if kept is not None:
            yield number, [kept]


def too_long(size: int) -> str:
    return f"{size:,} bytes long, more than the {LONGEST:,} that are read: skipped"


def is_begun(head: bytes) -> bool:
    """Whether a file that holds no record and begins with these bytes may be a journal whose writer was killed in its
    first record: nothing, NULs, or the beginning of a line."""
    bare = head.removeprefix(BOM).strip(b"\0 \t\r\n")
    return not bare or (b"\n" not in bare and bare.startswith(b"{"))


def judge_tail(tail: bytes) -> tuple[bytes | None, str]:
    """What to keep of the bytes behind the last line feed, and what to say.

    A writer that was killed leaves half a record, a power failure a run of NULs; a whole record
    may merely lack its line feed.
    """
    kept = tail.rstrip(b"\0")
    nulls = len(tail) - len(kept)
    if not kept.strip():
        return None, f"{nulls} NUL bytes at the end: dropped" if nulls else ""
    try:
        whole = isinstance(parse(kept.strip(b"\0").removeprefix(BOM)), dict)
    except ValueError:
        whole = False
    if not whole:
        return None, f"the record at the end is torn ({len(kept):,} bytes): dropped"
    return kept, f"{nulls} NUL bytes at the end: dropped" if nulls else ""


def backwards(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Lines from the last to the first; those that are too long are left out. What stands behind the
    last line feed is judged as always."""
    carry, passing, at_end, end = b"", False, True, size
    while end > 0:
        start = max(end - CHUNK, 0)
        file.seek(start)
        chunk = _exactly(file, end - start)
        end = start
        if passing:  # inside a line that is too long
            cut = chunk.rfind(b"\n")
            if cut < 0:
                continue
            chunk, passing = chunk[: cut + 1], False
        lines = (chunk + carry).split(b"\n")
        carry = lines[0] if start else b""
        for line in reversed(lines[1:] if start else lines):
            if at_end:
                at_end = False
                kept = judge_tail(line)[0]
                if kept is None:
                    continue
                line = kept
            if line:
                yield line
        if len(carry) > LONGEST:
            carry, passing, at_end = b"", True, False


def _exactly(file: BinaryIO, count: int) -> bytes:
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
