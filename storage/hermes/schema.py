"""Which of Hermes' columns a file has.

``schema_version`` counts up (22 in Hermes 0.19, 30 after it) and columns come with it, so the columns
are asked instead: a few are needed, any other reads as NULL where it is absent.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from storage.hermes.files import PROGRAM
from storage.readonly import Identity, lacking

log = logging.getLogger(__name__)

NEEDED: Mapping[str, frozenset[str]] = {
    "sessions": frozenset({"id", "source", "title", "started_at"}),
    "messages": frozenset({"id", "session_id", "role", "content", "timestamp"}),
}
"""Tables and columns without which nothing can be read."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of the two tables, and Hermes' own number for its schema where it names one."""

    sessions: frozenset[str]
    messages: frozenset[str]
    version: int | None

    def session(self, column: str, *, of: str = "s") -> str:
        """The column of the sessions table aliased ``of``, as SQL: NULL where this file has none."""
        return f"{of}.{column}" if column in self.sessions else "NULL"

    def message(self, column: str) -> str:
        """The same for the messages table."""
        return column if column in self.messages else "NULL"


def schema_of(connection: sqlite3.Connection, identity: Identity) -> Schema:
    """The schema of an open file. Raises :class:`SourceError` of kind ``empty`` or ``foreign``."""
    names = {str(name) for name, in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names:
        raise PROGRAM.nothing_in(identity.path)
    # Only these two: asking a full-text table needs its tokenizer, which not every build has.
    tables = {table: {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}
              for table in NEEDED if table in names}
    if missing := ", ".join(lacking(NEEDED, tables)):
        present = ", ".join(sorted(name for name in names if not name.startswith("sqlite_")))
        log.warning("Hermes schema of %s not recognised, missing %s; present %s", identity.path, missing, present)
        raise PROGRAM.foreign(identity.path, missing, present)
    return Schema(frozenset(tables["sessions"]), frozenset(tables["messages"]), _version(connection, names))


def _version(connection: sqlite3.Connection, names: set[str]) -> int | None:
    """A hint for people, never a condition."""
    if "schema_version" not in names:
        return None
    try:
        row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
        return int(row[0])
    except (sqlite3.OperationalError, TypeError, ValueError):
        return None
