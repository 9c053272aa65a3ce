"""What the doctor reports, and the words that all its parts share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsm.ports import SourceError
from session_router.config import ConfigError

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


def wrong_setting(what: str, error: ConfigError) -> Finding:
    """A setting that cannot be what it is."""
    mend = spoken(f"Correct {error.key} in the config.", f"在配置里改正 {error.key}。")
    return Finding("problem", what, error.text, mend)


def unreached(what: str, error: SourceError, key: str) -> Finding:
    """A server of sessions, described under ``key``. They can be read without it, so one that is merely not started
    keeps nobody from working."""
    level: Level = "warning" if error.detail == "connection" else "problem"
    return Finding(level, what, str(error), spoken(f"Start it, or correct [{key}].", f"启动它，或改正 [{key}]。"))


def open_secret(what: str, file: Path | None, en: str, zh: str) -> Iterable[Finding]:
    """A warning where others may read the ``file`` that holds a password or a key, as the words call it."""
    if file is not None and others_may_read(file):
        seen = spoken(f"others on this machine may read the {en} in {file}", f"本机的其他用户能读 {file} 里的{zh}")
        yield Finding("warning", what, seen, spoken(f"Run `chmod 600 {file}`.", f"执行 `chmod 600 {file}`。"))


def others_may_read(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
