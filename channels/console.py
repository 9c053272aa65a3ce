"""The terminal as a channel: what the user types are messages, the answers come out as plain text.

Two faces of one channel. :class:`PlainConsole` takes a pipe or a file, one line a message, and works through
it in order. :class:`channels.terminal.TerminalConsole` is for a person: line editing, history, answers that
grow while they are written, and a status line. Neither knows what stands behind it; ``run`` is given a way to
hand a message over and a way to ask how things stand.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import threading
import unicodedata
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fsm.ports import DeliveryError, Outgoing, SessionRouterError
from fsm.runner import Receipt

CHUNK = 65_536
"""Bytes read at once."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the conversation stands. ``session`` names the bound one with its source and why it is the one."""

    state: str
    session: str
    queue: int = 0
    muted: bool = False
    busy: bool = False


Submit = Callable[[str, str], Receipt]
"""Takes a text and its message id; the receipt tells what becomes of it."""
AskStatus = Callable[[], Awaitable[Status]]
Explain = Callable[[Receipt], str]
"""Why a message ended as it did, in plain words; empty where the answer itself says it."""

_TEXTS = {
    "queue": ("排队 {n}", "queue {n}"),
    "muted": ("静音", "muted"),
    "not_utf8": (
        "第 {n} 行不是 UTF-8，读不出的字节已换成 �。",
        "Line {n} is not UTF-8; the bytes that are no text were replaced by �.",
    ),
    "not_taken": ("这条消息没有收下：{error}", "That message was not taken: {error}"),
    "leave": ("Ctrl-D 离开", "Ctrl-D leaves"),
    "waiting": (
        "还有 {n} 条在处理，完成后离开；Ctrl-C 立即离开。",
        "Leaving once {n} more answered; Ctrl-C leaves at once.",
    ),
}


def say(lang: str, key: str, **values: object) -> str:
    """A text of the console itself in ``zh`` or, for anything else, in English."""
    return _TEXTS[key][0 if lang == "zh" else 1].format(**values)


def printable(text: str) -> str:
    """``text`` without what would steer a terminal: control characters other than line breaks and tabs,
    and lone surrogates, which no terminal takes."""
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in lines if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))


def status_line(status: Status, lang: str) -> str:
    """``idle · weather-api (opencode, chosen by hand) · queue 0``"""
    parts = [status.state, status.session, say(lang, "queue", n=status.queue)]
    if status.muted:
        parts.append(say(lang, "muted"))
    return printable(" · ".join(parts)).replace("\n", " ")


class Console:
    """What both faces share: :class:`fsm.ports.Channel` that shows each text once and knows which message
    has been answered."""

    def __init__(self, lang: str = "en") -> None:
        self.lang = lang
        self.ok = True
        """False once a message could not be taken."""
        self._shown: set[str] = set()
        self._answers: Counter[str] = Counter()
        self._news = asyncio.Condition()
        self._broken: OSError | None = None

    # -- the channel -----------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> None:
        """Show a text; the same id again shows nothing. A closed output is a failed delivery that may be
        tried again, by the next process."""
        if outgoing.id not in self._shown:
            try:
                await self._show(printable(outgoing.text))
            except OSError as error:
                self._broken = error
                raise DeliveryError(f"the terminal is gone: {error.strerror or error}") from error
            finally:
                async with self._news:
                    self._news.notify_all()
            self._shown.add(outgoing.id)
            self._answers[outgoing.message] += 1
        async with self._news:
            self._news.notify_all()

    async def typing(self, to: str, on: bool) -> None:
        """Nothing to see on a pipe."""

    async def draft(self, to: str, text: str) -> None:
        """Nothing to see on a pipe."""

    # -- for whoever composes it -----------------------------------------------------------------

    def changed(self) -> None:
        """The conversation moved: whatever shows its status looks again."""

    def note(self, text: str) -> None:
        """One line beside the conversation, on stderr."""
        print(printable(text), file=sys.stderr, flush=True)

    async def run(self, submit: Submit, status: AskStatus, explain: Explain) -> None:
        """Take messages until the input ends, and return when all of them are answered.

        Raises ``BrokenPipeError`` when nobody reads the answers any more.
        """
        raise NotImplementedError

    async def _show(self, text: str) -> None:
        raise NotImplementedError

    async def _answered(self, receipt: Receipt, message: str) -> None:
        """Wait for a message's disposition, and until every answer to it has been shown."""
        try:
            await receipt.done
        except SessionRouterError as error:
            self.ok = False
            self.note(say(self.lang, "not_taken", error=error))
            return
        async with self._news:
            await self._news.wait_for(
                lambda: self._broken is not None or self._answers[message] >= len(receipt.texts)
            )
        del self._answers[message]
        if self._broken is not None:
            raise self._broken


class PlainConsole(Console):
    """For piped input: one line is one message, answered before the next is read. Answers go to ``out`` as
    plain text, a line of status after each to stderr."""

    def __init__(self, lang: str = "en", *, out: TextIO | None = None, fd: int = 0) -> None:
        super().__init__(lang)
        self._out, self._fd = out or sys.stdout, fd

    async def run(self, submit: Submit, status: AskStatus, explain: Explain) -> None:
        number = 0
        async for raw in lines_of(self._fd):
            number += 1
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = raw.decode(errors="replace")
                self.note(say(self.lang, "not_utf8", n=number))
            if not text.strip():
                continue
            message = uuid.uuid4().hex
            receipt = submit(text, message)
            await self._answered(receipt, message)
            line = status_line(await status(), self.lang)
            if reason := explain(receipt):
                line += f" · {reason}"
            self.note(f"[{line}]")

    async def _show(self, text: str) -> None:
        print(text, file=self._out, flush=True)


async def lines_of(fd: int) -> AsyncIterator[bytes]:
    """The lines of a file descriptor without their ends, as they come; a last one without an end counts.

    Reads in a thread that nothing waits for, since a pipe may stay silent for ever; and below Python's own
    buffers, whose locks such a thread would hold while the interpreter shuts down.
    """
    begun: list[bytes] = []  # of a line that goes on; put together once, since a line may come in thousands of pieces
    while chunk := await _read(fd):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for piece in others:
            yield b"".join(begun).removesuffix(b"\r")
            begun = [piece]
    if line := b"".join(begun):
        yield line.removesuffix(b"\r")


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, error: OSError | None) -> None:
        if arrived.done():
            return
        if error is not None:
            arrived.set_exception(error)
        else:
            arrived.set_result(data)

    def read() -> None:
        data, problem = b"", None
        try:
            data = os.read(fd, CHUNK)
        except OSError as error:
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, data, problem)

    threading.Thread(target=read, name="console-input", daemon=True).start()
    return await arrived


def open_console(lang: str, history: Path) -> Console:
    """The face that fits: the person's where stdin and stdout are both a terminal, else the plain one.
    ``history`` is the file that keeps what was typed."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        from channels.terminal import TerminalConsole

        return TerminalConsole(lang, history=history)
    return PlainConsole(lang)
