"""Durations as people write them: ``30m``, ``30 分钟``, ``half an hour``, ``1h30m``, ``一个半小时``."""

from __future__ import annotations

import re
from functools import lru_cache

from fsm.language.words import WORDS, Words, fold, squeeze

_LONGEST = 64
_CEILING = 1e9
_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_UNITLESS = 60.0


def parse_duration(text: str, words: Words = WORDS) -> float | None:
    """Seconds, or None where ``text`` is not a duration. A bare number counts minutes.

    Zero is returned as 0.0 and very long ones are cut to 1e9: what is too short or too long is for
    the caller to say.
    """
    said = squeeze(fold(text.strip()))
    if not said or len(said) > _LONGEST:
        return None
    if _DIGITS.fullmatch(said):
        return min(float(said) * _UNITLESS, _CEILING)
    part, units = _grammar(words)
    total, at = 0.0, 0
    while at < len(said):
        found = part.match(said, at)
        if found is None:
            return None
        amount = _amount(found["amount"], words)
        if amount is None:
            return None
        total += (amount + (0.5 if found["half"] else 0.0)) * units[found["unit"]]
        at = found.end()
    return min(total, _CEILING)


@lru_cache(maxsize=16)
def _grammar(words: Words) -> tuple[re.Pattern[str], dict[str, float]]:
    units = {squeeze(fold(unit)): float(seconds) for unit, seconds in words.units}
    spelled = {squeeze(fold(word)) for word, _ in words.numerals}
    # A word in letters must end where the next thing begins, or "a" would be read out of "another".
    latin = "|".join(re.escape(word) for word in sorted(spelled, key=len, reverse=True) if word.isascii())
    chinese = "".join(re.escape(word) for word in spelled if len(word) == 1 and not word.isascii()) + "十"
    amounts = [_DIGITS.pattern, f"[{chinese}]+"] + ([rf"(?:{latin})(?![a-z])"] if latin else [])
    unit = "|".join(re.escape(word) for word in sorted(units, key=len, reverse=True))
    return re.compile(
        rf"(?P<amount>{'|'.join(amounts)})\s*(?:个(?P<half>半)?)?\s*(?P<unit>{unit})(?![a-z])(?:\s*(?:,|and\b|零)?\s*)"
    ), units


def _amount(said: str, words: Words) -> float | None:
    if _DIGITS.fullmatch(said):
        return float(said)
    values = {squeeze(fold(word)): float(value) for word, value in words.numerals}
    if said in values:
        return values[said]
    # Chinese numbers up to 99: 十五, 三十, 四十五.
    tens, ten, ones = said.partition("十")
    if not ten or len(tens) > 1 or len(ones) > 1:
        return None
    high, low = (values.get(tens) if tens else 1.0), (values.get(ones) if ones else 0.0)
    if high is None or low is None or not high.is_integer() or not low.is_integer():
        return None
    return high * 10 + low
