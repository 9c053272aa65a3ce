"""The journals of a folder as a session source that can be written to."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fsm.constants import RECENT_MSG_LIMIT
from fsm.ports import Line, SessionInfo, SourceError
from storage.journal.content import first_of, messages_of, text_of
from storage.journal.errors import JournalError, JournalIdError, JournalMissing
from storage.journal.file import JournalFile
from storage.journal.glance import Glance, glance, last_title
from storage.journal.journal import header
from storage.journal.names import SUFFIX, id_of, path_of
from storage.journal.reading import newest
from storage.journal.records import HEADER, Record, iso, record, seconds
from storage.journal.snapshot import NEWEST_BYTES, SessionConfig

log = logging.getLogger(__name__)

_Lines = list[Line]
_Infos = list[SessionInfo]  # inside the class "list" is a method
T = TypeVar("T")


class JournalSource:
    """:class:`fsm.ports.WritableSource` over the journals in ``folder``, which need not be there yet.

    Everything that touches the disk runs in threads. Nothing is owned (:class:`storage.journal.Journal`
    does that): a list, a context and single appends go well beside the owner of a session.
    """

    name = "journal"

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._glances: dict[str, tuple[tuple[int, int, int], Glance | JournalError]] = {}
        self._titles: dict[str, str] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """All of them, most recently active first, then by id; also those that nobody wrote in yet,
        since each was made on purpose. One that cannot be read is left out and named in the log."""
        found = await self._thread(self._list)
        return found if limit is None else found[: max(limit, 0)]

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """Those whose title contains ``words``, case folded, or whose id equals it; none for blanks."""
        named, wanted = words.strip(), words.strip().casefold()
        if not wanted:
            return []
        found = [info for info in await self.list() if wanted in info.title.casefold() or info.id == named]
        return found if limit is None else found[: max(limit, 0)]

    async def latest(self) -> SessionInfo | None:
        """The most recently active one."""
        return next(iter(await self.list(1)), None)

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session, empty ones included; None where there is none."""
        return await self._thread(lambda: self._find(session_id))

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT) -> Sequence[Line]:
        """The newest ``limit`` texts that were said, oldest first; none for an unknown session.

        Commands and their results are left out. Read from the end of the file, at most 16 MiB of text.
        """
        return await self._thread(lambda: self._context(session_id, limit))

    async def create(self, title: str, *, session_id: str, at: float, config: SessionConfig | None = None
                     ) -> SessionInfo:
        """Make a session under that id (``at`` in unix seconds); the one that is there stays as it is."""

        def make() -> SessionInfo:
            with JournalFile(self._path(session_id)) as file:
                file.begin(header(session_id, at=at, title=title, config=config))
            found = self._find(session_id)
            assert found is not None
            return found

        return await self._in_order(session_id, make)

    async def append_turn(self, session_id: str, turn: int, event: str, data: Any, at: float) -> None:
        """Write one record (:mod:`storage.journal.content` says what stands in ``data``), durably where
        a turn begins or ends. A session that is not there yet is made. ``at`` in unix seconds.

        Raises SourceError, or ValueError or TypeError for what is no record.
        """

        def append() -> None:
            path = self._path(session_id)
            records = [record(turn, event, data, at)]
            if event in ("turn_start", "turn_end") and (title := self._later_title(session_id, path)):
                records.insert(0, Record(0, HEADER, {"title": title}, iso(at)))
            with JournalFile(path) as file:
                file.append(*records, header=header(session_id, at=at))

        await self._in_order(session_id, append)

    async def set_title(self, session_id: str, title: str, *, at: float) -> None:
        """Give a session another title by a header at its end. It is repeated with every later turn, so
        that a list, which reads the ends of a file only, finds it. Raises SourceError, also for an unknown session."""

        def write() -> None:
            path = self._path(session_id)
            if self._find(session_id) is None:
                raise JournalMissing(path)
            with JournalFile(path) as file:
                file.append(Record(0, HEADER, {"title": title}, iso(at)))
            self._titles[session_id] = title

        await self._in_order(session_id, write)

    # -- in threads ------------------------------------------------------------------------------

    def _path(self, session_id: str) -> Path:
        return path_of(self.folder, session_id)

    def _list(self) -> _Infos:
        try:
            names = [entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"The folder of session journals {self.folder} cannot be read ({error.strerror}): "
                               "check who may use it.") from error
        found: _Infos = []
        for name in names:
            path = self.folder / name
            try:
                if path_of(self.folder, id_of(path)) != path:
                    continue  # no id leads there
                seen = self._glance(path)
            except (JournalMissing, JournalIdError):
                continue
            except JournalError as error:
                if self._glances.get(name, (None, None))[1] is not error:
                    log.warning("%s", error)
                continue
            if not seen.blank:
                found.append(self._info(path, seen))
        for name in set(self._glances).difference(names):  # a copy at once: other threads look as well
            self._glances.pop(name, None)
        return sorted(found, key=lambda info: (-info.active_at, info.id))

    def _find(self, session_id: str) -> SessionInfo | None:
        try:
            path = self._path(session_id)
            return self._info(path, self._glance(path))
        except (JournalIdError, JournalMissing):
            return None

    def _info(self, path: Path, seen: Glance) -> SessionInfo:
        session_id = id_of(path)
        if seen.renamed:  # by us or another process, and lately
            self._titles[session_id] = seen.renamed
        return SessionInfo(session_id, self._titles.get(session_id) or seen.title, self.name, seen.active_at)

    def _glance(self, path: Path) -> Glance:
        try:
            held = os.stat(path)
        except OSError as error:
            raise JournalMissing(path) from error
        if not stat.S_ISREG(held.st_mode):
            raise JournalMissing(path)
        identity = (held.st_size, held.st_mtime_ns, held.st_ino)
        known = self._glances.get(path.name)
        if known is None or known[0] != identity:
            try:
                known = (identity, glance(path))
            except JournalMissing:
                raise
            except JournalError as error:
                log.warning("%s", error)
                known = (identity, error)
            self._glances[path.name] = known
        if isinstance(known[1], JournalError):
            raise known[1]
        return known[1]

    def _later_title(self, session_id: str, path: Path) -> str:
        """A title that was set later; the first time the file is searched for it, then it is remembered."""
        if session_id not in self._titles:
            title = ""
            with suppress(JournalError):  # a new file, or one that the append itself will refuse
                seen = self._glance(path)
                title = seen.renamed or last_title(path)
                title = "" if title == seen.title and not seen.renamed else title
            self._titles[session_id] = title
        return self._titles[session_id]

    def _context(self, session_id: str, limit: int) -> Sequence[Line]:
        lines: _Lines = []
        room = NEWEST_BYTES
        try:
            for held in newest(self._path(session_id)) if limit > 0 else ():
                if held.event not in ("turn_start", "turn_end"):
                    continue
                said = _lines(held)
                room -= sum(len(line.text) for line in said)
                if room < 0 and lines:
                    break
                lines += reversed(said)
                if len(lines) >= limit:
                    break
        except (JournalIdError, JournalMissing):
            return []
        return lines[:limit][::-1]

    # -- from the loop ---------------------------------------------------------------------------

    async def _thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except JournalError as error:
            raise SourceError(str(error), kind=error.kind, source=self.name) from error

    async def _in_order(self, session_id: str, work: Callable[[], T]) -> T:
        """Writes to one session happen in the order of the calls, also where a caller was cancelled
        while its own was under way."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())

        async def run() -> T:
            async with lock:
                return await self._thread(work)

        return await asyncio.shield(asyncio.ensure_future(run()))


def _lines(held: Record) -> list[Line]:
    at = seconds(held.timestamp) or 0.0
    tag, name = first_of(held.data, ("tag",)), first_of(held.data, ("id",))
    said = [(message.role, text_of(message.content)) for message in messages_of(held)]
    return [Line(role, text, at, tag if isinstance(tag, str) else "", name if isinstance(name, str) else "")
            for role, text in said if text]
