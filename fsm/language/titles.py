"""Titles of sessions as people and the model may see them.

A title is written by whoever named the session, so it may hold anything: line breaks, characters that
turn the reading direction, text that looks like a command.
"""

from __future__ import annotations

import unicodedata

UNTITLED = {"zh": "（无标题）", "en": "(untitled)"}

# Letters and symbols by category, yet nothing to see: Hangul fillers, the empty braille cell, the
# combining grapheme joiner, Khmer inherent vowels.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
# Cc control, Cf format (bidi, zero width, tags), Cs a lone surrogate, which no channel can encode.
_UNSEEN = frozenset({"Cc", "Cf", "Cs"})


def one_line(title: str | None) -> str:
    """``title`` on one line with single spaces, without characters that cannot be seen."""
    if not title:
        return ""
    joined = " ".join(title.split())
    if joined.isascii() and joined.isprintable():
        return joined
    seen = (char for char in joined if char not in _BLANK and unicodedata.category(char) not in _UNSEEN)
    return " ".join("".join(seen).split())


def show_title(title: str | None, limit: int = 40, lang: str = "en") -> str:
    """A title fit to be shown: one line, at most ``limit`` characters (a cut one ends in ``…``),
    commands in it made inert, a stand-in in ``lang`` where there is nothing to show.

    Word joiners that make a command inert take no room and do not count.
    """
    from fsm.language.inert import make_inert

    shown = one_line(title)
    if not shown:
        return UNTITLED.get(lang, UNTITLED["en"])
    if len(shown) > limit:
        shown = _cut(shown, max(limit - 1, 0)) + "…"
    return make_inert(shown)


def _cut(text: str, length: int) -> str:
    # A mark belongs to the letter before it: without it the letter is another one.
    while 0 < length < len(text) and unicodedata.category(text[length]) in ("Mn", "Me", "Mc"):
        length -= 1
    return text[:length].rstrip()
