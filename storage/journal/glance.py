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

from storage.journal.content import messages_of
from storage.journal.lines import BOM, backwards, numbered, opened
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
    that was found near the end, which the head does not give; ``blank`` that there is no record."""

    title: str
    active_at: float
    renamed: str = ""
    blank: bool = False


def glance(path: Path) -> Glance:
    """Raises :class:`JournalError`, also for a record of a future version."""
    with opened(path) as (file, size):
        given, first_text, started, any_record = "", "", None, False
        read = 0
        for _, lines in numbered(file, min(size, FAR), lambda *_: None):
            for line in lines:
                read += len(line) + 1
                record = _record(path, line, first=not any_record)
                if record is None:
                    continue
                any_record = True
                started = started if started is not None else seconds(record.timestamp)
                if record.event == HEADER:
                    given = _title(record) or given
                elif record.event == "turn_start" and not first_text:
                    held = messages_of(record)
                    first_text = title_from(held[0].content) if held else ""
                if first_text or (any_record and read > NEAR):
                    break
            if first_text or (any_record and read > NEAR):
                break
        active, late, back = None, "", 0
        for line in backwards(file, size):
            back += len(line) + 1
            if active is None:
                record = _record(path, line)
                active = None if record is None else seconds(record.timestamp)
                late = _title(record) if record is not None else ""
            elif b'"header"' in line:
                record = _record(path, line)
                late = _title(record) if record is not None else ""
            if late or back > (FAR if active is None else NEAR):
                break
        changed = os.fstat(file.fileno()).st_mtime
    renamed = late if late != given else ""
    if active is None:
        active = started if started is not None else changed
    return Glance(renamed or given or first_text, active, renamed, not any_record)


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
