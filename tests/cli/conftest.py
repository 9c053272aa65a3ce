"""The program as its users meet it: a process of its own, in a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_llm import KEY, FakeLLM

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "opencode" / "fixture.db"

PARSER = "ses_dd36b73a4ffeUI3Vros5ub9e1D"
"""The session "Refactor the parser" of the fixture."""


class Home:
    """A user's home with OpenCode's sessions in it. ``env`` is what every run gets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opencode = folder / "opencode.db"
        shutil.copy(FIXTURE, self.opencode)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "USER": "hmo",
            "LOGNAME": "hmo",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "OPENCODE_DB": str(self.opencode),
            # A model that nobody can reach, so that no run looks for one on this machine.
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
            "SESSION_ROUTER_MODEL": "fake-1",
        }

    @property
    def store(self) -> Path:
        return self.folder / ".local" / "share" / "session-router" / "engine.db"

    def talks_to(self, llm: FakeLLM) -> None:
        self.env["OPENAI_BASE_URL"] = llm.url

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "session_router", *words]

    def run(self, *words: str, input: str | bytes = "", env: dict[str, str] | None = None
            ) -> subprocess.CompletedProcess[str]:
        """Run it and wait; output as text."""
        sent = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            self.command(*words), input=sent, capture_output=True, env={**self.env, **(env or {})}, cwd=self.folder,
            timeout=60, check=False,
        )  # fmt: skip
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def llm(home: Home) -> Iterator[FakeLLM]:
    """A model on loopback that the program is set up with; tests change its ``answers``."""
    with FakeLLM() as fake:
        home.talks_to(fake)
        yield fake
