"""What the doctor reports, and the words that all its parts share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem"]

language: ContextVar[str] = ContextVar("language of the report", default="en")


def spoken(en: str, zh: str) -> str:
    return zh if language.get() == "zh" else en


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: ``what`` was looked at, ``detail`` what was seen there, ``mend`` what to do
    about it (empty where all is well)."""

    level: Level
    what: str
    detail: str
    mend: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    """The gravest level among them, ``ok`` where there are none."""
    levels = {finding.level for finding in findings}
    return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"



def chmod(file: Path) -> str:
    return spoken(f"Run `chmod 600 {file}`.", f"执行 `chmod 600 {file}`。")


def others_may_read(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
