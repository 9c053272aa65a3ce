"""A session's messages as OpenCode's server gives them, turned into lines of context.

The same rules as for its database (``reading``): from the last compaction's summary on, without what
the user took back, and with a mark behind an answer that is not finished.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fsm.ports import Line
from storage.opencode.reading import STILL_ANSWERING
from storage.opencode.wire import Message, Part, Undone


async def read_lines(pages: AsyncIterator[Sequence[Message]], limit: int, undone: Undone | None) -> list[Line]:
    """The newest ``limit`` messages with text, oldest first. ``pages`` go from the newest back, each of
    them oldest first, and are asked for only as long as lines are wanted."""
    lines: list[Line] = []
    hidden, newest = undone is not None, True
    async for page in pages:
        for message in reversed(page):
            parts: Sequence[Part] = message.parts
            if hidden and undone is not None:
                if message.info.id != undone.message:
                    continue
                hidden = False
                if undone.part is None:
                    continue
                # With a part named, its message keeps what stands before that part.
                parts = parts[: next((at for at, part in enumerate(parts) if part.id == undone.part), None)]
            if message.info.role not in ("user", "assistant"):
                continue
            text = "\n".join(part.visible for part in parts if part.visible)
            info = message.info
            finished = info.error is not None or info.time.completed is not None
            if info.is_summary:
                if text and info.error is None and finished:
                    lines.append(_line(message, text))
                    return lines[::-1]
                continue
            if info.role == "assistant" and newest and not finished:
                text = f"{text} {STILL_ANSWERING}" if text else STILL_ANSWERING
            newest = False
            if text:
                lines.append(_line(message, text))
                if len(lines) >= limit:
                    return lines[::-1]
    return lines[::-1]


def _line(message: Message, text: str) -> Line:
    at = message.info.time.created / 1000
    return Line("assistant" if message.info.role == "assistant" else "user", text, at, "", message.info.id)
