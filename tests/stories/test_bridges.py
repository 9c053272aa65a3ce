"""A bridge is other people's code: whatever it gives, the turn has an end and the sender an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fsm.ports import StoreError
from session_router import SessionRouter
from storage.sqlite import SqliteStore


class Gives:
    def __init__(self, value: Any) -> None:
        self.value = value

    async def chat(self, messages: Any, *, session_id: str) -> Any:
        return self.value


async def test_two_programs_on_the_default_store_do_not_take_up_each_others_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with SessionRouter(bridge=Gives("hi"), default_session="demo", sources=()) as first:
        assert await first.route("xmpp", "hmo", "你好", message_id="m1") == "hi"
        second = SessionRouter(bridge=Gives("no"), default_session="demo", sources=())
        with pytest.raises(StoreError, match="Another session-router has these conversations"):
            await second.route("xmpp", "hmo", "你好", message_id="m2")
    third = SessionRouter(bridge=Gives("again"), default_session="demo", sources=())
    async with third:
        assert await third.route("xmpp", "hmo", "你好", message_id="m3") == "again"


VALUES = [{"text": "hi"}, 7, b"hi", ["hi"], ("hi",), object(), True]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_what_is_no_text_is_a_failed_call(value: Any, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=Gives(value), store=store, default_session="demo", sources=()) as router:
        reply = await asyncio.wait_for(router.route("xmpp", "hmo", "你好", message_id="m1"), 20)

    assert reply is not None
    assert "抱歉" in reply


class Panics(BaseException):
    """What a library in another language raises."""


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def chat(self, messages: Any, *, session_id: str) -> str:
        raise self.error


ERRORS = [Panics("at the disco"), asyncio.CancelledError(), BaseExceptionGroup("both", [Panics()])]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_whatever_a_bridge_raises_is_a_failed_call_and_the_session_is_free_again(
    error: BaseException, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "engine.db", synchronous="OFF")
    async with SessionRouter(bridge=Raises(error), store=store, default_session="demo", sources=()) as router:
        for person in ("hmo", "xxm"):
            reply = await asyncio.wait_for(router.route("xmpp", person, "你好", message_id=person), 20)
            assert reply is not None
            assert "抱歉" in reply
