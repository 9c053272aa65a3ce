"""OpenCode as one source: through its server where that is there, from its database where it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fsm.constants import RECENT_MSG_LIMIT
from fsm.ports import Line, PermissionAsk, Reply, SessionInfo, SourceError
from storage.opencode.files import NAME
from storage.opencode.reading import SessionNotFound
from storage.opencode.server import OpenCodeServer
from storage.opencode.source import OpenCodeSource
from storage.reach import Reach

T = TypeVar("T")
_Infos = Sequence[SessionInfo]


class OpenCodeSessions:
    """:class:`fsm.ports.WritableSource`, :class:`fsm.ports.Talks`, :class:`fsm.ports.RunsOn` and
    :class:`fsm.ports.MayBeAway`. While the ``server`` does not answer, sessions are read from ``file`` and cannot be
    talked to; without a ``file`` every look-up then raises :class:`SourceError`."""

    name = NAME

    def __init__(self, server: OpenCodeServer, file: OpenCodeSource | None) -> None:
        self.server, self.file = server, file
        self._reach = Reach("the server of OpenCode", server.look)

    async def away(self) -> str:
        """Why its agent cannot be talked to just now; empty while it can."""
        return await self._reach.problem()

    async def list(self, limit: int | None = None) -> _Infos:
        """As :meth:`OpenCodeServer.list`."""
        return await self._read(lambda it: it.list(limit))

    async def search(self, words: str, limit: int | None = None) -> _Infos:
        """As :meth:`OpenCodeServer.search`."""
        return await self._read(lambda it: it.search(words, limit))

    async def latest(self) -> SessionInfo | None:
        """The most recently active one."""
        return await self._read(lambda it: it.latest())

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session; None when there is none."""
        return await self._read(lambda it: it.find(session_id))

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT) -> Sequence[Line]:
        """Its newest ``limit`` messages, oldest first. Raises :class:`SessionNotFound`."""
        return await self._read(lambda it: it.context(session_id, limit))

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo:
        """As :meth:`OpenCodeServer.create`, which only the server can."""
        return await self.server.create(title, session_id=session_id, at=at)

    async def talk(self, session_id: str, text: str, *, system: str, call_id: str,
                   show: Callable[[str], None] | None = None, ask: Callable[[PermissionAsk], None] | None = None
                   ) -> Reply:
        """As :meth:`OpenCodeServer.talk`."""
        return await self.server.talk(session_id, text, system=system, call_id=call_id, show=show, ask=ask)

    async def answer(self, ask_id: str, allow: bool) -> bool:
        """As :meth:`OpenCodeServer.answer`."""
        return await self.server.answer(ask_id, allow)

    async def abandon(self, session_id: str, call_id: str) -> None:
        """As :meth:`OpenCodeServer.abandon`."""
        await self.server.abandon(session_id, call_id)

    async def close(self) -> None:
        await self.server.close()

    async def _read(self, look: Callable[[OpenCodeServer | OpenCodeSource], Awaitable[T]]) -> T:
        problem = await self.away()
        if not problem:
            try:
                return await look(self.server)
            except SessionNotFound:
                raise
            except SourceError as error:
                self._reach.lost(error)
                problem = str(error)
        if self.file is None:
            raise SourceError(problem, kind="unreadable", source=NAME)
        try:
            return await look(self.file)
        except SessionNotFound:
            raise
        except SourceError as error:
            if error.kind == "missing":  # no database here: it is the server that has to answer
                raise SourceError(problem, kind="unreadable", source=NAME) from error
            raise
