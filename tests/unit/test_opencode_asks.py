"""What the agent asks leave for is put before a person once, however the server's list and the answer cross."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fsm.ports import PermissionAsk
from storage.opencode.api import ApiFailure
from storage.opencode.asks import Asks
from storage.opencode.wire import Permission, Session, Times

HERE = Session("ses_a", Times(0, 0))
WANTED = Permission("per_1", "ses_a", "bash", ["touch given.txt"], {"command": "touch given.txt"})


class Slow:
    """The API of a server that still lists what was already answered; ``refuses`` answers."""

    refuses = False
    wanted: Sequence[Permission] = (WANTED,)

    async def get(self, path: str, kind: Any, **query: Any) -> Any:
        return {"/permission": self.wanted, "/question": [], "/session/ses_a": HERE}[path]

    hangs = False

    async def post(self, path: str, body: Any, kind: Any, **query: Any) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise ApiFailure("connection", "the server broke off")


async def test_an_answer_that_crosses_an_old_list_is_not_asked_for_again() -> None:
    asks, told = Asks(Slow(), 60.0), list[PermissionAsk]()  # type: ignore[arg-type]
    await asks.see(HERE, told.append)
    assert [ask.id for ask in told] == ["per_1"]

    assert await asks.answer("per_1", True)
    await asks.see(HERE, told.append)

    assert len(told) == 1
    assert asks.pending() == ()


async def test_an_answer_that_never_reached_the_server_can_be_given_again() -> None:
    api = Slow()
    asks, told = Asks(api, 60.0), list[PermissionAsk]()  # type: ignore[arg-type]
    await asks.see(HERE, told.append)
    api.refuses = True
    with pytest.raises(ApiFailure):
        await asks.answer("per_1", True)
    await asks.see(HERE, told.append)
    assert [ask.id for ask in asks.pending()] == ["per_1"]

    api.refuses = False
    assert await asks.answer("per_1", True)
    assert len(told) == 1


async def test_an_answer_that_was_not_waited_for_to_the_end_can_be_given_again() -> None:
    api = Slow()
    asks, told = Asks(api, 60.0), list[PermissionAsk]()  # type: ignore[arg-type]
    await asks.see(HERE, told.append)
    api.hangs = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asks.answer("per_1", False)

    assert [ask.id for ask in asks.pending()] == ["per_1"]


async def test_what_is_asked_no_more_is_told_once_as_over() -> None:
    api = Slow()
    asks, told = Asks(api, 60.0), list[PermissionAsk]()  # type: ignore[arg-type]
    await asks.see(HERE, told.append)
    api.wanted = []
    await asks.see(HERE, told.append)
    await asks.see(HERE, told.append)

    assert [(ask.id, ask.over) for ask in told] == [("per_1", False), ("per_1", True)]
    assert not await asks.answer("per_1", True)
