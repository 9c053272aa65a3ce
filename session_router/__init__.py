"""Session Router: a state machine between chat channels and agents.

The public face. Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from session_router.bridge import SessionBridge
    from session_router.cli import main
    from session_router.router import SessionRouter
    from storage.opencode import extract_session_context

__all__ = ["SessionBridge", "SessionRouter", "extract_session_context", "main"]

_HOMES = {
    "SessionBridge": "session_router.bridge",
    "SessionRouter": "session_router.router",
    "extract_session_context": "storage.opencode",
    "main": "session_router.cli",
}


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
