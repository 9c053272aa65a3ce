"""What a list shows of a session, from the two ends of its file.

The title is the last that a header gave. :class:`storage.journal.source.JournalSource` repeats a
title that was set later with every turn, so that it always stands near the end; where a file by
another writer does not, a list shows the earlier one and everything else the right one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from storage.journal.content import messages_of
from storage.journal.errors import JournalForeign
from storage.journal.lines import BOM, CHUNK, backwards, is_begun, numbered, opened
from storage.journal.reading import BadLine, whole
from storage.journal.records import HEADER, Record, seconds
from storage.journal.snapshot import title_from

NEAR = 64 * 1024
"""Bytes at each end that are read for a title."""
FAR = 2 * 1024 * 1024
"""Bytes at each end that are read where those hold no whole record."""


@dataclass(frozen=True, slots=True)
class Glance:
    """``active_at`` in unix seconds, that of the file where no record tells; ``renamed`` is a title
    that was found near the end and is not the one it began with; ``blank``: there is no record."""

    title: str
    active_at: float
    renamed: str = ""
    blank: bool = False


def glance(path: Path) -> Glance:
    """Raises :class:`JournalError`, also for a record of a future version and for a file that holds something else."""
    with opened(path) as (file, size):
        head = _head(path, file, size)
        late, active = _tail(path, file, size)
        file.seek(0)
        if not head.any_record and active is None and not is_begun(file.read(min(size, CHUNK))):
            raise JournalForeign.no_record(path)
        changed = os.fstat(file.fileno()).st_mtime
    renamed = late if late != head.original else ""
    active = active if active is not None else head.started if head.started is not None else changed
    return Glance(renamed or head.given or head.first_text, active, renamed, blank=not head.any_record)


@dataclass(slots=True)
class _Head:
    """The title of the first record, the last title before the first turn, the first text."""

    original: str = ""
    given: str = ""
    first_text: str = ""
    started: float | None = None
    any_record: bool = False


def _head(path: Path, file: BinaryIO, size: int) -> _Head:
    head, read = _Head(), 0
    for _, lines in numbered(file, min(size, FAR), lambda *_: None):
        for line in lines:
            read += len(line) + 1
            record = _record(path, line, first=not head.any_record)
            if record is None:
                continue
            title = _title(record)
            if not head.any_record:
                head.original, head.any_record = title, True
            head.given = title or head.given
            head.started = seconds(record.timestamp) if head.started is None else head.started
            if record.event == "turn_start":
                held = messages_of(record)
                head.first_text = title_from(held[0].content) if held else ""
            if head.first_text or read > NEAR:
                return head
    return head


def _tail(path: Path, file: BinaryIO, size: int) -> tuple[str, float | None]:
    """The last title near the end, and the instant of the last record."""
    active, read = None, 0
    for line in backwards(file, size):
        read += len(line) + 1
        if (active is None or b'"header"' in line) and (record := _record(path, line)) is not None:
            active = seconds(record.timestamp) if active is None else active
            if title := _title(record):
                return title, active
        if read > (FAR if active is None else NEAR):
            break
    return "", active


def last_title(path: Path) -> str:
    """The title of the last header that has one, wherever it stands: reads the file from its end."""
    with opened(path) as (file, size):
        for line in backwards(file, size):
            if b'"header"' in line and (record := _record(path, line)) is not None and (title := _title(record)):
                return title
    return ""


def _record(path: Path, line: bytes, *, first: bool = False) -> Record | None:
    bare = line.removeprefix(BOM).strip(b"\0 \t\r\n")
    if not bare:
        return None
    try:
        return whole(bare, path=path, first=first)[0]
    except BadLine:
        return None


def _title(record: Record) -> str:
    title = record.data.get("title") if record.event == HEADER and isinstance(record.data, Mapping) else None
    return title if isinstance(title, str) else ""
