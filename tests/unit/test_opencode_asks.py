"""What the agent asks leave for is put before a person once, however the server's list and the answer cross."""

from __future__ import annotations

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

    async def get(self, path: str, kind: Any, **query: Any) -> Any:
        return {"/permission": [WANTED], "/question": [], "/session/ses_a": HERE}[path]

    async def post(self, path: str, body: Any, kind: Any, **query: Any) -> Any:
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
