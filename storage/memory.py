"""The engine store in dictionaries: for tests, scenarios and bots that may forget.

It keeps what it holds when it is closed, so opening the same object again plays a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict, replace

from fsm.conversation import Conversation, Key
from fsm.ports import (
    Change,
    Inbound,
    InboxRow,
    Line,
    OpenWork,
    Outgoing,
    Settled,
    StepRecord,
    StoreError,
)
from storage.codec import clean, decode, encode
from storage.dispositions import INTERIM, check_arrival, check_known, may_follow, settled_at

Value = TypeVar("Value", Inbound, Outgoing, StepRecord, Line, Settled)
Item = TypeVar("Item")
Name = tuple[str, str, str]
"""(channel, id, agent) of a message."""


class _Stored(NamedTuple):
    data: str
    busy: bool
    due: float | None
    started: float | None


class MemoryStore:
    """:class:`fsm.ports.Store` without a file; it behaves as the SQLite store does, refusals included.

    ``repeats`` counts the further deliveries of a message, by (channel, id, agent).
    """

    def __init__(self) -> None:
        self.repeats: Counter[Name] = Counter()
        self._is_open = False
        self._conversations: dict[Key, _Stored] = {}
        self._inbox: dict[Name, InboxRow] = {}
        self._arrived: dict[Key, list[Name]] = {}
        self._unsettled: dict[Name, None] = {}
        self._outbox: dict[str, Outgoing] = {}
        self._steps: dict[str, dict[tuple[int, int, str], StepRecord]] = {}
        self._lines: dict[str, list[Line]] = {}
        self._line_ids: set[tuple[str, str]] = set()
        self._meta: dict[str, str] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("The memory store is not open. Open it before using it.")

    # -- steps of a conversation -------------------------------------------------------------------

    def _take_in(self, key: Key, message: Inbound) -> bool:
        key, message = _clean_key(key), _cleaned(message)
        name = (message.channel, message.id, key.agent)
        if name in self._inbox:
            self.repeats[name] += 1
            return False
        self._inbox[name] = InboxRow(key, message, "running", "why_running", None)
        self._arrived.setdefault(key, []).append(name)
        self._unsettled[name] = None
        return True

    async def load(self, key: Key) -> Conversation | None:
        self._check_open()
        return self._load(_clean_key(key))

    def _load(self, key: Key) -> Conversation | None:
        stored = self._conversations.get(key)
        return None if stored is None else decode(key, stored.data)

    async def load_many(self, keys: Sequence[Key]) -> Mapping[Key, Conversation]:
        self._check_open()
        loaded = ((key, self._load(_clean_key(key))) for key in keys)
        return {key: conversation for key, conversation in loaded if conversation is not None}

    async def commit(self, change: Change) -> bool:
        self._check_open()
        data = _checked(change)
        if (message := change.arrival) is not None:
            check_arrival(change.key, message)
            if not self._take_in(change.key, message):
                return False
        self._apply(change, data)
        return True

    def commit_soon(self, change: Change, failed: Callable[[StoreError], None]) -> None:
        try:
            self._check_open()
            self._apply(change, _checked(change))
        except StoreError as error:
            failed(error)

    async def commit_many(self, changes: Sequence[Change]) -> None:
        self._check_open()
        # All that can be refused comes first, so that nothing is written of changes of which one is.
        checked = [(change, _checked(change)) for change in changes]
        for change, data in checked:
            self._apply(change, data)

    def _apply(self, change: Change, data: str) -> None:
        key = _clean_key(change.key)
        if (now := change.conversation) is not None:
            busy = now.turn is not None or bool(now.queue)
            self._conversations[key] = _Stored(data, busy, change.due, change.started)
        for out in map(_cleaned, change.sends):
            self._outbox[out.id] = out
        for sent in change.delivered:
            self._outbox.pop(clean(sent), None)
        for one in change.settled:
            self._settle(key, _cleaned(one), settled_at(change, one.disposition))
        for kept in change.lines:
            self._keep(clean(kept.session), _cleaned(kept.line))
        for step in map(_cleaned, change.steps):
            self._steps.setdefault(step.turn, {}).setdefault((step.call, step.index, step.kind), step)
        for name, value in change.meta:
            self._set_meta(name, value)

    def _settle(self, key: Key, settled: Settled, at: float | None) -> None:
        name = (key.channel, settled.message, key.agent)
        row = self._inbox.get(name)
        if row is None or not may_follow(row.disposition, settled.disposition):
            return
        self._inbox[name] = replace(
            row,
            disposition=settled.disposition,
            reason=settled.reason,
            settled_at=row.settled_at if at is None else at,
        )
        if settled.disposition not in INTERIM:
            self._unsettled.pop(name, None)

    def _keep(self, session: str, line: Line) -> None:
        if line.id:
            if (session, line.id) in self._line_ids:
                return
            self._line_ids.add((session, line.id))
        self._lines.setdefault(session, []).append(line)

    # -- reading -----------------------------------------------------------------------------------

    async def open_work(self) -> OpenWork:
        self._check_open()
        stored = sorted(self._conversations.items(), key=lambda item: (item[1].due or 0.0, item[0]))
        return OpenWork(
            turns=[(key, decode(key, one.data)) for key, one in stored if one.busy],
            overdue=[(key, one.due, one.started or 0.0) for key, one in stored if one.due is not None],
            messages=[self._inbox[name] for name in self._unsettled],
            sends=list(self._outbox.values()),
        )

    async def message(self, key: Key, message_id: str) -> InboxRow | None:
        self._check_open()
        key = _clean_key(key)
        return self._inbox.get((key.channel, clean(message_id), key.agent))

    async def history(self, key: Key, limit: int = 20) -> Sequence[InboxRow]:
        self._check_open()
        newest = _newest(self._arrived.get(_clean_key(key), []), limit)
        return [self._inbox[name] for name in reversed(newest)]

    async def conversations(
        self, agent: str | None = None, channel: str | None = None
    ) -> Sequence[tuple[Key, Conversation]]:
        self._check_open()
        return [
            (key, decode(key, stored.data))
            for key, stored in sorted(self._conversations.items())
            if (agent is None or key.agent == clean(agent))
            and (channel is None or key.channel == clean(channel))
        ]

    async def steps(self, turn: str) -> Sequence[StepRecord]:
        """In the order in which they were recorded."""
        self._check_open()
        return list(self._steps.get(clean(turn), {}).values())

    async def lines(self, session: str, limit: int = 200) -> Sequence[Line]:
        self._check_open()
        return _newest(sorted(self._lines.get(clean(session), []), key=lambda line: line.at), limit)

    async def get_meta(self, key: str) -> str | None:
        self._check_open()
        return self._meta.get(clean(key))

    async def set_meta(self, key: str, value: str | None) -> None:
        self._check_open()
        self._set_meta(key, value)

    def _set_meta(self, key: str, value: str | None) -> None:
        if value is None:
            self._meta.pop(clean(key), None)
        else:
            self._meta[clean(key)] = clean(value)

    async def meta_with_prefix(self, prefix: str) -> Sequence[tuple[str, str]]:
        self._check_open()
        return sorted(pair for pair in self._meta.items() if pair[0].startswith(clean(prefix)))

    async def owed(self, channel: str, to: str) -> Sequence[Outgoing]:
        self._check_open()
        return [out for out in self._outbox.values() if (out.channel, out.to) == (clean(channel), clean(to))]


def _checked(change: Change) -> str:
    """The JSON of its conversation, empty without one. Raises :class:`StoreError` for what a store refuses."""
    for one in change.settled:
        check_known(one.disposition)
    for kept in change.lines:
        if kept.line.role not in ("user", "assistant"):
            raise StoreError(f"There is no role {kept.line.role!r}. A line is by 'user' or 'assistant'.")
    return "" if change.conversation is None else encode(change.key, change.conversation)


def _clean_key(key: Key) -> Key:
    return Key(clean(key.agent), clean(key.channel), clean(key.sender))


def _cleaned(value: Value) -> Value:
    changed: dict[str, Any] = {name: clean(text) for name, text in asdict(value).items() if isinstance(text, str)}
    if isinstance(value, Outgoing):
        changed["key"] = _clean_key(value.key)
    return replace(value, **changed)


def _newest(values: Sequence[Item], limit: int) -> list[Item]:
    return list(values[-limit:]) if limit > 0 else []
