"""One record of a journal, and its line.

    {"v":3,"timestamp":"2026-01-15T08:00:00.000000Z","turn":1,"event":"turn_start","data":{…}}

``event`` is one of :data:`EVENTS`; what stands in ``data`` is told in :mod:`storage.journal.content`.
A record with the event ``header`` may stand first and again later. Its data may hold ``id``,
``title``, ``startedAt``, ``config``, ``totalTokens`` and ``sessionCost`` (what was spent before this
file began); a later header replaces what it names. That is how a session gets another title.

msgspec does the decoding: it reads a 1 KB line into the few fields that a resume wants in 0.5 µs
(orjson 1.2 µs, json 4.0 µs) and keeps integers of any size. What it refuses and Python's json takes
(lone surrogates as escapes, NaN) is read the slow way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from storage.codec import clean

VERSION = 3
EVENTS = frozenset({"turn_start", "tool_call", "tool_result", "turn_end"})
HEADER = "header"
MAX_RECORD = 1024 * 1024
"""Bytes of the longest line that is written, its line feed included."""
SHOWN_CHARS = 40
"""Characters of a wrong value that a complaint repeats."""

_DECODER = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Record:
    """``turn`` from 0; ``data`` any JSON value; ``timestamp`` ISO 8601, empty where a file has none;
    ``extra`` other keys of the line, kept as they are."""

    turn: int
    event: str
    data: Any
    timestamp: str = ""
    v: int = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that is wrong with one line (numbered from 1) and was got over."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


def record(turn: int, event: str, data: Any, at: float) -> Record:
    """A new record; ``at`` in unix seconds."""
    return Record(turn, event, data, iso(at))


def iso(at: float) -> str:
    """UTC to the microsecond, as JavaScript's Date reads it too."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds(timestamp: Any) -> float | None:
    """Unix seconds of an ISO 8601 text (UTC unless it says otherwise), or of a number of seconds or,
    from 1e11 on, of milliseconds. None for anything else."""
    try:
        if isinstance(timestamp, str):
            when = datetime.fromisoformat(timestamp)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        if isinstance(timestamp, int | float) and not isinstance(timestamp, bool):
            number = float(timestamp)
            return datetime.fromtimestamp(number / 1000 if abs(number) >= 1e11 else number, UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    return None


def odd_timestamp(value: Any) -> str:
    """What is wrong with a record's timestamp; empty where nothing is. It may be missing."""
    if value in (None, "") or seconds(value) is not None:
        return ""
    shown = repr(value) if isinstance(value, str | int | float) else kind_of(value)
    return f"timestamp is {shown[:SHOWN_CHARS]}, not a time such as 2026-01-15T08:00:00Z"


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


def encode(this: Record, *, exact: bool = False) -> bytes:
    """The line, line feed included. NaN and infinities become ``null``, lone surrogates U+FFFD; with
    ``exact`` both stay as they are, in a form that only Python reads.

    Raises ValueError for a record that no reader would take, TypeError for data that is not JSON.
    """
    if this.event not in EVENTS and this.event != HEADER:
        raise ValueError(f"{this.event!r} is no event of a journal: use one of {', '.join(sorted(EVENTS))}")
    if type(this.turn) is not int or this.turn < 0:
        raise ValueError(f"the turn of a record is a whole number from 0, not {this.turn!r}")
    line = {"v": this.v, "timestamp": this.timestamp, "turn": this.turn, "event": this.event, "data": this.data}
    return encode_object({**line, **{key: value for key, value in this.extra.items() if key not in line}}, exact=exact)


def encode_object(line: Mapping[str, Any], *, exact: bool = False) -> bytes:
    """As :func:`encode`, for a line that is an object of any shape."""
    if exact:
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(line, str_keys=True)
        return clean(json.dumps(plain, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def parse(line: bytes) -> Any:
    """The JSON value of a line. Raises ValueError, whose text is fit for a person."""
    return parse_telling(line)[0]


def parse_telling(line: bytes) -> tuple[Any, bool]:
    """The value, and whether only Python's own reader took it, so that ``exact`` must write it."""
    try:
        return _DECODER.decode(line), False
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        pass
    try:
        return json.loads(str(line, "utf-8")), True
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
