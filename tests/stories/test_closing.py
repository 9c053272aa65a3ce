"""What cannot be closed as it should keeps nothing else open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsm.closing import close_all
from fsm.ports import SessionInfo, StoreError
from session_router import SessionRouter
from session_router.config import load
from session_router.hold import hold
from session_router.run import Service
from storage.sqlite import SqliteStore
from tests.support.running import free_port


class ClosesBadly:
    """A source and a bridge that are closed, and then raise."""

    name = "mine"

    def __init__(self) -> None:
        self.is_closed = False

    async def chat(self, messages: Any, *, session_id: str) -> str:
        return f"on {messages[-1]['content'].split()[-1]}"

    async def list(self, limit: int | None = None) -> list[SessionInfo]:
        return []

    async def search(self, words: str, limit: int | None = None) -> list[SessionInfo]:
        return []

    async def latest(self) -> None:
        return None

    async def find(self, session_id: str) -> None:
        return None

    async def context(self, session_id: str, limit: int = 200) -> list[Any]:
        return []

    async def close(self) -> None:
        self.is_closed = True
        raise OSError("it does not close")


def closes_badly(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    close = store.close

    async def closed_and_failed() -> None:
        await close()
        raise StoreError("No space left on device.")

    monkeypatch.setattr(store, "close", closed_and_failed)


async def test_a_store_that_does_not_close_leaves_neither_sources_nor_bridge_nor_its_lock_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    sources, bridge = [ClosesBadly(), ClosesBadly()], ClosesBadly()
    router = SessionRouter(bridge=bridge, default_session="demo", sources=sources)
    await router.start()
    assert isinstance(router.store, SqliteStore)
    closes_badly(router.store, monkeypatch)

    with pytest.raises(StoreError, match="No space left on device"):
        await router.close()

    assert [each.is_closed for each in (*sources, bridge)] == [True, True, True]
    with hold(tmp_path / "session-router" / "router.db", "assistant"):
        pass


async def test_a_run_whose_store_does_not_close_lets_go_of_its_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "session-router.toml"
    file.write_text(
        "data_dir = 'data'\n[sources]\nopencode = false\nhermes = false\n"
        "[model]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'fake-1'\n"
        f"[agents.mohe]\nhttp_port = {free_port()}\n"
    )
    service = Service(lambda: load(str(file), {}), environ={})
    assert isinstance(service.engine.store, SqliteStore)
    closes_badly(service.engine.store, monkeypatch)

    service.signals.put_nowait("stop")
    with pytest.raises(StoreError, match="No space left on device"):
        await service.run()

    assert list(service.served) == ["mohe"]
    with hold(tmp_path / "data" / "engine.db", "mohe"):
        pass


async def test_the_first_error_of_several_is_raised_and_the_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    async def fails(name: str) -> None:
        closed.append(name)
        raise OSError(name)

    with pytest.raises(OSError, match="first"):
        await close_all([lambda: fails("first"), lambda: closed.append("second"), lambda: fails("third")])

    assert closed == ["first", "second", "third"]
    assert caplog.messages == ["not closed: third"]
