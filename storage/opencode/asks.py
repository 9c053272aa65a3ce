"""What OpenCode asks in the middle of a turn: leave to do something, or a choice.

Either blocks the turn until it is answered. Leave is put before a person and refused when nobody
answers in time; a choice is handed back to the model, which can put it into its reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from fsm.ports import PermissionAsk
from storage.opencode.api import Api, ApiFailure
from storage.opencode.wire import Permission, Question, Session

log = logging.getLogger(__name__)

NOBODY = "Nobody answered in time, so this was not allowed. Go on without it and say so."
DENIED = "The person did not allow this. Go on without it and say so."
NO_CHOICE = "Nobody can choose from a list here. Put the question into your reply instead."


class Asks:
    """Those of all turns that run. ``timeout`` in seconds, for a person to answer.

    ``what`` of an ask is OpenCode's word (``bash``, ``edit``, ``external_directory``, …), its ``session``
    the one that was talked to, also where a sub-agent asks in a session of its own.
    """

    def __init__(self, api: Api, timeout: float) -> None:
        self._api, self._timeout = api, timeout
        self._open: dict[str, tuple[PermissionAsk, str | None, float]] = {}
        # Answered by us: a list that the server sent before it took the answer still names them.
        self._answered: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        # What is asked in a session that is at work for somebody else, and since when we have known of it.
        self._others: dict[str, dict[str, float]] = {}

    def pending(self) -> tuple[PermissionAsk, ...]:
        """The ones that wait for an answer, oldest first."""
        return tuple(ask for ask, _, _ in self._open.values())

    async def see(self, session: Session, tell: Callable[[PermissionAsk], None] | None) -> None:
        """Look for what ``session`` or a sub-agent of it asks. Tell new asks, refuse old ones, and tell once more, as
        ``over``, what is asked no more though nobody answered it through :meth:`answer`."""
        now = asyncio.get_running_loop().time()
        found = await self._api.get("/permission", list[Permission], directory=session.directory)
        there = {permission.id for permission in found}
        for name in self._of(session.id) - there:
            _end(self._open.pop(name)[0], tell)  # answered at the terminal
        for permission in found:
            known = permission.id in self._open or permission.id in self._answered
            if not known and await self._root(permission.session) == session.id:
                ask = _ask(permission, session.id)
                self._open[ask.id] = ask, session.directory, now + self._timeout
                if tell is not None:
                    tell(ask)
        for ask, _, deadline in tuple(self._open.values()):
            if ask.session == session.id and deadline <= now:
                log.warning("OpenCode session %s: nobody answered whether %s is allowed, so it is not", session.id,
                            ask.what)
                await self.answer(ask.id, False, NOBODY)
                _end(ask, tell)
        for question in await self._api.get("/question", list[Question], directory=session.directory):
            if await self._root(question.session) == session.id:
                await self._reply(f"question/{question.id}/reply",
                                  {"answers": [[NO_CHOICE] for _ in question.questions]}, session.directory)

    async def answer(self, ask_id: str, allow: bool, message: str = DENIED) -> bool:
        """Allow it this once, or refuse it; False where it is no longer asked."""
        held = self._open.pop(ask_id, None)
        if held is None:
            return False
        self._answered[ask_id] = held[0].session
        # With a message the agent goes on and can say what it did not do; without, OpenCode just stops.
        body: dict[str, object] = {"reply": "once"} if allow else {"reply": "reject", "message": message}
        try:
            return await self._reply(f"permission/{ask_id}/reply", body, held[1])
        except BaseException:  # also where nobody waits any longer for the server to take it
            self._answered.pop(ask_id, None)
            self._open.setdefault(ask_id, held)
            raise

    async def stand_too_long(self, session: Session) -> bool:
        """Whether ``session`` or a sub-agent of it, at work for somebody else, has waited for an answer for longer than
        we let anybody wait."""
        now = asyncio.get_running_loop().time()
        found: list[Permission | Question] = []
        found += await self._api.get("/permission", list[Permission], directory=session.directory)
        found += await self._api.get("/question", list[Question], directory=session.directory)
        asked = {one.id for one in found if await self._root(one.session) == session.id}
        known = self._others.pop(session.id, {})
        if asked:
            self._others[session.id] = known = {name: known.get(name, now) for name in asked}
        return any(known[name] + self._timeout <= now for name in asked)

    async def refuse(self, session: Session) -> None:
        """Refuse whatever ``session`` or a sub-agent of it still asks, though nothing runs there: OpenCode keeps what a
        turn asked before it was stopped, and does it as soon as anybody allows it."""
        self.forget(session.id)
        for permission in await self._api.get("/permission", list[Permission], directory=session.directory):
            if await self._root(permission.session) == session.id:
                await self._reply(f"permission/{permission.id}/reply", {"reply": "reject"}, session.directory)
        for question in await self._api.get("/question", list[Question], directory=session.directory):
            if await self._root(question.session) == session.id:
                await self._reply(f"question/{question.id}/reject", {}, session.directory)

    def forget(self, session_id: str) -> None:
        """The turn in that session is over."""
        for name in self._of(session_id):
            del self._open[name]
        self._answered = {name: session for name, session in self._answered.items() if session != session_id}

    def _of(self, session_id: str) -> set[str]:
        return {name for name, (ask, _, _) in self._open.items() if ask.session == session_id}

    async def _reply(self, to: str, body: object, directory: str | None) -> bool:
        try:
            await self._api.post(f"/{to}", body, Raw, directory=directory)
        except ApiFailure as failure:
            if failure.kind == "absent":
                return False
            raise
        return True

    async def _root(self, session_id: str) -> str:
        """The session that a person talks to: a sub-agent works in a child of it."""
        if session_id not in self._roots:
            try:
                parent = (await self._api.get(f"/session/{session_id}", Session)).parent
            except ApiFailure as failure:
                if failure.kind != "absent":
                    raise
                parent = None
            self._roots[session_id] = session_id if parent is None else await self._root(parent)
        return self._roots[session_id]


def _end(ask: PermissionAsk, tell: Callable[[PermissionAsk], None] | None) -> None:
    if tell is not None:
        tell(replace(ask, over=True))


def _ask(permission: Permission, session_id: str) -> PermissionAsk:
    known = permission.metadata or {}
    detail = next((str(known[name]) for name in ("command", "filepath", "filePath", "url") if known.get(name)), "")
    return PermissionAsk(permission.id, session_id, permission.permission, tuple(permission.patterns), detail)
