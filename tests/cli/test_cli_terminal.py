"""``chat`` at a terminal: a pseudo-terminal is typed into and read."""

from __future__ import annotations

import codecs
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

import pytest

from tests.cli.conftest import Home
from tests.support.fake_llm import Answer, FakeLLM
from tests.support.screen import Screen

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

import fcntl
import termios

PATIENCE = 30.0
WIDTH, HEIGHT = 100, 24


class Terminal:
    """The program at a terminal. ``screen`` is what it shows, ``ever`` every byte that it wrote."""

    def __init__(self, home: Home, *words: str) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.process = subprocess.Popen(
            home.command("chat", *words), stdin=slave, stdout=slave, stderr=slave,
            env={**home.env, "TERM": "xterm-256color"}, cwd=home.folder, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.screen = Screen(WIDTH, HEIGHT)
        self.ever = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def talk(self) -> list[str]:
        """The lines of the conversation, without the greeting and the blank ones."""
        lines = [line for line in self.screen.text.splitlines() if line]
        return lines[next(n for n, line in enumerate(lines) if line.startswith("/help")) + 1 :]

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, text: str) -> None:
        """Wait until ``text`` is on the screen."""
        end = time.monotonic() + PATIENCE
        while text not in self.screen.text:
            assert self._more(end), f"{text!r} never showed:\n{self.screen.text}"

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
        text = self._decode(data)
        self.ever += text
        self.screen.feed(text)
        if b"\x1b[6n" in data:  # where is the cursor? Without an answer there is no status line
            os.write(self._master, f"\x1b[{self.screen.row + 1};{self.screen.column + 1}R".encode())
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
        terminal.shows("Stopped.\n\n>")
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
        terminal.shows("Stopped.\n\n>")
        terminal.types("\x04")
        assert terminal.ends() == 0
    assert "REPLY" not in terminal.ever


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
    assert "Traceback" not in terminal.ever


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
        assert "remember" not in terminal.screen.text
        terminal.types("\x1b[A")
        terminal.shows("> remember me well")


def test_the_draft_is_replaced_by_the_answer_without_a_trace(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("drafted", hang=True), Answer("one\n\nanswer of  several 行"), Answer("last")])
    with Terminal(home) as terminal:
        terminal.shows("idle ·")
        terminal.types("begin\r")
        terminal.shows("drafted\n>")
        terminal.shows("command_looping ·")
        terminal.types("\x03")
        terminal.shows("Stopped.\n\n>")
        terminal.types("go on\r")
        terminal.shows("answer of  several 行\n\n>")  # the blank line is the answer's, the draft has none
        terminal.types("once more\r")
        terminal.shows("last\n\n>")
        terminal.types("\x04")
        assert terminal.ends() == 0

    said = [line for line in terminal.talk if line != ">"]
    assert said == ["> begin", "Stopped.", "> go on", "one", "answer of  several 行", "> once more", "last"]
