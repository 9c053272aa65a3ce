"""Which sessions a person may mean by a few words.

Three steps, each tried only where the one before found nothing: an exact id or title, words contained
in the title, and a likeness of the spelling, of the pinyin and of its initials.

Whoever asks for a switch outright gets whatever is alike. A sentence that is a request only because something
matches ("switch to the dark theme") must be much more alike: hence ``narrow``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fsm.language.titles import one_line
from fsm.ports import SessionInfo

THRESHOLD = 70.0
"""The least score, of 100, that counts as alike."""

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_CONTAINED = 90.0
"""What WRatio gives a word that is contained whole in something much longer."""
_LONGEST = 200
"""Characters beyond which nothing is compared by likeness."""
_WORD_ALIKE = 80.0
_WORDS_SHARE = 0.7
_FEW = 4
"""Letters below which a likeness of parts says nothing: an error among them, and they are in every word."""


def match_sessions(words: str, sessions: Sequence[SessionInfo], *, narrow: bool = False) -> list[SessionInfo]:
    """The sessions that ``words`` names, with ``narrow`` only those that it can hardly fail to mean.

    ``sessions`` come most recently active first; the answer keeps that order, save that a search by
    likeness puts the higher score first. Case, width and invisible characters do not matter; nothing
    in ``words`` is a wildcard. Empty words match nothing.
    """
    wanted = _fold(words)
    if not wanted:
        return []
    said = words.strip()
    if exact := [session for session in sessions if said in (session.id, session.title)]:
        return exact
    if exact := [session for session in sessions if _forms(session.title).title == wanted]:
        return exact
    if within := [session for session in sessions if wanted in _forms(session.title).title]:
        return within
    if len(wanted) > _LONGEST:
        return []
    likeness = _narrow_likeness if narrow else _likeness
    scored = [(likeness(wanted, _forms(session.title)), session) for session in sessions]
    alike = [(score, session) for score, session in scored if score >= THRESHOLD]
    return [session for _, session in sorted(alike, key=lambda pair: -pair[0])]


@dataclass(frozen=True, slots=True)
class _Forms:
    """A title to compare with, folded: as written, and in pinyin where it holds Chinese. ``starts``
    are the positions in ``pinyin`` at which a syllable begins."""

    title: str
    pinyin: str = ""
    initials: str = ""
    starts: frozenset[int] = frozenset()


@lru_cache(maxsize=4096)
def _forms(title: str | None) -> _Forms:
    folded = _fold(title)
    part = folded[:_LONGEST]
    if not _HAN.search(part):
        return _Forms(folded)
    # Imported here: its dictionaries take longer to load than the rest of a start.
    from pypinyin import Style, lazy_pinyin

    syllables = lazy_pinyin(part)
    starts, at = set(), 0
    for syllable in syllables:
        starts.add(at)
        at += len(syllable)
    initials = "".join(lazy_pinyin(part, style=Style.FIRST_LETTER))
    return _Forms(folded, "".join(syllables), initials, frozenset(starts))


def _fold(text: str | None) -> str:
    return one_line(unicodedata.normalize("NFKC", one_line(text)).casefold())


def _likeness(wanted: str, forms: _Forms) -> float:
    from rapidfuzz import fuzz

    # One character would be a part of every word that has it.
    seen = (form for form in (forms.title[:_LONGEST], forms.pinyin, forms.initials) if len(form) > 1)
    scores = [fuzz.WRatio(wanted, form, score_cutoff=THRESHOLD) for form in seen]
    return max([*scores, _same_sound(wanted, forms), 100.0 if wanted == forms.pinyin else 0.0])


def _same_sound(wanted: str, forms: _Forms) -> float:
    """Other characters, the same sound: 布署 for 部署."""
    alike = forms.pinyin and _HAN.search(wanted) and _begins_a_syllable(_forms(wanted).pinyin, forms)
    return _CONTAINED if alike else 0.0


def _narrow_likeness(wanted: str, forms: _Forms) -> float:
    if wanted.isascii() and len(wanted) < _FEW:
        return _likeness_of_few_letters(wanted, forms)
    scores = [_ratio(wanted, forms.title[:_LONGEST]), _same_sound(wanted, forms)]
    if forms.pinyin:
        scores.append(_ratio(wanted, forms.pinyin))
        if len(wanted) <= len(forms.initials) + 1:
            scores.append(_ratio(wanted, forms.initials))
    return max(scores)


def _likeness_of_few_letters(wanted: str, forms: _Forms) -> float:
    """Two or three letters are inside nearly everything once an error is allowed ("an" in "tian", "bot"
    in "boke"), so they must be initials, or three of them the beginning of a syllable or the whole title but
    for one letter."""
    from rapidfuzz import fuzz

    if len(wanted) == 3 and fuzz.ratio(wanted, forms.title[:_LONGEST]) >= _WORD_ALIKE:
        return _WORD_ALIKE
    if len(wanted) < 2 or not forms.pinyin:
        return 0.0
    if wanted in (forms.initials, forms.pinyin):
        return 100.0
    if wanted in forms.initials or (len(wanted) == 3 and _begins_a_syllable(wanted, forms)):
        return _CONTAINED
    return 0.0


def _begins_a_syllable(wanted: str, forms: _Forms) -> bool:
    return len(wanted) > 2 and any(forms.pinyin.startswith(wanted, start) for start in forms.starts)


def _ratio(wanted: str, form: str) -> float:
    from rapidfuzz import fuzz

    # WRatio takes the shorter text as a part of the longer one: a title of a letter or two would be
    # a part of every word.
    if form.isascii() and len(form) < min(_FEW, len(wanted)):
        return 0.0
    score = fuzz.WRatio(wanted, form, score_cutoff=THRESHOLD)
    several = wanted.split()
    if score < THRESHOLD or len(several) < 2 or fuzz.ratio(wanted, form) >= THRESHOLD:
        return score
    if len(wanted) < len(form) and fuzz.partial_ratio(wanted, form) >= _WORD_ALIKE:
        return score
    # What is left is what WRatio finds word by word, and there one word in common ("the", "new") is
    # worth 85 however much else differs: it would make a switch of "switch to the dark theme". Most of
    # what was said must be there.
    found = sum(len(word) for word in several if fuzz.partial_ratio(word, form) >= _WORD_ALIKE)
    return score if found >= _WORDS_SHARE * sum(map(len, several)) else 0.0
