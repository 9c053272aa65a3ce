"""Where Hermes' database is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from storage.readonly import Program

NAME = "hermes"
PROGRAM = Program(source=NAME, name="Hermes", file="state.db",
                  mend="set HERMES_HOME to the folder that holds its state.db")


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Hermes 0.19 itself looks: ``state.db`` in ``$HERMES_HOME``, else in ``~/.hermes`` (on Windows
    ``%LOCALAPPDATA%\\hermes``)."""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    if named := environ.get("HERMES_HOME", "").strip():
        return Path(named) / "state.db"
    if sys.platform == "win32":
        local = environ.get("LOCALAPPDATA", "").strip()
        return (Path(local) if local else home / "AppData" / "Local") / "hermes" / "state.db"
    return home / ".hermes" / "state.db"
