"""Requests to an OpenCode 1.x server, and what can go wrong with them.

Two habits of that server shape this file. A route that it does not know is answered with its web page
and status 200, so the content type is what tells. And while it starts, it accepts requests that it
never answers, so the first thing is always a short health check, repeated until it is answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from fsm.language.redact import redact
from fsm.ports import ModelError, SourceError
from storage.codec import clean
from storage.opencode.files import NAME
from storage.opencode.wire import Event, Failure, Health, decode

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

HEALTH_TIMEOUT = 1.5
"""Seconds for one health check: a started server answers within milliseconds, a starting one never."""
HEALTH_PAUSE = 0.1
REQUEST_TIMEOUT = 30.0
"""Seconds for every request but those that wait for a turn or for events."""
EVENT_TIMEOUT = 30.0
"""Seconds without an event after which the stream counts as dead; the server sends one every ten."""
ERROR_CHARS = 600
MEND = 'in the folder of Session Router, pip install ".[model]"'

T = TypeVar("T")


class ApiFailure(Exception):
    """A request did not give what was asked for.

    ``kind``: ``connection`` (nobody there, or gone in the middle), ``auth``, ``foreign`` (not the API of
    OpenCode 1.x), ``absent`` (404), ``server`` (any other status), ``missing`` (a package is not installed).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def as_source_error(self) -> SourceError:
        kind = {"foreign": "foreign", "absent": "missing"}.get(self.kind, "unreadable")
        return SourceError(str(self), kind=kind, source=NAME, detail=self.kind)

    def as_model_error(self) -> ModelError:
        kind = {"foreign": "config", "absent": "not_found"}.get(self.kind, self.kind)
        return ModelError(str(self), kind=kind, retryable=self.kind in ("connection", "server"))


class Api:
    """One server. Connections are opened by the first request and kept; ``start_patience`` in seconds is
    how long a server that is starting, or not there, is waited for."""

    def __init__(self, base_url: str, *, username: str, password: str | None, start_patience: float,
                 transport: httpx2.AsyncBaseTransport | None = None) -> None:
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("the address of an OpenCode server looks like http://127.0.0.1:4096")
        # A password in the address would show up in errors and logs.
        if "@" in address.netloc:
            raise ValueError("give the OpenCode server's password on its own, not within the address")
        self.url = urlunsplit((address.scheme, address.netloc, address.path.rstrip("/"), "", ""))
        self._username, self._password = username, password
        self._patience = start_patience
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._known_up = False
        self._probing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def close(self) -> None:
        client, self._client = self._client, None
        self._known_up = False
        if client is not None:
            await client.aclose()

    async def ready(self) -> None:
        """Return once the server is known to answer; raises :class:`ApiFailure`."""
        if self._known_up:
            return
        async with self._probing:
            deadline = asyncio.get_running_loop().time() + self._patience
            while not self._known_up:
                try:
                    await self.probe()
                except ApiFailure as failure:
                    left = deadline - asyncio.get_running_loop().time()
                    if failure.kind != "connection" or left <= 0:
                        raise
                    await asyncio.sleep(min(HEALTH_PAUSE, left))

    async def look(self) -> None:
        """The same without waiting: asks once, and not at all where it is known to answer."""
        if not self._known_up:
            await self.probe()

    async def get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        """The JSON behind ``path``."""
        return (await self.page(path, kind, **query))[0]

    async def page(self, path: str, kind: type[T], **query: str | int | None) -> tuple[T, str | None]:
        """The same with the cursor to what comes next, None at the end."""
        await self.ready()
        response = await self._request("GET", path, query)
        return self._decoded(response, kind), response.headers.get("x-next-cursor")

    async def post(self, path: str, body: object, kind: type[T], *, patient: bool = False,
                   **query: str | int | None) -> T:
        """Send ``body`` as JSON; ``patient`` waits for the answer for as long as it takes."""
        await self.ready()
        return self._decoded(await self._request("POST", path, query, body=body, patient=patient), kind)

    @asynccontextmanager
    async def events(self, directory: str | None) -> AsyncIterator[AsyncIterator[Event]]:
        """What happens in a folder, from now on."""
        await self.ready()
        import httpx2

        try:
            async with self._open().stream("GET", f"{self.url}/event", params=_given({"directory": directory}),
                                           timeout=httpx2.Timeout(10.0, read=EVENT_TIMEOUT)) as response:
                self._check(response, b"", wanted="text/event-stream")
                yield _events(response.aiter_lines())
        except httpx2.HTTPError as error:
            raise self._gone(error) from None

    async def probe(self) -> None:
        """Ask once whether the server is there and one that is understood; raises :class:`ApiFailure`."""
        try:
            health = self._decoded(await self._request("GET", "/global/health", {}, within=HEALTH_TIMEOUT), Health)
        except ApiFailure as failure:
            if failure.kind not in ("foreign", "absent"):
                raise
            try:
                self._decoded(await self._request("GET", "/api/info", {}, within=HEALTH_TIMEOUT), dict[str, Any])
            except ApiFailure:
                raise failure from None
            raise ApiFailure("foreign", f"the server at {self.url} is OpenCode 2, which is not supported yet: "
                             "start opencode serve of version 1") from None
        log.info("OpenCode %s answers at %s", health.version, self.url)
        self._known_up = True

    async def _request(self, method: str, path: str, query: Mapping[str, str | int | None], *, body: object = None,
                       patient: bool = False, within: float = REQUEST_TIMEOUT) -> httpx2.Response:
        client = self._open()
        import httpx2

        try:
            response = await client.request(
                method, self.url + path, params=_given(query), content=None if body is None else _json(body),
                headers=None if body is None else {"content-type": "application/json"},
                timeout=httpx2.Timeout(min(within, 10.0), read=None if patient else within),
            )  # fmt: skip
        except httpx2.HTTPError as error:
            raise self._gone(error) from None
        self._check(response, response.content)
        return response

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            try:
                import httpx2
            except ImportError as error:
                raise ApiFailure("missing", f"a package is not installed ({error}); {MEND}") from None
            auth = None if self._password is None else httpx2.BasicAuth(self._username, self._password)
            # One's own server: no proxy of the environment, and no .netrc in the password's place. Every turn
            # holds two connections, so none of them may wait for another to end.
            self._client = httpx2.AsyncClient(auth=auth, trust_env=False, transport=self._transport,
                                              limits=httpx2.Limits(max_connections=None))
        return self._client

    def _check(self, response: httpx2.Response, body: bytes, wanted: str = "application/json") -> None:
        if response.status_code == 401:
            raise ApiFailure("auth", f"the OpenCode server at {self.url} refuses the user name or password: "
                             "give it the one that it was started with (OPENCODE_SERVER_PASSWORD)")
        if not response.headers.get("content-type", "").startswith(wanted):
            if response.is_success:
                raise ApiFailure("foreign", f"{self.url} answers with {response.headers.get('content-type', 'nothing')}"
                                 " where OpenCode 1 answers with JSON: name the address that opencode serve prints")
            raise ApiFailure("absent" if response.status_code == 404 else "server",
                             f"the OpenCode server at {self.url} answered with status {response.status_code}")
        if not response.is_success:
            raise ApiFailure("absent" if response.status_code == 404 else "server", redact(
                f"the OpenCode server at {self.url} answered with status {response.status_code}: {_words(body)}",
                self.secrets))

    def _decoded(self, response: httpx2.Response, kind: type[T]) -> T:
        try:
            return decode(response.content, kind)
        except ValueError as error:
            raise ApiFailure("foreign", f"{self.url} does not answer as OpenCode 1 does ({error}): name the address "
                             "that opencode serve prints, or update Session Router") from None

    def _gone(self, error: Exception) -> ApiFailure:
        self._known_up = False  # whoever comes next may meet a server that is starting again
        reason = redact(str(error) or type(error).__name__, self.secrets)[:ERROR_CHARS]
        return ApiFailure("connection", f"the OpenCode server at {self.url} does not answer ({reason}): "
                          "start opencode serve")

    def hangs(self, seconds: float) -> ApiFailure:
        """What to say of a server that has not answered for so long."""
        return self._gone(TimeoutError(f"nothing within {seconds:g} seconds"))

    @property
    def secrets(self) -> tuple[str, ...]:
        return () if self._password is None else (self._password,)


def _json(body: object) -> bytes:
    """Half a character, which UTF-8 has no place for, becomes U+FFFD."""
    return clean(json.dumps(body, ensure_ascii=False)).encode()


def _given(query: Mapping[str, str | int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def _words(body: bytes) -> str:
    """The server's own words for an error; two of its shapes are known."""
    try:
        failure = decode(body, Failure)
        words = failure.message or decode(body, dict[str, Any]).get("message") or failure.name
    except ValueError:
        words = ""
    return str(words or "no reason given")[:ERROR_CHARS]


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    async for line in lines:  # OpenCode puts each event on one line
        if line.startswith("data:"):
            try:
                yield decode(line[5:].encode(), Event)
            except ValueError:
                log.debug("an event of OpenCode is not understood: %.200s", line)
