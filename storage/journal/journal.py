"""The journals of one folder, and a session that this process owns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.journal.errors import JournalMissing, told
from storage.journal.file import JournalFile
from storage.journal.locks import OwnerLock
from storage.journal.names import path_of
from storage.journal.records import HEADER, Record, iso, record
from storage.journal.snapshot import (
    Difference,
    Resumed,
    SessionConfig,
    SessionSnapshot,
    compare_config,
    resume,
)


class Journal:
    """``folder`` holds the files. Methods block and raise :class:`JournalError`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, session_id: str) -> Path:
        return path_of(self.folder, session_id)

    def load(self, session_id: str) -> SessionSnapshot | None:
        """The session as it is, whoever owns it; None where there is no such session."""
        try:
            return resume(self.path(session_id), session_id).snapshot
        except JournalMissing:
            return None

    def open(self, session_id: str) -> OwnedSession:
        """Own a session and mend the end of its file.

        Raises :class:`JournalMissing`, or :class:`JournalBusy` where somebody owns it already.
        """
        path = self.path(session_id)
        with told(path, "opened"):
            os.stat(path)
        return OwnedSession(path, session_id)

    def create(self, session_id: str, *, at: float, title: str = "", config: SessionConfig | None = None
               ) -> OwnedSession:
        """Make a session and own it; one that is there already is opened as it is. ``at`` in unix seconds."""
        path = self.path(session_id)
        with JournalFile(path) as file:
            file.begin(header(session_id, at=at, title=title, config=config))
        return OwnedSession(path, session_id)


def header(session_id: str, *, at: float, title: str = "", config: SessionConfig | None = None) -> Record:
    """The first record of a session."""
    data: dict[str, Any] = {"id": session_id, "startedAt": iso(at)}
    if title:
        data["title"] = title
    if config is not None:
        data["config"] = config.to_json()
    return Record(0, HEADER, data, iso(at))


class OwnedSession:
    """A session that nobody else can open until this is closed. Others may still append single
    records to it (a line from the command line, say); neither disturbs the other."""

    def __init__(self, path: Path, session_id: str) -> None:
        self.id = session_id
        self.file = JournalFile(path)
        self._owner = OwnerLock(path)
        with told(path, "opened"):
            self._owner.acquire()
        try:
            self.file.repair()
        except BaseException:
            self.close()
            raise

    def append(self, turn: int, event: str, data: Any, at: float) -> None:
        """One record; ``at`` in unix seconds."""
        self.file.append(record(turn, event, data, at))

    def resume(self, messages: int | None = 200) -> Resumed:
        """The session with its newest messages, the turn that was interrupted, the commands left open."""
        return resume(self.file.path, self.id, messages=messages)

    def configure(self, config: SessionConfig | Mapping[str, Any], at: float) -> list[Difference]:
        """What of the stored config differs from this; the new one is stored where any does, or where
        none was."""
        stored = self.resume(messages=0).snapshot.config
        known = any(value is not None for value in stored.to_json().values())
        different = compare_config(stored, config)
        if different or not known:
            held = config.to_json() if isinstance(config, SessionConfig) else dict(config)
            self.file.append(Record(0, HEADER, {"config": held}, iso(at)))
        return different

    def close(self) -> None:
        """May be called twice."""
        self.file.close()
        self._owner.release()

    def __enter__(self) -> OwnedSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
