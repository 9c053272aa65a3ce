"""OpenCode through its own server: its sessions as a source, and turns that the agent itself runs.

Unlike the database (``source``), the server knows what goes on at this moment, and what it is told
becomes part of the session that people see at their terminals (``opencode attach ADDRESS``). A turn of
another OpenCode process on the same session is invisible to it.

Whoever may talk gets the agent's own power over the session's folder. ``agent="plan"`` is the default
and asks the model to change nothing; it does not keep a command from doing so (measured with 1.18: a
shell command wrote a file without a question). What may not happen has to be forbidden or asked in
OpenCode's own ``permission`` settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from fsm.constants import RECENT_MSG_LIMIT
from fsm.ports import Line, ModelError, PermissionAsk, Reply, SessionInfo
from storage.opencode.answer import message_id
from storage.opencode.api import Api, ApiFailure
from storage.opencode.asks import Asks
from storage.opencode.files import NAME
from storage.opencode.history import read_lines
from storage.opencode.reading import SessionNotFound
from storage.opencode.turn import OnRetry, Prompt, Turn, at
from storage.opencode.wire import OURS, Health, Message, Providers, Session

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

LOOK_TIMEOUT = 10.0
"""Seconds for a look at the sessions, be it many requests, of a server that is up."""
_PAGE = 200
_MADE_LATELY = 500
_EMPTY_MS = 1000


class OpenCodeServer:
    """An OpenCode 1.x server; implements :class:`fsm.ports.WritableSource` and :class:`fsm.ports.Talks`.

    ``base_url`` is what ``opencode serve`` prints; ``model`` (provider, model) should be given, since
    without it a turn takes whatever model the session's last one named; ``directory`` is the folder of new
    sessions, by default the one that the server was started in. ``turn_timeout``, ``ask_timeout`` and
    ``start_patience`` (how long a server that is starting is waited for) in seconds. ``on_retry`` is told
    (session id, try, the provider's words) when OpenCode asks its model again. ``http`` is another transport.

    Nothing is sent before the first call. Source methods raise :class:`SourceError`, ``talk`` raises
    :class:`ModelError`. The password is in no text of either, and not in ``repr``.
    """

    name = NAME

    def __init__(
        self,
        base_url: str,
        *,
        username: str = "opencode",
        password: str | None,
        model: tuple[str, str] | None,
        agent: str = "plan",
        directory: str | None = None,
        turn_timeout: float = 300.0,
        ask_timeout: float = 120.0,
        start_patience: float = 10.0,
        on_retry: OnRetry | None = None,
        http: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._api = Api(base_url, username=username, password=password, start_patience=start_patience, transport=http)
        self._model, self._agent, self._directory = model, agent, directory
        self._turn_timeout, self._on_retry = turn_timeout, on_retry
        self._asks = Asks(self._api, ask_timeout)
        self._talking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._creating = asyncio.Lock()
        self._made: dict[str, SessionInfo] = {}
        self._holding: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._api.url!r})"

    async def close(self) -> None:
        """Close the connections. Turns that still run should be cancelled before."""
        await self._api.close()

    async def look(self) -> None:
        """Ask once whether the server is there, without waiting for one that is starting. Raises SourceError."""
        try:
            await self._api.look()
        except ApiFailure as failure:
            raise failure.as_source_error() from None

    async def version(self) -> str:
        """Which OpenCode it is; asks once. Raises SourceError."""
        await self.look()
        async with self._looking():
            return (await self._api.get("/global/health", Health)).version

    async def models(self) -> Sequence[str]:
        """What it can be asked to use, as ``provider/model``. Raises SourceError."""
        async with self._looking():
            found = (await self._api.get("/config/providers", Providers, directory=self._directory)).providers
        return tuple(f"{provider.id}/{model}" for provider in found for model in provider.models)

    # -- sessions --------------------------------------------------------------------------------

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """Root sessions of all projects that hold a message or that we made, not archived, most recently
        active first, then by id."""
        found: list[SessionInfo] = []
        async with self._looking():
            async for session in self._sessions(archived=False):
                if await self._is_worth_listing(session):
                    found.append(_info(session))
                    if limit is not None and len(found) > limit and found[-1].active_at < found[limit - 1].active_at:
                        break
        found.sort(key=lambda info: (-info.active_at, info.id))
        return found if limit is None else found[: max(limit, 0)]

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """Those whose title contains ``words`` (case folded, no wildcards), or whose id equals it."""
        wanted, named = words.strip().casefold(), words.strip()
        if not wanted:
            return ()
        found = [info for info in await self.list() if wanted in info.title.casefold() or info.id == named]
        return found if limit is None else found[: max(limit, 0)]

    async def latest(self) -> SessionInfo | None:
        """The most recently active one."""
        return next(iter(await self.list(1)), None)

    async def find(self, session_id: str) -> SessionInfo | None:
        """That session, archived ones, empty ones and children included; None when there is none."""
        async with self._looking():
            found = await self._session(session_id)
        return None if found is None else _info(found)

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT) -> Sequence[Line]:
        """Its newest ``limit`` messages with text, oldest first. Raises :class:`SessionNotFound`.

        The same lines as :meth:`OpenCodeSource.context` gives, of sessions that are not made through ``/api``.
        """
        if limit <= 0:
            return ()
        async with self._looking():
            session = await self._session(session_id)
            if session is None:
                raise SessionNotFound(session_id)
            undone = session.revert
            if undone is not None and not await self._has(session_id, undone.message):
                undone = None
            return await read_lines(self._pages(session_id), limit, undone)

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo:
        """A new session in ``directory``. OpenCode chooses the id: use the one that is returned.

        ``session_id`` is what makes it the same session when it is asked for again: the new session keeps
        it in its metadata, which OpenCode stores and gives back, so this holds across crashes of either
        side as long as the session is among the 500 most recently active ones. ``at`` is not needed.
        """
        async with self._creating:
            try:
                if (known := self._made.get(session_id)) is not None and await self._session(known.id) is not None:
                    return known
                looked = 0
                async for session in self._sessions(archived=True):
                    if (session.metadata or {}).get(OURS) == session_id:
                        break
                    if (looked := looked + 1) >= _MADE_LATELY:
                        session = await self._create(title, session_id)
                        break
                else:
                    session = await self._create(title, session_id)
            except ApiFailure as failure:
                raise failure.as_source_error() from None
            self._made[session_id] = info = _info(session)
            return info

    async def _create(self, title: str, session_id: str) -> Session:
        body: dict[str, object] = {"metadata": {OURS: session_id}}
        if title.strip():
            body["title"] = title
        return await self._api.post("/session", body, Session, directory=self._directory)

    # -- turns -----------------------------------------------------------------------------------

    async def talk(
        self,
        session_id: str,
        text: str,
        *,
        system: str,
        call_id: str,
        show: Callable[[str], None] | None = None,
        ask: Callable[[PermissionAsk], None] | None = None,
    ) -> Reply:
        """Send one turn and wait for the whole answer: the texts of all its steps, and their tokens in sum.

        ``system`` is added behind OpenCode's own system text. ``call_id`` names the call: repeated, after a
        failure or a crash of either side, it never stores the text twice and never has a finished answer
        made again; a turn that was cut off goes on behind its last finished step. ``show`` is told the
        text in pieces, as it is written; ``ask`` what the agent wants leave for (see :meth:`answer`; after
        ``ask_timeout`` it is refused). Turns on one session wait for one another, and for a turn that
        somebody else runs through this server. Cancelled or timed out, the turn is stopped in OpenCode too.

        Raises:
            ModelError: of the kinds in ``session_router.models``, and ``aborted`` (stopped in OpenCode
                itself) and ``loop`` (the model's answers do not end properly), both not to be repeated.
        """
        prompt = Prompt(message_id(session_id, call_id), text, system, self._agent, self._model)
        lock = self._talking.setdefault(session_id, asyncio.Lock())
        async with lock:
            try:
                session = await self._session(session_id)
                if session is None:
                    raise ModelError(f"opencode: there is no session {session_id!r}", kind="not_found", retryable=False)
                return await self._run(Turn(self._api, session, prompt, self._asks, show=show, ask=ask,
                                            on_retry=self._on_retry))
            except ApiFailure as failure:
                raise failure.as_model_error() from None

    async def answer(self, ask_id: str, allow: bool) -> bool:
        """Allow what an agent asked for this once, or refuse it. False where it is no longer asked. Raises SourceError:
        it may be asked still."""
        async with self._looking():
            return await self._asks.answer(ask_id, allow)

    async def abandon(self, session_id: str, call_id: str) -> None:
        """Stop that call in OpenCode, where it is at it, and refuse what it wants leave for: also where it was another
        process that made the call. A turn of somebody else is left alone. Raises :class:`SourceError`."""
        prompt = Prompt(message_id(session_id, call_id), "", "", self._agent, None)
        lock = self._talking.setdefault(session_id, asyncio.Lock())
        # The next call has to wait, or what stops this one would stop that one too.
        async with nullcontext() if lock.locked() else lock:
            try:
                session = await self._session(session_id)
                if session is not None:
                    await Turn(self._api, session, prompt, self._asks, show=None, ask=None, on_retry=None).abandon()
            except ApiFailure as failure:
                raise failure.as_source_error() from None

    def asks(self) -> tuple[PermissionAsk, ...]:
        """What agents wait for leave for, oldest first."""
        return self._asks.pending()

    async def _run(self, turn: Turn) -> Reply:
        try:
            async with asyncio.timeout(self._turn_timeout) as limit:
                return await turn.run()
        except BaseException as error:
            await turn.abort()
            if isinstance(error, TimeoutError) and limit.expired():
                raise ModelError(f"opencode: no answer within {self._turn_timeout:g} seconds{turn.trouble}",
                                 kind="timeout") from None
            raise
        finally:
            await turn.close()

    # -- reading ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Somebody waits for what is looked up in here: not for ever. Raises SourceError for whatever fails."""
        try:
            await self._api.ready()
            async with asyncio.timeout(LOOK_TIMEOUT) as limit:
                yield
        except ApiFailure as failure:
            raise failure.as_source_error() from None
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._api.hangs(LOOK_TIMEOUT).as_source_error() from None

    async def _sessions(self, *, archived: bool) -> AsyncIterator[Session]:
        """Root sessions of all projects, most recently active first."""
        cursor: str | None = None
        while True:
            page, cursor = await self._api.page("/experimental/session", list[Session], roots="true",
                                                archived=str(archived).lower(), limit=_PAGE, cursor=cursor)
            for session in page:
                yield session
            if cursor is None or not page:
                return

    async def _is_worth_listing(self, session: Session) -> bool:
        """Only a session that was never touched and never named a model can be empty: those are asked."""
        touched = session.time.updated - session.time.created >= _EMPTY_MS
        if touched or session.names_model or OURS in (session.metadata or {}) or session.id in self._holding:
            return True
        if await self._api.get(at("session", session.id, "message"), list[Message], limit=1):
            self._holding.add(session.id)
            return True
        return False

    async def _session(self, session_id: str) -> Session | None:
        if not session_id.startswith("ses") or not session_id.isascii():  # the server would call it an error of its own
            return None
        try:
            return await self._api.get(at("session", session_id), Session)
        except ApiFailure as failure:
            if failure.kind == "absent":
                return None
            raise

    async def _has(self, session_id: str, message: str) -> bool:
        try:
            await self._api.get(at("session", session_id, "message", message), Message)
        except ApiFailure as failure:
            if failure.kind == "absent":
                return False
            raise
        return True

    async def _pages(self, session_id: str) -> AsyncIterator[Sequence[Message]]:
        before: str | None = None
        while True:
            page, before = await self._api.page(at("session", session_id, "message"), list[Message], limit=_PAGE,
                                                before=before)
            yield page
            if before is None or not page:
                return


def _info(session: Session) -> SessionInfo:
    return SessionInfo(id=session.id, title=session.title or "", source=NAME,
                       active_at=session.time.updated / 1000, folder=session.directory or "")
