"""``chat`` at a terminal: a pseudo-terminal is typed into and read."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pytest

from tests.cli.conftest import Home
from tests.support.fake_llm import Answer, FakeLLM

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

import fcntl
import termios

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")
PATIENCE = 30.0


class Terminal:
    """The program at a terminal of 100 by 24. ``seen`` is everything that it ever wrote, without colours."""

    def __init__(self, home: Home, *words: str) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        env = {**home.env, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            home.command("chat", *words), stdin=slave, stdout=slave, stderr=slave, env=env, cwd=home.folder,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.seen = ""
        self._read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, text: str) -> None:
        """Wait until ``text`` is written, from where the last wait ended."""
        end = time.monotonic() + PATIENCE
        start = self._read
        while (at := self.seen.find(text, start)) < 0:
            if not self._more(end):
                raise AssertionError(f"{text!r} never showed; all there was:\n{self.seen[start:]}")
        self._read = at + len(text)

    def ends(self) -> int:
        """Wait until it leaves; its exit code."""
        end = time.monotonic() + PATIENCE
        while self._more(end):
            pass
        return self.process.wait(PATIENCE)

    def _more(self, end: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        if b"\x1b[6n" in data:  # where is the cursor? Without an answer there is no status line
            os.write(self._master, b"\x1b[1;1R")
        self.seen += ESCAPES.sub("", data.decode("utf-8", "replace"))
        return bool(data)


def test_the_status_line_shows_the_state_and_the_session_with_the_reason(home: Home, llm: FakeLLM) -> None:
    with Terminal(home) as terminal:
        terminal.shows("idle · Killed in mid turn (opencode, most recently active) · queue 0")
        terminal.types("switch to session Refactor the parser\r")
        terminal.shows("Now talking to “Refactor the parser” (opencode).")
        terminal.shows("chosen by hand")
        terminal.types("\x04")
        assert terminal.ends() == 0


def test_a_draft_shows_while_it_is_written_and_ctrl_c_stops_it(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("slowly", hang=True), Answer("quick answer")])
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("think about it\r")
        terminal.shows("slowly")
        terminal.types("\x03")
        terminal.shows("Stopped.")
        assert llm.client_left.wait(PATIENCE)
        terminal.types("and now?\r")
        terminal.shows("quick answer")
        terminal.types("\x04")
        assert terminal.ends() == 0


def test_a_marker_never_shows_while_the_answer_streams(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("__REPLY__ streamed in many words until here"), Answer("__REPLY__", hang=True)])
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("first\r")
        terminal.shows("streamed in many words until here")
        llm.asked.clear()
        terminal.types("second\r")
        assert llm.asked.wait(PATIENCE)
        terminal.shows("…")
        terminal.types("\x03")
        terminal.shows("Stopped.")
        terminal.types("\x04")
        assert terminal.ends() == 0
    assert "REPLY" not in terminal.seen


def test_ctrl_c_with_nothing_to_stop_clears_the_line_and_does_not_leave(home: Home, llm: FakeLLM) -> None:
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("never sent\x03")
        terminal.types("\x03")
        terminal.shows("Ctrl-D leaves")
        terminal.types("hello\r")
        terminal.shows("Hello from the fake.")
        terminal.types("\x04")
        assert terminal.ends() == 0
    assert [request["messages"][-1]["content"].rpartition(" ")[2] for request in llm.requests] == ["hello"]


def test_ctrl_d_waits_for_the_answer_and_an_interrupt_then_does_not(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("not", hang=True)])
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("hello\r")
        terminal.shows("not")
        terminal.types("\x04")
        terminal.shows("Leaving once 1 more answered")
        assert terminal.process.poll() is None
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ends() == 130
    assert "Traceback" not in terminal.seen


def test_what_was_typed_is_there_again_next_time_and_for_nobody_else(home: Home, llm: FakeLLM) -> None:
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("remember me well\r")
        terminal.shows("Hello from the fake.")
        terminal.types("\x04")
        assert terminal.ends() == 0
    history = home.store.with_name("console-history")
    assert history.stat().st_mode & 0o077 == 0

    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("\x1b[A")
        terminal.shows("remember me well")


@contextmanager
def tmux(home: Home) -> Iterator[Callable[..., str]]:
    """A real terminal emulator: what is on its screen after all erasing and painting over."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    base = ["tmux", "-S", str(home.folder / "tmux.sock"), "-f", "/dev/null"]

    def run(*words: str) -> str:
        return subprocess.run([*base, *words], capture_output=True, text=True, env=home.env, check=True).stdout

    run("new-session", "-d", "-x", "100", "-y", "24", "-c", str(home.folder), *home.command("chat"))
    try:
        yield run
    finally:
        run("kill-server")


def test_the_draft_is_replaced_by_the_answer_without_a_trace(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("drafted", hang=True), Answer("one\n\nanswer of  several lines"), Answer("last")])
    with tmux(home) as run:

        def wait(text: str) -> str:
            end = time.monotonic() + PATIENCE
            while text not in (screen := run("capture-pane", "-p")):
                assert time.monotonic() < end, screen
            return screen

        wait("idle ·")
        run("send-keys", "begin", "Enter")
        assert "command_looping ·" in wait("drafted\n>")
        run("send-keys", "C-c")
        wait("Stopped.")
        run("send-keys", "go on", "Enter")
        wait("answer of  several lines")
        run("send-keys", "once more", "Enter")
        screen = wait("last")
        wait("idle ·")

    talk = [line for line in screen.splitlines() if line][3:]
    assert talk[:8] == ["> begin", "Stopped.", "> go on", "one", "answer of  several lines", "> once more", "last", ">"]
