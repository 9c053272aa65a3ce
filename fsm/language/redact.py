"""Keeps API keys out of whatever is logged or shown.

A provider may quote the key it refused, so its words are never passed on as they came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"

# Keys as the providers make them (``sk-…``, ``sk-ant-…``, ``sk-or-…``, ``gsk_…``), and anything that stands
# where a key stands. A provider that masks a key itself leaves asterisks, hence the ``*``.
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai)[-_][\w*.\-]{4,}")
_BEARER = re.compile(r"(?i)\b(bearer)\s+[^\s\"',}]+")
_NAMED = re.compile(r"(?i)\b((?:x-)?api[-_ ]?key[\"']?\s*[:=]\s*[\"']?)[^\s\"',}]+")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` with ``secrets``, and whatever looks like an API key, replaced by ``[hidden]``."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return _KEYS.sub(HIDDEN, text)
