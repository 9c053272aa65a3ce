"""Which generations of OpenCode's tables a file holds.

OpenCode numbers nothing that a reader could trust (``user_version`` stays 0, the ledgers of
migrations were renamed), so the tables themselves are asked: a few columns are needed, all of
which OpenCode 1.2 to 1.18 and 2.0 have; any other may be absent.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from storage.opencode.files import PROGRAM
from storage.readonly import Identity, lacking

log = logging.getLogger(__name__)

_V2_MESSAGE = frozenset({"id", "session_id", "type", "seq", "time_created", "data"})
NEEDED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "v1": {"session": frozenset({"id", "title", "time_updated"}),
           "message": frozenset({"id", "session_id", "time_created", "data"}),
           "part": frozenset({"id", "message_id", "data"})},
    "v2": {"session_v2": frozenset({"id", "title", "time_updated"}),
           "session_message": _V2_MESSAGE},
}
"""Tables and columns without which a generation cannot be read."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file holds. ``api``: sessions of 1.x may have their messages in ``session_message``."""

    v1: bool
    v2: bool
    api: bool
    columns: Mapping[str, frozenset[str]]
    migration: str | None

    @property
    def generations(self) -> tuple[str, ...]:
        """``v1``, ``v2`` or both."""
        return tuple(name for name, there in (("v1", self.v1), ("v2", self.v2)) if there)


_known: dict[tuple[Identity, int], Schema] = {}


def schema_of(connection: sqlite3.Connection, identity: Identity) -> Schema:
    """The schema of an open file, looked at again only when SQLite's ``schema_version`` moved.

    Raises :class:`SourceError` of kind ``empty`` or ``foreign``.
    """
    key = identity, int(connection.execute("PRAGMA schema_version").fetchone()[0])
    if (schema := _known.get(key)) is None:
        schema = _look(connection, identity.path)
        if len(_known) >= 64:  # databases come and go only in tests
            _known.clear()
        _known[key] = schema
    return schema


def _look(connection: sqlite3.Connection, path: str) -> Schema:
    tables: dict[str, set[str]] = {}
    for table, column in connection.execute(
            "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c "
            "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall():
        tables.setdefault(table, set()).add(column)
    if not tables:
        raise PROGRAM.nothing_in(path)
    absent = {name: lacking(needed, tables) for name, needed in NEEDED.items()}
    present = ", ".join(sorted(tables))
    if all(absent.values()):
        missing = " or ".join(f"{', '.join(names)} ({name})" for name, names in absent.items())
        log.warning("OpenCode schema of %s not recognised, missing %s; present %s", path, missing, present)
        raise PROGRAM.foreign(path, missing, present)
    for generation, table in (("v1", "session"), ("v2", "session_v2")):
        if absent[generation] and table in tables:
            log.warning("OpenCode schema of %s: the sessions in %s are left out, missing %s", path, table,
                        ", ".join(absent[generation]))
    migration = _newest_migration(connection, tables)
    log.info("OpenCode schema of %s: newest migration %s", path, migration or "unknown")
    return Schema(v1=not absent["v1"], v2=not absent["v2"],
                  api=not lacking({"session_message": _V2_MESSAGE}, tables),
                  columns={name: frozenset(columns) for name, columns in tables.items()}, migration=migration)


def _newest_migration(connection: sqlite3.Connection, tables: Mapping[str, set[str]]) -> str | None:
    """The ids begin with a date, so the greatest is the newest. A hint for people, never a condition."""
    for table, column in (("migration", "id"), ("__drizzle_migrations", "name")):
        if column in tables.get(table, ()):
            newest = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
            if newest is not None:
                return str(newest)
    return None
