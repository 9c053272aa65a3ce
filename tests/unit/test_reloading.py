"""A process that reads its config again and is told to stop, with an engine that does not let go of an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from session_router import roster, run
from session_router.config import load
from session_router.run import Service
from tests.support.running import call, free_port
from tests.support.xmpp_people import Heap

pytest.importorskip("aiohttp")
pytest.importorskip("pydantic_ai")

TOP = "[sources]\nopencode = false\nhermes = false\n[model]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'fake-1'\n"


class Into(logging.Handler):
    """What is logged goes onto a heap."""

    def __init__(self, heap: Heap) -> None:
        super().__init__()
        self._heap = heap

    def emit(self, record: logging.LogRecord) -> None:
        self._heap.add(record.getMessage())


class House:
    """A service with two agents, under way. ``asked`` is set once the engine is told to let go of one; it does so when
    ``lets_go`` is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "session-router.toml"
        self.ports = {name: free_port() for name in ("mohe", "zhiwei")}
        self.config("mohe", "zhiwei")
        self.lets_go, self.asked, self.log = asyncio.Event(), asyncio.Event(), Heap()
        self.service = Service(lambda: load(str(self.file), {}))
        self._dismiss = self.service.engine.dismiss
        monkeypatch.setattr(self.service.engine, "dismiss", self.dismiss)
        self.running = asyncio.create_task(self.service.run())

    def config(self, *names: str, nick: str = "") -> None:
        self.file.write_text(f"data_dir = 'data'\n{TOP}" + "".join(
            f"[agents.{name}]\nhttp_port = {self.ports[name]}\nnick = '{nick}'\n" for name in names
        ))  # fmt: skip

    async def dismiss(self, agent: str) -> None:
        self.asked.set()
        await self.lets_go.wait()
        await self._dismiss(agent)

    async def says(self, text: str, times: int = 1) -> None:
        await self.log.until(lambda _: sum(text in line for line in self.log.items) >= times)

    def has_said(self, text: str) -> bool:
        return any(text in line for line in self.log.items)

    async def ends(self) -> None:
        async with asyncio.timeout(10):
            await self.running


@pytest.fixture
async def house(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[House]:
    caplog.set_level("INFO", "session_router.run")
    made = House(tmp_path, monkeypatch)
    into = Into(made.log)
    run.log.addHandler(into)
    await made.says("ready")
    yield made
    run.log.removeHandler(into)
    made.running.cancel()
    await asyncio.gather(made.running, return_exceptions=True)


async def test_told_to_stop_twice_it_does_not_wait_for_an_agent_that_it_cannot_let_go_of(
    house: House,
) -> None:
    house.config("zhiwei")
    house.service._told_to_reload()
    await house.asked.wait()

    house.service._told_to_stop()
    house.service._told_to_stop()

    await house.ends()
    assert house.has_said("which is left")


async def test_told_to_stop_once_it_waits_a_while_for_an_agent_that_it_cannot_let_go_of(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CUT_SHORT", 0.05)
    house.config("zhiwei")
    house.service._told_to_reload()
    await house.asked.wait()

    house.service._told_to_stop()

    await house.ends()
    assert house.has_said("which is left")


async def test_an_agent_that_cannot_be_let_go_of_holds_up_no_other_and_goes_when_told_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "LET_GO", 0.05)
    house.config("zhiwei", nick="wei")
    house.service._told_to_reload()
    await house.says("the config was read again")
    assert house.has_said("agent mohe was not taken out")
    assert house.has_said("agent zhiwei was changed")

    house.lets_go.set()
    house.service._told_to_reload()
    await house.says("the config was read again", times=2)
    assert house.has_said("agent mohe is served no more")
    assert set(house.service.served) == {"zhiwei"}


async def test_an_agent_that_could_not_be_let_go_of_and_is_wanted_again_is_taken_up_anew(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "LET_GO", 0.05)
    house.config("zhiwei")
    house.service._told_to_reload()
    await house.says("agent mohe was not taken out")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(call, house.ports["mohe"], "GET", "/healthz")

    house.config("mohe", "zhiwei")
    house.lets_go.set()
    house.service._told_to_reload()
    await house.says("agent mohe was changed")

    assert (await asyncio.to_thread(call, house.ports["mohe"], "GET", "/healthz"))[0] == 200
    assert not house.service.served["mohe"].leaving
    assert "mohe" not in house.service.engine._held
