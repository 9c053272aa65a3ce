"""Which lines of a session the agent said itself from the command line, and how the model is told.

They are known by their id, never by their text: anybody can write ``[YOU] ``.
"""

from __future__ import annotations

from msgspec.structs import replace

from fsm.ports import Line

YOU = "[YOU] "
"""Stands before a line that the agent itself said."""

_CLI = "cli:"
"""Begins the id of such a line. No message of a channel has one like it: an agent's name, which begins those, holds
no colon."""


def cli_line_id(agent: str, send: str) -> str:
    """The id of the line that ``agent`` said from the command line; ``send`` names the sending for ever."""
    return f"{_CLI}{agent}:{send}"


def tagged(text: str) -> str:
    """``text`` with the tag before it, once."""
    return text if text.startswith(YOU) else YOU + text


def as_read_by(line: Line, agent: str) -> Line:
    """The line as ``agent`` is to read it: with the tag where it said that itself, without where another agent did.
    For nobody in particular (empty) every such line has its tag."""
    if not line.id.startswith(_CLI):
        return line
    said_by = line.id.removeprefix(_CLI).partition(":")[0]
    text = tagged(line.text) if agent in ("", said_by) else line.text.removeprefix(YOU)
    return line if text == line.text else replace(line, text=text)
