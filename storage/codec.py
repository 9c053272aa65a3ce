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

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from fsm.conversation import Conversation, Key
from fsm.ports import StoreError

# Optional, because pydantic takes a config for a union but not for a bare dataclass. The config is
# needed for a limit of ``inf`` in a config file: JSON null would lose that deadline.
_ADAPTER: TypeAdapter[Conversation | None] = TypeAdapter(
    Conversation | None, config=ConfigDict(ser_json_inf_nan="constants")
)
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
        return _ADAPTER.dump_json(conversation, exclude_defaults=True, warnings="error").decode()
    except PydanticSerializationError:
        pass  # a lone surrogate, or a value of the wrong type: the slow way tells them apart
    try:
        plain = _ADAPTER.dump_python(conversation, mode="json", exclude_defaults=True, warnings="error")
        return json.dumps(_cleaned(plain), ensure_ascii=False)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise StoreError(f"The conversation {_name(key)} cannot be stored: {_said(error)}") from error


def decode(key: Key, data: str | bytes) -> Conversation:
    """The conversation of a stored row. Raises :class:`StoreError`, naming the key, for an unreadable one."""
    try:
        conversation = _ADAPTER.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise _unreadable(key, why) from error
    if conversation is None:
        raise _unreadable(key, "the row holds null")
    return conversation


def decode_readable(rows: Iterable[tuple[Key, str]]) -> tuple[dict[Key, Conversation], list[StoreError]]:
    """The conversations that can be read, in the order of the rows, and why the others cannot."""
    found: dict[Key, Conversation] = {}
    unreadable: list[StoreError] = []
    for key, data in rows:
        try:
            found[key] = decode(key, data)
        except StoreError as error:
            unreadable.append(error)
    return found, unreadable


def _unreadable(key: Key, why: str) -> StoreError:
    return StoreError(
        f"The stored conversation {_name(key)} cannot be read ({why}). "
        "Delete its row from the table conversations to begin that conversation anew."
    )


def _name(key: Key) -> str:
    return clean(f"agent={key.agent!r} channel={key.channel!r} sender={key.sender!r}")


def _said(error: Exception) -> str:
    # pydantic puts a heading before what it has to say.
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return said[-1] if said else type(error).__name__


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
