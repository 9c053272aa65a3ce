"""The words of a ``cli`` step, read by the parser of the command line itself."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import click

FORM = "[send, TEXT, SESSION_ID, --agent, NAME]"


@dataclass(frozen=True, slots=True)
class Sending:
    """``session-router send``: the session and the agent may have been left out."""

    text: str
    session: str | None = None
    agent: str | None = None


def sending(words: Any) -> Sending:
    """What a list of words says. Raises ValueError where the command line would not take them."""
    if not isinstance(words, list) or words[:1] != ["send"]:
        raise ValueError(f"expected {FORM}")
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int):
            raise ValueError(f"expected a text, not {word!r} (put it in quotes)")
    try:
        with _command().make_context("send", [str(word) for word in words[1:]]) as context:
            given = context.params
    except click.UsageError as error:
        raise ValueError(f"{error.format_message().rstrip('.')}; expected {FORM}") from error
    for name, value in (("text", given["text"]), ("session id", given["session_id"]), ("agent", given["agent_name"])):
        if value is not None and not value.strip():
            raise ValueError(f"the {name} is empty; expected {FORM}")
    return Sending(given["text"], given["session_id"], given["agent_name"])


def _command() -> click.Command:
    """``send`` with what a scenario knows of it: no config file, no output to choose, no help to print."""
    from session_router.cli.bridge import send

    command = copy.copy(send)
    command.params = [param for param in send.params if param.name in ("text", "session_id", "agent_name")]
    command.add_help_option = False
    return command
