"""A bridge is other people's code: whatever it gives, the turn has an end and the sender an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from session_router import SessionRouter
from storage.sqlite import SqliteStore


class Gives:
    def __init__(self, value: Any) -> None:
        self.value = value

    async def chat(self, messages: Any, *, session_id: str) -> Any:
        return self.value


VALUES = [{"text": "hi"}, 7, b"hi", ["hi"], ("hi",), object(), True]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_what_is_no_text_is_a_failed_call(value: Any, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=Gives(value), store=store, default_session="demo", sources=()) as router:
        reply = await asyncio.wait_for(router.route("xmpp", "hmo", "你好", message_id="m1"), 20)

    assert reply is not None
    assert "抱歉" in reply
