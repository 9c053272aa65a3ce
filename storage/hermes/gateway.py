"""Hermes through its own gateway: its sessions as a source, and turns that the agent itself runs.

Sessions are read from the database, as :class:`HermesSource` reads it; what is said goes through the
gateway's API, so that Hermes alone writes to its file. It adds the context by itself, runs its tools, and
keeps the record.

Whoever may talk gets the agent's own power over the machine that the gateway runs on. A command that
Hermes holds to be dangerous is not run, and nobody can be asked for leave: its streaming API has no way for
that (measured with 0.19: the model is told that the approval is pending, and goes on without it). What may
be done has to be settled in Hermes' own ``approvals`` settings.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from fsm.constants import RECENT_MSG_LIMIT
from fsm.language.redact import redact
from fsm.ports import Line, ModelError, PermissionAsk, Reply, SessionInfo, SourceError, StoreError
from storage.codec import clean
from storage.hermes.api import SIGN_OF_LIFE, Api, ApiFailure, Usage, judged
from storage.hermes.files import NAME
from storage.hermes.source import HermesSource
from storage.hermes.turn import GO_ON, Progress, ended, newest, progress
from storage.reach import Reach

log = logging.getLogger(__name__)

REQUEST_TIMEOUT = 300.0
"""Seconds for one turn in all."""
TEXT_LIMIT = 65_536
"""Characters of a message behind which Hermes 0.19 cuts it off without a word."""
TITLE_LIMIT = 100
"""Characters of a title; a longer one makes Hermes 0.19 fail."""
_SAME_TITLE = 20
_ID_LIMIT = 256
_NO_ID = re.compile(r"[\x00-\x1f\x7f/\\]|\.\.|^\s|\s$|^[A-Za-z]:|^$")
_NOTE = "hermes_call:"
_GRACE = SIGN_OF_LIFE + 3.0
_LOOK_EVERY = 0.5


class Notes(Protocol):
    """Where it is kept which call was made last in a session; :class:`fsm.ports.Store` is one."""

    async def get_meta(self, key: str) -> str | None: ...

    async def set_meta(self, key: str, value: str | None) -> None: ...


@dataclass(slots=True)
class _Call:
    """The last call made in a session. ``after`` is the newest message before it; ``left`` the loop's time
    at which its connection was given up while Hermes may still have been working on it."""

    id: str
    after: int
    left: float | None = None


class HermesGateway:
    """A Hermes gateway and its sessions; implements :class:`fsm.ports.WritableSource`,
    :class:`fsm.ports.Talks` and :class:`fsm.ports.MayBeAway`.

    ``base_url`` is the address of its API server (``http://127.0.0.1:8642``), ``key`` gives the
    ``API_SERVER_KEY``. ``request_timeout`` in seconds, for a turn in all. ``notes`` keeps the last call of
    each session, without which a call that is repeated after a crash of this process is not recognised as
    the same. ``on_rotated`` is told (the id that was talked to, the id under which the session goes on)
    when Hermes compressed it into a new one. ``model`` chooses one of Hermes' ``model_routes``.

    Nothing is sent before the first call. Source methods raise :class:`SourceError`, ``talk`` raises
    :class:`ModelError`. The key is in no text of either, and not in ``repr``.
    """

    name = NAME

    def __init__(
        self,
        source: HermesSource,
        base_url: str,
        key: Callable[[], str],
        *,
        request_timeout: float = REQUEST_TIMEOUT,
        notes: Notes | None = None,
        on_rotated: Callable[[str, str], None] | None = None,
        model: str | None = None,
    ) -> None:
        self.source = source
        self._api = Api(base_url, key)
        self._secret = key
        self._request_timeout, self._model = request_timeout, model
        self._notes, self._on_rotated = notes, on_rotated
        self._talking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._calls: dict[str, _Call] = {}
        self._reach = Reach("the gateway of Hermes", self.look)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._api.url!r})"

    async def close(self) -> None:
        """Close the connections. Turns that still run should be cancelled before."""
        await self._api.close()

    async def look(self) -> None:
        """Ask once whether the gateway is there. Raises SourceError."""
        try:
            await self._api.look()
        except ApiFailure as failure:
            raise failure.as_source_error() from None

    async def models(self) -> Sequence[str]:
        """The names under which it can be asked, which shows that it takes the key. Raises SourceError."""
        try:
            return await self._api.models()
        except ApiFailure as failure:
            raise failure.as_source_error() from None

    async def away(self) -> str:
        """Why its agent cannot be talked to just now; empty while it can."""
        return await self._reach.problem()

    # -- sessions --------------------------------------------------------------------------------

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        """As :meth:`HermesSource.list`."""
        return await self.source.list(limit)

    async def search(self, words: str, limit: int | None = None) -> Sequence[SessionInfo]:
        """As :meth:`HermesSource.search`."""
        return await self.source.search(words, limit)

    async def latest(self) -> SessionInfo | None:
        """As :meth:`HermesSource.latest`."""
        return await self.source.latest()

    async def find(self, session_id: str) -> SessionInfo | None:
        """As :meth:`HermesSource.find`."""
        return await self.source.find(session_id)

    async def context(self, session_id: str, limit: int = RECENT_MSG_LIMIT, *,
                      own_names: Sequence[str] | None = None) -> Sequence[Line]:
        """As :meth:`HermesSource.context`, without what :meth:`talk` said to have an answer finished."""
        lines = await self.source.context(session_id, limit, own_names=own_names)
        return [line for line in lines if line.text != GO_ON]

    async def create(self, title: str, *, session_id: str, at: float) -> SessionInfo:
        """A new session under that id, or one made from it where Hermes takes no such id: use the one that is
        returned. Asked for again it is the same session, also across crashes of either side.

        Hermes' titles are unique: one that is taken gets a number behind it. ``at`` is not needed.
        """
        name = _acceptable(session_id)
        wanted = " ".join(clean(title).split())
        try:
            for number in range(1, _SAME_TITLE):
                suffix = "" if number == 1 else f" #{number}"
                try:
                    made = await self._api.create(name, wanted[: TITLE_LIMIT - len(suffix)] + suffix if wanted else "")
                except ApiFailure as failure:
                    if failure.code == "session_exists":
                        return await self.find(name) or SessionInfo(name, wanted, NAME, at)
                    if failure.code != "invalid_title":
                        raise
                else:
                    break
            else:
                made = await self._api.create(name, "")
        except ApiFailure as failure:
            raise failure.as_source_error() from None
        return SessionInfo(made.id, made.title or "", NAME, made.started_at or at)

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

        ``system`` is added behind Hermes' own system text and not stored. ``call_id`` names the call:
        repeated, after a failure or a crash, it never stores the text twice and never has a finished answer
        made again; a turn that was cut off is asked to go on. ``show`` is told each piece of text as it
        comes; ``ask`` is never called. Turns on one session wait for one another.

        Cancelled or timed out, the connection is closed, and Hermes stops the turn with its model's next
        word or its tool's end, after 30 seconds at the latest. The next turn in that session waits for that.

        Raises:
            ModelError: of the kinds in ``session_router.models``, and ``source`` (the database cannot be read).
        """
        if len(text) > TEXT_LIMIT:
            raise ModelError(f"hermes: a message of {len(text)} characters is too long, the most is {TEXT_LIMIT}",
                             kind="rejected", retryable=False)
        lock = self._talking.setdefault(await self._goes_on_as(session_id), asyncio.Lock())
        async with lock:
            try:
                async with asyncio.timeout(self._request_timeout) as limit:
                    return await self._turn(session_id, clean(text), clean(system), call_id, show)
            except ApiFailure as failure:
                raise failure.as_model_error() from None
            except SourceError as error:
                raise _unreadable(error) from None
            except TimeoutError:
                if not limit.expired():
                    raise
                seconds = f"{self._request_timeout:g} seconds"
                raise ModelError(f"hermes: no answer within {seconds}", kind="timeout") from None

    async def answer(self, ask_id: str, allow: bool) -> bool:
        """False: nobody waits for an answer."""
        return False

    async def _turn(self, session_id: str, text: str, system: str, call_id: str, show: Callable[[str], None] | None
                    ) -> Reply:
        session = await self._goes_on_as(session_id)  # once more: the turn before may have compressed it
        call, said = await self._recall(session_id), text
        if call is not None and call.id == call_id:
            so_far = await self._settled(session, call, text)
            if so_far.finished:
                log.info("Hermes session %s: the answer to %s is there already", session, call_id)
                return Reply(so_far.text)
            if so_far.asked and not so_far.passed:
                said = GO_ON
        else:
            if call is not None and call.left is not None:
                await self._settled(session, call, None)
            call = _Call(call_id, await self._newest_line(session))
            await self._remember(session_id, call)
        reply = await self._ask(session_id, session, call, said, system, show)
        if not reply.text.strip():  # some answers of Hermes are stored and not streamed
            stored = progress((await self._api.messages(session)).data, call.after, text)
            reply = replace(reply, text=stored.text)
        await self._tell_rotated(session_id)
        return reply

    async def _ask(self, session_id: str, session: str, call: _Call, said: str, system: str,
                   show: Callable[[str], None] | None) -> Reply:
        """One request. What it leaves in ``call`` says whether Hermes may still be at it."""
        loop = asyncio.get_running_loop()
        try:
            reply = await self._streamed(session, call.id, said, system, show)
        except ApiFailure as failure:
            call.left = loop.time() if failure.may_run else None
            if not failure.may_run:
                await self._remember(session_id, call)
            raise
        except BaseException:
            call.left = loop.time()
            raise
        call.left = None
        return reply

    async def _streamed(self, session: str, call_id: str, said: str, system: str,
                        show: Callable[[str], None] | None) -> Reply:
        messages = [{"role": "system", "content": system}] if system.strip() else []
        messages.append({"role": "user", "content": said})
        body: dict[str, object] = {"messages": messages, "stream": True}
        if self._model:
            body["model"] = self._model
        texts: list[str] = []
        usage, reason, words = Usage(), None, ""
        async with self._api.chat(session, body, call_id) as chunks:
            async for chunk in chunks:
                usage = chunk.usage or usage
                if chunk.error is not None:
                    words = chunk.error.message or words
                for choice in chunk.choices:
                    reason = choice.finish_reason or reason
                    piece = choice.delta.content or ""
                    if not texts:
                        piece = piece.lstrip("\n")  # Hermes parts a text from the tools before it
                    if piece:
                        texts.append(piece)
                        if show is not None:
                            show(piece)
        text = "".join(texts)
        if reason == "length" and text:
            log.warning("Hermes session %s: the answer reached the model's length limit and was cut off", session)
        elif reason is None:
            raise ApiFailure("connection", "the Hermes gateway ended its answer in the middle", again=True,
                             may_run=True)
        elif reason != "stop":
            kind, again = ("bad_reply", True) if reason == "length" else judged(words)
            words = redact(words or "no reason given", [self._secret().strip()])[:600]
            raise ApiFailure(kind, f"hermes: the model behind it failed: {words}", again=again)
        return Reply(text, usage.prompt_tokens, usage.completion_tokens)

    async def _settled(self, session: str, call: _Call, text: str | None) -> Progress:
        """How far that call is, once nothing works on it any more. ``text`` is what it said, where known."""
        loop = asyncio.get_running_loop()
        while True:
            rows = (await self._api.messages(session)).data
            found = Progress() if text is None else progress(rows, call.after, text)
            over = ended(newest(rows, call.after)) if text is None else found.over
            if over or call.left is None or loop.time() >= call.left + _GRACE:
                call.left = None
                return found
            await asyncio.sleep(_LOOK_EVERY)

    # -- what is known of a session --------------------------------------------------------------

    async def _goes_on_as(self, session_id: str) -> str:
        try:
            if await self.source.find(session_id) is None:
                raise ModelError(f"hermes: there is no session {session_id!r}", kind="not_found", retryable=False)
            session = await self.source.goes_on_as(session_id)
        except SourceError as error:
            raise _unreadable(error) from None
        if not _is_acceptable(session):
            raise ModelError(f"hermes: its API takes no session id like {session!r}", kind="rejected", retryable=False)
        return session

    async def _newest_line(self, session: str) -> int:
        lines = await self.source.context(session, 1)
        return int(lines[-1].id) if lines else 0

    async def _tell_rotated(self, session_id: str) -> None:
        # The header of a stream is written before the turn, so it is the database that knows.
        try:
            now = await self.source.goes_on_as(session_id)
        except SourceError as error:
            log.warning("it cannot be read under which id Hermes session %s goes on: %s", session_id, error)
            return
        if now != session_id:
            log.info("Hermes compressed session %s, which goes on as %s", session_id, now)
            if self._on_rotated is not None:
                self._on_rotated(session_id, now)

    async def _recall(self, session_id: str) -> _Call | None:
        if session_id not in self._calls and self._notes is not None:
            try:
                held = json.loads(await self._notes.get_meta(_NOTE + session_id) or "null")
                if held is not None:
                    left = None if held["over"] else asyncio.get_running_loop().time()
                    self._calls[session_id] = _Call(str(held["call"]), int(held["after"]), left)
            except (StoreError, ValueError, TypeError, KeyError) as error:
                log.warning("the note of the last call in Hermes session %s cannot be read: %s", session_id, error)
        return self._calls.get(session_id)

    async def _remember(self, session_id: str, call: _Call) -> None:
        over = self._calls.get(session_id) is call  # written again, because it failed before our eyes
        self._calls[session_id] = call
        if self._notes is not None:
            value = json.dumps({"call": call.id, "after": call.after, "over": over})
            try:
                await self._notes.set_meta(_NOTE + session_id, value)
            except StoreError as error:
                log.warning("the call %s in Hermes session %s cannot be noted: %s", call.id, session_id, error)


def _acceptable(session_id: str) -> str:
    """An id that Hermes takes: this one, or one made from it, the same each time."""
    if _is_acceptable(session_id):
        return session_id
    return "sr_" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _is_acceptable(session_id: str) -> bool:
    # Hermes refuses what could lead out of a folder, and reads ids from a header, which loses blanks at its ends.
    return len(session_id) <= _ID_LIMIT and clean(session_id) == session_id and not _NO_ID.search(session_id)


def _unreadable(error: SourceError) -> ModelError:
    return ModelError(f"hermes: {error}", kind="source", retryable=error.kind == "locked")
