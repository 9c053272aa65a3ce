"""Session journals of our own: one JSON Lines file a session.

    records, content    what a record is, and what stands in its data
    lines, reading      bytes to records, tolerantly, in bounded memory
    file, locks, blobs  appends that neither tear nor interleave
    migrations, tools   older versions; show, check and migrate for the command line
    snapshot, usage     what a journal adds up to, and what differs on resume
    journal, source     sessions by id; the session source of the engine
    turns, channel      records of the engine's turns, each once
"""

from __future__ import annotations

from storage.journal.channel import JournalChannel
from storage.journal.content import SessionMessage
from storage.journal.errors import (
    JournalBusy,
    JournalError,
    JournalForeign,
    JournalIdError,
    JournalMissing,
    JournalVersionError,
)
from storage.journal.file import JournalFile
from storage.journal.journal import Journal, OwnedSession
from storage.journal.reading import Loaded
from storage.journal.records import EVENTS, HEADER, MAX_RECORD, VERSION, Complaint, Record, record
from storage.journal.snapshot import (
    Difference,
    OpenCall,
    Resumed,
    SessionConfig,
    SessionSnapshot,
    Tokens,
    compare_config,
    resume,
)
from storage.journal.source import JournalSource, TakenUp
from storage.journal.tools import Migrated, check, migrate, show
from storage.journal.usage import turn_usage

__all__ = [
    "EVENTS", "HEADER", "MAX_RECORD", "VERSION", "Complaint", "Difference", "Journal", "JournalBusy",
    "JournalChannel", "JournalError", "JournalFile", "JournalForeign", "JournalIdError", "JournalMissing",
    "JournalSource", "JournalVersionError", "Loaded", "Migrated", "OpenCall", "OwnedSession", "Record", "Resumed",
    "SessionConfig", "SessionMessage", "SessionSnapshot", "TakenUp", "Tokens", "check", "compare_config", "migrate",
    "record", "resume", "show", "turn_usage",
]  # fmt: skip
