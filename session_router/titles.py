"""A title for a session of ours from its first turn, by the model, in the background."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fsm.language.redact import redact
from fsm.language.titles import one_line
from fsm.ports import ChatMessage, LanguageModel, Line, ModelError, SourceError
from storage.journal import JournalSource

log = logging.getLogger("session_router.titles")

TITLE_CHARS = 60
SHOWN_CHARS = 1_000
"""Characters of each side of the turn that the model gets to read."""

PROMPT = (
    "Give this conversation a title of two to six words in its own language. Answer with the title alone: no quotes, "
    "no full stop, no explanation."
)


async def give_title(source: JournalSource, model: LanguageModel, session_id: str, at: float) -> None:
    """Ask once and set what comes of it, unless somebody was faster. What goes wrong is logged and no more: the
    session keeps the title that its first message makes."""
    try:
        lines = await source.opening(session_id)
        if {line.role for line in lines} != {"user", "assistant"}:
            return
        reply = await model.complete(_prompt(lines), session_id=session_id)
        title = one_line(reply.text).strip("\"'“”‘’「」《》*# ").rstrip(".。")[:TITLE_CHARS].strip()
        if title and await source.opening(session_id):
            await source.set_title(session_id, title, at=at)
    except (ModelError, SourceError) as error:
        log.warning("session %s keeps its first message for a title: %s", session_id, redact(str(error)))


def _prompt(lines: Sequence[Line]) -> list[ChatMessage]:
    said = "\n".join(f"{line.role}: {line.text[:SHOWN_CHARS]}" for line in lines)
    return [{"role": "system", "content": PROMPT}, {"role": "user", "content": said}]
