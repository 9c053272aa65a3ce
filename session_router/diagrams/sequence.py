"""A run as a Mermaid sequence diagram: who told whom what, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from session_router.diagrams.mermaid import escape, front_matter

Kind = Literal["asks", "answers", "lost"]

_HEADS: dict[Kind, str] = {"asks": "->>", "answers": "-->>", "lost": "-x"}


@dataclass(frozen=True, slots=True)
class Arrow:
    """``frm`` tells ``to`` something. ``answers`` is dashed; ``lost`` ends in a cross: it never arrives."""

    frm: str
    to: str
    text: str
    kind: Kind = "asks"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark over one participant, such as the state it is in now or the time that passes."""

    over: str
    text: str


def sequence(steps: Iterable[Arrow | Note], title: str = "") -> str:
    """The steps as text, the same for the same steps; participants stand in the order of appearance."""
    steps = tuple(steps)
    names: dict[str, str] = {}
    for step in steps:
        for name in (step.frm, step.to) if isinstance(step, Arrow) else (step.over,):
            names.setdefault(name, f"p{len(names) + 1}")
    lines = [*(front_matter(title) if title else ()), "sequenceDiagram"]
    lines += [f"    participant {short} as {_label(name)}" for name, short in names.items()]
    for step in steps:
        match step:
            case Arrow(frm, to, text, kind):
                lines.append(f"    {names[frm]}{_HEADS[kind]}{names[to]}: {_label(text)}")
            case Note(over, text):
                lines.append(f"    Note over {names[over]}: {_label(text)}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    # Mermaid refuses an empty label; a zero-width space is seen as one.
    return escape(text.strip()) or "#8203;"
