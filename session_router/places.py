"""Where things are kept on this machine, by the XDG rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the engine's own files: ``$XDG_DATA_HOME/session-router``."""
    base = environ.get("XDG_DATA_HOME") or ""
    # A relative path there is to be ignored (XDG Base Directory Specification).
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
    return root / "session-router"
