"""What a journal tells about its session: rebuilt record by record, and compared on resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.journal.content import CALL_IDS, SessionMessage, messages_of, text_of
from storage.journal.reading import Complaints, Seen, Wanted, newest, scan, whole
from storage.journal.records import Complaint
from storage.journal.usage import UsageTotals

TITLE_CHARS = 80
NEWEST_BYTES = 16 * 1024 * 1024
"""What the newest messages of a session may take, however many were wanted."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of all model calls so far."""

    input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The settings that a session ran with, None where the journal does not say; ``others`` are
    those that have no name here."""

    model: str | None = None
    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> SessionConfig:
        """From the names in a journal; a value of the wrong type stays visible among ``others``."""
        others = dict(held)
        named: dict[str, Any] = {}
        for name, there, kind in _NAMES:
            if isinstance(others.get(there), kind) and not isinstance(others.get(there), bool):
                named[name] = others.pop(there)
        return cls(**named, others=others)

    def to_json(self) -> dict[str, Any]:
        """The names in a journal, unknown settings as null."""
        return {**dict(self.others), **{there: value for name, there, _ in _NAMES
                                        if (value := getattr(self, name)) is not None or there not in self.others}}


_NAMES = (("model", "model", str), ("max_turns", "maxTurns", int), ("max_tokens_per_turn", "maxTokensPerTurn", int))


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as its journal leaves it. Instants are the texts of the records, None where there
    are none; ``current_turn_started_at`` is that of a turn that was started and never ended."""

    id: str
    started_at: str | None
    last_activity_at: str | None
    messages: tuple[SessionMessage, ...]
    turn_count: int
    current_turn_started_at: str | None
    total_tokens: Tokens
    session_cost: float
    config: SessionConfig

    def to_json(self) -> dict[str, Any]:
        """The names that the files have always had: ``startedAt``, ``totalTokens``, …"""
        return {
            "id": self.id,
            "startedAt": self.started_at,
            "lastActivityAt": self.last_activity_at,
            "messages": [{"role": message.role, "content": message.content} for message in self.messages],
            "turnCount": self.turn_count,
            "currentTurnStartedAt": self.current_turn_started_at,
            "totalTokens": {"input": self.total_tokens.input, "output": self.total_tokens.output},
            "sessionCost": self.session_cost,
            "config": self.config.to_json(),
        }


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A command that was started and has no result: whether it ran is not known."""

    turn: int
    id: str
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A journal read for going on with its session. ``interrupted_turn`` is the number of the turn
    that was started and not ended; ``blobs`` the names of large contents that stand beside it."""

    snapshot: SessionSnapshot
    title: str
    interrupted_turn: int | None
    open_calls: tuple[OpenCall, ...]
    complaints: tuple[Complaint, ...]
    complaint_count: int
    records: int
    versions: Mapping[int, int]
    blobs: Mapping[str, int]
    """Name of each, and the line that names it."""


def resume(path: Path, session_id: str, *, messages: int | None = None) -> Resumed:
    """Read the journal once, from front to back; changes nothing.

    ``messages`` keeps only that many of the newest, which bounds the memory. Raises :class:`JournalError`.
    """
    complain = Complaints()
    replay = Replay(complain)
    every: list[SessionMessage] = []
    opening: list[SessionMessage] = []
    for number, lines, seen, version in scan(path, complain):
        first = not replay.versions
        replay.take(number, seen, version)
        if messages is None or not opening:
            for line, one in zip(lines, seen, strict=True):
                if messages is None or (one.event == "turn_start" and not opening):
                    held = messages_of(whole(line, path=path, first=first)[0])
                    every += held
                    if one.event == "turn_start":
                        opening = opening or held
    title = replay.title or (title_from(opening[0].content) if opening else "")
    snapshot = SessionSnapshot(
        session_id, replay.started_at or None, replay.last_at or None,
        tuple(every if messages is None else newest_messages(path, messages)),
        replay.turn_count, None if replay.open_turn is None else replay.open_turn[1] or None,
        Tokens(replay.usage.input, replay.usage.output), replay.usage.cost, SessionConfig.of(replay.config),
    )
    return Resumed(snapshot, title, None if replay.open_turn is None else replay.open_turn[0],
                   replay.open_calls, tuple(complain.kept), complain.count, replay.records,
                   dict(sorted(replay.versions.items())), replay.blobs)


def newest_messages(path: Path, limit: int) -> list[SessionMessage]:
    """The newest ``limit`` messages, oldest first; fewer where they are larger than :data:`NEWEST_BYTES`."""
    backwards: list[SessionMessage] = []
    room = NEWEST_BYTES
    if limit > 0:
        for record in newest(path):
            held = messages_of(record)
            room -= sum(len(str(message.content)) for message in held)
            if room < 0 and backwards:
                break
            backwards += reversed(held)
            if len(backwards) >= limit:
                break
    return backwards[:limit][::-1]


def title_from(content: Any) -> str:
    """A title out of a first message: its first line that is not blank, 80 characters at most."""
    line = next((line.strip() for line in text_of(content).splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class Replay:
    """Takes a journal's records in order and keeps what they add up to."""

    def __init__(self, complain: Complaints) -> None:
        self._complain = complain
        self.usage = UsageTotals(complain)
        self.versions: Counter[int] = Counter()
        self.title = ""
        self.started_at = ""
        self.last_at = ""
        self.turn_count = 0
        self.open_turn: tuple[int, str] | None = None
        """The last turn that was begun, where it has no end."""
        self._begun: set[int] = set()  # several at a time, where two processes share a session
        self._open: dict[object, tuple[int, str, Wanted | None, int]] = {}
        self.config: dict[str, Any] = {}
        self.blobs: dict[str, int] = {}
        self._explained = 0

    def take(self, number: int, run: Sequence[Seen], version: int) -> None:
        """Records of one version that follow each other, the first of them from line ``number``.

        Goes over a million records of a large journal, hence the local names.
        """
        self.versions[version] += len(run)
        if not self.started_at:
            self.started_at = next((one.timestamp for one in run if one.timestamp), "")
        self.last_at = next((one.timestamp for one in reversed(run) if one.timestamp), self.last_at)
        calls, highest = self._open, self.turn_count
        for line, one in enumerate(run, number):
            event, turn, data = one.event, one.turn, one.data
            if turn > highest:
                highest = turn
            if event == "tool_call":
                name = _call_id(data)
                # One without an id is found again by its order.
                calls[(turn, name) if name else line] = (turn, name, data, line)
            elif event == "tool_result":
                name = _call_id(data)
                calls.pop((turn, name) if name else self._first_open(turn), None)
            elif event == "turn_start":
                self.open_turn = (turn, one.timestamp or "")
                self._begun.add(turn)
                self._explained = self._complain.count
                self.usage.turn_started(turn)
            elif event == "turn_end":
                self._ended(turn, line)
            elif data is not None:
                self._header(data, line)
            if data is None:
                continue
            if data.usage is not None or data.cost is not None:
                self.usage.take(line, turn, event, one.timestamp or "", data)
            if data.config is not None:
                self._configured(data.config, line)
            if data.blob is not None and isinstance(data.blob, Mapping):
                self.blobs.setdefault(str(data.blob.get("sha256", "")), line)
        self.turn_count = highest

    @property
    def records(self) -> int:
        return self.versions.total()

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """Commands without a result, in order."""
        return tuple(OpenCall(turn, name, "" if data is None else str(data.name or data.tool or ""), number)
                     for turn, name, data, number in self._open.values())

    def _first_open(self, turn: int) -> object:
        return next((key for key, call in self._open.items() if type(key) is int and call[0] == turn), None)

    def _ended(self, turn: int, number: int) -> None:
        if self.open_turn is not None and self.open_turn[0] == turn:
            self.open_turn = None
        if turn in self._begun:
            self._begun.remove(turn)
        elif self._complain.count == self._explained:  # otherwise its beginning may be what could not be read
            self._complain(number, f"the end of turn {turn}, which was not begun")
            self._explained = self._complain.count

    def _header(self, data: Wanted, number: int) -> None:
        if isinstance(data.title, str):
            self.title = data.title
        if isinstance(data.startedAt, str) and data.startedAt:
            self.started_at = data.startedAt
        self.usage.begin(number, data.totalTokens, data.sessionCost)

    def _configured(self, config: Any, number: int) -> None:
        if isinstance(config, Mapping):
            self.config = dict(config)
        else:
            self._complain(number, f"config is no object but {type(config).__name__}: passed over")


def _call_id(data: Wanted | None) -> str:
    if data is None:
        return ""
    if data.call_id is None and data.callId is None and data.tool_use_id is None and data.call is None:
        name = data.id
    else:
        name = next(value for name in CALL_IDS if (value := getattr(data, name)) is not None)
    return name if type(name) is str else "" if name is None else str(name)


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that is not what it was; ``field`` as it is called in the journal, parts of it with dots."""

    field: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field} was {self.was!r} and is {self.now!r} now"


def compare_config(stored: SessionConfig | Mapping[str, Any] | None,
                   now: SessionConfig | Mapping[str, Any]) -> list[Difference]:
    """What differs, field by field, by name. A setting that was not stored is not known to differ."""
    before = stored.to_json() if isinstance(stored, SessionConfig) else dict(stored or {})
    after = now.to_json() if isinstance(now, SessionConfig) else dict(now)
    return sorted(_differences("", before, after), key=lambda one: one.field)


def _differences(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    found: list[Difference] = []
    for name, was in before.items():
        is_now = after.get(name)
        if was is None or (was == is_now and type(was) is type(is_now)):
            continue
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            found += _differences(f"{prefix}{name}.", was, is_now)
        else:
            found.append(Difference(prefix + name, was, is_now))
    return found
