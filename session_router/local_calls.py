"""Asking the running engine over an agent's HTTP port. Needs nothing but the standard library."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsm.ports import SessionRouterError
from session_router.agent_config import AgentConfig
from session_router.http_token import token_of

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 90.0
"""Posting in several rooms takes its time."""


class AnswerLost(SessionRouterError):
    """The engine took the call, and then nothing more was heard: it may have done it or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Mapping[str, Any]


async def call(
    settings: AgentConfig, folder: Path, environ: Mapping[str, str], method: str, path: str, body: object = None
) -> Answer | None:
    """The engine's answer; None where none is there that knows us: no port, no token, nobody listens, or somebody
    else does. Nothing was done then.

    Raises AnswerLost, and ConfigError where the token cannot be read.
    """
    if settings.http_port is None or (token := token_of(settings, folder, environ)) is None:
        return None
    return await asyncio.to_thread(_call, settings.http_port, token, method, path, body)


def _call(port: int, token: str, method: str, path: str, body: object) -> Answer | None:
    # http.client, which knows of no proxy: the token must not leave this machine.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CONNECT_SECONDS)
    try:
        try:
            connection.connect()
        except OSError:
            return None
        connection.sock.settimeout(ANSWER_SECONDS)
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise AnswerLost(
                "The running engine did not answer, so it is not known whether it did that. Look before trying again."
            ) from error
    finally:
        connection.close()
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = None
    is_ours = isinstance(answer, dict) and response.status != 401 and (response.status == 200 or "kind" in answer)
    return Answer(response.status, answer) if is_ours else None
