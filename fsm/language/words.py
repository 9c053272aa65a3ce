"""The words and phrases that people can use, one place per language.

Everything here is data; what each entry means is decided in :mod:`fsm.language.recognise`. Both
languages are always understood, whichever one the answers are in, so the tuples are joined in
:data:`WORDS`. A config may add words, never take one away.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, replace

from fsm.values import Value

CLOSING = ".．。!！?？,，;；~～…"
"""Punctuation that may close a message without changing what it says."""

TRIMMED = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u200e\u200f\u2060\ufeff"
)
"""What is trimmed off both ends: white space, and the invisible characters that keyboards leave there."""

SLASH_COMMANDS: Mapping[str, bool] = {
    "help": False,
    "why": False,
    "status": False,
    "auto": False,
    "new": True,
    "memory": False,
    "remember": True,
    "forget": True,
    "allow": True,
    "deny": True,
    "lang": True,
}
"""Engine commands behind a slash, and whether they take an argument. They are the same in every language."""


class Words(Value, cache_hash=True):  # hashing them all takes longer than reading a message
    """The phrases of one language, or of several joined. Case, width and spaces beside Chinese
    characters do not matter in any of them.

    ``switch`` goes before X and always asks for a switch; ``switch_if_found`` asks for one only where
    a session matches X, unless one of ``session`` stands before or behind X and the phrase is one of
    ``switch_with_session``. ``article`` may stand before X in that form. ``list``, ``cancel``,
    ``stop``, ``mute`` and ``unmute`` are whole messages; ``mute_for`` goes before a duration.
    ``remember`` goes before what is to be remembered, unless that begins with ``remember_not``.
    ``number`` are frames in which ``{}`` stands for the digits. ``units`` are pairs of a unit and its
    seconds, ``numerals`` of a spelled number and its value, ``languages`` of a name and its code.
    """

    switch: tuple[str, ...] = ()
    switch_if_found: tuple[str, ...] = ()
    switch_with_session: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    article: tuple[str, ...] = ()
    list: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    mute_for: tuple[str, ...] = ()
    unmute: tuple[str, ...] = ()
    remember: tuple[str, ...] = ()
    remember_not: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    units: tuple[tuple[str, float], ...] = ()
    numerals: tuple[tuple[str, float], ...] = ()
    languages: tuple[tuple[str, str], ...] = ()

    def joined(self, other: Words) -> Words:
        """The phrases of both, each once."""
        others = asdict(other)
        together = {name: (*phrases, *others[name]) for name, phrases in asdict(self).items()}
        return Words(**{name: tuple(dict.fromkeys(values)) for name, values in together.items()})

    def extended(self, extra: Mapping[str, Any]) -> Words:
        """These words and those of a config: ``{"stop": ["wait"], "units": {"moment": 60}}``.

        A value is one phrase or a list of them; for ``units``, ``numerals`` and ``languages`` it is a
        table. Raises :class:`ValueError`, naming the entry and the mend, for an unknown field and for
        an entry of the wrong shape.
        """
        known = set(self.__struct_fields__)
        added: dict[str, tuple[Any, ...]] = {}
        for name, value in extra.items():
            if name not in known:
                near = difflib.get_close_matches(str(name), sorted(known), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(sorted(known))}."
                raise ValueError(f"words: there is no list of words named {name!r}; {hint}")
            added[name] = _pairs(name, value) if name in _TABLES else _phrases(name, value)
        return self.joined(replace(Words(), **added))


_TABLES = {"units": (int, float), "numerals": (int, float), "languages": (str,)}


def _phrases(name: str, value: object) -> tuple[str, ...]:
    phrases = [value] if isinstance(value, str) else value
    if not isinstance(phrases, (list, tuple, set, frozenset)):
        # One kind of error for everything that a config can get wrong.
        raise ValueError(f"words: {name} must be a phrase or a list of phrases, not {value!r}.")
    for phrase in phrases:
        # An empty phrase would match every message.
        if not isinstance(phrase, str) or not phrase.strip(TRIMMED + CLOSING):
            raise ValueError(f"words: {name} holds {phrase!r}; every phrase must be text that is not empty.")
        if name == "number" and phrase.count("{}") != 1:
            raise ValueError(f"words: number holds {phrase!r}; write {{}} once, where the digits stand.")
    return tuple(phrases)


def _pairs(name: str, value: object) -> tuple[tuple[str, Any], ...]:
    kinds = _TABLES[name]
    if not isinstance(value, Mapping):
        raise ValueError(f"words: {name} must be a table such as {{ word = value }}, not {value!r}.")
    for word, worth in value.items():
        right = isinstance(worth, kinds) and not isinstance(worth, bool)
        if not isinstance(word, str) or not word.strip(TRIMMED) or not right:
            wanted = "text" if kinds == (str,) else "a number"
            raise ValueError(f"words: {name} holds {word!r} = {worth!r}; the value must be {wanted}.")
    return tuple(value.items())


ZH = Words(
    switch=("切换到", "切到", "换到"),
    session=("会话",),
    list=("列出会话", "会话列表", "有哪些会话", "列出session", "session列表", "有哪些session"),
    cancel=("取消", "算了"),
    stop=("停", "停止"),
    mute=("安静",),
    mute_for=("安静",),
    unmute=("可以说话了", "解除静音"),
    remember=("记住",),
    remember_not=("了",),  # "记住了" says that something was taken in, it asks for nothing
    number=("第{}个",),
    units=(
        ("秒", 1), ("秒钟", 1), ("分", 60), ("分钟", 60), ("小时", 3600), ("钟头", 3600), ("天", 86400),
    ),
    numerals=(
        ("半", 0.5), ("零", 0), ("一", 1), ("二", 2), ("两", 2), ("三", 3), ("四", 4), ("五", 5),
        ("六", 6), ("七", 7), ("八", 8), ("九", 9),
    ),
    languages=(("中文", "zh"), ("英文", "en")),
)  # fmt: skip

EN = Words(
    switch_if_found=("switch to", "resume"),
    switch_with_session=("switch to",),
    session=("session",),
    article=("the",),
    list=("list sessions", "show sessions", "list session", "show session"),
    cancel=("cancel",),
    stop=("stop",),
    mute=("be quiet",),
    mute_for=("be quiet for", "be quiet"),
    unmute=("you can talk",),
    remember=("remember that",),
    number=("{}", "#{}"),
    units=(
        ("s", 1), ("sec", 1), ("secs", 1), ("second", 1), ("seconds", 1),
        ("m", 60), ("min", 60), ("mins", 60), ("minute", 60), ("minutes", 60),
        ("h", 3600), ("hr", 3600), ("hrs", 3600), ("hour", 3600), ("hours", 3600),
        ("d", 86400), ("day", 86400), ("days", 86400),
    ),
    numerals=(
        ("half an", 0.5), ("half a", 0.5), ("half", 0.5), ("an", 1), ("a", 1), ("one", 1), ("two", 2),
        ("three", 3), ("four", 4), ("five", 5), ("six", 6), ("seven", 7), ("eight", 8), ("nine", 9),
        ("ten", 10), ("fifteen", 15), ("twenty", 20), ("thirty", 30), ("forty", 40),
        ("forty-five", 45), ("sixty", 60), ("ninety", 90),
    ),
    languages=(("zh", "zh"), ("en", "en"), ("chinese", "zh"), ("english", "en")),
)  # fmt: skip

WORDS = ZH.joined(EN)
"""All languages."""


_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_BESIDE_CHINESE = re.compile(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])")


def fold(text: str) -> str:
    """Lower case and half width, one character for each of ``text``, so that positions stay the same.

    Nothing else is folded: ``²`` and ``②`` are no digits.
    """
    if text.isascii():
        return text.lower()
    narrow = text.translate(_WIDTH)
    lower = narrow.lower()
    if len(lower) == len(narrow):
        return lower
    return "".join(small if len(small := char.lower()) == 1 else char for char in narrow)


def squeeze(folded: str) -> str:
    """One space for many, and none beside a character outside ASCII (``安静 30 分钟``)."""
    # The one white space that is printable is the space itself, so most texts are squeezed as they come.
    is_single = folded.isprintable() and "  " not in folded
    single = folded.strip() if is_single else " ".join(folded.split())
    return single if single.isascii() else _BESIDE_CHINESE.sub("", single)
