"""All session sources of an agent as one, with the lines that only our own store holds merged in."""

from __future__ import annotations

import base64
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from msgspec.structs import replace

from fsm.agent import Agent
from fsm.closing import close_all, closings_of
from fsm.conversation import Bound, Kept
from fsm.foreign import is_theirs
from fsm.language.matching import match_sessions
from fsm.language.own_lines import as_read_by
from fsm.owed import owed_lines
from fsm.ports import (
    HasUnread,
    Journals,
    Line,
    MayBeAway,
    SessionInfo,
    SessionSource,
    SourceError,
    Store,
    Talks,
    WritableSource,
    is_a,
)

log = logging.getLogger("session_router.sessions")

T = TypeVar("T")

ID_LENGTH = 12

SKEW = 86_400.0
"""Seconds by which another machine's clock may run ahead. A session that was active later than that was never active
so: it comes behind all others, or it would be the newest one for good."""


def session_id_for(ref: str) -> str:
    """The id of a session made for the message ``ref``, the same each time: ``ses_`` and twelve letters and digits,
    which every file system, command line and agent takes. (OpenCode's own ids are longer, so none is ever the same.)"""
    digest = hashlib.sha256(ref.encode("utf-8", "surrogatepass")).digest()
    return "ses_" + base64.b32encode(digest).decode().lower()[:ID_LENGTH]


@dataclass(frozen=True, slots=True)
class Listing:
    """What the sources hold; ``problems`` are the sources and the sessions that could not be read, the others still
    count."""

    sessions: tuple[SessionInfo, ...]
    problems: tuple[SourceError, ...] = ()


async def _asked(source: SessionSource, look: Awaitable[T]) -> T:
    """A source may be other people's code: whatever it raises, it cannot be read.

    Raises:
        SourceError: that.
    """
    try:
        return await look
    except SourceError:
        raise
    except BaseException as error:
        if not is_theirs(error):
            raise
        log.exception("the source %s failed", source.name)
        text = f"The sessions of {source.name} cannot be read ({type(error).__name__}: {error})."
        raise SourceError(text, kind="unreadable", source=source.name) from error


def _unread(source: SessionSource, agent: Agent, person: str) -> Sequence[SourceError]:
    """The sessions that the source could not read when it was asked just now, as far as ``person`` may see them."""
    if not is_a(type(source), HasUnread):
        return ()
    return [one for one in cast(HasUnread, source).unread() if agent.may_see(person, source.name, one.session)]


def _newest(listing: Listing) -> Listing:
    since = listing.sessions[0].active_at if listing.sessions else -math.inf
    return Listing(listing.sessions[:1], tuple(each for each in listing.problems if each.active_at >= since))


class Sessions:
    """The first source that knows an id owns it: the same id in a later one is left out, with one warning.
    ``writable`` is where new ones are made, ``now`` the engine's clock."""

    def __init__(
        self, sources: Sequence[SessionSource], store: Store, writable: WritableSource | None = None,
        now: Callable[[], float] = lambda: math.inf,
    ) -> None:  # fmt: skip
        self.sources = sources
        self._now = now
        self.store = store
        self.writable = writable
        self._taken: set[tuple[str, str]] = set()
        self._free: set[tuple[str, str]] = set()

    @property
    def sources(self) -> tuple[SessionSource, ...]:
        """In the order in which they are asked."""
        return self._sources

    @sources.setter
    def sources(self, sources: Sequence[SessionSource]) -> None:
        self._sources = tuple(sources)
        self._by_name = {source.name: source for source in reversed(self._sources)}
        self._any_journals = any(is_a(type(source), Journals) for source in self._sources)

    async def close(self) -> None:
        """Let go of whatever the sources hold open."""
        await close_all(closings_of(self.sources))

    async def list(self, agent: Agent, person: str) -> Listing:
        """Every session that ``person`` may see, most recently active first, then by id."""
        found: dict[str, SessionInfo] = {}
        problems: list[SourceError] = []
        for source in self.sources:
            try:
                for session in await _asked(source, source.list()):
                    if (first := found.setdefault(session.id, session)) is not session:
                        self._warn(session, first.source)
                problems += _unread(source, agent, person)
            except SourceError as error:
                problems.append(error)
        seen = (s for s in found.values() if agent.may_see(person, s.source, s.id))
        return Listing(tuple(sorted(seen, key=self._place)), tuple(problems))

    async def search(self, agent: Agent, person: str, words: str, *, narrow: bool = False) -> Listing:
        """Those that ``words`` may mean, with ``narrow`` those that they can hardly fail to mean; all of them for no
        words."""
        listing = await self.list(agent, person)
        if not words.strip():
            return listing
        return Listing(tuple(match_sessions(words, listing.sessions, narrow=narrow)), listing.problems)

    async def latest(self, agent: Agent, person: str) -> Listing:
        """The most recently active one that ``person`` may see, or none; ``problems`` are those that may hide one
        which is more recent."""
        if person in agent.visible:
            return _newest(await self.list(agent, person))
        found: list[SessionInfo] = []
        problems: list[SourceError] = []
        for at, source in enumerate(self.sources):
            try:
                session = await _asked(source, source.latest())
                problems += _unread(source, agent, person)
            except SourceError as error:
                problems.append(error)
                continue
            if session is None:
                continue
            if self._is_ahead(session) or await self._is_taken(session, self.sources[:at]):
                return _newest(await self.list(agent, person))  # rare enough to look at everything
            found.append(session)
        found.sort(key=self._place)
        return _newest(Listing(tuple(found), tuple(problems)))

    def _place(self, session: SessionInfo) -> tuple[bool, float, str]:
        return self._is_ahead(session), -session.active_at, session.id

    def _is_ahead(self, session: SessionInfo) -> bool:
        return session.active_at > self._now() + SKEW

    async def find(self, session_id: str, source: str = "") -> SessionInfo | None:
        """That session in ``source``, by default in whichever has it.

        Raises:
            SourceError: no source knows it, and one that might could not be read.
        """
        problem: SourceError | None = None
        named = self._source(source) if source else None
        for one in self.sources if named is None else (named,):
            try:
                if (session := await _asked(one, one.find(session_id))) is not None:
                    return session
            except SourceError as error:
                problem = problem or error
        if problem is not None and problem.kind != "missing":
            raise problem
        return None

    async def _is_taken(self, session: SessionInfo, earlier: Sequence[SessionSource]) -> bool:
        """Whether a source that goes first has a session of that id; asked once for each."""
        name = (session.source, session.id)
        if name in self._free or not earlier:
            return False
        for source in earlier:
            try:
                if await _asked(source, source.find(session.id)) is not None:
                    self._warn(session, source.name)
                    return True
            except SourceError as error:
                if error.kind != "missing":
                    return False  # asked again as soon as it can be read
        self._free.add(name)
        return False

    def _warn(self, session: SessionInfo, owner: str) -> None:
        if (name := (session.source, session.id)) not in self._taken:
            self._taken.add(name)
            log.warning(
                "%s has a session with the id %s, which is one of %s already: the one of %s is left out.",
                session.source,
                session.id,
                owner,
                session.source,
            )

    async def context(self, session_id: str, limit: int, *, agent: str = "", source: str = "") -> Sequence[Line]:
        """The newest ``limit`` lines, oldest first: the source's own, those that are still on their way to a journal,
        and the ones that we keep. What ``agent`` said from the command line is tagged as its own. ``source`` names the
        one that it was bound to, where that is known.

        Raises:
            SourceError: the source that may hold the session cannot be read, or (kind ``missing``) the named
                one has no such session any more. An empty context would be a wrong answer in disguise.
        """
        kept = [as_read_by(line, agent) for line in await self.store.lines(session_id, limit)]
        found: Sequence[Line] = ()
        named = self._source(source) if source else None
        journals = self._any_journals if named is None else is_a(type(named), Journals)
        # Before the source is read: what is written meanwhile then stands in both, and not in neither.
        owed = await owed_lines(self.store, session_id) if journals else ()
        if named is not None:
            found = await _asked(named, named.context(session_id, limit))
        for one in self.sources if named is None else ():
            try:
                found = await _asked(one, one.context(session_id, limit))
                break
            except SourceError as error:
                if error.kind != "missing":
                    raise
        if owed:
            said = {(line.id, line.role) for line in found}
            found = [*found, *(line for line in owed if (line.id, line.role) not in said)]
        if not found:  # nothing to merge, as with a session that only we know
            return kept
        lines = [as_read_by(line, agent) for line in found]
        if kept:
            there = {line.id for line in lines if line.id}
            lines = sorted([*lines, *(line for line in kept if line.id not in there)], key=lambda line: line.at)
        return lines[-limit:]

    def _source(self, name: str) -> SessionSource | None:
        return self._by_name.get(name)

    async def kept(self, bound: Bound) -> Bound:
        """``bound`` with what its source can do written in: who keeps the record of a turn there. A source whose
        agent is away is like one that can only be read."""
        kind: type = type(self._source(bound.source))
        kept: Kept = "store"
        if is_a(kind, Talks) and not await self.away(bound):
            kept = "source"
        elif is_a(kind, Journals):
            kept = "journal"
        return bound if bound.kept == kept else replace(bound, kept=kept)

    async def away(self, bound: Bound) -> str:
        """Why the agent of that session cannot be talked to just now; empty where it can, or where there is none."""
        source = self._source(bound.source)
        if source is None or not is_a(type(source), MayBeAway):
            return ""
        return await cast(MayBeAway, source).away()

    def agent_of(self, bound: Bound) -> Talks | None:
        """The agent that runs the turns of that session itself, None where a model of ours does."""
        if bound.kept != "source":
            return None
        source = self._source(bound.source)
        return cast(Talks, source) if source is not None and is_a(type(source), Talks) else None

    def takes_new(self, agent: Agent, person: str, session_id: str = "") -> bool:
        """Whether a session can be made that ``person`` may see afterwards."""
        return self.writable is not None and agent.may_see(person, self.writable.name, session_id)

    async def create(
        self, agent: Agent, person: str, title: str, *, session_id: str, at: float
    ) -> SessionInfo | None:
        """A new session, or None where no source takes one that ``person`` may see."""
        if self.writable is None or not self.takes_new(agent, person, session_id):
            return None
        return await _asked(self.writable, self.writable.create(title, session_id=session_id, at=at))
