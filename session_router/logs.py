"""The log of a running process: one line a record on stderr, as text or as JSON, without what people write."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any, Literal, TextIO

from fsm.language.redact import redact

LogFormat = Literal["text", "json"]

QUIET = ("httpx2", "httpcore2", "httpx", "httpcore", "openai", "slixmpp", "aiohttp", "asyncio", "aiosqlite")
"""Libraries of which only warnings are of interest."""

_BODY = re.compile(r"(<body\b[^>]*>).*?(</body>)", re.DOTALL)
_MASKED = "…"

_OURS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _OURS}


class _Formatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, *, bodies: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self._bodies = bodies

    def clean(self, text: str) -> str:
        """Without secrets; a stanza that a library shows is shown without its body."""
        text = redact(text)
        return text if self._bodies else _BODY.sub(rf"\1{_MASKED}\2", text)


class TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in facts_of(record).items())
        return self.clean(super().format(record) + facts)


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self.formatTime(record, self.datefmt),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        for name, value in facts_of(record).items():
            line[name] = self.clean(value) if isinstance(value, str) else value
        if record.exc_info:
            line["exception"] = self.clean(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to(stream: TextIO | None = None, *, format: LogFormat = "text", bodies: bool = False,
           level: int = logging.INFO) -> None:
    """Send everything that is logged to ``stream`` (stderr), in place of wherever it went before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    kind = JsonFormatter if format == "json" else TextFormatter
    handler.setFormatter(kind(bodies=bodies))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
