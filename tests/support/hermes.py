"""The real Hermes gateway, installed once per machine and run with a home of its own and a fake model.

It is not part of this project's own installation: pip brings it (some 240 MB, about a minute) into a
virtual environment in ``$XDG_CACHE_HOME/session-router``, or ``~/.cache/session-router``, where later
runs find it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import yaml

from tests.support.opencode import free_port

VERSION = "0.19.0"
KEY = "correct-horse-battery"
"""The gateway does not start its API with fewer than 16 characters."""
MODEL = "fake-1"
_START = 90.0
_INSTALL = 900.0
_BINARIES = "Scripts" if sys.platform == "win32" else "bin"


def hermes_program() -> Path:
    """Its program, installed where it is missing. Where that fails the test is skipped, and in CI it fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "session-router"
    home = cache / f"hermes-{VERSION}"
    python, program, whole = home / _BINARIES / "python", home / _BINARIES / "hermes", home / "installed"
    if whole.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    # A virtual environment cannot be moved; the note at the end is what tells a whole one from a broken one.
    shutil.rmtree(home, ignore_errors=True)
    try:
        _run(sys.executable, "-m", "venv", str(home))
        _run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check",
             f"hermes-agent=={VERSION}", "aiohttp>=3.9,<4")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(home, ignore_errors=True)
        words = getattr(error, "stderr", None) or error
        reason = f"Hermes {VERSION}, which these tests run, cannot be installed: {str(words)[-1500:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    whole.write_text(VERSION)
    return program


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_INSTALL, check=True)


class Hermes:
    """``hermes gateway run`` on loopback, with nothing but its API. ``folder`` holds its home and its log."""

    def __init__(self, folder: Path, model_url: str) -> None:
        self._program = hermes_program()
        self.home, self._log = folder / "home", folder / "gateway.log"
        self.home.mkdir(parents=True)
        (self.home / "config.yaml").write_text(yaml.safe_dump({
            "model": {"provider": "custom", "default": MODEL, "base_url": model_url, "api_key": "x",
                      "context_length": 128_000},
            # One try: what a failing model looks like should not take half a minute to see.
            "agent": {"api_max_retries": 1},
            "approvals": {"mode": "off"},
        }))  # fmt: skip
        self.database = self.home / "state.db"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return once it answers."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("HERMES_", "API_SERVER_", "TERMINAL_"))}
        environment = {
            **kept, "HOME": str(self.home), "HERMES_HOME": str(self.home), "TERMINAL_CWD": str(self.home),
            "API_SERVER_ENABLED": "true", "API_SERVER_KEY": KEY, "API_SERVER_HOST": "127.0.0.1",
            "API_SERVER_PORT": str(self.port),
        }  # fmt: skip
        with self._log.open("ab") as log:
            # A process group of its own: it starts others.
            self._process = subprocess.Popen(
                [str(self._program), "gateway", "run"], cwd=self.home, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"hermes gateway run did not start:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def log(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it, by default without any chance to tidy up."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, how)
            process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.kill()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=1).close()
        except OSError:
            return False
        return True
