"""Conversations as JSON text, and texts as SQLite can keep them.

A conversation is written without its defaults, so an idle one that nothing happened to is ``{}``.
Read back, a field that is missing takes its default and one that is unknown is passed over, so rows
of older and of slightly newer versions load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from fsm.conversation import Conversation, Key
from fsm.ports import ConversationUnreadable, StoreError

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Conversation).decode
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD: UTF-8, and so SQLite, has no place for one."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def encode(key: Key, conversation: Conversation) -> str:
    """JSON text of a conversation. Raises :class:`StoreError` for one that holds foreign values."""
    try:
        data = _write(conversation)
        # Nothing checks types on the way in, so what is written is read at once: that takes two microseconds.
        if _read(data) == conversation:
            return data.decode()
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
        pass
    # A lone surrogate, a deadline that never comes (``inf``), or a foreign value: the slow way tells them apart.
    try:
        plain = msgspec.to_builtins(conversation)
        if msgspec.convert(plain, Conversation) != conversation:
            raise ValueError("it would not be the same when it is read again")
        return json.dumps(_cleaned(plain), ensure_ascii=False)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise StoreError(f"The conversation {_name(key)} cannot be stored: {error}") from error


def decode(key: Key, data: str | bytes) -> Conversation:
    """The conversation of a stored row. Raises :class:`ConversationUnreadable`, naming the key."""
    try:
        return _read(data)
    except msgspec.ValidationError as error:
        raise _unreadable(key, str(error)) from error
    except msgspec.DecodeError:
        pass  # no JSON, or with an ``Infinity``, which JSON has no word for and Python has
    try:
        return msgspec.convert(json.loads(data), Conversation)
    except msgspec.ValidationError as error:
        raise _unreadable(key, str(error)) from error
    except ValueError as error:
        raise _unreadable(key, f"Invalid JSON: {error}") from error


def decode_readable(rows: Iterable[tuple[Key, str]]) -> tuple[dict[Key, Conversation], dict[Key, StoreError]]:
    """The conversations that can be read, and why the others cannot, each in the order of the rows."""
    found: dict[Key, Conversation] = {}
    unreadable: dict[Key, StoreError] = {}
    for key, data in rows:
        try:
            found[key] = decode(key, data)
        except StoreError as error:
            unreadable[key] = error
    return found, unreadable


def _unreadable(key: Key, why: str) -> ConversationUnreadable:
    return ConversationUnreadable(
        f"The stored conversation {_name(key)} cannot be read ({why}). "
        "Delete its row from the table conversations to begin that conversation anew."
    )


def _name(key: Key) -> str:
    return clean(f"agent={key.agent!r} channel={key.channel!r} sender={key.sender!r}")


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {name: _cleaned(part) for name, part in value.items()}
        case list() | tuple():
            return [_cleaned(part) for part in value]
        case _:
            return value
