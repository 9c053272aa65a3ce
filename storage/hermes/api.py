"""Requests to the API server of a Hermes gateway, and what can go wrong with them.

A stream is the only kind of request that Hermes 0.19 stops working on when its client leaves: it notices
at its next write, which is the next word of its model, or the sign of life that it sends after every 30
silent seconds. It has answered with status 200 by then, so that a failure of the model stands in the last
piece of the stream (``finish_reason: "error"``), with the provider's own words.
"""

from __future__ import annotations

import asyncio
import json as stdlib_json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct, field, json

from fsm.language.redact import redact
from fsm.ports import ModelError, SourceError
from storage.hermes.files import NAME

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
"""Seconds for each request but a turn."""
LOOK_TIMEOUT = 1.5
"""Seconds for the question whether it is there at all."""
SILENCE_TIMEOUT = 75.0
"""Seconds without a byte after which a stream counts as dead; Hermes sends one after 30 at the latest."""
SIGN_OF_LIFE = 30.0
"""Seconds after which Hermes has noticed that the reader of a stream is gone."""
ERROR_CHARS = 600
SESSION_HEADER = "X-Hermes-Session-Id"
MEND = 'in the folder of Session Router, pip install ".[model]"'

T = TypeVar("T")

_STATUSES = {400: ("rejected", False), 401: ("auth", False), 402: ("quota", False), 403: ("auth", False),
             404: ("not_found", False), 408: ("timeout", True), 429: ("rate_limit", True)}
_PROVIDER_STATUS = re.compile(r"\bHTTP (\d{3})\b|\bError code: (\d{3})\b")
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")


class ApiFailure(Exception):
    """A request did not give what was asked for.

    ``kind`` as in ``session_router.models``. ``code`` is Hermes' own word for it, where it has one.
    ``may_run``: Hermes may be working on the turn nevertheless.
    """

    def __init__(self, kind: str, message: str, *, again: bool = False, code: str = "", may_run: bool = False) -> None:
        super().__init__(message)
        self.kind, self.again, self.code, self.may_run = kind, again, code, may_run

    def as_model_error(self) -> ModelError:
        return ModelError(str(self), kind=self.kind, retryable=self.again)

    def as_source_error(self) -> SourceError:
        return SourceError(str(self), kind="foreign" if self.kind == "config" else "unreadable", source=NAME,
                           detail=self.code or self.kind)


class Delta(Struct):
    content: str | None = None


class Choice(Struct):
    delta: Delta = field(default_factory=Delta)
    finish_reason: str | None = None


class Usage(Struct):
    """Tokens of all requests to the model that the turn took; Hermes tells nothing of its cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Words(Struct):
    message: str | None = None
    code: str | None = None


class Chunk(Struct):
    """A piece of a stream."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Words | None = None


class Refusal(Struct):
    error: Words


class Row(Struct):
    """A message as it is stored. ``content`` is text, a list of parts, or nothing."""

    id: int
    role: str
    content: Any = None
    tool_calls: Any = None
    finish_reason: str | None = None


class Messages(Struct):
    """All messages of a session, or of the part in which a compressed one goes on."""

    session_id: str
    data: list[Row]


class Model(Struct):
    id: str


class Models(Struct):
    data: list[Model]


class Made(Struct):
    id: str
    title: str | None = None
    started_at: float | None = None


class MadeSession(Struct):
    session: Made


class Api:
    """One gateway. ``key`` is asked for the API key at every request; connections are kept."""

    def __init__(self, base_url: str, key: Callable[[], str]) -> None:
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("the address of a Hermes gateway looks like http://127.0.0.1:8642")
        # A password in the address would show up in errors and logs.
        if "@" in address.netloc:
            raise ValueError("give the Hermes gateway's key on its own, not within the address")
        path = address.path.rstrip("/").removesuffix("/v1")  # as other programs write it
        self.url = urlunsplit((address.scheme, address.netloc, path, "", ""))
        self._key = key
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def look(self) -> None:
        """Ask once whether a gateway is there."""
        await self._json("GET", "/health", dict[str, Any], within=LOOK_TIMEOUT)

    async def models(self) -> Sequence[str]:
        """The names under which it can be asked; the key is needed for that."""
        return [model.id for model in (await self._json("GET", "/v1/models", Models)).data]

    async def messages(self, session_id: str) -> Messages:
        """Every message of a session, oldest first."""
        return await self._json("GET", f"/api/sessions/{quote(session_id, safe='')}/messages", Messages)

    async def create(self, session_id: str, title: str) -> Made:
        """A new session. The failure's ``code`` is ``session_exists`` or ``invalid_title`` (it is taken)."""
        body = {"id": session_id, "title": title} if title else {"id": session_id}
        return (await self._json("POST", "/api/sessions", MadeSession, body)).session

    @asynccontextmanager
    async def chat(self, session_id: str, body: Mapping[str, object], call_id: str
                   ) -> AsyncIterator[AsyncIterator[Chunk]]:
        """Run a turn in that session; leaving closes the connection."""
        import httpx2

        headers = self._headers()
        # Bytes: a header may hold more than ASCII, and Hermes reads it as UTF-8.
        headers[SESSION_HEADER.encode()] = session_id.encode()
        headers[b"Idempotency-Key"] = call_id.encode("ascii", "backslashreplace")
        timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=SILENCE_TIMEOUT)
        try:
            request = self._open().stream("POST", f"{self.url}/v1/chat/completions", json=body, headers=headers,
                                          timeout=timeout)
            async with request as response:
                if not response.is_success:
                    await response.aread()
                self._check(response, "text/event-stream")
                if SESSION_HEADER not in response.headers:
                    raise ApiFailure("config", f"{self.url} is not the API of a Hermes gateway")
                async with aclosing(_chunks(response.aiter_lines())) as chunks:
                    yield chunks
        except httpx2.HTTPError as error:
            raise self._gone(error) from None

    async def _json(self, method: str, path: str, kind: type[T], body: object = None, *,
                    within: float = READ_TIMEOUT) -> T:
        client = self._open()
        import httpx2

        try:
            response = await client.request(method, self.url + path, json=body, headers=self._headers(),
                                            timeout=httpx2.Timeout(min(within, CONNECT_TIMEOUT), read=within))
        except httpx2.HTTPError as error:
            raise self._gone(error) from None
        self._check(response, "application/json")
        try:
            return _decode(response.content, kind)
        except ValueError as error:
            raise ApiFailure("config", f"{self.url} does not answer as Hermes does ({error})") from None

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            try:
                import httpx2
            except ImportError as error:
                raise ApiFailure("missing", f"a package is not installed ({error}); {MEND}") from None
            # One's own server: no proxy of the environment, and no .netrc in the key's place.
            self._client = httpx2.AsyncClient(trust_env=False, limits=httpx2.Limits(max_connections=None))
        return self._client

    def _headers(self) -> dict[bytes, bytes]:
        key = self._key().strip()
        if not key or _UNSENDABLE.search(key):
            raise ApiFailure("auth", "the key of the Hermes gateway is missing, or more than one line: it is the "
                             "API_SERVER_KEY that the gateway was started with")
        return {b"Authorization": b"Bearer " + key.encode()}

    def _check(self, response: httpx2.Response, wanted: str) -> None:
        status = response.status_code
        if status == 401:
            raise ApiFailure("auth", f"the Hermes gateway at {self.url} refuses the key: it is the API_SERVER_KEY "
                             "that the gateway was started with")
        content = response.headers.get("content-type", "")
        if response.is_success and content.startswith(wanted):
            return
        if response.is_success or response.is_redirect:
            raise ApiFailure("config", f"{self.url} is not the API of a Hermes gateway: it answers with status "
                             f"{status} and {content or 'nothing'} instead of {wanted}")
        words = Words()
        with suppress(ValueError):
            words = _decode(response.content, Refusal).error
        # A provider's status stands in the words; Hermes' own is 502 whatever it was.
        kind, again = judged(words.message or "") if status == 502 else _judged_status(status)
        detail = redact(words.message or "no reason given", [self._key().strip()])[:ERROR_CHARS]
        raise ApiFailure(kind, f"the Hermes gateway at {self.url} answered with status {status}: {detail}", again=again,
                         code=words.code or "", may_run=status in (502, 504) and SESSION_HEADER not in response.headers)

    def _gone(self, error: Exception) -> ApiFailure:
        import httpx2

        reason = redact(str(error) or type(error).__name__, [self._key().strip()])[:ERROR_CHARS]
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return ApiFailure("timeout", f"the Hermes gateway at {self.url} keeps silent ({reason})", again=True,
                              may_run=True)
        return ApiFailure("connection", f"the Hermes gateway at {self.url} does not answer ({reason}): start hermes "
                          "gateway run, with API_SERVER_ENABLED=true and API_SERVER_KEY", again=True)


def judged(words: str) -> tuple[str, bool]:
    """(kind, whether asking again can help) of what a provider said to Hermes, by the status in its words."""
    found = _PROVIDER_STATUS.search(words)
    if found is None:
        return "error", True
    return _judged_status(int(found[1] or found[2]))


def _judged_status(status: int) -> tuple[str, bool]:
    if status in _STATUSES:
        return _STATUSES[status]
    return ("server", True) if status >= 500 else ("rejected", False)


async def _chunks(lines: AsyncIterator[str]) -> AsyncGenerator[Chunk, None]:
    """Pieces of the answer. Events with a name tell of tools; lines with a colon first are signs of life."""
    named = False
    async for line in lines:
        if not line:
            named = False
        elif line.startswith("event:"):
            named = line[6:].strip() != "message"
        elif line.startswith("data:") and not named:
            data = line[5:].strip()
            if data == "[DONE]":
                return
            try:
                yield _decode(data.encode(), Chunk)
            except ValueError as error:
                raise ApiFailure("bad_reply", f"a piece of Hermes' answer is not understood ({error})", again=True,
                                 may_run=True) from None
        await asyncio.sleep(0)  # a stream that was all there at once holds up nobody else


def _decode(raw: bytes, kind: type[T]) -> T:
    """``raw`` as ``kind``. Raises :class:`ValueError` for anything else."""
    try:
        return json.decode(raw, type=kind)
    except ValueError:  # half an emoji, as some models send it, is JSON to Python's own parser alone
        text = stdlib_json.dumps(stdlib_json.loads(raw), ensure_ascii=False)
        return json.decode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), type=kind)
