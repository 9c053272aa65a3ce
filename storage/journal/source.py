"""The journals of a folder as a session source that can be written to."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fsm.constants import RECENT_MSG_LIMIT
from fsm.ports import Line, SessionInfo, SourceError
from storage.journal.content import first_of, messages_of, text_of
from storage.journal.errors import JournalError, JournalForeign, JournalIdError, JournalMissing
from storage.journal.file import JournalFile
from storage.journal.glance import Glance, glance, last_title
from storage.journal.journal import header
from storage.journal.names import SUFFIX, id_of, path_of
from storage.journal.reading import newest
from storage.journal.records import HEADER, Record, iso, record, seconds
from storage.journal.snapshot import (
    NEWEST_BYTES,
    Difference,
    OpenCall,
    SessionConfig,
    compare_config,
    resume,
)
from storage.journal.turns import Tail, name_of

log = logging.getLogger(__name__)

UNREAD = 3
"""Journals that cannot be read and are named one by one."""
TAILS = 500
"""Journals whose ends are remembered; the others are read again."""

_Lines = list[Line]
_Records = list[Record]
_Infos = list[SessionInfo]  # inside the class "list" is a method
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TakenUp:
    """What there is to say when somebody goes on with a session. ``interrupted`` is the number of the turn that was
    begun and not ended, ``since`` its instant (unix seconds, None where the journal does not say), ``turn`` the
    engine's name for it (empty where it has none); ``different`` is what was set otherwise the last time."""

    id: str
    title: str
    interrupted: int | None
    since: float | None
    turn: str
    open_calls: tuple[OpenCall, ...]
    different: tuple[Difference, ...]


class JournalSource:
    """:class:`fsm.ports.WritableSource` and :class:`fsm.ports.Journals` over the journals in ``folder``, which need
    not be there yet. ``config`` is what new sessions begin with. ``durable`` as for :class:`JournalFile`.
    ``ended`` is called (session id, instant) in the background after a turn's end was written.

    Everything that touches the disk runs in threads. Nothing is owned (:class:`storage.journal.Journal`
    does that): a list, a context and single appends go well beside the owner of a session.
    """

    name = "journal"

    def __init__(self, folder: Path | str, *, config: SessionConfig | None = None, durable: bool = True,
                 ended: Callable[[str, float], Coroutine[Any, Any, None]] | None = None) -> None:
        self.folder = Path(folder)
        self.config, self.ended = config, ended
        self._durable = durable
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._writing: set[asyncio.Future[Any]] = set()
        self._beside: set[asyncio.Future[None]] = set()
        self._glances: dict[str, tuple[tuple[int, ...], Glance | JournalError]] = {}
        self._unread: tuple[SourceError, ...] = ()
        self._titles: dict[str, str] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """All of them, most recently active first, then by id; also those that nobody wrote in yet,
        since each was made on purpose. One that cannot be read is left out, see :meth:`unread`."""
        found, self._unread = await self._thread(self._list)
        return found if limit is None else found[: max(limit, 0)]

    def unread(self) -> Sequence[SourceError]:
        """The journals that the last list left out because they cannot be read, the most recently changed first; from
        the fourth on as one."""
        first, rest = self._unread[:UNREAD], self._unread[UNREAD:]
        if not rest:
            return first
        more = f"{len(rest)} more session journals in {self.folder} cannot be read either."
        return *first, SourceError(more, kind=rest[0].kind, source=self.name, active_at=rest[0].active_at)

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
        """The newest ``limit`` texts that were said, oldest first.

        Commands and their results are left out. Read from the end of the file, at most 16 MiB of text.
        """
        return await self._thread(lambda: self._context(session_id, limit))

    async def create(self, title: str, *, session_id: str, at: float, config: SessionConfig | None = None
                     ) -> SessionInfo:
        """Make a session under that id (``at`` in unix seconds), by default with the source's own config; the one
        that is there stays as it is."""

        def make() -> SessionInfo:
            with self._file(session_id) as file:
                file.begin(header(session_id, at=at, title=title, config=config or self.config))
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
            records = [*self._repeated_title(session_id, event, at), record(turn, event, data, at)]
            with self._file(session_id) as file:
                file.append(*records, header=header(session_id, at=at))

        await self._in_order(session_id, append)

    async def take_record(self, session_id: str, *, turn: str, event: str, data: Mapping[str, object], at: float
                          ) -> None:
        """Write one record of the turn named ``turn``, durably where a turn begins or ends. ``turn`` goes into the
        data; its number is the next one where it begins. A record of that turn, event and id of the data that is
        there already is not written again, whoever wrote it. ``at`` in unix seconds.

        Raises SourceError (kind ``missing`` where there is no such session; it is not made), or ValueError or
        TypeError for what is no record.
        """

        def take() -> None:
            title = self._repeated_title(session_id, event, at)
            named = {**data, "turn": turn}
            with self._file(session_id) as file:
                with file.alone() as alone:
                    tail = self._tails.get(session_id)
                    if tail is None or tail.length != alone.length:
                        tail = Tail.read(alone.newest(), alone.length)
                    if name_of(turn, event, named) in tail.names:
                        return
                    new = record(tail.number(turn), event, named, at)
                    alone.records += [*title, new]
                tail.take(new, file.length)
            self._tails[session_id] = tail
            self._tails.move_to_end(session_id)
            while len(self._tails) > TAILS:
                self._tails.popitem(last=False)

        await self._in_order(session_id, take)
        if event == "turn_end" and self.ended is not None:
            task = asyncio.ensure_future(self.ended(session_id, at))
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def take_up(self, session_id: str, *, at: float | None = None) -> TakenUp | None:
        """What there is to say about a session that somebody goes on with, None where there is none. With ``at``
        (unix seconds) the source's config becomes the session's own, where it is another one."""

        def look() -> TakenUp | None:
            path = self.path(session_id)
            try:
                found = resume(path, session_id, messages=0)
            except JournalMissing:
                return None
            stored = found.snapshot.config
            different = compare_config(stored, self.config) if self.config is not None else []
            known = any(value is not None for value in stored.to_json().values())
            if at is not None and self.config is not None and (different or not known):
                with self._file(session_id) as file, file.alone() as alone:
                    alone.records.append(Record(0, HEADER, {"config": self.config.to_json()}, iso(at)))
            return TakenUp(
                session_id, found.title, found.interrupted_turn, seconds(found.snapshot.current_turn_started_at),
                _name_of_turn(path, found.interrupted_turn), found.open_calls, tuple(different),
            )

        return await self._in_order(session_id, look)

    async def opening(self, session_id: str) -> Sequence[Line]:
        """What was said in the one turn of a session that has had one only and that nobody gave a title; nothing
        otherwise."""

        def look() -> _Lines:
            lines: _Lines = []
            turns = set()
            try:
                for held in newest(self.path(session_id)):
                    if held.event == HEADER:
                        if isinstance(held.data, Mapping) and held.data.get("title"):
                            return []
                        continue
                    turns.add(held.turn)
                    if len(turns) > 1:
                        return []
                    if held.event in ("turn_start", "turn_end"):
                        lines += reversed(_lines(held))
            except JournalMissing:
                return []
            return lines[::-1]

        return await self._thread(look)

    async def set_title(self, session_id: str, title: str, *, at: float) -> None:
        """Give a session another title by a header at its end. It is repeated with every later turn, so
        that a list, which reads the ends of a file only, finds it. Raises SourceError, also for an unknown session."""

        def write() -> None:
            path = self.path(session_id)
            if self._find(session_id) is None:
                raise JournalMissing(path)
            with self._file(session_id) as file:
                file.append(Record(0, HEADER, {"title": title}, iso(at)))
            self._titles[session_id] = title

        await self._in_order(session_id, write)

    # -- in threads ------------------------------------------------------------------------------

    def path(self, session_id: str) -> Path:
        """The file of a session. Raises :class:`JournalIdError` where none can be called so."""
        return path_of(self.folder, session_id)

    def _file(self, session_id: str) -> JournalFile:
        return JournalFile(self.path(session_id), durable=self._durable)

    def _list(self) -> tuple[_Infos, tuple[SourceError, ...]]:
        try:
            names = [entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return [], ()
        except OSError as error:
            raise JournalError(f"The folder of session journals {self.folder} cannot be read ({error.strerror}): "
                               "check who may use it.") from error
        found: _Infos = []
        unread: list[SourceError] = []
        for name in names:
            path = self.folder / name
            try:
                if path_of(self.folder, id_of(path)) != path:
                    continue  # no id leads there
                seen = self._glance(path)
            except (JournalMissing, JournalIdError):
                continue
            except JournalError as error:
                with suppress(OSError):
                    unread.append(SourceError(str(error), kind=error.kind, source=self.name, session=id_of(path),
                                              active_at=os.lstat(path).st_mtime))
                continue
            if not seen.blank:
                found.append(self._info(path, seen))
        for name in set(self._glances).difference(names):  # a copy at once: other threads look as well
            self._glances.pop(name, None)
        return (sorted(found, key=lambda info: (-info.active_at, info.id)),
                tuple(sorted(unread, key=lambda one: (-one.active_at, one.session))))

    def _find(self, session_id: str) -> SessionInfo | None:
        try:
            path = self.path(session_id)
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
            held = os.lstat(path)
        except OSError as error:
            raise JournalMissing(path) from error
        if stat.S_ISLNK(held.st_mode):
            raise JournalForeign.link(path)
        if not stat.S_ISREG(held.st_mode):
            raise JournalMissing(path)
        identity = (held.st_size, held.st_mtime_ns, held.st_ctime_ns, held.st_ino)
        before = known = self._glances.get(path.name)
        # What is in a file stays, what keeps somebody from reading it may be over.
        if known is None or known[0] != identity or (isinstance(known[1], JournalError) and known[1].kind != "foreign"):
            try:
                known = (identity, glance(path))
            except JournalMissing:
                raise
            except JournalError as error:
                if before is None or str(before[1]) != str(error):
                    log.warning("%s", error)
                known = (identity, error)
            self._glances[path.name] = known
        if isinstance(known[1], JournalError):
            raise known[1]
        return known[1]

    def _repeated_title(self, session_id: str, event: str, at: float) -> _Records:
        """A later title as the header to write once more, where a turn begins or ends."""
        title = self._later_title(session_id, self.path(session_id)) if event in ("turn_start", "turn_end") else ""
        return [Record(0, HEADER, {"title": title}, iso(at))] if title else []

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
            for held in newest(self.path(session_id)) if limit > 0 else ():
                if held.event not in ("turn_start", "turn_end"):
                    continue
                said = _lines(held)
                room -= sum(len(line.text) for line in said)
                if room < 0 and lines:
                    break
                lines += reversed(said)
                if len(lines) >= limit:
                    break
        except JournalIdError as error:
            raise SourceError(str(error), kind="missing", source=self.name) from error
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

        task = asyncio.ensure_future(run())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Return once nothing is being written any more. May be called twice; the source can be used again."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await asyncio.gather(*self._writing, return_exceptions=True)


def _name_of_turn(path: Path, number: int | None) -> str:
    for held in newest(path) if number is not None else ():
        if held.event == "turn_start" and held.turn == number:
            name = held.data.get("turn") if isinstance(held.data, Mapping) else None
            return name if isinstance(name, str) else ""
    return ""


def _lines(held: Record) -> list[Line]:
    at = seconds(held.timestamp) or 0.0
    tag, name = first_of(held.data, ("tag",)), first_of(held.data, ("id",))
    said = [(message.role, text_of(message.content)) for message in messages_of(held)]
    return [Line(role, text, at, tag if isinstance(tag, str) else "", name if isinstance(name, str) else "")
            for role, text in said if text]
