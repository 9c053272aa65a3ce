"""A journal read tolerantly: a bad line is skipped, counted and named, and never ends the reading.

:func:`scan` is for large files: it decodes of each line only what a resume needs. :func:`load` gives
whole records. Both change nothing on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec

from storage.journal.lines import BOM, backwards, numbered, opened
from storage.journal.migrations import STEPS, Step, is_header, migrate, version_of
from storage.journal.records import EVENTS, HEADER, VERSION, Complaint, Record, iso, kind_of, parse, seconds

COMPLAINTS_KEPT = 1000
"""Of a file that is nothing but garbage not every line is told; all are counted."""


class Complaints:
    """Collects complaints of one file."""

    def __init__(self) -> None:
        self.kept: list[Complaint] = []
        self.count = 0

    def __call__(self, line: int, problem: str) -> None:
        self.count += 1
        if len(self.kept) < COMPLAINTS_KEPT:
            self.kept.append(Complaint(line, problem))


class Wanted(msgspec.Struct, gc=False):
    """What a resume wants of a record's data; values of any type, or None."""

    id: Any = None
    call_id: Any = None
    callId: Any = None
    tool_use_id: Any = None
    call: Any = None
    request_id: Any = None
    requestId: Any = None
    name: Any = None
    tool: Any = None
    usage: Any = None
    cost: Any = None
    config: Any = None
    title: Any = None
    startedAt: Any = None
    totalTokens: Any = None
    sessionCost: Any = None
    blob: Any = None


_WANTED = Wanted.__struct_fields__


class Seen(msgspec.Struct, gc=False):
    """A record as :func:`scan` shows it; ``data`` None where it is no object. Decoding a line checks the types."""

    event: Literal["turn_start", "tool_call", "tool_result", "turn_end", "header"]
    turn: Annotated[int, msgspec.Meta(ge=0)]
    timestamp: str | None = None
    v: Any = msgspec.UNSET
    data: Wanted | None = None


_decoder = msgspec.json.Decoder(Seen)
_decode, _decode_lines = _decoder.decode, _decoder.decode_lines

_OURS = frozenset({"v", "timestamp", "turn", "event", "data"})
_BEGINNING = b'{"v":%d,' % VERSION
_BEGINNINGS = {_BEGINNING}


class BadLine(ValueError):
    """A line that is no record; the text says why."""


Run = tuple[int, list[bytes], list[Seen], int]
"""Records that follow each other: the first one's line number, what :func:`whole` reads of each, what a
resume wants of each, and the version that all of them have on disk."""


def scan(path: Path, complain: Complaints) -> Iterator[Run]:
    """Every record of the file in order, in runs.

    Raises :class:`JournalError`: the file cannot be read, or holds a record of a future version.
    """
    first = True
    with opened(path) as (file, size):
        for number, lines in numbered(file, size, complain):
            seen = None if first else _at_once(lines)
            if seen is not None:
                yield number, lines, seen, VERSION
                continue
            for at, line in enumerate(lines, number):
                run = _quickly(at, line) or _slowly(path, at, line, first, complain)
                if run is not None:
                    first = False
                    yield run


def _at_once(lines: list[bytes]) -> list[Seen] | None:
    """A run of lines in one go, at half the time; None where one of them is not as we write it."""
    # The decoder would also take two records on a line, or one on two lines: so each line must begin as a record
    # does, and there must be as many records as there are lines.
    if {line[: len(_BEGINNING)] for line in lines} != _BEGINNINGS:
        return None
    block = b"\n".join(lines)
    try:
        seen = _decode_lines(block)
        if not block.isascii():
            for line in lines:
                if not line.isascii():
                    str(line, "utf-8")  # the decoder does not look into what it passes over
    except (ValueError, TypeError, RecursionError):
        return None
    return seen if len(seen) == len(lines) else None


def _quickly(number: int, line: bytes) -> Run | None:
    """A line by itself; None where it needs a closer look."""
    try:
        seen = _decode(line)
        if not line.isascii():
            str(line, "utf-8")
    except (ValueError, TypeError, RecursionError):
        return None
    version = 1 if seen.v is msgspec.UNSET else seen.v
    if type(version) is not int or not 1 <= version <= VERSION or seen.event == HEADER:
        return None
    if version < VERSION and seen.data is not None and seen.data.config is not None:
        return None  # the only thing in an old record, save for a header, that a migration changes
    return number, [line], [seen], version


def _slowly(path: Path, number: int, line: bytes, first: bool, complain: Complaints) -> Run | None:
    line = freed(line, number, complain)
    if not line:
        return None
    try:
        record, version = whole(line, path=path, number=number, first=first)
    except BadLine as bad:
        complain(number, f"{bad}: skipped")
        return None
    wanted = None
    if isinstance(record.data, Mapping):
        wanted = Wanted(**{name: record.data[name] for name in _WANTED if name in record.data})
    seen = Seen(cast(Any, record.event), record.turn, record.timestamp, VERSION, wanted)
    return number, [line], [seen], version


def freed(line: bytes, number: int, complain: Complaints) -> bytes:
    """The line without what a power failure or a Windows editor put around it; empty for a blank one."""
    if number == 1:
        line = line.removeprefix(BOM)
    bare = line.strip(b"\0")
    if len(bare) != len(line):
        complain(number, f"{len(line) - len(bare)} NUL bytes: passed over")
    return bare.strip(b" \t\r\n")


def whole(line: bytes, *, path: Path | str = "", number: int = 0, first: bool = False,
          steps: Mapping[int, Step] = STEPS) -> tuple[Record, int]:
    """The record of a line, brought to the present version, and the version that it has on disk.

    A line without an event is a header where it stands ``first``. Raises :class:`BadLine`, or
    :class:`JournalVersionError` for a version that cannot be read.
    """
    try:
        held = parse(line)
        if not isinstance(held, dict):
            raise BadLine(f"not a record but {kind_of(held)}")
        version = version_of(held)
    except BadLine:
        raise
    except ValueError as error:
        raise BadLine(str(error)) from None
    held = migrate(held, steps=steps, path=path, number=number)
    event, data, timestamp = held.get("event"), held.get("data"), held.get("timestamp")
    if is_header(held) and (first or event == HEADER):
        if first:  # other writers may put its fields on the line itself
            loose = {key: value for key, value in held.items() if key not in _OURS}
            data = {**loose, **data} if isinstance(data, dict) else loose
        return Record(0, HEADER, data, _timestamp(timestamp)), version
    turn = held.get("turn")
    if not isinstance(event, str) or event not in EVENTS:
        raise BadLine(f"{event!r} is no event" if event is not None else "a record without an event")
    if type(turn) is not int or turn < 0:
        raise BadLine(f"turn is {turn!r}, not a whole number")
    extra = {key: value for key, value in held.items() if key not in _OURS}
    return Record(turn, event, data, _timestamp(timestamp), VERSION, extra), version


def _timestamp(value: Any) -> str:
    if isinstance(value, str):
        return value
    at = seconds(value)
    return "" if at is None else iso(at)


def newest(path: Path, size: int | None = None) -> Iterator[Record]:
    """Whole records from the newest back; bad lines are left out without a word, since they have no
    number from here. ``size`` is the length of the file to begin at. Raises as :func:`scan`."""
    with opened(path) as (file, now):
        for line in backwards(file, now if size is None else min(size, now)):
            try:
                yield whole(line.removeprefix(BOM).strip(b"\0"), path=path)[0]
            except BadLine:
                continue


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole journal in memory.

    ``complaints`` holds the first thousand of ``complaint_count``; ``versions`` counts the records by
    the version that they have on disk.
    """

    records: tuple[Record, ...]
    complaints: tuple[Complaint, ...] = ()
    complaint_count: int = 0
    versions: Mapping[int, int] | None = None


def load(path: Path) -> Loaded:
    """Every record of the file, whole. Raises as :func:`scan`."""
    complain = Complaints()
    records: list[Record] = []
    versions: Counter[int] = Counter()
    with opened(path) as (file, size):
        for number, lines in numbered(file, size, complain):
            for at, raw in enumerate(lines, number):
                if not (line := freed(raw, at, complain)):
                    continue
                try:
                    record, version = whole(line, path=path, number=at, first=not records)
                except BadLine as bad:
                    complain(at, f"{bad}: skipped")
                    continue
                records.append(record)
                versions[version] += 1
    return Loaded(tuple(records), tuple(complain.kept), complain.count, dict(versions))
