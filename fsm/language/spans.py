"""Where a model's text is not its own running text: code, which shows an example, and reasoning.

Code is inline or fenced Markdown (CommonMark 4.5 and 6.1, with fences also seen in quotes, in lists
and at any indentation). Reasoning is ``<think>…</think>`` and its kin, in any letter case. What comes
first wins: a tag inside code is text, a backtick inside reasoning is reasoning.
"""

from __future__ import annotations

import re
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
_FENCE = r"[^\S\n]*(?:>[^\S\n]*)*(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]+)?(?:`{3,}(?=[^`\n]*(?:\n|\Z))|~{3,})"
FENCE_LINE = re.compile(rf"{_FENCE}[^\n]*")
"""A line that opens or closes a fence."""
_TOKEN = re.compile(
    rf"(?P<fence>^{_FENCE})|(?P<ticks>`+)|(?P<open>{_OPEN})|(?P<close>{_CLOSE})",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE_HERE = re.compile(f"(?P<fence>{_FENCE})")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n")


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
    start = _UNSEEN_START.match(text)
    return start is not None and start.end() == len(text)


def trim_end(text: str) -> str:
    """The text without white space and invisible characters at its end."""
    end = len(text.rstrip())
    while end and _UNSEEN.match(text, end - 1):
        end -= 1
    return text[:end]


def drop_leading_blank(text: str) -> str:
    """The text without the blank lines at its start, or without the spaces where it starts in a line
    (the indentation of a first line behind blank ones may mean code, and stays)."""
    blank = _LEADING_BLANK.match(text)
    return text[blank.end() :] if blank else text


def find_spans(text: str) -> Spans:
    """Code and reasoning in ``text``. An unclosed fence or block reaches to the end; a closing tag that
    nothing opened is a block from the very start."""
    found: list[Span] = []
    unsettled: int | None = None
    at = 0
    after_reasoning = False  # what follows a block starts a line, wherever it stands
    while token := (after_reasoning and _FENCE_HERE.match(text, at)) or _TOKEN.search(text, at):
        kind, after_reasoning = token.lastgroup, False
        if kind == "close":
            found = [Span(0, token.end(), code=False)]
        elif kind == "open":
            found.append(Span(token.start(), _reasoning_end(text, token.end()), code=False))
        elif kind == "fence":
            found.append(Span(token.start(), _fence_end(text, token), code=True))
        elif (end := _inline_end(text, token)) is not None:
            found.append(Span(token.start(), end, code=True))
        else:
            if unsettled is None and _PARAGRAPH_END.search(text, token.end()) is None:
                unsettled = token.start()
            at = token.end()
            continue
        at = found[-1].end
        after_reasoning = not found[-1].code
    return Spans(found, unsettled)


def _reasoning_end(text: str, at: int) -> int:
    quoted: int | None = None
    for close in _CLOSING.finditer(text, at):
        if text[close.start() - 1] == "`" == text[close.end() : close.end() + 1]:
            quoted = quoted or close.end()  # the thought speaks of the tag; it counts if no other comes
            continue
        return close.end()
    return quoted or len(text)


def _fence_end(text: str, token: re.Match[str]) -> int:
    opening = token["fence"].lstrip(" \t>")
    bar = opening[-1]
    length = len(opening) - len(opening.rstrip(bar))
    line_end = text.find("\n", token.end())
    if line_end < 0:
        return len(text)
    closing = re.compile(rf"^[^\S\n]*(?:>[^\S\n]*)*{bar}{{{length},}}[^\S\n]*$", re.MULTILINE)
    closed = closing.search(text, line_end + 1)
    return closed.end() if closed else len(text)


def _inline_end(text: str, token: re.Match[str]) -> int | None:
    paragraph = _PARAGRAPH_END.search(text, token.end())
    limit = paragraph.start() if paragraph else len(text)
    ticks = token.end() - token.start()
    closed = re.compile(rf"(?<!`)`{{{ticks}}}(?!`)").search(text, token.end(), limit)
    return closed.end() if closed else None


def strip_reasoning(text: str) -> str:
    """The text without its reasoning blocks: an unclosed one goes with all that follows, a closing tag
    that nothing opened with all before it. Tags in inline or fenced code stay. Where nothing is cut, the
    very same text comes back."""
    if ("<" not in text and "[" not in text and "◁" not in text) or TAG.search(text) is None:
        return text
    kept: str | None = None
    at = 0
    for span in find_spans(text).found:
        if not span.code:
            kept = _join(kept, text[at : span.start])
            at = span.end
    return text if kept is None else trim_end(_join(kept, text[at:]))


def _join(kept: str | None, more: str) -> str:
    """What stands before a cut and what comes after it. Where nothing visible stands before it, the text
    starts anew."""
    if kept is None:
        return more
    return drop_leading_blank(more) if is_blank(kept) else kept + more


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
