"""What stands in a record's ``data``, and the messages of a session that it holds.

    turn_start   {"content": text or blocks, "role": "user", "tag": "[xmpp]", "id": …, "config": {…}}
    tool_call    {"id": …, "name": …, "input": …}
    tool_result  {"id": …, "content": …}                 the id of the call that it answers
    turn_end     {"content": text or blocks, "usage": {"input_tokens", "output_tokens", …}}

All of it may be missing, and the names that other programs use are understood as well. A command is
a tool. A text too large for a line stands beside it (:mod:`storage.journal.blobs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from storage.journal.records import Record, kind_of

CALL_IDS = ("call_id", "callId", "tool_use_id", "call", "id")
"""Names under which a tool event says which call it belongs to, the first that is there."""
_TEXTS = ("content", "text", "message")
_INPUTS = ("input", "arguments", "argument", "arg", "args")
_RESULTS = ("content", "result", "output", "text")


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """``content`` is a text, or a list of blocks in the shape of the Anthropic API."""

    role: Literal["user", "assistant"]
    content: str | list[Any]


def first_of(data: Any, names: tuple[str, ...]) -> Any:
    """The first of these that ``data`` has and that is not null."""
    if isinstance(data, Mapping):
        for name in names:
            if (value := data.get(name)) is not None:
                return value
    return None


def messages_of(record: Record) -> list[SessionMessage]:
    """Those that a record adds to the session: mostly one; none for a turn that ended in silence."""
    data = record.data
    match record.event:
        case "tool_call":
            block = {"type": "tool_use", "id": first_of(data, CALL_IDS), "name": first_of(data, ("name", "tool")),
                     "input": first_of(data, _INPUTS)}
            return [SessionMessage("assistant", [block])]
        case "tool_result":
            answer = {"type": "tool_result", "tool_use_id": first_of(data, CALL_IDS),
                      "content": data if isinstance(data, str) else first_of(data, _RESULTS)}
            return [SessionMessage("user", [answer])]
        case "turn_start" | "turn_end":
            role: Literal["user", "assistant"] = "user" if record.event == "turn_start" else "assistant"
            several = data.get("messages") if isinstance(data, Mapping) else None
            found = [_message(one, role) for one in (several if isinstance(several, list) else [data])]
            return [message for message in found if message is not None]
    return []


def _message(data: Any, role: Literal["user", "assistant"]) -> SessionMessage | None:
    content = data if isinstance(data, str) else first_of(data, _TEXTS)
    if isinstance(data, Mapping) and data.get("role") in ("user", "assistant"):
        role = data["role"]
    if isinstance(content, Mapping):
        return _message(content, role)
    return SessionMessage(role, content) if isinstance(content, str | list) and content else None


def odd_data(event: str, data: Any) -> str:
    """What is wrong with the shape of a record's data; empty where nothing is. It may be missing, and a text by itself
    is the content."""
    if data is None or isinstance(data, str):
        return ""
    if not isinstance(data, Mapping):
        return f"data is {kind_of(data)}, not an object"
    content = first_of(data, _TEXTS) if event in ("turn_start", "turn_end") else None
    if content is None or isinstance(content, str | list | Mapping):
        return ""
    return f"the content of the message is {kind_of(content)}, not text or blocks"


def text_of(content: Any) -> str:
    """The text of a message: its text blocks, a line feed between them; tools show nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block if isinstance(block, str) else block.get("text") if isinstance(block, Mapping)
             and block.get("type", "text") == "text" else None for block in content)
    return "\n".join(text for text in texts if isinstance(text, str) and text)
