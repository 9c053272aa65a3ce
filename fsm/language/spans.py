"""Where a model's text is not its own running text: code, which shows an example, and reasoning.

Code is inline or fenced Markdown (CommonMark 4.5 and 6.1, with fences also seen in quotes, in lists
and at any indentation). Reasoning is ``<think>…</think>`` and its kin, in any letter case. What comes
first wins: a tag inside code is text, a backtick inside reasoning is reasoning.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f\U000e0100-\U000e01ef"
)
"""Characters that show nothing, as the inside of a regular expression's set: every format character
(Unicode category Cf), the controls that are not white space, fillers and variation selectors."""

_UNSEEN = re.compile(rf"[\s{INVISIBLE}]")
_UNSEEN_START = re.compile(rf"[\s{INVISIBLE}]*")
_LEADING_BLANK = re.compile(rf"(?:[^\S\n]|[{INVISIBLE}])*\n(?:[^\S\n]*\n)*|(?:[^\S\n]|[{INVISIBLE}])+")

_NAMES = (
    "think|thinking|thoughts?|reason|reasoning|reflection|scratchpad|analysis|deliberation|monologue"
    "|inner_monologue|inner_thoughts|chain_of_thought|antthinking"
)
_KIN = rf"(?:[\w-]{{1,20}}:)?(?:{_NAMES})"
_OPEN = rf"<{_KIN}(?:\s[^<>]{{0,200}})?>|<\|begin_of_thought\|>|\[think\]|◁think▷"
_CLOSE = rf"</\s{{0,9}}{_KIN}\s{{0,9}}>|<\|end_of_thought\|>|\[/think\]|◁/think▷"

TAG = re.compile(rf"{_OPEN}|{_CLOSE}", re.IGNORECASE)
"""An opening or closing tag of a reasoning block, as tokenizers and prompts of common models write it."""
TAG_BEGUN = re.compile(
    rf"(?:<[\w:-]{{0,40}}|</\s{{0,9}}[\w:-]{{0,40}}\s{{0,9}}|<{_KIN}\s[^<>]{{0,200}}|<\|\w{{0,16}}\|?"
    r"|\[/?[a-z]{0,5}|◁/?[a-z]{0,5})\Z",
    re.IGNORECASE,
)
"""The beginning of such a tag at the end of a text that is still coming in."""
_CLOSING = re.compile(_CLOSE, re.IGNORECASE)
_GAP = rf"[\t\v\f\r\x1c-\x1f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000{INVISIBLE}]*"
"""White space within a line, and what is not seen at all."""
_FENCE = rf"{_GAP}(?:>{_GAP})*(?:(?:[-*+]|\d{{1,9}}[.)])[^\S\n]+)?(?:`{{3,}}(?=[^`\n]*(?:\n|\Z))|~{{3,}})"
FENCE_LINE = re.compile(rf"{_FENCE}[^\n]*")
"""A line that opens or closes a fence."""
_TOKEN = re.compile(
    rf"(?P<fence>^{_FENCE})|(?P<ticks>`+)|(?P<open>{_OPEN})|(?P<close>{_CLOSE})",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE_HERE = re.compile(f"(?P<fence>{_FENCE})")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n")
_TICKS = re.compile("`+")
_FENCE_CLOSING = re.compile(rf"^{_GAP}(?:>{_GAP})*(?P<bar>`{{3,}}|~{{3,}}){_GAP}$", re.MULTILINE)


class Span(NamedTuple):
    """A stretch of code (``code``) or of reasoning; ``text[start:end]`` with its delimiters."""

    start: int
    end: int
    code: bool


class Spans(NamedTuple):
    """The spans of a text, in order, and where the first backtick stands that nothing has closed yet
    though the text might still go on to close it (None when all is settled)."""

    found: list[Span]
    unsettled: int | None


def trim(text: str) -> str:
    """The text without white space and invisible characters at its two ends."""
    start = _UNSEEN_START.match(text)
    return trim_end(text[start.end() :] if start else text)


def is_blank(text: str) -> bool:
    """Whether a text shows nothing."""
    if (first := text[:1]).isascii() and first.isalnum():  # at a glance
        return False
    start = _UNSEEN_START.match(text)
    return start is not None and start.end() == len(text)


def trim_end(text: str) -> str:
    """The text without white space and invisible characters at its end."""
    return text[: seen_end(text, len(text))]


def seen_end(text: str, end: int) -> int:
    """Where ``text[:end]`` ends without white space and invisible characters behind it."""
    while end and _UNSEEN.match(text, end - 1):
        end -= 1
    return end


def drop_leading_blank(text: str) -> str:
    """The text without the blank lines at its start, or without the spaces where it starts in a line
    (the indentation of a first line behind blank ones may mean code, and stays)."""
    blank = _LEADING_BLANK.match(text)
    return text[blank.end() :] if blank else text


class _Ahead:
    """What closes what, in one text. Each kind of end is looked for once and then remembered in order, so that many
    openings without an end cost no more than one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ticks: dict[int, list[int]] | None = None
        self._closings: tuple[list[int], list[int]] | None = None
        self._paragraph = -1

    def paragraph_end(self, at: int) -> int | None:
        """Where the first blank line behind ``at`` begins; ``at`` never goes back."""
        if self._paragraph < at:
            found = _PARAGRAPH_END.search(self._text, at)
            self._paragraph = found.start() if found else len(self._text)
        return self._paragraph if self._paragraph < len(self._text) else None

    def ticks(self, length: int, at: int) -> int | None:
        """Where the next run of just so many backticks begins."""
        if self._ticks is None:
            self._ticks = {}
            for run in _TICKS.finditer(self._text):
                self._ticks.setdefault(run.end() - run.start(), []).append(run.start())
        return _first(self._ticks.get(length, ()), at)

    def reasoning_end(self, at: int) -> int:
        """Behind the closing tag of a block that begins at ``at``, or the end of the text."""
        if self._closings is None:
            meant: list[int] = []
            quoted: list[int] = []
            for close in _CLOSING.finditer(self._text):
                # In backticks the thought speaks of the tag; such a one counts if no other comes.
                in_ticks = self._text[close.start() - 1 : close.start()] == "`" == self._text[close.end() :][:1]
                (quoted if in_ticks else meant).append(close.end())
            self._closings = meant, quoted
        meant, quoted = self._closings
        found = _first(meant, at + 1)
        if found is None:
            found = _first(quoted, at + 1)
        return len(self._text) if found is None else found


def _first(places: Sequence[int], at: int) -> int | None:
    """The first of the places, which are in order, from ``at`` on."""
    index = bisect_left(places, at)
    return places[index] if index < len(places) else None


def find_spans(text: str) -> Spans:
    """Code and reasoning in ``text``. An unclosed fence or block reaches to the end; a closing tag that
    nothing opened is a block from the very start."""
    found: list[Span] = []
    unsettled: int | None = None
    at = 0
    ahead = _Ahead(text)
    after_reasoning = False  # what follows a block starts a line, wherever it stands
    while token := (after_reasoning and _FENCE_HERE.match(text, at)) or _TOKEN.search(text, at):
        kind, after_reasoning = token.lastgroup, False
        if kind == "close":
            found = [Span(0, token.end(), code=False)]
        elif kind == "open":
            found.append(Span(token.start(), ahead.reasoning_end(token.end()), code=False))
        elif kind == "fence":
            found.append(Span(token.start(), _fence_end(text, token), code=True))
        elif (end := _inline_end(token, ahead)) is not None:
            found.append(Span(token.start(), end, code=True))
        else:
            if unsettled is None and ahead.paragraph_end(token.end()) is None:
                unsettled = token.start()
            at = token.end()
            continue
        at = found[-1].end
        after_reasoning = not found[-1].code
    return Spans(found, unsettled)


def _fence_end(text: str, token: re.Match[str]) -> int:
    opening = token["fence"].lstrip(" \t>")
    bar = opening[-1]
    length = len(opening) - len(opening.rstrip(bar))
    line_end = text.find("\n", token.end())
    if line_end >= 0:
        for closed in _FENCE_CLOSING.finditer(text, line_end + 1):
            if closed["bar"][0] == bar and len(closed["bar"]) >= length:
                return closed.end()
    return len(text)


def _inline_end(token: re.Match[str], ahead: _Ahead) -> int | None:
    ticks = token.end() - token.start()
    closed = ahead.ticks(ticks, token.end())
    if closed is None:
        return None
    paragraph = ahead.paragraph_end(token.end())
    return closed + ticks if paragraph is None or closed < paragraph else None


def strip_reasoning(text: str) -> str:
    """The text without its reasoning blocks: an unclosed one goes with all that follows, a closing tag
    that nothing opened with all before it. Tags in inline or fenced code stay. Where nothing is cut, the
    very same text comes back."""
    return cut_reasoning(text)[0]


def cut_reasoning(text: str) -> tuple[str, tuple[int, ...]]:
    """As :func:`strip_reasoning`, with the places in what is left where a block stood, in order."""
    if ("<" not in text and "[" not in text and "◁" not in text) or TAG.search(text) is None:
        return text, ()
    blocks = [span for span in find_spans(text).found if not span.code]
    if not blocks:
        return text, ()
    pieces: list[str] = []
    cuts: list[int] = []
    at = length = 0
    visible = False
    for end, then in [*((span.start, span.end) for span in blocks), (len(text), len(text))]:
        piece = text[at:end]
        if visible:
            cuts.append(length)
        elif at:  # nothing to see before the block, so the text starts anew behind it
            pieces, length, piece = [], 0, drop_leading_blank(piece)
        pieces.append(piece)
        length += len(piece)
        visible = visible or not is_blank(piece)
        at = then
    return trim_end("".join(pieces)), tuple(cuts)


def mask(text: str) -> str:
    """The text, as long as it was and with its line breaks, with code and reasoning blotted out: code by
    U+FFFC, which is seen, reasoning by U+0001, which is not."""
    pieces: list[str] = []
    at = 0
    for span in find_spans(text).found:
        pieces.append(text[at : span.start])
        blot = "\ufffc" if span.code else "\x01"
        pieces.append("\n".join(blot * len(line) for line in text[span.start : span.end].split("\n")))
        at = span.end
    pieces.append(text[at:])
    return "".join(pieces)
