"""A conversation whose row cannot be read is one person's trouble, and no one else's."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from fsm.agent import Agent, Group
from session_router import SessionRouter
from storage.sqlite import SqliteStore


class Echo:
    async def chat(self, messages: Any, *, session_id: str) -> str:
        return f"on {messages[-1]['content'].split()[-1]}"


async def test_a_row_that_cannot_be_read_keeps_no_muted_room_from_starting(tmp_path: Path) -> None:
    room = "xmpp:team@muc.test"
    agent = Agent(
        name="mohe", allow=frozenset({"*"}), language="en",
        groups={"team@muc.test": Group(allow=frozenset({"alice@x.test", "bob@x.test"}))},
    )  # fmt: skip

    def router() -> SessionRouter:
        store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
        return SessionRouter(bridge=Echo(), store=store, default_session="demo", sources=(), agent=agent)

    async with router() as first:
        for person in ("alice@x.test", "bob@x.test"):
            await first.route(room, person, "hello", message_id=person, real_jid=person)
        await first.route(room, "alice@x.test", "/mute", message_id="mute", real_jid="alice@x.test")
    with closing(sqlite3.connect(tmp_path / "engine.db")) as connection:
        changed = connection.execute("UPDATE conversations SET data = '{}x' WHERE sender = 'bob@x.test'").rowcount
        connection.commit()
    assert changed == 1

    async with router() as again, asyncio.timeout(20):
        assert await again.route(room, "alice@x.test", "hello?", message_id="m2", real_jid="alice@x.test") is None
        assert await again.route("xmpp", "carol", "hello", message_id="m3") == "on hello"
