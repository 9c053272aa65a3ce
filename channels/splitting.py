"""Long texts in pieces that a channel can carry: cut at paragraphs and around code, order kept.

Pure. A cut inside a fenced block closes the fence and opens it again in the next piece, so that each
piece reads as it was meant; apart from those lines and from blank lines at the cuts, the pieces put
together are the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

Measure = Callable[[str], int]
"""The size of a text in whatever the channel counts. The size of two texts together must be the sum of both."""

SMALLEST = 64
"""The smallest limit, in units of the measure: below it a reopened fence would leave no room for the text."""

_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)")


def characters(text: str) -> int:
    """Unicode code points."""
    return len(text)


def utf8_bytes(text: str) -> int:
    """Bytes in UTF-8; a lone surrogate counts as the replacement character that it will become."""
    return len(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Piece:
    """``raw`` is the part of the text that it stands for (all of them joined are the text), ``text`` what
    is sent for it: the fence reopened and closed, and no blank lines at the ends. It may be blank."""

    raw: str
    text: str


@dataclass(frozen=True, slots=True)
class _Fence:
    opener: str
    """The line that opens it, without its line break."""
    marks: str


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    inside: _Fence | None
    """The block that is open where the line begins."""
    delimits: str
    """``opens``, ``closes`` or nothing."""


def split(text: str, limit: int, measure: Measure = characters) -> list[str]:
    """``text`` in order, each piece at most ``limit`` by ``measure``; blank pieces are left out.

    A text that fits is returned as it is. Raises ``ValueError`` for a limit below :data:`SMALLEST`.
    """
    return [piece.text for piece in cut(text, limit, measure) if piece.text.strip()]


def cut(text: str, limit: int, measure: Measure = characters) -> list[Piece]:
    """As :func:`split`, with the part of the text that each piece stands for."""
    if limit < SMALLEST:
        raise ValueError(f"a limit of {limit} is too small for messages; give at least {SMALLEST}")
    if measure(text) <= limit:
        return [Piece(text, text)]
    lines = _lines(text, limit, measure)
    sizes = [measure(character) for character in text]
    pieces: list[Piece] = []
    start, first = 0, 0
    while start < len(text):
        while lines[first].end <= start:
            first += 1
        end = _end(text, start, lines, first, sizes, limit, measure)
        pieces.append(_piece(text, start, end, lines))
        start = end
    return pieces


def _piece(text: str, start: int, end: int, lines: list[_Line]) -> Piece:
    raw = text[start:end]
    reopened, closed = _open_at(start, lines), _open_at(end, lines) if end < len(text) else None
    shown = raw.lstrip("\n") if reopened is None else f"{reopened.opener}\n{raw}"
    if closed is None:
        shown = shown.rstrip("\n")
    else:
        shown += ("" if shown.endswith("\n") else "\n") + closed.marks
    return Piece(raw, shown)


def _open_at(position: int, lines: list[_Line]) -> _Fence | None:
    low, high = 0, len(lines) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if lines[middle].start <= position:
            low = middle
        else:
            high = middle - 1
    return lines[low].inside


def _lines(text: str, limit: int, measure: Measure) -> list[_Line]:
    lines: list[_Line] = []
    inside: _Fence | None = None
    start = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        end = start + len(line)
        found = _FENCE.fullmatch(line.rstrip("\r\n"))
        delimits, then = "", inside
        if found is not None and measure(line) <= limit // 4:
            marks, info = found["marks"], found["info"].strip()
            if inside is None:
                # Behind backticks there can be no more of them: that is code within a line.
                if marks[0] == "~" or "`" not in info:
                    delimits, then = "opens", _Fence(line.rstrip("\r\n"), marks)
            elif not info and marks[0] == inside.marks[0] and len(marks) >= len(inside.marks):
                delimits, then = "closes", None
        lines.append(_Line(start, end, inside, delimits))
        inside, start = then, end
    return lines


# How good a place to cut is. Everything but ANYWHERE has to leave a piece of a fair size.
_ANYWHERE, _WORD, _CODE_LINE, _LINE, _PARAGRAPH = range(5)


def _end(text: str, start: int, lines: list[_Line], first: int, sizes: list[int], limit: int, measure: Measure) -> int:
    """Where the piece that begins at ``start`` ends best."""
    reopened = _open_at(start, lines)
    used = measure(reopened.opener) + measure("\n") if reopened else 0
    best: dict[int, tuple[int, int]] = {}
    n, position = first, start
    fallback = start + 1
    while position < len(text):
        used += sizes[position]
        position += 1
        if used > limit:
            break
        while n + 1 < len(lines) and lines[n].end <= position:
            n += 1
        line = lines[n]
        inside = line.inside if position < len(text) else None
        closing = measure("\n" + inside.marks) if inside else 0
        if used + closing > limit:
            continue
        if position == len(text):
            return position
        fallback = position
        if (place := _place(text, position, line, lines[n - 1] if n else None)) is not None:
            for kind in range(place + 1):
                best[kind] = position, used
    for kind in (_PARAGRAPH, _LINE, _CODE_LINE, _WORD):
        if kind in best and best[kind][1] >= limit // 3:
            return best[kind][0]
    return best[_ANYWHERE][0] if _ANYWHERE in best else fallback


def _place(text: str, position: int, line: _Line, before: _Line | None) -> int | None:
    """What a cut before ``position`` would part; None where it must not be."""
    if position > line.start:
        if line.delimits or _joined(text[position - 1], text[position]):
            return None
        if line.inside is not None:
            return _ANYWHERE
        return _WORD if text[position - 1].isspace() or text[position - 1] in "。！？；，、" else _ANYWHERE
    # An empty block at either side helps nobody.
    if line.delimits == "closes" or (before is not None and before.delimits == "opens"):
        return None
    if line.inside is not None:
        return _CODE_LINE
    if line.delimits == "opens" or before is None or before.delimits == "closes":
        return _PARAGRAPH
    return _PARAGRAPH if not text[before.start : before.end].strip() else _LINE


def _joined(left: str, right: str) -> bool:
    """Whether two code points are seen as one character."""
    return (
        (left == "\r" and right == "\n")
        or "\u200d" in (left, right)
        or unicodedata.category(right).startswith("M")
        or "\U0001f3fb" <= right <= "\U0001f3ff"
        or ("\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff")
    )
