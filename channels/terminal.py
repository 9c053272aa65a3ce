"""The console for a person: line editing, history, drafts above the prompt and a status line below it.

A draft is part of the prompt, which prompt_toolkit paints anew at every change, so the final text replaces it
without a trace. Answers and log lines are printed above, and stay.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from channels.console import AskStatus, Console, Explain, Status, Submit, printable, say, status_line

PROMPT = "> "
DRAFT_LINES = 12
"""Lines of a draft that are shown at most, the newest."""
STYLE = Style.from_dict({"prompt": "bold", "draft": "italic"})


class TerminalConsole(Console):
    """Ctrl-C stops the running turn (or clears the line), Ctrl-D leaves once everything is answered."""

    def __init__(self, lang: str = "en", *, history: Path) -> None:
        super().__init__(lang)
        self._history = history
        self._session: PromptSession[str] | None = None
        self._status = Status("", "")
        self._draft = ""
        self._thinking = False
        self._hint = ""
        self._pending: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._stale = False
        self._submit: Submit | None = None
        self._ask: AskStatus | None = None
        self._explain: Explain | None = None

    # -- the channel -----------------------------------------------------------------------------

    async def typing(self, to: str, on: bool) -> None:
        self._thinking, self._draft = on, ""
        self._repaint()

    async def draft(self, to: str, text: str) -> None:
        if self._thinking:  # one that comes behind the end of its turn shows nothing
            self._draft = printable(text)
            self._repaint()

    async def _show(self, text: str) -> None:
        self._draft = ""

        def write() -> None:
            out = sys.__stdout__
            assert out is not None
            print(text, end="\n\n", file=out, flush=True)

        await run_in_terminal(write)

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    # -- the loop --------------------------------------------------------------------------------

    async def run(self, submit: Submit, status: AskStatus, explain: Explain) -> None:
        self._submit, self._ask, self._explain = submit, status, explain
        self._session = PromptSession(
            message=self._message, bottom_toolbar=self._toolbar, history=_history(self._history),
            key_bindings=self._keys(), style=STYLE,
        )  # fmt: skip
        self._status = await status()
        with patch_stdout(), _keys_kept():
            while True:
                try:
                    text = await self._session.prompt_async()
                except EOFError:
                    break
                except KeyboardInterrupt:
                    continue
                self._hint = ""
                if text.strip():
                    self._hand_over(text)
        self._session = None
        # Without the prompt nobody reads Ctrl-C, which so is the interrupt that it is everywhere.
        if self._pending:
            self.note(say(self.lang, "waiting", n=len(self._pending)))
            await asyncio.gather(*self._pending)

    def changed(self) -> None:
        self._stale = True
        if self._ask is not None and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self._refresh(self._ask))

    async def _refresh(self, ask: AskStatus) -> None:
        while self._stale:
            self._stale = False
            self._status = await ask()
            self._repaint()

    def _hand_over(self, text: str) -> None:
        assert self._submit is not None
        message = uuid.uuid4().hex
        # Bytes that are no UTF-8 come from the keyboard as lone surrogates, which nothing behind here can take.
        receipt = self._submit(text.encode("utf-8", "replace").decode("utf-8"), message)

        async def wait() -> None:
            await self._answered(receipt, message)
            if self._explain is not None and (reason := self._explain(receipt)):
                self.note(f"[{reason}]")
            self.changed()

        task = asyncio.create_task(wait())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    # -- what is seen ----------------------------------------------------------------------------

    def _message(self) -> StyleAndTextTuples:
        prompt = ("class:prompt", PROMPT)
        done = self._session is not None and self._session.app.is_done
        if done or not (self._draft or self._thinking):
            return [prompt]
        # What was typed stays on the screen once it is sent; the draft must not.
        return [("class:draft", self._newest(self._draft) or "…"), ("", "\n"), prompt]

    def _newest(self, text: str) -> str:
        """As much of the draft's end as fits beside prompt and status."""
        size = shutil.get_terminal_size()
        lines = min(DRAFT_LINES, max(1, size.lines - 4))
        # A wide character takes two columns, so half of them hold any text.
        newest = "\n".join(text.split("\n")[-lines:])[-(lines * max(1, size.columns // 2)) :]
        return newest if newest == text else "…" + newest

    def _toolbar(self) -> str:
        line = status_line(self._status, self.lang)
        return f" {line} · {self._hint} " if self._hint else f" {line} "

    def _repaint(self) -> None:
        if self._session is not None and self._session.app.is_running:
            self._session.app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        # The same for the key and for an interrupt that another program sends.
        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if self._status.busy or self._thinking:
                self._hand_over("/stop")
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._hint = say(self.lang, "leave")
                event.app.invalidate()

        return keys


def _history(file: Path) -> History:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # it holds what was said
        return FileHistory(str(file))
    except OSError:
        return InMemoryHistory()


@contextmanager
def _keys_kept() -> Iterator[None]:
    """Keep Ctrl-C and Ctrl-D keys for as long as the prompt reads them.

    While an answer is printed above it, prompt_toolkit puts the terminal back into its usual mode for some
    milliseconds, in which the terminal itself would take Ctrl-D for an end of input and swallow it, and turn
    Ctrl-C into a signal. Without these two characters it keeps them for the prompt.
    """
    try:
        import termios
    except ImportError:  # Windows, where reading keys changes no mode
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    kept = termios.tcgetattr(fd)
    disabled = os.fpathconf(fd, "PC_VDISABLE").to_bytes(1, "big")
    kept[6][termios.VEOF] = kept[6][termios.VINTR] = disabled
    termios.tcsetattr(fd, termios.TCSADRAIN, kept)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
