"""The language in which the tool itself speaks: ``--lang``, else that of the system."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Both(NamedTuple):
    """One text in English and in Chinese."""

    en: str
    zh: str


LANGUAGES = ("zh", "en")
_chosen = ""


def language_of(environ: Mapping[str, str]) -> str:
    """``zh`` or ``en``, from the first of LC_ALL, LC_MESSAGES and LANG that is set."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def language() -> str:
    return _chosen or language_of(os.environ)


def choose(args: Sequence[str]) -> None:
    """Take ``--lang`` from a command line before anything is parsed, so that help and errors obey it too."""
    global _chosen
    _chosen = ""
    for n, word in enumerate(args):
        if word == "--":
            break
        if word == "--lang" and n + 1 < len(args) and args[n + 1] in LANGUAGES:
            _chosen = args[n + 1]
        elif word.startswith("--lang=") and word.removeprefix("--lang=") in LANGUAGES:
            _chosen = word.removeprefix("--lang=")


def environ() -> Mapping[str, str]:
    """The environment, with ``--lang`` in place of the system's language where it was given."""
    if not _chosen:
        return os.environ
    return {**os.environ, "LC_ALL": "zh_CN.UTF-8" if _chosen == "zh" else "en_US.UTF-8"}


def spoken(en: str, zh: str) -> str:
    return zh if language() == "zh" else en


def pick(both: Both) -> str:
    return spoken(both.en, both.zh)
