"""The engine store in one SQLite file: what must outlive a crash.

Conversations are stored whole, as JSON; beside each stand the few columns by which a start finds
what to take up. Everything goes through one connection and one writer (see ``group_commit``), and
every decision that two tasks or two processes could race for is made inside its transaction.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import aiosqlite

from fsm.conversation import Conversation, Key
from fsm.ports import (
    Change,
    Inbound,
    InboxRow,
    Line,
    OpenWork,
    Outgoing,
    StepRecord,
    StoreError,
)
from storage.codec import clean, decode, decode_readable, encode
from storage.dispositions import check_arrival, check_known, settled_at
from storage.group_commit import GroupCommit, Work
from storage.schema import BUSY_SECONDS, OPEN_MESSAGE, check_file, explain, make_private, prepare

log = logging.getLogger("session_router.store")

T = TypeVar("T")
Row = tuple[Any, ...]

_ADMIT = """
INSERT INTO inbox (agent, channel, id, sender, author, text, at, reply_to, nick, real_jid,
                   mentioned, own, delayed, edited, bot, disposition, reason, settled_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (channel, id, agent) DO NOTHING"""
_REPEAT = "UPDATE inbox SET repeats = repeats + 1 WHERE channel = ? AND id = ? AND agent = ?"
_LOAD = "SELECT data FROM conversations WHERE agent = ? AND channel = ? AND sender = ?"
# CROSS JOIN: the conversations are looked up for the keys, and not the keys for every conversation.
_LOAD_MANY = """
WITH asked (agent, channel, sender) AS (VALUES {values})
SELECT agent, channel, sender, data FROM asked CROSS JOIN conversations USING (agent, channel, sender)"""
KEYS_PER_QUERY = 300
"""One query for many keys takes two thirds of the time of a query each. SQLite before 3.32 takes 999
parameters."""
_SAVE = """
INSERT INTO conversations (agent, channel, sender, state, busy, due, started, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent, channel, sender) DO UPDATE SET
    state = excluded.state, busy = excluded.busy, due = excluded.due, started = excluded.started,
    data = excluded.data"""
_SEND = """
INSERT INTO outbox (id, agent, channel, sender, via, recipient, text, message, tries, due)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    agent = excluded.agent, channel = excluded.channel, sender = excluded.sender, via = excluded.via,
    recipient = excluded.recipient, text = excluded.text, message = excluded.message,
    tries = excluded.tries, due = excluded.due"""
_DELIVERED = "DELETE FROM outbox WHERE id = ?"
_SETTLE = f"""
UPDATE inbox SET disposition = ?1, reason = ?2, settled_at = coalesce(?3, settled_at)
WHERE channel = ?4 AND id = ?5 AND agent = ?6
  AND ({OPEN_MESSAGE} OR (disposition = 'replied' AND ?1 = 'failed'))"""
_KEEP = """
INSERT INTO lines (session, id, role, text, tag, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (session, id) DO NOTHING"""
_STEP = """
INSERT INTO steps (turn, call, idx, kind, data, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (turn, call, idx, kind) DO NOTHING"""
_SET_META = """
INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
_DROP_META = "DELETE FROM state_meta WHERE key = ?"

_INBOX = """
SELECT agent, channel, sender, author, text, id, at, reply_to, nick, real_jid, mentioned, own, delayed,
       edited, bot, disposition, reason, settled_at FROM inbox"""
_SENDS = "SELECT id, agent, channel, sender, via, recipient, text, message, tries, due FROM outbox"
_OUTBOX = f"{_SENDS} ORDER BY seq"
_OWED = f"{_SENDS} WHERE via = ? AND recipient = ? ORDER BY seq"
# One pass over the table. The JSON, by far the most of a row, is read only where a turn must go on.
_TO_TAKE_UP = """
SELECT agent, channel, sender, due, coalesce(started, 0.0), CASE WHEN busy THEN data END
FROM conversations WHERE due IS NOT NULL OR busy ORDER BY due, agent, channel, sender"""


class SqliteStore:
    """:class:`fsm.ports.Store` in the file ``path``; its folder is made where it is missing.

    ``synchronous`` is SQLite's: with ``FULL`` a call that returned survives a power cut, with
    ``NORMAL`` it survives the process being killed. Several processes may use one file.
    """

    def __init__(
        self, path: Path | str, *, synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"
    ) -> None:
        self.path = Path(path).expanduser()
        self._synchronous = synchronous
        self._connection: aiosqlite.Connection | None = None
        self._commits: GroupCommit | None = None

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file, making it where it is missing. Does nothing when it is open already.

        Raises :class:`StoreError` for a file of another program or of a newer version, untouched.
        """
        if self._connection is not None:
            return
        check_file(self.path)
        make_private(self.path)
        # isolation_level=None: transactions begin and end where we say so.
        connection = aiosqlite.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
        # An engine that dies without closing its store must not hang at the interpreter's exit.
        cast(Any, connection)._thread.daemon = True
        try:
            self._connection = await connection
            await self._in_thread(lambda raw: prepare(raw, self.path, self._synchronous))
        except BaseException as error:
            opened, self._connection = self._connection, None
            if opened is not None:
                await opened.close()
            if isinstance(error, sqlite3.Error):
                raise StoreError(explain(error, self.path)) from error
            raise
        self._commits = GroupCommit(self._in_thread)

    async def close(self) -> None:
        """Finish the calls that are under way and let go of the file. May be called twice."""
        if (commits := self._commits) is not None:
            self._commits = None
            await commits.close()
        if (connection := self._connection) is not None:
            self._connection = None
            try:
                await connection.close()
            except sqlite3.Error as error:
                raise StoreError(explain(error, self.path)) from error

    async def _in_thread(self, work: Work[T]) -> T:
        # aiosqlite's public methods are one thread hop each; a batch is one hop in all, which needs
        # the method that they share.
        connection = cast(Any, self._connection)
        return cast(T, await connection._execute(lambda: work(connection._conn)))

    async def _do(self, work: Work[T], *, writes: bool) -> T:
        if self._commits is None:
            raise StoreError(f"The store {self.path} is not open. Open it before using it.")
        try:
            return await self._commits.submit(work, writes=writes)
        except StoreError:
            raise
        except Exception as error:  # sqlite3.Error, and what its adapters raise for foreign values
            raise StoreError(explain(error, self.path)) from error

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> Coroutine[Any, Any, list[Row]]:
        return self._do(lambda raw: raw.execute(sql, parameters).fetchall(), writes=False)

    # -- steps of a conversation -------------------------------------------------------------------

    async def load(self, key: Key) -> Conversation | None:
        rows = await self._rows(_LOAD, _key(key))
        return decode(key, rows[0][0]) if rows else None

    async def load_many(self, keys: Sequence[Key]) -> Mapping[Key, Conversation]:
        """Those that there are, under the keys as given. One that cannot be read is left out and named
        in the log as an error, with its mend: it must not hold up the others at a start."""

        def work(raw: sqlite3.Connection) -> tuple[dict[Key, Conversation], dict[Key, StoreError]]:
            names = [_key(key) for key in keys]
            stored: dict[Row, str] = {}
            for first in range(0, len(names), KEYS_PER_QUERY):
                part = names[first : first + KEYS_PER_QUERY]
                sql = _LOAD_MANY.format(values=", ".join(["(?, ?, ?)"] * len(part)))
                stored |= {row[:3]: row[3] for row in raw.execute(sql, [text for name in part for text in name])}
            return decode_readable((key, stored[name]) for key, name in zip(keys, names, strict=True) if name in stored)

        return _told(await self._do(work, writes=False))

    async def commit(self, change: Change) -> bool:
        """``due`` and ``started`` are written with the conversation; without one they are not read.

        A send whose id is in the outbox already replaces that text and keeps its place. A message
        that is settled is one of the change's own agent and channel; an unknown one is passed over.
        """
        work, writes = _job(change)
        return await self._do(work, writes=writes)

    def commit_soon(self, change: Change, failed: Callable[[StoreError], None]) -> None:
        def done(job: asyncio.Future[bool]) -> None:
            if not job.cancelled() and isinstance(error := job.exception(), Exception):
                failed(error if isinstance(error, StoreError) else StoreError(explain(error, self.path)))

        if self._commits is not None:
            work, writes = _job(change)
            self._commits.submit(work, writes=writes).add_done_callback(done)

    async def commit_many(self, changes: Sequence[Change]) -> None:
        """As :meth:`commit`, for each of them in order, in one transaction: all or none."""
        statements = _statements(changes)

        def work(raw: sqlite3.Connection) -> None:
            for sql, rows in statements:
                raw.executemany(sql, rows)

        await self._do(work, writes=bool(statements))

    # -- reading -----------------------------------------------------------------------------------

    async def open_work(self) -> OpenWork:
        """A busy conversation that cannot be read is left out and named in the log as an error, with its
        mend. Its messages are still among the open ones."""
        open_messages = f"{_INBOX} WHERE {OPEN_MESSAGE} ORDER BY seq"

        def work(raw: sqlite3.Connection) -> tuple[OpenWork, dict[Key, StoreError]]:
            rows = [(Key(*row[:3]), *row[3:]) for row in raw.execute(_TO_TAKE_UP)]
            turns, unreadable = decode_readable((key, data) for key, _, _, data in rows if data is not None)
            overdue = [
                (key, due, started)
                for key, due, started, data in rows
                if due is not None and (data is None or key in turns)
            ]
            found = OpenWork(
                turns=list(turns.items()),
                overdue=overdue,
                messages=[_inbox_row(row) for row in raw.execute(open_messages)],
                sends=[_outgoing(row) for row in raw.execute(_OUTBOX)],
            )
            return found, unreadable

        return _told(await self._do(work, writes=False))

    async def message(self, key: Key, message_id: str) -> InboxRow | None:
        agent, channel, _ = _key(key)
        rows = await self._rows(
            f"{_INBOX} WHERE channel = ? AND id = ? AND agent = ?", (channel, clean(message_id), agent)
        )
        return _inbox_row(rows[0]) if rows else None

    async def history(self, key: Key, limit: int = 20) -> Sequence[InboxRow]:
        rows = await self._rows(
            f"{_INBOX} WHERE agent = ? AND channel = ? AND sender = ? ORDER BY seq DESC LIMIT ?",
            (*_key(key), max(limit, 0)),
        )
        return [_inbox_row(row) for row in rows]

    async def conversations(
        self, agent: str | None = None, channel: str | None = None
    ) -> Sequence[tuple[Key, Conversation]]:
        """One that cannot be read is left out and named in the log as an error, with its mend."""
        return list(_told(await self.all_conversations(agent, channel)).items())

    async def all_conversations(
        self, agent: str | None = None, channel: str | None = None
    ) -> tuple[Mapping[Key, Conversation], Mapping[Key, StoreError]]:
        """As :meth:`conversations`, with those that cannot be read, and why, for whoever tells a person."""
        asked = {"agent": agent, "channel": channel}
        wanted = {name: clean(value) for name, value in asked.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
        sql = f"""SELECT agent, channel, sender, data FROM conversations WHERE {where}
                  ORDER BY agent, channel, sender"""

        def work(raw: sqlite3.Connection) -> tuple[dict[Key, Conversation], dict[Key, StoreError]]:
            return decode_readable((Key(*row[:3]), row[3]) for row in raw.execute(sql, wanted))

        return await self._do(work, writes=False)

    async def steps(self, turn: str) -> Sequence[StepRecord]:
        """In the order in which they were recorded."""
        sql = "SELECT turn, call, idx, kind, data, at FROM steps WHERE turn = ? ORDER BY seq"
        return [StepRecord(*row) for row in await self._rows(sql, (clean(turn),))]

    async def lines(self, session: str, limit: int = 200) -> Sequence[Line]:
        sql = """SELECT role, text, at, tag, coalesce(id, '') FROM lines WHERE session = ?
                 ORDER BY at DESC, seq DESC LIMIT ?"""
        return [Line(*row) for row in reversed(await self._rows(sql, (clean(session), max(limit, 0))))]

    async def get_meta(self, key: str) -> str | None:
        rows = await self._rows("SELECT value FROM state_meta WHERE key = ?", (clean(key),))
        return rows[0][0] if rows else None

    async def set_meta(self, key: str, value: str | None) -> None:
        sql, parameters = _meta(key, value)
        await self._do(lambda raw: raw.execute(sql, parameters).rowcount, writes=True)

    async def meta_with_prefix(self, prefix: str) -> Sequence[tuple[str, str]]:
        # A range, which the primary key answers: text is ordered by its UTF-8 bytes, and no character
        # comes after the last one.
        sql = "SELECT key, value FROM state_meta WHERE key >= ? AND key < ? ORDER BY key"
        start = clean(prefix)
        return [(key, value) for key, value in await self._rows(sql, (start, f"{start}\U0010ffff"))]

    async def owed(self, channel: str, to: str) -> Sequence[Outgoing]:
        return [_outgoing(row) for row in await self._rows(_OWED, (clean(channel), clean(to)))]


# -- values to rows and back -----------------------------------------------------------------------


def _key(key: Key) -> tuple[str, str, str]:
    return clean(key.agent), clean(key.channel), clean(key.sender)


def _meta(key: str, value: str | None) -> tuple[str, Row]:
    return (_DROP_META, (clean(key),)) if value is None else (_SET_META, (clean(key), clean(value)))


def _statements(changes: Sequence[Change]) -> list[tuple[str, list[Row]]]:
    """Changes as few statements over many rows. Made before their transaction, so that a value that
    cannot be stored stops nobody else.

    The order of the writes is kept within each table; the tables know nothing of each other.
    """
    tables: dict[str, list[tuple[str, list[Row]]]] = {}
    for change in changes:
        for table, sql, row in _writes(change):
            parts = tables.setdefault(table, [])
            if not parts or parts[-1][0] != sql:
                parts.append((sql, []))
            parts[-1][1].append(row)
    return [part for parts in tables.values() for part in parts]


def _job(change: Change) -> tuple[Work[bool], bool]:
    """A change as a job, and whether it writes. Made before its transaction, so that a value that cannot be
    stored stops nobody else."""
    statements = [(sql, row) for _, sql, row in _writes(change)]
    arrival = None
    if (message := change.arrival) is not None:
        check_arrival(change.key, message)
        arrival = _arrival(change.key, message)

    def work(raw: sqlite3.Connection) -> bool:
        if arrival is not None and not _is_new(raw, arrival):
            return False
        for sql, row in statements:
            raw.execute(sql, row)
        return True

    return work, bool(statements) or arrival is not None


def _arrival(key: Key, message: Inbound) -> Row:
    agent, channel, sender = _key(key)
    # Plain numbers: what is not exactly one of SQLite's own types is looked up among the adapters first, and a bool
    # there takes as long as its whole row.
    return (
        agent, channel, clean(message.id), sender, clean(message.sender), clean(message.text), message.at,
        clean(message.reply_to), clean(message.nick), clean(message.real_jid), int(message.mentioned),
        int(message.own), int(message.delayed), int(message.edited), int(message.bot), "running", "why_running", None,
    )  # fmt: skip


def _is_new(raw: sqlite3.Connection, arrival: Row) -> bool:
    """Take a message in, or count that it came again."""
    if raw.execute(_ADMIT, arrival).rowcount == 1:
        return True
    agent, channel, name = arrival[:3]
    raw.execute(_REPEAT, (channel, name, agent))
    return False


def _writes(change: Change) -> Iterator[tuple[str, str, Row]]:
    """(table, SQL, parameters) of everything in a change."""
    agent, channel, sender = _key(change.key)
    if (now := change.conversation) is not None:
        data = encode(change.key, now)
        busy = now.turn is not None or bool(now.queue)
        yield "conversations", _SAVE, (
            agent, channel, sender, now.state.value, int(busy), change.due, change.started, data,
        )  # fmt: skip
    for out in change.sends:
        yield "outbox", _SEND, (
            clean(out.id), *_key(out.key), clean(out.channel), clean(out.to), clean(out.text),
            clean(out.message), out.tries, out.due,
        )  # fmt: skip
    for name in change.delivered:
        yield "outbox", _DELIVERED, (clean(name),)
    for one in change.settled:
        check_known(one.disposition)
        at = settled_at(change, one.disposition)
        yield "inbox", _SETTLE, (one.disposition, clean(one.reason), at, channel, clean(one.message), agent)
    for kept in change.lines:
        line = kept.line
        yield "lines", _KEEP, (
            clean(kept.session), clean(line.id) or None, line.role, clean(line.text), clean(line.tag), line.at,
        )  # fmt: skip
    for step in change.steps:
        yield "steps", _STEP, (
            clean(step.turn), step.call, step.index, step.kind, clean(step.data), step.at,
        )  # fmt: skip
    for pair in change.meta:
        yield "state_meta", *_meta(*pair)


def _told(found: tuple[T, Mapping[Key, StoreError]]) -> T:
    # Here and not inside the job, which may run twice.
    value, unreadable = found
    for error in unreadable.values():
        log.error("Left out: %s", error)
    return value


def _outgoing(row: Row) -> Outgoing:
    name, agent, channel, sender, *others = row
    return Outgoing(name, Key(agent, channel, sender), *others)


def _inbox_row(row: Row) -> InboxRow:
    (agent, channel, sender, author, text, name, at, reply_to, nick, real_jid,
     mentioned, own, delayed, edited, bot, disposition, reason, settled) = row  # fmt: skip
    message = Inbound(
        channel, author, text, name, at, reply_to, nick, real_jid,
        bool(mentioned), bool(own), bool(delayed), bool(edited), bool(bot),
    )  # fmt: skip
    return InboxRow(Key(agent, channel, sender), message, disposition, reason, settled)
