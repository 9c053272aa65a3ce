"""What the command line does with a journal file: show it, check it, bring it to the present version."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.journal import blobs
from storage.journal.content import odd_data
from storage.journal.errors import JournalForeign, told
from storage.journal.lines import CHUNK, numbered, opened
from storage.journal.locks import OwnerLock, lock
from storage.journal.migrations import migrate as migrate_line
from storage.journal.names import id_of
from storage.journal.reading import COMPLAINTS_KEPT, BadLine, Complaints, freed, whole
from storage.journal.records import VERSION, Complaint, encode_object, odd_timestamp, parse, parse_telling
from storage.journal.snapshot import Resumed, resume


def show(path: Path | str, *, messages: int | None = None) -> dict[str, Any]:
    """The snapshot under its JSON names, with what a person wants to know besides; changes nothing.

    ``messages`` limits it to that many of the newest. Raises :class:`JournalError`.
    """
    path = Path(path)
    found = resume(path, id_of(path), messages=messages)
    return {**found.snapshot.to_json(), "title": found.title, **_told(found)}


def check(path: Path | str) -> dict[str, Any]:
    """``ok`` and everything that is wrong; changes nothing. Raises :class:`JournalError`.

    Older versions, an interrupted turn and open commands are told, but nothing wrong. Loading gets over more than
    is right: what it takes for nothing (data that is no object, a time that is none) is wrong here.
    """
    path = Path(path)
    found = resume(path, id_of(path), messages=0)
    told_ = _told(found)
    odd = Complaints()
    _look_closely(path, odd)
    for name, line in found.blobs.items():
        if not blobs.there(path.parent / blobs.FOLDER, name):
            odd(line, f"the large content blobs/{name} is not there")
    told_["complaintCount"] += odd.count
    told_["complaints"] += [{"line": one.line, "problem": one.problem} for one in odd.kept]
    told_["complaints"] = sorted(told_["complaints"], key=lambda one: one["line"])[:COMPLAINTS_KEPT]
    return {"id": found.snapshot.id, "ok": told_["complaintCount"] == 0, **told_}


def _look_closely(path: Path, complain: Complaints) -> None:
    """Complain of what stands in whole records and is none of what may stand there."""
    told_before = Complaints()
    first = True
    with opened(path) as (file, size):
        for number, lines in numbered(file, size, told_before):
            for at, raw in enumerate(lines, number):
                if not (line := freed(raw, at, told_before)):
                    continue
                try:
                    record, _ = whole(line, path=path, number=at, first=first)
                except BadLine:
                    continue
                first = False
                held = parse(line)
                for problem in (odd_timestamp(held.get("timestamp")), odd_data(record.event, held.get("data"))):
                    if problem:
                        complain(at, problem)


def _told(found: Resumed) -> dict[str, Any]:
    turn = found.interrupted_turn
    return {
        "records": found.records,
        "versions": {str(version): count for version, count in found.versions.items()},
        "interruptedTurn": None if turn is None else
        {"turn": turn, "startedAt": found.snapshot.current_turn_started_at},
        "openCommands": [{"turn": call.turn, "id": call.id, "name": call.name, "line": call.line}
                         for call in found.open_calls],
        "complaints": [{"line": one.line, "problem": one.problem} for one in found.complaints],
        "complaintCount": found.complaint_count,
    }


@dataclass(frozen=True, slots=True)
class Migrated:
    """``changed`` records were brought to the present version; ``backup`` is the file as it was, None
    where nothing had to be done."""

    changed: int
    backup: Path | None
    complaints: tuple[Complaint, ...]
    complaint_count: int


def migrate(path: Path | str) -> Migrated:
    """Write the file anew in the present version and keep the old one as ``NAME.vN.bak``.

    The new file takes the name only once it is whole and on disk, so an interrupted migration
    changes nothing; lines that cannot be read go over as they are. Raises :class:`JournalBusy` where
    the session is in use, :class:`JournalVersionError` and :class:`JournalError`.
    """
    path = Path(path)
    with told(path, "migrated"):
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise JournalForeign.link(path)
        owner = OwnerLock(path)
        owner.acquire()
        try:
            return _migrated(path)
        finally:
            owner.release()


def _migrated(path: Path) -> Migrated:
    complain = Complaints()
    draft = path.with_name(path.name + ".new")
    oldest = VERSION
    changed = 0
    first = True
    # Appends wait at the old file's lock, and then find that it is no longer the one at the path.
    old = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        with opened(path) as (file, size), open(draft, "wb", buffering=CHUNK) as new:
            lock(old)
            size = os.fstat(old).st_size
            for number, lines in numbered(file, size, complain, pass_over=new.write):
                for at, line in enumerate(lines, number):
                    done, version = _line(path, at, line, first, complain)
                    new.write(done)
                    first = first and version is None
                    if version is not None and version < VERSION:
                        changed += 1
                        oldest = min(oldest, version)
            new.flush()
            os.fsync(new.fileno())
        if not changed:
            return Migrated(0, None, tuple(complain.kept), complain.count)
        os.chmod(draft, os.stat(path).st_mode & 0o777)
        backup = _backup(path, oldest)
        os.replace(draft, path)
        blobs.sync_folder(path.parent)
        return Migrated(changed, backup, tuple(complain.kept), complain.count)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
        os.close(old)


def _line(path: Path, number: int, raw: bytes, first: bool, complain: Complaints) -> tuple[bytes, int | None]:
    """The line for the new file, and the version that it had: None for one that is no record."""
    line = freed(raw, number, complain)
    if not line:
        return raw + b"\n", None
    try:
        version = whole(line, path=path, number=number, first=first)[1]
    except BadLine as bad:
        complain(number, f"{bad}: kept as it is")
        return raw + b"\n", None
    if version == VERSION:
        return raw + b"\n", version
    held, exact = parse_telling(line)
    return encode_object(migrate_line(held, path=path, number=number), exact=exact), version


def _backup(path: Path, version: int) -> Path:
    """The file under a second name that nobody has yet."""
    for count in itertools.count(1):
        backup = path.with_name(f"{path.name}.v{version}.bak{'' if count == 1 else f'.{count}'}")
        try:
            os.link(path, backup)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            with open(path, "rb") as old, open(backup, "xb") as new:
                shutil.copyfileobj(old, new)
                new.flush()
                os.fsync(new.fileno())
        return backup
    raise AssertionError("there is always another number")
