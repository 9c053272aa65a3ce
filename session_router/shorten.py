"""Makes a prompt fit a small context window.

Kept, in this order: the start of the instructions, the end of the newest message, then as many of the
messages before it as there is room for. What goes first is the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fsm.ports import ChatMessage

PER_MESSAGE = 8
"""Tokens that a chat template puts around one message, generously."""
MARGIN = 32
"""Tokens that a chat template adds of its own: SmolLM2's makes up instructions when none are given."""
WORTH_KEEPING = 24
"""Tokens below which the end of a message says nothing."""
LONGEST_TOKEN = 16
"""Characters of one token at most, near enough: cuts what is far too long before it is counted."""


class Tokenizer(Protocol):
    """Counts as the model does."""

    async def encode(self, text: str) -> list[int]: ...

    async def decode(self, tokens: list[int]) -> str: ...


async def shorten(messages: Sequence[ChatMessage], budget: int, tokenizer: Tokenizer) -> list[ChatMessage]:
    """``messages`` in at most ``budget`` tokens; the same list when they fit already."""
    room = budget - MARGIN
    # A token is at least one byte, so a short prompt needs no counting.
    if sum(len(m["content"].encode()) + PER_MESSAGE for m in messages) <= room:
        return list(messages)

    first = 1 if messages[0]["role"] == "system" and len(messages) > 1 else 0
    start: list[ChatMessage] = []
    if first:
        head, used = await _cut(messages[0], room // 2, tokenizer, keep="start")
        start, room = [head], room - used
    kept: list[ChatMessage] = []
    for message in reversed(messages[first:]):
        if kept and room < PER_MESSAGE + WORTH_KEEPING:
            break
        cut, used = await _cut(message, room, tokenizer, keep="end")
        kept.append(cut)
        room -= used
        if cut["content"] != message["content"]:
            break
    return start + kept[::-1]


async def _cut(
    message: ChatMessage, room: int, tokenizer: Tokenizer, *, keep: str
) -> tuple[ChatMessage, int]:
    """(the message in at most ``room`` tokens, what it uses), cut at a line end where one is near."""
    most = max(room - PER_MESSAGE, 1)
    text, far = message["content"], most * LONGEST_TOKEN
    near = text if len(text) <= far else text[:far] if keep == "start" else text[-far:]
    tokens = await tokenizer.encode(near)
    if len(tokens) <= most and near == text:
        return message, len(tokens) + PER_MESSAGE
    if len(tokens) > most:
        tokens = tokens[:most] if keep == "start" else tokens[-most:]
    # A cut between the bytes of one character leaves U+FFFD at the edge.
    part = (await tokenizer.decode(tokens)).strip("\ufffd")
    edge = part.rfind("\n") if keep == "start" else part.find("\n")
    if keep == "start" and edge > len(part) // 2:
        part = part[:edge]
    elif keep == "end" and 0 <= edge < len(part) // 2:
        part = part[edge + 1 :]
    return ChatMessage(role=message["role"], content=part), len(tokens) + PER_MESSAGE
