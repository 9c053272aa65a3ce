"""The queries: what is a session, when was it last active, what was said in it.

Facts of OpenCode that shape them: ids are no order (their time field wrapped in August 2026), so
messages go by time and then id, in 2.x by ``seq``; ``time_updated`` does not move for prompts that
came through ``/api``; a 2.x file keeps the rows of 1.x frozen under the same ids. No query reads a
whole session: activity comes from an index, messages in pages from the newest back.
"""

from __future__ import annotations

import json as stdlib_json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import Raw, Struct, json

from fsm.ports import Line, SessionInfo, SourceError
from storage.opencode.files import NAME
from storage.opencode.schema import Schema

STILL_ANSWERING = "(still answering)"
"""Stands behind the text of a last answer that is not finished, or in its place."""

_SMALLEST_PAGE, _LARGEST_PAGE = 50, 900  # rows; builds of SQLite before 3.32 take 999 variables
_LAST = 2**63 - 1

T = TypeVar("T")


class SessionNotFound(SourceError):
    """No session has that id. ``detail`` is the id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"OpenCode has no session {session_id!r}: list the sessions and choose one of them.",
                         kind="missing", source=NAME, detail=session_id)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at the file tells: its generations (``v1``, ``v2``), the newest migration that it
    names, and how many sessions a list would show."""

    path: str
    generations: tuple[str, ...]
    migration: str | None
    sessions: int


@dataclass(slots=True)
class Context:
    """Lines of a session, oldest first, and the ids of rows that could not be understood."""

    lines: list[Line] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


# -- sessions ------------------------------------------------------------------------------------

_NEWEST_MESSAGE = "(SELECT max(time_created) FROM message WHERE session_id = s.id)"
# The + keeps SQLite off an index by type, through which it would sort all messages of the session.
_NEWEST_V2 = ("(SELECT time_created FROM session_message WHERE session_id = s.id "
              "AND +type IN ('user', 'assistant') ORDER BY seq DESC LIMIT 1)")


def _sessions_sql(schema: Schema, table: str, newest: str, *, only: str | None) -> str:
    columns = schema.columns[table]
    folder = "s.directory" if "directory" in columns else "NULL"
    if only is not None:
        where = [only]
    else:  # columns that came later than 1.2: without them there are no children and no archive
        where = [f"s.{column} IS NULL" for column in ("parent_id", "time_archived") if column in columns]
    if table == "session" and schema.v2:
        where.append("NOT EXISTS (SELECT 1 FROM session_v2 AS v WHERE v.id = s.id)")
    return (f"SELECT s.id AS id, s.title AS title, {folder} AS folder, s.time_updated AS updated, "
            f"{newest} AS newest FROM {table} AS s" + (f" WHERE {' AND '.join(where)}" if where else ""))


def _all_sql(schema: Schema, *, only: str | None = None) -> str:
    """Rows (id, title, folder, active) of both generations, an id once, unsorted, empty ones included."""
    selects = []
    if schema.v1:
        newest = _NEWEST_MESSAGE
        if schema.api:
            newest = f"nullif(max(ifnull({_NEWEST_MESSAGE}, -1), ifnull({_NEWEST_V2}, -1)), -1)"
        selects.append(_sessions_sql(schema, "session", newest, only=only))
    if schema.v2:
        selects.append(_sessions_sql(schema, "session_v2", _NEWEST_V2, only=only))
    active = "max(CAST(ifnull(updated, 0) AS INTEGER), CAST(ifnull(newest, 0) AS INTEGER))"
    return f"SELECT id, title, folder, {active} AS active, newest FROM ({' UNION ALL '.join(selects)})"


def list_sessions(connection: sqlite3.Connection, schema: Schema, limit: int | None) -> list[SessionInfo]:
    """Root sessions with a message, not archived, most recently active first, then by id."""
    rows = connection.execute(
        f"SELECT * FROM ({_all_sql(schema)}) WHERE newest IS NOT NULL ORDER BY active DESC, id LIMIT ?",
        (-1 if limit is None else min(max(limit, 0), _LAST),)).fetchall()
    return [_info(row) for row in rows]


def probe(connection: sqlite3.Connection, schema: Schema, path: str) -> Probe:
    """What the file is."""
    sql = f"SELECT count(*) FROM ({_all_sql(schema)}) WHERE newest IS NOT NULL"
    return Probe(path, schema.generations, schema.migration, int(connection.execute(sql).fetchone()[0]))


def find_session(connection: sqlite3.Connection, schema: Schema, session_id: str) -> SessionInfo | None:
    """That session, be it empty, archived or a child."""
    row = connection.execute(_all_sql(schema, only="s.id = :id"), {"id": session_id}).fetchone()
    return None if row is None else _info(row)


def _info(row: Sequence[Any]) -> SessionInfo:
    session_id, title, folder, active = row[:4]
    return SessionInfo(id=str(session_id), title=str(title or ""), source=NAME, active_at=active / 1000,
                       folder=str(folder or ""))


# -- messages ------------------------------------------------------------------------------------


_NULL, _TRUE = Raw(b"null"), Raw(b"true")


class _Part(Struct, gc=False):
    """What is read of ``part.data``. Files and what tools gave back are passed over undecoded."""

    type: Any = None
    text: Any = None
    synthetic: Any = None
    ignored: Any = None


class _Message(Struct, gc=False):
    """What is read of ``message.data``. ``summary`` is a flag on answers, every changed file on questions."""

    role: Any = None
    summary: Raw = _NULL
    time: Raw = _NULL
    error: Raw = _NULL


class _MessageV2(_Part, gc=False):
    """What is read of ``session_message.data``, whatever its type."""

    content: list[_Part] | None = None
    status: Any = "completed"
    summary: Any = None
    time: Raw = _NULL
    error: Raw = _NULL


class _Times(Struct):
    completed: Any = None


class _Undone(Struct):
    """From which message, and part of it, on the user took back what was said."""

    messageID: str | None = None
    partID: str | None = None


_part, _message, _message_v2 = json.Decoder(_Part), json.Decoder(_Message), json.Decoder(_MessageV2)
_times, _undone = json.Decoder(_Times), json.Decoder(_Undone)


def read_context(connection: sqlite3.Connection, schema: Schema, session_id: str, limit: int) -> Context:
    """The newest ``limit`` messages with text, from the last compaction's summary on.

    Raises :class:`SessionNotFound`.
    """
    if schema.v2 and (row := _session_row(connection, schema, "session_v2", session_id)) is not None:
        return _read_v2(connection, session_id, limit, row[0])
    row = _session_row(connection, schema, "session", session_id) if schema.v1 else None
    if row is None:
        raise SessionNotFound(session_id)
    revert, through_api = row
    found = _read_v1(connection, session_id, limit, revert)
    if through_api:
        more = _read_v2(connection, session_id, limit, revert)
        found.skipped += more.skipped
        seen = {line.id for line in found.lines}
        found.lines += [line for line in more.lines if line.id not in seen]
        found.lines.sort(key=lambda line: (line.at, line.id))
        del found.lines[: max(len(found.lines) - max(limit, 0), 0)]
    return found


def _session_row(connection: sqlite3.Connection, schema: Schema, table: str, session_id: str
                 ) -> tuple[_Undone, bool] | None:
    """What the user undid, and whether messages are in ``session_message``."""
    revert = "revert" if "revert" in schema.columns[table] else "NULL"
    newest = _NEWEST_V2 if schema.api else "NULL"
    row = connection.execute(f"SELECT {revert}, {newest} FROM {table} AS s WHERE id = ?",
                             (session_id,)).fetchone()
    if row is None:
        return None
    undone = None if row[0] is None else _decoded(_undone, row[0])
    return undone or _Undone(), row[1] is not None


def _read_v1(connection: sqlite3.Connection, session_id: str, limit: int, undone: _Undone) -> Context:
    context = Context()
    lines = context.lines
    cursor: tuple[int, str] = (_LAST, "")
    if undone.messageID is not None:
        found = connection.execute("SELECT time_created, id FROM message WHERE id = ? AND session_id = ?",
                                   (undone.messageID, session_id)).fetchone()
        if found is not None:
            # With a part named, its message keeps what stands before that part.
            cursor = (found[0], found[1] if undone.partID is None else found[1] + "\0")
    newest = True
    decode = _message.decode  # called directly here and for parts: two calls a message less
    for page in _pages(context, limit):
        rows = connection.execute(
            "SELECT id, CAST(time_created AS INTEGER), data FROM message WHERE session_id = ? "
            "AND (time_created, id) < (?, ?) ORDER BY time_created DESC, id DESC LIMIT ?",
            (session_id, *cursor, page)).fetchall()
        texts = _texts_of(connection, [row[0] for row in rows], context, undone.partID)
        for message_id, at, raw in rows:
            try:
                message = decode(raw)
            except (ValueError, TypeError, RecursionError):
                if (repaired := _decoded(_message, raw)) is None:
                    context.skipped.append(message_id)
                    continue
                message = repaired
            role = message.role
            if role != "user" and role != "assistant":
                continue
            text = texts.get(message_id, "")
            if role == "assistant":
                if message.summary == _TRUE:
                    if text and message.error == _NULL and _finished(message):
                        lines.append(Line(role, text, at / 1000, "", message_id))
                        return _turned(context)
                    continue  # a compaction that failed or is not done: what came before it still counts
                if newest and not _finished(message):
                    text = _with_mark(text)
            newest = False
            if text:
                lines.append(Line(role, text, at / 1000, "", message_id))
                if len(lines) >= limit:
                    break
        if len(rows) < page:
            break
        cursor = (rows[-1][1], rows[-1][0])
    return _turned(context)


def _texts_of(connection: sqlite3.Connection, messages: list[str], context: Context,
              undone_part: str | None) -> dict[str, str]:
    """The visible text of each message, its parts in their order, a line each."""
    texts: dict[str, str] = {}
    rows = connection.execute(
        f"SELECT id, message_id, data FROM part WHERE message_id IN ({','.join('?' * len(messages))}) "
        "ORDER BY message_id, id", messages).fetchall()
    if undone_part is not None and (cut := [at for at, row in enumerate(rows) if row[0] == undone_part]):
        last = rows[cut[0]][1]
        rows = [row for at, row in enumerate(rows) if row[1] != last or at < cut[0]]
    decode = _part.decode
    for part_id, message_id, raw in rows:
        try:
            part = decode(raw)
        except (ValueError, TypeError, RecursionError):
            if (repaired := _decoded(_part, raw)) is None:
                context.skipped.append(part_id)
                continue
            part = repaired
        if part.type == "text" and (text := _visible(part)):
            texts[message_id] = f"{texts[message_id]}\n{text}" if message_id in texts else text
    return texts


def _read_v2(connection: sqlite3.Connection, session_id: str, limit: int, undone: _Undone) -> Context:
    context = Context()
    lines = context.lines
    cursor = _LAST
    if undone.messageID is not None:
        found = connection.execute("SELECT seq FROM session_message WHERE id = ? AND session_id = ?",
                                   (undone.messageID, session_id)).fetchone()
        cursor = cursor if found is None else found[0]
    newest = True
    for page in _pages(context, limit):
        rows = connection.execute(
            "SELECT id, type, seq, CAST(time_created AS INTEGER), data FROM session_message "
            "WHERE session_id = ? AND seq < ? AND +type IN ('user', 'assistant', 'compaction', 'idle') "
            "ORDER BY seq DESC LIMIT ?",
            (session_id, cursor, page)).fetchall()
        for message_id, kind, _seq, at, raw in rows:
            if kind == "idle":  # the agent came to rest, so nothing before it is still being answered
                newest = False
                continue
            message = _decoded(_message_v2, raw)
            if message is None:
                context.skipped.append(message_id)
                continue
            if kind == "compaction":
                summary = message.summary
                if message.status == "completed" and isinstance(summary, str) and summary.strip():
                    lines.append(Line("assistant", summary, at / 1000, "", message_id))
                    return _turned(context)
                continue
            if kind == "user":
                text = _visible(message)
            else:
                text = "\n".join(seen for part in message.content or ()
                                 if part.type == "text" and (seen := _visible(part)))
                if newest and not _finished(message):
                    text = _with_mark(text)
            newest = False
            if text:
                lines.append(Line(kind, text, at / 1000, "", message_id))
                if len(lines) >= limit:
                    break
        if len(rows) < page:
            break
        cursor = rows[-1][2]
    return _turned(context)


def _turned(context: Context) -> Context:
    context.lines.reverse()
    return context


def _pages(context: Context, limit: int) -> Iterator[int]:
    """Rows to fetch next, as long as lines are wanted: as many as are missing, and more and more of
    them where the session is mostly tool calls without a word."""
    least = _SMALLEST_PAGE
    while len(context.lines) < limit:
        yield min(max(limit - len(context.lines), least), _LARGEST_PAGE)
        least *= 2


# -- a row's JSON --------------------------------------------------------------------------------


def _decoded(decoder: json.Decoder[T], raw: Any) -> T | None:
    """A row's JSON object, None where the row holds none."""
    try:
        return decoder.decode(raw)
    except TypeError:  # no text at all
        return None
    except (ValueError, RecursionError):  # ValueError is msgspec's own errors too
        pass
    try:  # half an emoji, cut off by JavaScript, is JSON to Python's own parser alone; it becomes U+FFFD
        text = stdlib_json.dumps(stdlib_json.loads(raw), ensure_ascii=False)
        return decoder.decode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        return None


def _visible(part: _Part) -> str:
    """The text that a person wrote or was shown, else nothing.

    ``synthetic`` marks what OpenCode wrote under the user's role, ``ignored`` a plugin's banner.
    """
    text = part.text
    if part.synthetic or part.ignored or not isinstance(text, str) or text.isspace():
        return ""
    return text


def _finished(message: _Message | _MessageV2) -> bool:
    if message.error != _NULL:
        return True
    times = _decoded(_times, bytes(message.time))
    return times is not None and times.completed is not None


def _with_mark(text: str) -> str:
    return f"{text} {STILL_ANSWERING}" if text else STILL_ANSWERING
