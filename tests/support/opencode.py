"""The real OpenCode, installed once per machine and run with a home of its own and a fake model.

It is not part of this project's own installation: npm brings it (some 350 MB, seconds to minutes) into
``$XDG_CACHE_HOME/session-router``, or ``~/.cache/session-router``, where later runs find it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

VERSION = "1.18.33"
PASSWORD = "correct-horse-battery"
MODEL = ("fake", "fake-1")
_START = 60.0

# Nothing is fetched, reported, shared or updated.
_OFFLINE = {f"OPENCODE_DISABLE_{what}": "1" for what in (
    "AUTOUPDATE", "MODELS_FETCH", "SHARE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "CLAUDE_CODE")}


def opencode_binary() -> Path:
    """Its program, installed where it is missing. Without npm the test is skipped, and in CI it fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "session-router"
    home = cache / f"opencode-{VERSION}"
    program = home / "node_modules" / ".bin" / "opencode"
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None:
        reason = f"npm is not installed, and OpenCode {VERSION}, which these tests run, comes through it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    cache.mkdir(parents=True, exist_ok=True)
    # Beside its place and then moved there, so that a broken installation is never taken for a whole one.
    fresh = Path(tempfile.mkdtemp(prefix=f"opencode-{VERSION}-", dir=cache))
    try:
        done = subprocess.run(
            [npm, "install", "--prefix", str(fresh), "--no-audit", "--no-fund", "--no-update-notifier",
             "--loglevel=error", f"opencode-ai@{VERSION}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.fail(f"npm could not install OpenCode {VERSION}:\n{done.stdout}{done.stderr}")
        try:
            fresh.rename(home)
        except OSError:  # somebody else was faster
            if not program.exists():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return program


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OpenCode:
    """``opencode serve`` on loopback. ``folder`` holds its home, its log and ``project``, where it works."""

    def __init__(self, folder: Path, model_url: str, *, config: Mapping[str, object] | None = None) -> None:
        self._program = opencode_binary()
        self.home, self.project, self._log = folder / "home", folder / "project", folder / "serve.log"
        self.project.mkdir(parents=True)
        settings = self.home / ".config" / "opencode"
        settings.mkdir(parents=True)
        name = "/".join(MODEL)
        (settings / "opencode.json").write_text(json.dumps({
            "autoupdate": False, "share": "disabled", "model": name, "small_model": name,
            "enabled_providers": [MODEL[0]],
            "provider": {MODEL[0]: {
                "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": model_url, "apiKey": "x"},
                "models": {MODEL[1]: {"name": "Fake", "limit": {"context": 200_000, "output": 4096}}},
            }},
            **(config or {}),
        }))  # fmt: skip
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = self.home / ".local" / "share" / "opencode" / "opencode.db"
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it and return at once: it refuses connections for a while, then accepts some in vain."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "OPENCODE_"))}
        environment = {**kept, **_OFFLINE, "HOME": str(self.home), "OPENCODE_SERVER_PASSWORD": PASSWORD}
        with self._log.open("ab") as log:
            # A process group of its own: on some systems the program is a script that starts another.
            self._process = subprocess.Popen(
                [str(self._program), "serve", "--port", str(self.port)], cwd=self.project, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        """Start it and return once it answers."""
        self.launch()
        deadline = time.monotonic() + _START
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"opencode serve did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it, by default without any chance to tidy up."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, how)
            process.wait(20)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """It takes connections and answers nothing, as a server that hangs."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.kill()

    def _answers(self) -> bool:
        # Any answer will do: the password is not this check's business.
        try:
            urllib.request.urlopen(f"{self.url}/global/health", timeout=1).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        except OSError:
            return False
        return True
