"""The queries: what is a session, when was it last active, what was said in it.

Facts of Hermes 0.19 that shape them. A row of ``sessions`` with a parent is one of three things:

- a branch, a session of its own: ``_branched_from`` stands in its ``model_config``, or (forks through
  the API) its parent ended as ``branched`` before it began;
- the next part of a conversation that was compressed: its parent ended as ``compression``. Hermes shows
  the whole chain as one session, under the id of its last part, and so does this;
- anything else is a sub-agent's. Those carry ``_delegate_from``, also once their parent is deleted.

Messages go by id, as in Hermes itself: its clock may step back, and a compression in place writes a
summary of now before older messages that it keeps with their old times.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fsm.ports import Line, SessionInfo, SourceError
from storage.hermes.files import NAME
from storage.hermes.schema import Schema

_PARTS = "\x00json:"  # before content that is no text but JSON, mostly a list of parts
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_RECALLED = re.compile(r"<\s*memory-context\s*>.*?(?:</\s*memory-context\s*>|\Z)\s*", re.IGNORECASE | re.DOTALL)
_PAGE = 500  # ids in one query; builds of SQLite before 3.32 take 999 variables
_CHAIN = 100  # parts of one conversation that are followed: the same bound as Hermes'


class SessionNotFound(SourceError):
    """No session has that id. ``detail`` is the id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Hermes has no session {session_id!r}: list the sessions and choose one of them.",
                         kind="missing", source=NAME, detail=session_id)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at the file tells: Hermes' number for its schema, and how many sessions a list would show."""

    path: str
    version: int | None
    sessions: int


@dataclass(slots=True)
class Context:
    """Lines of a session, oldest first, and the ids of messages that could not be understood."""

    lines: list[Line] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


# -- sessions ------------------------------------------------------------------------------------


def list_sessions(connection: sqlite3.Connection, schema: Schema, limit: int | None) -> list[SessionInfo]:
    """Sessions that a person sees and that hold a message, most recently active first, then by id."""
    ended, reason = schema.session("ended_at"), schema.session("end_reason")
    rows = connection.execute(
        f"{_sessions_sql(schema)} LEFT JOIN sessions AS p ON p.id = {schema.session('parent_session_id')} "
        f"WHERE {_shown(schema)} AND ({ended} IS NULL OR {reason} = 'compression')").fetchall()
    found: dict[str, SessionInfo] = {}
    for row in rows:
        title, ended_at, end_reason = row[1], row[6], row[7]
        if end_reason == "compression":
            tip = _chain(connection, schema, row[0])[-1]
            row = connection.execute(f"{_sessions_sql(schema)} WHERE s.id = ?", (tip,)).fetchone()
            title, ended_at = row[1] or title, row[6]
        archived, hidden = row[8:10]
        if ended_at is None and not archived and not hidden and _holds_message(connection, schema, row[0]):
            info = _info(row, title)
            found[info.id] = info
    listed = sorted(found.values(), key=lambda info: (-info.active_at, info.id))
    return listed if limit is None else listed[: max(limit, 0)]


def find_session(connection: sqlite3.Connection, schema: Schema, session_id: str) -> SessionInfo | None:
    """That session, be it empty, ended, archived, hidden or a child."""
    row = connection.execute(f"{_sessions_sql(schema)} WHERE s.id = ?", (session_id,)).fetchone()
    return None if row is None else _info(row, row[1])


def newest_part(connection: sqlite3.Connection, schema: Schema, session_id: str) -> str:
    """The part in which a conversation goes on; the id itself where it was not compressed."""
    return _chain(connection, schema, session_id)[-1]


def probe(connection: sqlite3.Connection, schema: Schema, path: str) -> Probe:
    """What the file is."""
    return Probe(path, schema.version, len(list_sessions(connection, schema, None)))


def _sessions_sql(schema: Schema) -> str:
    """id, title, cwd, last activity, newest message, start, ended_at, end_reason, archived, hidden."""
    columns = ", ".join(schema.session(name) for name in ("ended_at", "end_reason", "archived", "hidden"))
    return (f"SELECT s.id, s.title, {schema.session('cwd')}, {schema.session('last_activity_at')}, "
            "(SELECT max(timestamp) FROM messages WHERE session_id = s.id), s.started_at, "
            f"{columns} FROM sessions AS s")


def _mark(schema: Schema, name: str, of: str = "s") -> str:
    """What Hermes noted about a session in the JSON of its ``model_config``, as SQL."""
    config = schema.session("model_config", of=of)
    return f"CASE WHEN json_valid({config}) THEN json_extract({config}, '$.{name}') END"


def _shown(schema: Schema) -> str:
    """As SQL: roots and branches, and nothing that a sub-agent or a tool began (``p`` is the parent)."""
    ended = schema.session("ended_at", of="p")
    return (f"{_mark(schema, '_delegate_from')} IS NULL AND ifnull(s.source, '') <> 'tool' "
            f"AND ({schema.session('parent_session_id')} IS NULL "
            f"OR {_mark(schema, '_branched_from')} IS NOT NULL "
            f"OR ({schema.session('end_reason', of='p')} = 'branched' AND s.started_at >= {ended}))")


def _chain(connection: sqlite3.Connection, schema: Schema, session_id: str) -> list[str]:
    """The session and the parts in which it went on after compressions, in that order.

    Of several children Hermes takes one that was compressed again or is alive over a closed one, and of
    those the most recently active.
    """
    chain = [session_id]
    if not {"parent_session_id", "end_reason"} <= schema.sessions:
        return chain
    sql = ("SELECT c.id FROM sessions AS p JOIN sessions AS c ON c.parent_session_id = p.id "
           f"WHERE p.id = ? AND p.end_reason = 'compression' AND {_mark(schema, '_branched_from', 'c')} IS NULL "
           f"AND {_mark(schema, '_delegate_from', 'c')} IS NULL AND ifnull(c.source, '') <> 'tool' "
           "ORDER BY CASE WHEN c.end_reason = 'compression' THEN 0 "
           f"WHEN {schema.session('ended_at', of='c')} IS NULL THEN 1 ELSE 2 END, "
           "ifnull((SELECT max(timestamp) FROM messages WHERE session_id = c.id), c.started_at) DESC, "
           "c.started_at DESC, c.id DESC LIMIT 1")
    while len(chain) < _CHAIN:
        row = connection.execute(sql, (chain[-1],)).fetchone()
        if row is None or row[0] in chain:
            break
        chain.append(row[0])
    return chain


def _holds_message(connection: sqlite3.Connection, schema: Schema, session_id: str) -> bool:
    return connection.execute(
        f"SELECT 1 FROM messages WHERE session_id = ? AND role IN ('user', 'assistant') AND {_live(schema)} LIMIT 1",
        (session_id,)).fetchone() is not None


def _info(row: Sequence[Any], title: object) -> SessionInfo:
    session_id, _title, folder, *instants = row[:6]
    return SessionInfo(id=str(session_id), title=str(title or ""), source=NAME, folder=str(folder or ""),
                       active_at=max(_seconds(instant) for instant in instants))


def _seconds(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0


# -- messages ------------------------------------------------------------------------------------


def read_context(connection: sqlite3.Connection, schema: Schema, session_id: str, limit: int) -> Context:
    """The newest ``limit`` messages with text, of where the session went on if it was compressed.

    Raises :class:`SessionNotFound`.
    """
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
        raise SessionNotFound(session_id)
    context = Context()
    for part in reversed(_chain(connection, schema, session_id)):  # the last part is empty until it is used
        _read_messages(connection, schema, part, limit, context)
        if context.lines:
            break
    return context


def _live(schema: Schema) -> str:
    """As SQL: not taken back by the user and not replaced by a summary."""
    active = "(active = 1 OR active IS NULL)" if "active" in schema.messages else "1"
    return f"{active} AND NOT ifnull({schema.message('compacted')}, 0)"


def _read_messages(connection: sqlite3.Connection, schema: Schema, session_id: str, limit: int,
                   context: Context) -> None:
    lines = context.lines
    # Ids alone come from an index; what was said is read from the newest back, as far as it is wanted.
    ids = sorted((row[0] for row in connection.execute(
        "SELECT id FROM messages WHERE session_id = ?", (session_id,))), reverse=True)
    while ids and len(lines) < limit:
        page, ids = ids[:_PAGE], ids[_PAGE:]
        rows = connection.execute(
            "SELECT id, role, timestamp, content FROM messages "
            f"WHERE id IN ({','.join('?' * len(page))}) AND role IN ('user', 'assistant') AND {_live(schema)} "
            "ORDER BY id DESC", page)
        for number, role, at, content in rows:
            text = _visible(content)
            if text is None:
                context.skipped.append(number)
            elif text:
                lines.append(Line("assistant" if text.startswith(_SUMMARY) else role, text, _seconds(at), "",
                                  str(number)))
                if len(lines) >= limit:
                    break
    lines.reverse()
    context.lines = _in_time(lines)


def _in_time(lines: Sequence[Line]) -> list[Line]:
    """The same lines, none later than the next one: who merges them with others goes by time."""
    placed: list[Line] = []
    until = float("inf")
    for line in reversed(lines):
        until = min(until, line.at)
        placed.append(line if line.at == until else replace(line, at=until))
    placed.reverse()
    return placed


def _visible(content: object) -> str | None:
    """What a person wrote or was shown, "" for nothing, None for content that cannot be understood."""
    if content is None:
        return ""
    if not isinstance(content, str):
        return None
    text = content
    if text.startswith(_PARTS):
        try:
            parts = json.loads(text.removeprefix(_PARTS))
        except (ValueError, RecursionError):
            return None
        text = "\n".join(_texts(parts if isinstance(parts, list) else [parts]))
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # half an emoji
    text = _RECALLED.sub("", text)  # memories that older versions wrote into what the person said
    return "" if text.isspace() else text


def _texts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, str) and part:
            yield part
        elif isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
            text = part.get("text")
            if isinstance(text, str) and text:
                yield text
