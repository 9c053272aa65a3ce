"""A session's history as the text that a model reads: one message a line, oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from fsm.constants import CONTEXT_CHARS
from fsm.language.inert import quote_lines
from fsm.ports import Line

USER_LABEL = "用户"
AGENT_LABEL = "小小莫"


def format_context(
    lines: Sequence[Line],
    *,
    user_label: str = USER_LABEL,
    agent_label: str = AGENT_LABEL,
    max_chars: int = CONTEXT_CHARS,
) -> str:
    """``用户: …`` and ``小小莫: …``, a source tag kept (``用户: [xmpp] …``), joined by line feeds.

    ``lines`` come oldest first and stay so. Where the whole is longer than ``max_chars`` characters
    the oldest go; a newest message too long by itself is cut at its end rather than lost. Inside a
    message, lines that look like somebody else's or like our own are marked (:func:`quote_lines`), so that
    nobody can write a line in another's name.
    """
    kept: list[str] = []
    room, labels = max_chars, (user_label, agent_label)
    for line in reversed(lines):
        label = user_label if line.role == "user" else agent_label
        text = quote_lines(line.text, labels)
        text = f"{label}: {line.tag} {text}" if line.tag else f"{label}: {text}"
        if len(text) > room:
            if not kept and room > 0:
                kept.append(text[: room - 1] + "…")
            break
        kept.append(text)
        room -= len(text) + 1
    return "\n".join(reversed(kept))
