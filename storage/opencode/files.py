"""Where OpenCode's database is, and how it is opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from storage.readonly import TIMEOUT, Identity, Program
from storage.readonly import read as read_database

NAME = "opencode"
PROGRAM = Program(source=NAME, name="OpenCode", file="opencode.db", mend="set OPENCODE_DB to where it is")

T = TypeVar("T")


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where OpenCode itself looks: ``OPENCODE_DB`` (absolute, or relative to the data folder), else
    ``opencode.db`` in ``$XDG_DATA_HOME/opencode``, else in ``~/.local/share/opencode``.

    A relative ``OPENCODE_DB`` that is not in the data folder is looked for in the working folder too: a
    path typed on a command line means that one.
    """
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    named = environ.get("OPENCODE_DB")
    if named and not (data / named).exists() and (here := Path.cwd() / named).exists():
        return here.resolve()
    return data / (named or "opencode.db")


def read(path: Path, work: Callable[[sqlite3.Connection, Identity], T], timeout: float = TIMEOUT) -> T:
    """What ``work`` reads from OpenCode's database, see :func:`storage.readonly.read`."""
    return read_database(path, PROGRAM, work, timeout)
