"""Takes secrets out of provider errors before they reach a log. Request ids stay: they help."""

from __future__ import annotations

import re

_SECRETS = re.compile(
    r"(?P<head>(?:Bearer\s+|(?:api[_-]?key|token|password|secret)[\"']?\s*[=:]\s*[\"']?))[^\s\"',;&]+"
    r"|\b(?:sk|pk|rk|gsk|xai|key)-[A-Za-z0-9_\-]{4,}",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """``text`` with anything that looks like a key, token or password replaced by ``***``."""
    return _SECRETS.sub(lambda found: (found["head"] or "") + "***", text)
