"""The HTTP port of one agent: local calls to the running engine. Needs ``pip install ".[run]"`` (aiohttp).

It listens on 127.0.0.1 and nowhere else, and everything but ``/healthz`` wants ``Authorization: Bearer TOKEN``.

| call | does |
|---|---|
| ``GET /healthz`` | 200 ``{"status": "ok"}`` while messages are taken, 503 ``draining`` while it stops |
| ``GET /metrics`` | the agent's counters, for Prometheus |
| ``POST /send`` ``{"text", "session_id"?, "id"?}`` | posts in its groups; see :mod:`session_router.cli_bridge` |
| ``GET /active``, ``DELETE /active`` | the active sender's record; forgets it |

Errors are ``{"error": "a sentence", "kind": "..."}``.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsm.ports import DeliveryError, SessionRouterError
from session_router.cli_bridge import Active, NotRecorded, SendRefused, Sent

log = logging.getLogger("session_router.http")

HOST = "127.0.0.1"
BODY_BYTES = 256 * 1024
"""Bytes of a request."""

_STATUS = {"no_text": 422, "no_session": 404, "no_room": 409}


class SendBody(BaseModel):
    """``id`` makes a repeated request show and record its text once."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    text: str
    session_id: str | None = None
    id: str | None = Field(default=None, min_length=1, max_length=100)


@dataclass(frozen=True, slots=True)
class Calls:
    """What the port leads to. ``taking``: whether messages are taken just now."""

    taking: Callable[[], bool]
    metrics: Callable[[], bytes]
    metrics_type: str
    send: Callable[[SendBody], Awaitable[Sent]]
    active: Callable[[], Awaitable[Active | None]]
    clear: Callable[[], Awaitable[bool]]


class HttpPort:
    """``token`` may be set to another one. Raises OSError from ``start`` where the port is taken."""

    def __init__(self, port: int, token: str, calls: Calls) -> None:
        self.port, self.token = port, token
        self._calls = calls
        app = web.Application(middlewares=[self._guarded], client_max_size=BODY_BYTES)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/send", self._send)
        app.router.add_get("/active", self._active)
        app.router.add_delete("/active", self._clear)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)

    async def start(self) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, self.port).start()
        except BaseException:
            await self._runner.cleanup()
            raise

    async def close(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path != "/healthz" and not self._may(request):
            return _error(401, "This needs the agent's token: Authorization: Bearer TOKEN", "no_token",
                          {"WWW-Authenticate": "Bearer"})  # fmt: skip
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason, "http", {k: v for k, v in error.headers.items() if k == "Allow"})
        except SendRefused as error:
            return _error(_STATUS.get(error.kind, 400), str(error), error.kind)
        except DeliveryError as error:
            return _error(502, str(error), "not_delivered")
        except NotRecorded as error:
            return _error(500, str(error), "not_recorded")
        except SessionRouterError as error:
            return _error(503, str(error), "unavailable")
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            return _error(500, f"Something unforeseen happened ({type(error).__name__}); the log says where", "error")

    def _may(self, request: web.Request) -> bool:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip().encode(errors="surrogateescape")  # what is no UTF-8 comes as lone surrogates
        return kind.lower() == "bearer" and hmac.compare_digest(given, self.token.encode())

    async def _healthz(self, request: web.Request) -> web.Response:
        taking = self._calls.taking()
        return _json(200 if taking else 503, {"status": "ok" if taking else "draining"})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._calls.metrics(), headers={"Content-Type": self._calls.metrics_type})

    async def _send(self, request: web.Request) -> web.Response:
        try:
            body = SendBody.model_validate_json(await request.read())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the body"
            return _error(400, f'Expected {{"text": "...", "session_id": "..."}}; {where}: {first["msg"]}', "bad_body")
        if not self._calls.taking():
            return _error(503, "The engine is stopping; try again once it has started.", "draining")
        return _json(200, asdict(await self._calls.send(body)))

    async def _active(self, request: web.Request) -> web.Response:
        if (active := await self._calls.active()) is None:
            return _error(404, "No session is recorded as active.", "none")
        return _json(200, asdict(active))

    async def _clear(self, request: web.Request) -> web.Response:
        return _json(200, {"cleared": await self._calls.clear()})


def _json(status: int, value: object) -> web.Response:
    text = json.dumps(value, ensure_ascii=False)
    return web.Response(status=status, text=text, content_type="application/json")


def _error(status: int, text: str, kind: str, headers: dict[str, str] | None = None) -> web.Response:
    response = _json(status, {"error": text, "kind": kind})
    response.headers.update(headers or {})
    return response
