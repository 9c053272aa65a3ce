"""One prompt to an OpenCode session, from sending it to the whole answer.

What is decided here is decided from what the server says when it is asked again and again: its events
may be lost, so they only wake the next look early and carry the text while it is written. A prompt is
stored under an id of ours before OpenCode works on it. Whoever repeats a prompt therefore finds it, and
then its answer is waited for, or the same prompt started again without being stored again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from msgspec import Raw

from fsm.language.redact import redact
from fsm.ports import ModelError, PermissionAsk, Reply
from storage.opencode.answer import BETWEEN, Progress, model_error, progress
from storage.opencode.api import Api, ApiFailure
from storage.opencode.asks import Asks
from storage.opencode.wire import (
    OURS,
    Delta,
    Event,
    Failure,
    Message,
    MessageUpdated,
    OfSession,
    PartUpdated,
    Session,
    Status,
    decode,
)

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks where no event wakes one earlier."""
MOST_UNKNOWN = 3
"""Steps that end without a reason for it before the turn is stopped: OpenCode 1.18 asks the model again
after each, some five times a second and without end."""
LOST_AFTER = 3
"""Looks in a row that fail before the server counts as gone."""
IDLE_AFTER = 3
"""Looks in a row that find the session at rest while the request still waits: then it waits in vain."""
ABORT_TIMEOUT = 5.0
RECENT = 2 * (MOST_UNKNOWN + 1)
PAGE = 100

Callback = Callable[[str], None]
OnRetry = Callable[[str, int, str], None]


def at(*names: str) -> str:
    """A path on the server; ids are quoted, so none can reach another route."""
    return "/" + "/".join(quote(name, safe="") for name in names)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent. ``id`` is the message's id; ``model`` None means the session's last one."""

    id: str
    text: str
    system: str
    agent: str
    model: tuple[str, str] | None

    def body(self, *, again: bool) -> Mapping[str, object]:
        """For another start of a stored prompt: no text, or it would stand there twice."""
        body: dict[str, object] = {
            "messageID": self.id, "agent": self.agent,
            "parts": [] if again else [{"type": "text", "text": self.text, "metadata": {OURS: True}}],
        }  # fmt: skip
        if self.system:
            body["system"] = self.system
        if self.model is not None:
            body["model"] = {"providerID": self.model[0], "modelID": self.model[1]}
        return body


class Turn:
    """Runs one prompt in one session. ``run`` once, ``abort`` where it did not come to its end, and ``close``; or only
    ``abandon``."""

    def __init__(self, api: Api, session: Session, prompt: Prompt, asks: Asks, *, show: Callback | None,
                 ask: Callable[[PermissionAsk], None] | None, on_retry: OnRetry | None) -> None:
        self._api, self._session, self._prompt, self._asks = api, session, prompt, asks
        self._show, self._ask, self._on_retry = show, ask, on_retry
        self._sent: asyncio.Task[Message] | None = None
        self._running = False
        self._wake = asyncio.Event()
        self._hears = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._retry = Status("busy")
        self._error: Failure | None = None
        self._steps: set[str] = set()
        self._texts: dict[str, str] = {}
        self._shown = ""

    async def run(self) -> Reply:
        """The answer. Raises :class:`ModelError`, and :class:`ApiFailure` where the server does not play along."""
        self._start(self._listen())
        asked = await self._is_stored()
        now = await self._whole() if asked else Progress()
        while not (now.finished and now.passed) and await self._is_busy():
            # Either our own prompt, sent before, or somebody else's. Ours would only join theirs, and
            # whoever of the two waits would be told the other's answer.
            self._running = asked and not now.passed
            if self._running:
                await self._look(now)
            elif await self._asks.stand_too_long(self._session) and await self._is_one_of_ours():
                # Whoever is at a call of ours refuses by himself what stands so long: nobody is, and it would stand
                # for ever. What somebody is asked at a terminal is for him to answer.
                await self._asks.refuse(self._session)
            await self._rest()
            now = await self._whole() if asked else now
        self._running = False
        if now.finished:
            return self._done(now)
        if now.passed:
            raise now_passed(now)
        await self._asks.refuse(self._session)  # what a turn that was cut off has left
        with suppress(TimeoutError):  # whatever happens from the start on; without events it goes as well
            async with asyncio.timeout(LOOK_EVERY):
                await self._hears.wait()
        self._running = True
        self._sent = self._start(self._api.post(
            at("session", self._session.id, "message"), self._prompt.body(again=asked), Message, patient=True,
        ))  # fmt: skip
        self._sent.add_done_callback(lambda _: self._wake.set())
        await self._wait()
        self._running = False
        return self._judge(await self._whole())

    async def abort(self) -> None:
        """Stop in OpenCode what this turn started there, if anything, and refuse what it asks leave for. Takes at
        most five seconds."""
        if self._running:
            self._asks.forget(self._session.id)  # nobody can allow it from here on
            # wait() leaves the task alone when the caller is cancelled once more.
            await asyncio.wait({self._start(self._stop_or_say())}, timeout=ABORT_TIMEOUT)

    async def abandon(self) -> None:
        """The same for a prompt that another one has run, be it in another process. Raises :class:`ApiFailure`."""
        async with asyncio.timeout(ABORT_TIMEOUT) as limit:
            try:
                if await self._is_at_it():
                    self._running = True
                    await self._stop()
            except TimeoutError:
                if limit.expired():
                    raise self._api.hangs(ABORT_TIMEOUT) from None
                raise

    async def _stop_or_say(self) -> None:
        try:
            await self._stop()
        except ApiFailure as failure:  # the next turn in that session refuses what is asked
            log.warning("the turn in OpenCode session %s could not be stopped: %s", self._session.id, failure)

    async def _stop(self) -> None:
        # More than once: a prompt that is not being worked on yet is not stopped by the first.
        while self._running:
            await self._api.post(at("session", self._session.id, "abort"), {}, Raw)
            if self._sent is not None:
                await asyncio.wait({self._sent}, timeout=0.5)
                self._running = not self._sent.done()
            else:
                self._running = await self._is_at_it()
        await self._asks.refuse(self._session)

    async def close(self) -> None:
        """End everything that runs beside the turn."""
        self._asks.forget(self._session.id)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def trouble(self) -> str:
        """What OpenCode last said about a model that it asks again and again."""
        retry = self._retry
        return redact(f" (the model failed {retry.attempt} times: {retry.message})", self._api.secrets) \
            if retry.attempt else ""

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Until OpenCode is done with our prompt, by its own answer or by what it says when looked at."""
        assert self._sent is not None
        lost = idle = 0
        while True:
            await self._rest()
            if self._sent.done() and not self._sent.cancelled() and self._sent.exception() is None:
                return
            try:
                if self._sent.done() and (failure := self._sent.exception()) is not None:
                    await self._after(failure)
                recent = await self._recent()
                if recent.finished and recent.passed:
                    return
                await self._look(recent)
                idle = 0 if await self._is_busy() else idle + 1
                lost = 0
            except ApiFailure as failure:
                lost += 1
                if failure.kind != "connection" or self._sent.done() or lost >= LOST_AFTER:
                    self._running = self._running and failure.kind != "connection"
                    raise
                continue
            if idle and (self._sent.done() or idle >= IDLE_AFTER):
                return

    async def _after(self, failure: BaseException) -> None:
        """The request for our prompt failed, which a lost connection does although the turn goes on."""
        if isinstance(failure, ApiFailure) and failure.kind == "connection":
            await self._api.probe()
            return
        if self._error is None:  # events tell more than "unexpected server error", and may come behind it
            await self._rest()
        self._running = False
        if self._error is not None:
            raise model_error(self._error, self._api.secrets)
        raise failure

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await self._wake.wait()
        self._wake.clear()

    async def _look(self, recent: Progress) -> None:
        """See to everything that a running turn may wait for."""
        if recent.unknown > MOST_UNKNOWN:
            raise ModelError("opencode: loop: the model's answers end without a reason for it, and OpenCode "
                             "asks it again and again", kind="loop", retryable=False)
        self._steps |= recent.steps
        for part_id, text in recent.texts:
            self._texts[part_id] = text
        self._show_texts()
        await self._asks.see(self._session, self._ask)

    async def _is_busy(self) -> bool:
        found = await self._api.get("/session/status", dict[str, Status], directory=self._session.directory)
        status = found.get(self._session.id)
        if status is None or status.type == "idle":
            return False
        if status.type == "retry" and status.attempt != self._retry.attempt:
            self._retry = status
            log.warning("OpenCode session %s: the model failed, try %d: %s", self._session.id, status.attempt,
                        status.message)
            if self._on_retry is not None:
                self._on_retry(self._session.id, status.attempt, status.message)
        return True

    # -- what is there ---------------------------------------------------------------------------

    async def _is_at_it(self) -> bool:
        """Whether it is our prompt that the session is at work on."""
        if not await self._is_busy() or not await self._is_stored():
            return False
        return not (await self._whole()).passed

    async def _is_one_of_ours(self) -> bool:
        """Whether the session is at work on a prompt that we have sent, for whatever call."""
        path = at("session", self._session.id, "message")
        found = await self._api.get(path, list[Message], limit=PAGE)
        newest = next((message.info.id for message in reversed(found) if message.is_ours), None)
        return newest is not None and not progress(found, newest).passed

    async def _is_stored(self) -> bool:
        try:
            await self._api.get(at("session", self._session.id, "message", self._prompt.id), Message)
        except ApiFailure as failure:
            if failure.kind == "absent":
                return False
            raise
        return True

    async def _recent(self) -> Progress:
        path = at("session", self._session.id, "message")
        return progress(await self._api.get(path, list[Message], limit=RECENT), self._prompt.id)

    async def _whole(self) -> Progress:
        """Our prompt and all that came after it."""
        found: list[Message] = []
        before: str | None = None
        while True:
            page, before = await self._api.page(at("session", self._session.id, "message"), list[Message],
                                                limit=PAGE, before=before)
            found[:0] = page
            if before is None or any(message.info.id == self._prompt.id for message in page):
                return progress(found, self._prompt.id)

    def _judge(self, now: Progress) -> Reply:
        """The session is at rest: its messages are all that there will be."""
        if now.finished:
            return self._done(now)
        if now.failure is not None:
            raise model_error(now.failure, self._api.secrets)
        if self._error is not None:
            raise model_error(self._error, self._api.secrets)
        if now.passed:
            raise now_passed(now)
        if now.stuck:
            raise ModelError("opencode: the turn ended without an answer", kind="server")
        if now.reply.text:  # a tool was refused at the terminal, say: then OpenCode stops behind it
            return self._done(now)
        raise ModelError("opencode: the turn was stopped in OpenCode itself", kind="aborted", retryable=False)

    def _done(self, now: Progress) -> Reply:
        self._texts = dict(now.texts)
        self._show_texts()
        return now.reply

    # -- events ----------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def _listen(self) -> None:
        while True:
            with suppress(ApiFailure):
                async with self._api.events(self._session.directory) as events:
                    async for event in events:
                        self._hears.set()  # the first one says that the stream is there
                        self._heard(event)
            await asyncio.sleep(LOOK_EVERY)

    def _heard(self, event: Event) -> None:
        with suppress(ValueError):  # an event that has another shape by now is no loss
            match event.type:
                case "message.part.delta":
                    delta = decode(bytes(event.properties), Delta)
                    # The deltas of hidden reasoning look the same; its part was announced as what it is.
                    if delta.part in self._texts and delta.field_name == "text":
                        self._texts[delta.part] += delta.delta
                        self._show_texts()
                case "message.part.updated":
                    part = decode(bytes(event.properties), PartUpdated).part
                    if part.type == "text" and part.message in self._steps and not (part.synthetic or part.ignored):
                        known = self._texts.get(part.id, "")
                        self._texts[part.id] = part.text if part.text and len(part.text) >= len(known) else known
                        self._show_texts()
                case "message.updated":
                    info = decode(bytes(event.properties), MessageUpdated).info
                    if info.parent == self._prompt.id and not info.is_summary:
                        self._steps.add(info.id)
                        if info.finish is not None:
                            self._wake.set()
                case "session.error":
                    about = decode(bytes(event.properties), OfSession)
                    if about.session == self._session.id and self._running:
                        self._error = about.error
                        self._wake.set()
                case "session.status" | "session.idle":
                    if decode(bytes(event.properties), OfSession).session == self._session.id:
                        self._wake.set()
                case "permission.asked" | "question.asked":
                    self._wake.set()

    def _show_texts(self) -> None:
        """Show what the text has grown by. What a lost event left out comes with the next look, or stays
        out where the text went on in the meantime: pieces that were shown cannot be taken back."""
        if self._show is None:
            return
        text = BETWEEN.join(text for text in self._texts.values() if text and not text.isspace())
        if text != self._shown and text.startswith(self._shown):
            piece, self._shown = text[len(self._shown) :], text
            self._show(piece)


def now_passed(now: Progress) -> ModelError:
    if now.failure is not None:
        return model_error(now.failure)
    return ModelError("opencode: the turn was cut off, and the session has gone on without it", kind="aborted",
                      retryable=False)
