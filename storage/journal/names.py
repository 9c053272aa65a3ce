"""Which file holds a session: ``ID.jsonl`` in the sessions folder.

An id is kept as it is, save for the characters that no file name can hold: these are written as in
a URL (``own_bot/xmpp/m1`` is ``own_bot%2Fxmpp%2Fm1.jsonl``), so that no two ids share a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from storage.journal.errors import JournalIdError

SUFFIX = ".jsonl"
LONGEST_NAME = 200
"""Bytes of a file name without its suffix; file systems take 255 with everything that is put behind."""

_UNSAFE = re.compile(r"[%/\\\x00-\x1f\x7f]")


def path_of(folder: Path, session_id: str) -> Path:
    """The file of a session. Raises :class:`JournalIdError` for an id that, taken as a path, would
    leave the folder, or that cannot be a file name."""
    if not session_id.strip():
        raise JournalIdError(session_id, "an id has at least one character")
    parts = re.split(r"[/\\]", session_id)
    if ".." in parts or "." in parts or parts[0] == "" or (re.fullmatch("[A-Za-z]:", parts[0]) and len(parts) > 1):
        raise JournalIdError(session_id, "it leads out of the sessions folder")
    if "\0" in session_id:
        raise JournalIdError(session_id, "it holds a NUL character")
    name = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", session_id)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise JournalIdError(session_id, "it holds half a character (a lone surrogate)") from None
    if size > LONGEST_NAME:
        raise JournalIdError(session_id, f"it is longer than {LONGEST_NAME} bytes")
    return folder / (name + SUFFIX)


def id_of(path: Path) -> str:
    """The session id of a file; of one with another suffix its name."""
    return unquote(path.name.removesuffix(SUFFIX))
