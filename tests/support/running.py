"""``session-router run`` in a process of its own, with a model and a channel that the test holds the other end of."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.fake_llm import Answer, FakeLLM
from tests.support.line_channel import LineServer

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-test"


class GatedLLM(FakeLLM):
    """Answers only while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def next(self) -> Answer:
        self.gate.wait(30)
        return super().next()


class Running:
    """A ``run`` under way, and its log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.raw = ""
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.raw += line
                if line.startswith("{"):
                    self.log.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def says(self, text: str, times: int = 1) -> dict[str, Any]:
        """Wait for a line of the log with that text, the so-manieth."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log if text in line["message"]]

        with self._news:
            assert self._news.wait_for(lambda: len(found()) >= times or self.process.poll() is not None, 30), self.raw
        assert len(found()) >= times, self.raw
        return found()[times - 1]

    def tell(self, what: signal.Signals) -> None:
        self.process.send_signal(what)

    def ends(self) -> int:
        code = self.process.wait(30)
        self._thread.join(5)
        return code


class World:
    """A folder with a config, a model, and a line for each agent."""

    def __init__(self, folder: Path, llm: GatedLLM) -> None:
        self.folder, self.llm = folder, llm
        self.lines: dict[str, LineServer] = {}
        self.running: list[Running] = []
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
            "BOT_TOKEN": TOKEN,
        }  # fmt: skip

    def line(self, agent: str) -> LineServer:
        if agent not in self.lines:
            self.lines[agent] = LineServer()
            self.env[f"LINE_PORT_{agent.upper()}"] = str(self.lines[agent].port)
        return self.lines[agent]

    def config(self, agents: str, top: str = "") -> None:
        (self.folder / "session-router.toml").write_text(
            f"language = 'en'\ndata_dir = 'data'\n{top}\n[sources]\nopencode = false\nhermes = false\n"
            f"[model]\nbase_url = '{self.llm.url}'\nmodel = 'fake-1'\n{agents}"
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tests.support.line_channel", *words]

    def start(self, *words: str, ready: bool = True) -> Running:
        process = subprocess.Popen(
            self.command("run", "--log-format", "json", *words), env=self.env, cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        running = Running(process)
        self.running.append(running)
        if ready:
            running.says("ready")
        return running

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.env, cwd=self.folder, text=True, capture_output=True, timeout=60, check=False
        )

    def store(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "data" / "engine.db")) as connection:
            return connection.execute(sql).fetchall()

    def close(self) -> None:
        for running in self.running:
            if running.process.poll() is None:
                running.process.kill()
                running.ends()
            assert running.process.stderr is not None
            running.process.stderr.close()
        for line in self.lines.values():
            line.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def call(port: int, method: str, path: str, token: str | None = TOKEN, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
