"""The lines by which a prompt of ours says what follows, in Chinese and English.

Whatever stands here is the engine's own word: nobody else's line may begin with it (see
:func:`fsm.language.inert.quote_lines`).
"""

from __future__ import annotations

RECENT = {"zh": "会话里最近的内容（从旧到新）：", "en": "What was said in this session lately, oldest first:"}
NEW = {"zh": "新消息：", "en": "New message:"}
SYSTEM = {"zh": "（系统）", "en": "(system)"}
"""Begins everything else that the engine itself tells the model in the course of a turn."""

HEADINGS = tuple(heading for each in (RECENT, NEW, SYSTEM) for heading in each.values())
"""All of them."""
