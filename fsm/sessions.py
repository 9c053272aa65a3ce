"""All session sources of an agent as one, with the lines that only our own store holds merged in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsm.agent import Agent
from fsm.conversation import Bound, Kept
from fsm.language.matching import match_sessions
from fsm.language.own_lines import as_read_by
from fsm.ports import (
    Journals,
    Line,
    SessionInfo,
    SessionSource,
    SourceError,
    Store,
    Talks,
    WritableSource,
    is_a,
)


@dataclass(frozen=True, slots=True)
class Listing:
    """What the sources hold; ``problems`` are those that could not be read, the others still count."""

    sessions: tuple[SessionInfo, ...]
    problems: tuple[SourceError, ...] = ()


class Sessions:
    """The first source that knows an id owns it; ``writable`` is where new ones are made."""

    def __init__(self, sources: Sequence[SessionSource], store: Store, writable: WritableSource | None = None) -> None:
        self.sources = tuple(sources)
        self.store = store
        self.writable = writable

    async def list(self, agent: Agent, person: str) -> Listing:
        """Every session that ``person`` may see, most recently active first, then by id."""
        found: dict[str, SessionInfo] = {}
        problems: list[SourceError] = []
        for source in self.sources:
            try:
                for session in await source.list():
                    if agent.may_see(person, session.source, session.id):
                        found.setdefault(session.id, session)
            except SourceError as error:
                problems.append(error)
        return Listing(tuple(sorted(found.values(), key=lambda s: (-s.active_at, s.id))), tuple(problems))

    async def search(self, agent: Agent, person: str, words: str) -> Listing:
        """Those that ``words`` may mean; all of them for no words."""
        listing = await self.list(agent, person)
        if not words.strip():
            return listing
        return Listing(tuple(match_sessions(words, listing.sessions)), listing.problems)

    async def latest(self, agent: Agent, person: str) -> Listing:
        """The most recently active one that ``person`` may see, or none."""
        if person in agent.visible:
            listing = await self.list(agent, person)
            return Listing(listing.sessions[:1], listing.problems)
        found: list[SessionInfo] = []
        problems: list[SourceError] = []
        for source in self.sources:
            try:
                if (session := await source.latest()) is not None:
                    found.append(session)
            except SourceError as error:
                problems.append(error)
        found.sort(key=lambda s: (-s.active_at, s.id))
        return Listing(tuple(found[:1]), tuple(problems))

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session in whichever source has it.

        Raises:
            SourceError: no source knows it, and one that might could not be read.
        """
        problem: SourceError | None = None
        for source in self.sources:
            try:
                if (session := await source.find(session_id)) is not None:
                    return session
            except SourceError as error:
                problem = problem or error
        if problem is not None and problem.kind != "missing":
            raise problem
        return None

    async def context(self, session_id: str, limit: int, *, agent: str = "") -> Sequence[Line]:
        """The newest ``limit`` lines, oldest first: the source's own and the ones that we keep. What ``agent`` said
        from the command line is tagged as its own.

        Raises:
            SourceError: the source that may hold the session cannot be read. An empty context
                would be a wrong answer in disguise.
        """
        kept = [as_read_by(line, agent) for line in await self.store.lines(session_id, limit)]
        lines: list[Line] = []
        for source in self.sources:
            try:
                if await source.find(session_id) is not None:
                    lines = [as_read_by(line, agent) for line in await source.context(session_id, limit)]
                    break
            except SourceError as error:
                if error.kind != "missing":
                    raise
        if kept:
            there = {line.id for line in lines if line.id}
            lines = sorted([*lines, *(line for line in kept if line.id not in there)], key=lambda line: line.at)
        return lines[-limit:]

    def _source(self, name: str) -> SessionSource | None:
        return next((source for source in self.sources if source.name == name), None)

    def kept(self, bound: Bound) -> Bound:
        """``bound`` with what its source can do written in: who keeps the record of a turn there."""
        kind: type = type(self._source(bound.source))
        kept: Kept = "source" if is_a(kind, Talks) else "journal" if is_a(kind, Journals) else "store"
        return bound if bound.kept == kept else replace(bound, kept=kept)

    def agent_of(self, bound: Bound) -> Talks | None:
        """The agent that runs the turns of that session itself, None where a model of ours does."""
        if bound.kept != "source":
            return None
        source = self._source(bound.source)
        return source if isinstance(source, Talks) else None

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo | None:
        """A new session, or None where no source takes one."""
        if self.writable is None:
            return None
        return await self.writable.create(title, session_id=session_id, at=at)

