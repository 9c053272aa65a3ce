"""Foreign text made safe to stand in a prompt: no commands, no forged speakers.

Whoever can get words into a prompt can get them out of the model. So text from people, titles,
databases and memories passes through here first; what it says stays readable, to the model as to
people, and only its power to act is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from fsm.constants import CMD_RE
from fsm.conversation import Command
from fsm.language.headings import HEADINGS
from fsm.language.spans import INVISIBLE

JOINER = "\u2060"
"""The word joiner: it shows nothing, forbids no line break that was there, and is no ``#``, no letter
and no white space, so it parts what a parser would join."""

_SHAPE = r"([#＃])([#＃])([^\S\n]*(\w+)[^\S\n]*(?:[:：]([^#\n]*?))?)([#＃])([#＃])"
_SHAPED = re.compile(_SHAPE)
_SHAPED_ANYWHERE = re.compile(f"(?={_SHAPE})")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_FOLD = str.maketrans("：＃", ":#")

_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_NICK_BORDERS = str.maketrans(
    {
        "[": "(",
        "]": ")",
        "［": "(",
        "］": ")",
        "【": "(",
        "】": ")",
        "〔": "(",
        "〕": ")",
        ":": "·",
        "：": "·",
        "﹕": "·",
        "︰": "·",
        "∶": "·",
        "꞉": "·",
    }
)
_NICK_DROPPED = re.compile(f"(?!\u200d)[{INVISIBLE}]")  # the zero-width joiner holds emoji together
_NICK_SPACE = re.compile(rf"[\s\x00-\x1f\x7f-\x9f{_BREAKS}]+")
_NICK_HASHES = re.compile(r"[#＃](?=[#＃])")
NICK_CHARS = 64
"""Characters of a nick that a prompt shows."""


def make_inert(text: str) -> str:
    """The text with a word joiner inside both ``##`` of everything that any parser of ours could take for
    a command, the forms with full-width signs and inner spaces included. Nothing else changes, and doing
    it twice is doing it once."""
    if "#" not in text and "＃" not in text:
        return text
    # Parting two pairs can leave a new one (##a###b##), hence the loop.
    while (changed := _SHAPED.sub(rf"\1{JOINER}\2\3\6{JOINER}\7", text)) != text:
        text = changed
    return text


def spellings(text: str) -> frozenset[str]:
    """The canonical spellings (``##name##``, ``##name:argument##``) of everything command-shaped in
    foreign text, overlapping ones and those parted by invisible characters included.

    Canonical: the width of ``#`` and ``:`` folded, spaces around name and argument dropped. Compare
    with :func:`canonical`.
    """
    if "#" not in text and "＃" not in text:
        return frozenset()
    found: set[str] = set()
    for form in {text, _INVISIBLE.sub("", text)}:
        for match in _SHAPED_ANYWHERE.finditer(form):
            found.add(_spelt(match[4], match[5]))
        for hit in CMD_RE.findall(form):
            name, colon, argument = hit[2:-2].partition(":")
            found.add(_spelt(name, argument if colon else None))
    return frozenset(found)


def canonical(command: Command) -> str:
    """The one spelling of a command that stands for all its forms (see :func:`spellings`)."""
    return _spelt(command.name, command.argument)


def _spelt(name: str, argument: str | None) -> str:
    inner = name if argument is None else f"{name}:{argument.strip().translate(_FOLD)}"
    return f"##{inner}##"


def quote_lines(text: str, labels: Iterable[str]) -> str:
    """The text with a word joiner before each of its lines, from the second on, that looks like a source
    tag (``[…]``), like one of the ``labels`` and a colon (``用户:``) or like a heading of the prompt itself
    (``新消息：``), behind white space or invisible characters too. The first line stands behind a true tag
    or label and so needs none."""
    # No line break is printable, which takes one look at the text and not one for each kind.
    if text.isprintable() or not any(sign in text for sign in _BREAKS):
        return text
    return _forged(tuple(labels)).sub(JOINER, text)


@lru_cache(maxsize=64)
def _forged(labels: tuple[str, ...]) -> re.Pattern[str]:
    names = [label.strip().rstrip(":：").rstrip() for label in labels]
    spelt = "|".join(map(_spelling, filter(None, names)))
    speaker = rf"|(?:{spelt})[\s{INVISIBLE}]*{_WIDTHS[':']}" if spelt else ""
    heading = "".join(f"|{_spelling(heading)}" for heading in HEADINGS)
    before = rf"(?:(?![{_BREAKS}])[\s{INVISIBLE}])*"
    return re.compile(rf"(?<=[{_BREAKS}])(?!{JOINER})(?={before}(?:[\[［【〔]{speaker}{heading}))", re.IGNORECASE)


_WIDTHS = {":": "[:：﹕︰∶꞉]", "(": "[(（﹙]", ")": "[)）﹚]", ",": "[,，﹐]"}
_NARROW = str.maketrans("：（），", ":(),")


def _spelling(words: str) -> str:
    """A pattern of all that looks like ``words``: invisible characters and spaces anywhere, signs of either width."""
    signs = ("".join(words.split())).translate(_NARROW)
    return rf"[\s{INVISIBLE}]*".join(_WIDTHS.get(sign) or re.escape(sign) for sign in signs)


def clean_nick(nick: str) -> str:
    """A nick on one line for a prompt: line breaks and controls become a space, format characters (bidi
    ones above all) go, brackets become round and colons a middle dot, so that the border between nick and
    text stays where it is. At most :data:`NICK_CHARS` characters; ``?`` when nothing is left."""
    shown = _NICK_DROPPED.sub("", _NICK_SPACE.sub(" ", nick)).translate(_NICK_BORDERS)
    shown = _NICK_HASHES.sub(lambda sign: sign[0] + JOINER, " ".join(shown.split())[:NICK_CHARS])
    return shown.strip() or "?"
