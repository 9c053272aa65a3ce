"""Three agents in one process, from a config alone, in a room of a real server; their models obey the test."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from fsm.conversation import Key
from fsm.effects import Disposition
from session_router import run
from session_router.clock import SystemClock
from session_router.config import load
from tests.support.fake_llm import Answer, FakeLLM
from tests.support.running import ROOT, free_port
from tests.support.xmpp_people import Heap
from tests.support.xmpp_servers import HOST, Server

AGENTS = ("mohe", "zhiwei", "xiaoguo")


class ObedientLLM(FakeLLM):
    """``says`` what a message calls for, by a word of it; nothing that it was told to: silence."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, str] = {}
        self._lock = threading.Lock()

    def answer_to(self, request: dict[str, Any]) -> Answer:
        # The message itself is the last line of the first prompt; what is appended later asks for it again.
        said = new_message(request)
        with self._lock:
            return Answer(next((text for word, text in self.says.items() if word in said), "__SILENT__"))

    def prompts(self, word: str) -> list[str]:
        """The first prompts (context and message) of the calls about a message with that word."""
        return [str(r["messages"][1]["content"]) for r in self.requests if word in new_message(r)]


def new_message(request: Mapping[str, Any]) -> str:
    return str(request["messages"][1]["content"]).rpartition("新消息：\n")[2]


class SteppedClock(SystemClock):
    """Real time, and whatever a test lets pass at once."""

    def step(self, seconds: float) -> None:
        self._wall += seconds


class Outcome(NamedTuple):
    key: Key
    message: str
    disposition: Disposition
    reason: str


class WatchedService(run.Service):
    """Keeps what became of every message."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.outcomes = Heap()
        super().__init__(*arguments, **more)

    def settled(self, key: Key, message: str, disposition: Disposition, reason: str) -> None:
        super().settled(key, message, disposition, reason)
        self.outcomes.add(Outcome(key, message, disposition, reason))


@dataclass
class Agents:
    room: str
    folder: Path
    service: WatchedService
    clock: SteppedClock
    environ: dict[str, str]
    models: dict[str, ObedientLLM] = field(default_factory=dict)

    async def became(self, agent: str, *dispositions: Disposition, sender: str = "") -> list[Outcome]:
        """Wait until so many messages of people in the room have been settled for ``agent``, and compare."""

        def found() -> list[Outcome]:
            return [
                o for o in self.service.outcomes.items
                if o.key.agent == agent and o.key.channel == f"xmpp:{self.room}" and sender in o.key.sender
                and o.key.sender.partition("@")[0] not in AGENTS
            ]  # fmt: skip

        await self.service.outcomes.until(lambda _: len(found()) >= len(dispositions))
        assert [o.disposition for o in found()] == list(dispositions)
        return found()

    async def command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of the command line, in a process of its own."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "session_router", *words, cwd=self.folder, env=self.environ,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()


def config(server: Server, room: str, models: Mapping[str, FakeLLM], allow: str, more: str) -> str:
    agents = "".join(
        f"[agents.{name}]\njid = '{name}@{HOST}'\npassword_env = 'PASSWORD_{name.upper()}'\nnick = '{name}'\n"
        f"allow = ['alice@{HOST}']\nauto = false\ndefault_session = 'lobby-{name}'\n"
        + (f"http_port = {free_port()}\nhttp_token_env = 'TOKEN'\n" if name == "mohe" else "")
        + f"[agents.{name}.model]\nbase_url = '{model.url}'\nmodel = 'fake-1'\n"
        f"[agents.{name}.xmpp]\nhost = '127.0.0.1'\nport = {server.port}\nplaintext_loopback = true\n"
        f"[agents.{name}.groups.'{room}']\nallow = {allow}\n"
        for name, model in models.items()
    )
    return (
        f"language = 'zh'\ndata_dir = 'data'\n{more}\n[sources]\nopencode = false\nhermes = false\n"
        f"[limits]\nrate_limit = 0\n{agents}"
    )


@asynccontextmanager
async def agents_in(
    server: Server, room: str, folder: Path, *, allow: tuple[str, ...] = ("alice", "bob"), more: str = ""
) -> AsyncIterator[Agents]:
    """The three, once all of them are in the room."""
    clock = SteppedClock()
    async with AsyncExitStack() as stack:
        models = {name: stack.enter_context(ObedientLLM()) for name in AGENTS}
        file = folder / "session-router.toml"
        allowed = str([f"{name}@{HOST}" for name in allow])
        file.write_text(config(server, room, models, allowed, more), encoding="utf-8")
        environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8",
                   "TOKEN": "a-token-of-the-test", **{f"PASSWORD_{n.upper()}": f"pw-{n}" for n in AGENTS}}  # fmt: skip
        with mock.patch.object(run, "SystemClock", return_value=clock):
            service = WatchedService(lambda: load(file, environ), environ=environ)
        running = asyncio.create_task(service.run())
        try:
            async with asyncio.timeout(15):
                while sum(s.up for agent in service.served.values() for s in agent.states.values()) < len(AGENTS):
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.01)
            yield Agents(room, folder, service, clock, environ, models)
        finally:
            service.signals.put_nowait("stop")
            await running
