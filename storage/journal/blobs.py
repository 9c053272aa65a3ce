"""Contents that are too large for a line: ``blobs/<sha256>`` beside the journal, named by what they hold.

The record keeps the beginning of its texts and ``"truncated": true`` with ``"blob": {"sha256", "bytes"}``;
the blob is the whole ``data`` as JSON. It is on disk before the record that names it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from storage.journal.errors import JournalError
from storage.journal.records import MAX_RECORD, Record, encode, encode_object, parse

FOLDER = "blobs"
_NAME = re.compile(r"[0-9a-f]{64}")
_ALWAYS = ("id", "call_id", "name", "role", "tag", "usage", "cost", "request_id")


def put(folder: Path, content: bytes) -> str:
    """Store a content durably and give its name. Raises OSError; then nothing is left behind."""
    name = hashlib.sha256(content).hexdigest()
    path = folder / name
    if path.is_file() and path.stat().st_size == len(content):
        return name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return name


def get(folder: Path, name: str) -> Any:
    """The ``data`` that was stored under a name. Raises :class:`JournalError` where it is missing or altered."""
    if not _NAME.fullmatch(name):
        raise JournalError(f"{name[:80]!r} is no name of a blob: 64 hexadecimal digits are expected.")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise JournalError(f"The large content {folder / name} cannot be read ({error.strerror}): "
                           "copy it there again; the journal holds only its beginning.") from error
    if hashlib.sha256(content).hexdigest() != name:
        raise JournalError(f"The large content {folder / name} is not what was stored: copy it there again.")
    return parse(content)


def there(folder: Path, name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and (folder / name).is_file()


def shortened(record: Record, folder: Path) -> bytes:
    """The line of a record whose own line is too long, after its data was stored whole."""
    content = encode_object({"data": record.data})[len(b'{"data":') : -len(b"}\n")]
    blob = {"sha256": put(folder, content), "bytes": len(content)}
    plain = msgspec.to_builtins(record.data, str_keys=True)
    for longest, count in ((4096, 100), (512, 20), (64, 5)):
        data: Any = _cut(plain, longest, count, depth=4)
        if not isinstance(data, dict):
            data = {"content": data}
        line = encode(replace(record, data={**data, "truncated": True, "blob": blob}))
        if len(line) <= MAX_RECORD:
            return line
    return encode(replace(record, data={"truncated": True, "blob": blob}, extra={}))


def _cut(value: Any, longest: int, count: int, depth: int) -> Any:
    """``value`` with texts of at most ``longest`` characters and at most ``count`` parts each."""
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "…"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * longest:
        return None
    if isinstance(value, Mapping):
        if depth == 0:
            return {}
        names = [name for name in _ALWAYS if name in value]
        names += [name for name in value if name not in names and len(name) <= longest]
        return {name: _cut(value[name], longest, count, depth - 1) for name in names[:count]}
    if isinstance(value, list | tuple):
        return [_cut(one, longest, count, depth - 1) for one in value[:count]] if depth else []
    return value


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system can open folders."""
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
