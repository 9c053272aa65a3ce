"""A small screen: what a terminal shows after everything that a program wrote to it.

It understands what prompt_toolkit's VT100 output uses: moving, erasing, wrapping, wide characters. Colours and
modes are passed over.
"""

from __future__ import annotations

import re

from wcwidth import wcwidth

_SEQUENCE = re.compile(r"\x1b(?:\[([?0-9;]*)([@-~])|\][^\x07]*\x07|[()].|[=>78c])")
_BEGUN = re.compile(r"\x1b(?:\[[?0-9;]*|\][^\x07]*|[()])?\Z")


class Screen:
    """``height`` lines of ``width`` columns; what scrolls out at the top is kept in ``above``."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.above: list[str] = []
        self._lines = [[" "] * width for _ in range(height)]
        self.row = self.column = 0
        self._rest = ""

    @property
    def text(self) -> str:
        """All lines from the top of what scrolled away, without the blanks at their ends."""
        return "\n".join([*self.above, *("".join(line).rstrip() for line in self._lines)])

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
            elif found := _SEQUENCE.match(text, at):
                self._obey(found[1] or "", found[2] or "")
                at = found.end()
            elif _BEGUN.match(text, at):
                self._rest = text[at:]
                return
            else:
                at += 1

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self.column = 0
            case "\n":
                self._down()
            case "\b":
                self.column = max(0, self.column - 1)
            case _ if (columns := wcwidth(char)) > 0:
                if self.column + columns > self.width:
                    self.column = 0
                    self._down()
                self._lines[self.row][self.column] = char
                if columns == 2:
                    self._lines[self.row][self.column + 1] = ""
                self.column += columns

    def _down(self) -> None:
        self.row += 1
        if self.row == self.height:
            self.above.append("".join(self._lines.pop(0)).rstrip())
            self._lines.append([" "] * self.width)
            self.row -= 1

    def _obey(self, arguments: str, letter: str) -> None:
        numbers = [int(part) if part.isdigit() else 0 for part in arguments.split(";")]
        many = max(1, numbers[0])
        match letter:
            case "A":
                self.row = max(0, self.row - many)
            case "B":
                self.row = min(self.height - 1, self.row + many)
            case "C":
                self.column = min(self.width - 1, self.column + many)
            case "D":
                self.column = max(0, self.column - many)
            case "K":
                self._lines[self.row][self.column :] = [" "] * (self.width - self.column)
            case "J":
                below = self.row + 1 if numbers[0] == 0 else 0
                if numbers[0] == 0:
                    self._lines[self.row][self.column :] = [" "] * (self.width - self.column)
                for row in range(below, self.height):
                    self._lines[row] = [" "] * self.width
            case "H" | "f":
                self.row, self.column = many - 1, max(1, numbers[1] if len(numbers) > 1 else 1) - 1
