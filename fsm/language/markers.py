"""Whether the model wants to speak: ``__SILENT__`` and ``__REPLY__``.

The decision is made on a normalised copy (no reasoning, no invisible characters, decoration seen
through), what is sent is cut from the original, so that an emoji held together by a zero-width joiner
arrives whole. The first marker decides, once.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from enum import Enum

from fsm.language.commands import find_commands, parse_commands, stands_alone
from fsm.language.spans import (
    FENCE_LINE,
    INVISIBLE,
    TAG,
    TAG_BEGUN,
    cut_reasoning,
    drop_leading_blank,
    find_spans,
    is_blank,
    seen_end,
    trim,
    trim_end,
)
from fsm.values import Value

__all__ = ["Gate", "StreamGate", "Verdict", "gate"]


class Verdict(Enum):
    """What becomes of a reply. Chosen silence and an empty completion are two different things."""

    SILENT = "silent"
    EMPTY = "empty"
    SEND = "send"


class Gate(Value):
    """``text`` is what may be sent, empty unless the verdict is SEND; ``near_misses`` counts markers in it
    that do not act (in running text, in other letter case, with other underscores)."""

    verdict: Verdict
    text: str = ""
    near_misses: int = 0


_SEND = Verdict.SEND  # found once: in Python 3.11 the way to a member of an Enum is a long one
_BETWEEN = f"[{INVISIBLE}]*"
_HEAD = re.compile(
    rf"[\s{INVISIBLE}]*{_BETWEEN.join('__')}{_BETWEEN}(?:({_BETWEEN.join('SILENT')})|{_BETWEEN.join('REPLY')})"
    rf"{_BETWEEN}{_BETWEEN.join('__')}"
)
_GLUED = re.compile(f"{_BETWEEN}[A-Za-z0-9]")
_MARK = re.compile(r"__(SILENT|REPLY)__")
_WORDS = ("SILENT", "REPLY")
_WORD = re.compile(r"[^\W_]+")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_NEAR_MISS = re.compile(r"_(?:SILENT|REPLY)_", re.IGNORECASE)
_BEGUN = re.compile(r"[\W_]*?__(?:(SILENT|REPLY)_?)?|[\W_]*__([A-Z]+)")
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")

# Decoration that has letters of its own, and so must go before the words are counted.
_HTML = re.compile(r"</?[A-Za-z][^<>]*>|<!--|-->")
_FENCE_WITH_NAME = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[^\n`_＿]*$", re.MULTILINE)
_JSON_KEY = re.compile(r"\s*\{\s*\"[\w-]{1,32}\"\s*:")
_ENOUGH = 200
"""Characters after which nearly every text has shown that it is more than markers and decoration."""
_HTML_BEGUN = re.compile(r"<(?:/?[A-Za-z][^<>]*)?\Z")
_JSON_BEGUN = re.compile(r"\s*\{\s*(?:\"[\w-]{0,32}\"?\s*)?\Z")


def gate(text: str) -> Gate:
    """Read a whole model reply and decide what may be sent.

    ``__SILENT__`` at its very start drops all of it; ``__REPLY__`` is taken off and the rest is sent;
    without either the text is sent as it is. Reasoning is cut before that. A marker alone on the last
    line is removed. Decorated markers (bold, code, quotes, brackets, HTML, full width …) act where
    nothing else stands: in the reply or, code fences and block quotes apart, on its first line. A place
    where reasoning was cut parts what stands before it from what stands behind it, as a line's end does.
    """
    if _is_plain(text):
        return Gate(_SEND, text)
    text, cuts = cut_reasoning(text)
    verdict, kept = _take_head(text, cuts)
    if verdict is not Verdict.SEND:
        return Gate(verdict)
    text = _without_last_lines(kept, _behind(text, kept, cuts), lambda line: _nothing_but(line) is not None)
    return Gate(Verdict.SEND, text, _near_misses(text)) if text else Gate(Verdict.EMPTY)


def _is_plain(text: str) -> bool:
    """True for the common reply, at a glance: nothing in it could be a marker or a tag, nor is it blank."""
    return (
        "_" not in text
        and "<" not in text
        and "[" not in text
        and "＿" not in text
        and "◁" not in text
        and "SILENT" not in text
        and "REPLY" not in text
        and not is_blank(text)
    )


def _take_head(text: str, cuts: Sequence[int]) -> tuple[Verdict, str]:
    """The decision of the first marker, and what is left to send: an end of ``text``."""
    head = _HEAD.match(text)
    if head is not None and not _is_glued(text, head.end(), cuts):
        if head[1]:
            return Verdict.SILENT, ""
        return _after_reply(text[head.end() :])
    word = _nothing_but(text)
    if word is not None:
        return (Verdict.SILENT if word == "SILENT" else Verdict.EMPTY), ""
    body = trim(text)
    if not body:
        return Verdict.EMPTY, ""
    start = text.index(body)
    for end, rest in _first_ends(body, [cut - start for cut in cuts]):
        word = _nothing_but(body[:end])
        if word == "SILENT":
            return Verdict.SILENT, ""
        if word == "REPLY":
            return _after_reply(text[start + rest :])
    return Verdict.SEND, text


def _is_glued(text: str, end: int, cuts: Sequence[int]) -> bool:
    """Whether a letter or digit follows so closely that what ends there is no marker."""
    glued = _GLUED.match(text, end)
    return glued is not None and not any(end <= cut < glued.end() for cut in cuts)


def _first_ends(body: str, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Where a marker that stands first may stand alone: where that ends, and where the rest begins."""
    ends: list[tuple[int, int]] = []
    word = _WORD.search(body)
    if cuts and word is not None:
        behind = cuts[bisect_right(cuts, word.start()) :]
        ends += [(cut, cut) for cut in behind[: max(1, bisect_right(behind, _ENOUGH))]]
    line_end = _LINE_BREAK.search(body)
    if line_end is not None and body[0] != ">":
        ends.append(line_end.span())
    return sorted(ends)


def _after_reply(rest: str) -> tuple[Verdict, str]:
    if is_blank(rest) or _nothing_but(rest) is not None:
        return Verdict.EMPTY, ""
    return Verdict.SEND, drop_leading_blank(rest)


def _behind(text: str, kept: str, cuts: Sequence[int]) -> list[int]:
    """The places ``cuts`` of ``text`` as those of ``kept``, an end of it."""
    gone = len(text) - len(kept)
    return [cut - gone for cut in cuts if cut > gone]


def _without_last_lines(text: str, cuts: Sequence[int], goes: Callable[[str], bool]) -> str:
    """The text without the lines at its end, or what stands behind a cut there, for which ``goes`` is true;
    the very same text where there are none. The first line of all stays."""
    lines = [0, *(found.end() for found in _LINE_BREAK.finditer(text))]
    behind = [0, *cuts]
    end, judged = len(text), -1
    while True:
        stop = seen_end(text, end)
        for starts in (lines, behind):
            while starts[-1] and starts[-1] >= stop:
                starts.pop()
        line, cut = lines[-1], behind[-1]
        if line and line != judged and goes(text[line:stop]):
            end = seen_end(text, line)
        elif cut > line and goes(text[cut:stop]):
            end, judged = seen_end(text, cut), line
        else:
            return text[:end]


def _plain_copy(text: str) -> str:
    """The copy that is searched for decorated markers."""
    copy = _INVISIBLE.sub("", text)
    if "<" in copy:
        copy = _HTML.sub("", copy)
    if "```" in copy or "~~~" in copy:
        copy = _FENCE_WITH_NAME.sub("", copy)
    if "{" in copy:
        copy = _JSON_KEY.sub("", copy, count=1) if _JSON_KEY.match(copy) else copy
    return copy


def _nothing_but(text: str) -> str | None:
    """``SILENT`` or ``REPLY``, the first marker of a text that is nothing but markers and decoration
    (signs that are no letters and no digits); None for every other text."""
    if "_" not in text and "＿" not in text:
        return None
    copy = _plain_copy(text)
    words = 0
    for word in _WORD.finditer(copy):
        if unicodedata.normalize("NFKC", word[0]) not in _WORDS:
            return None
        words += 1
    marks = _MARK.findall(unicodedata.normalize("NFKC", copy).replace("\\", ""))
    return marks[0] if marks and len(marks) == words else None


def _could_become_one(text: str) -> bool:
    """Whether a text that has begun may still turn out to be nothing but markers and decoration."""
    if len(text) > _ENOUGH and not _could_become_one(text[:_ENOUGH]):
        return False
    copy = _plain_copy(text)
    if "<" in copy:
        copy = _HTML_BEGUN.sub("", copy)
    if _JSON_BEGUN.match(copy):
        return True
    odd = 0
    for word in _WORD.finditer(copy):
        if unicodedata.normalize("NFKC", word[0]) not in _WORDS:
            odd += 1
            if odd > 1 or word.end() < len(copy):
                return False
    rest = _MARK.sub("", unicodedata.normalize("NFKC", copy).replace("\\", ""))
    if _WORD.search(rest) is None:
        return True
    begun = _BEGUN.fullmatch(rest)
    return begun is not None and (begun[1] is not None or any(w.startswith(begun[2] or "") for w in _WORDS))


def _near_misses(text: str) -> int:
    if "_" in text or "＿" in text:
        copy = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).replace("\\", "")
        if found := len(_NEAR_MISS.findall(copy)):
            return found
    # **SILENT** is how a marker looks that went through a Markdown renderer
    return 1 if len(text) < 32 and _WORD.findall(text) in (["SILENT"], ["REPLY"]) else 0


# -- streaming -----------------------------------------------------------------------------------

_HASH = re.compile("[#＃]")
_COMMAND_BEGUN = re.compile(r"[#＃]{2}([^\S\n]*)(\w*)([^\S\n]*)([:：][^#\n]*)?[#＃]{0,2}[^\S\n]*\Z")
_STARTS_SOMETHING = re.compile(r"[_＿<\[◁#＃`~{]")
_STEPS = 64
"""A reply is looked at again once it has grown by this part of itself."""


class StreamGate:
    """What of a reply that is still coming in may be shown already.

    Nothing is shown before the marker is decided, and never the beginning of something that will not be
    sent: a marker, a reasoning block, a marker line at the end, a command. For a reply that turns out to
    be plain text, whatever was shown is a prefix of what is sent in the end. (One thing no filter can
    see coming: a closing reasoning tag that nothing opened takes back all before it.)

    ``known`` holds the registered command names. Without them only ASCII names are held back.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._pieces: list[str] = []
        self._length = 0
        self._shown = ""
        self._plain = True
        self._looked = 0

    def feed(self, delta: str) -> str | None:
        """Take in the next piece; the whole text that may be shown so far, None when that is nothing new.

        Long replies are looked at in growing steps rather than with every piece, which keeps the cost of a
        reply linear in its length.
        """
        self._pieces.append(delta)
        self._length += len(delta)
        self._plain = self._plain and _STARTS_SOMETHING.search(delta) is None
        if self._length - self._looked < self._length // _STEPS:
            return None
        self._looked = self._length
        raw = self._whole()
        shown = _hold_lines(raw, ()) if self._plain else self._safe(raw)
        if shown == self._shown or not shown:
            return None
        self._shown = shown
        return shown

    def finish(self) -> Gate:
        """The verdict on the whole reply."""
        return gate(self._whole())

    def _whole(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _safe(self, raw: str) -> str:
        text, cuts = cut_reasoning(_settled(raw))
        if _could_become_one(text):
            return ""
        verdict, kept = _take_head(text, cuts)
        if verdict is not Verdict.SEND or _could_become_one(kept):
            return ""
        shown = _hold_lines(_hold_commands(kept, self._known), _behind(text, kept, cuts))
        # A command in backticks is an example among other words, and acts where it is all that there is.
        return "" if parse_commands(shown, self._known).commands else shown


def _settled(raw: str) -> str:
    """The part of a reply in which more text can no longer change what is code and what is reasoning."""
    raw = raw.rstrip("`~")
    line = raw.rfind("\n") + 1
    if FENCE_LINE.match(raw, line):
        raw = raw[:line]
    if begun := TAG_BEGUN.search(raw, max(0, len(raw) - 300)):
        raw = raw[: begun.start()]
    if "`" not in raw and "~~~" not in raw:
        return raw
    found, unsettled = find_spans(raw)
    if found and found[-1].code and found[-1].end == len(raw) and "\n" not in raw[found[-1].start :]:
        raw = raw[: found[-1].start]
    tag = TAG.search(raw, unsettled) if unsettled is not None else None
    return raw[: tag.start()] if tag else raw


def _hold_commands(text: str, known: Collection[str]) -> str:
    """The text up to the first thing that is, or could become, a command."""
    if "#" not in text and "＃" not in text:
        return text
    found, _ = find_commands(text, known)
    if found:
        text = text[: found[0].start]
    start = text.rfind("\n") + 1
    line = text[start:]
    for sign in _HASH.finditer(line):
        begun = _COMMAND_BEGUN.match(line, sign.start())
        if sign.end() == len(line) or (begun and _could_act(begun, line, known)):
            kept = text[: start + sign.start()]
            # Held back, what is left may be nothing but a command by itself (two in one indented line).
            return "" if find_commands(kept, known)[0] else kept
    return text


def _could_act(begun: re.Match[str], line: str, known: Collection[str]) -> bool:
    space, name, more, argument = begun.groups()
    if not name:
        return not argument
    complete = bool(more or argument or begun[0].endswith(("#", "＃")))
    if name in known if complete else any(one.startswith(name) for one in known):
        return True
    exact = begun[0].startswith("##") and not space and not more
    return exact and name.isascii() and stands_alone(line, begun.start(), len(line))


def _hold_lines(text: str, cuts: Sequence[int]) -> str:
    """The text without the lines at its end that are, or could become, a marker alone."""
    kept = _without_last_lines(trim_end(text), cuts, _could_become_one)
    return "" if _LINE_BREAK.search(kept) is None and _could_become_one(kept) else kept
