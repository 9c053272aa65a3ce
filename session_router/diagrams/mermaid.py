"""A drawing as Mermaid text (``stateDiagram-v2``), which code hosts show as a picture."""

from __future__ import annotations

import json
import re

from session_router.diagrams.graph import (
    AGAIN,
    ANY,
    REST,
    Bundle,
    Drawing,
    bundles,
    label,
    legend,
    mark_words,
)
from session_router.diagrams.palette import COLOURS, CURRENT, FAINT, INK

LEGEND = "legend"

_SPECIAL = re.compile(r"""[#;:"<>&`*_\\{}%~|^$@]""")
# "1. x", "- x" and "+ x" at the start of a line become lists, which Mermaid refuses.
_LIST = re.compile(r"^(\s*(?:\d+)?)([.)+-])(?=\s)")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """``text`` as a Mermaid label: entity codes for what has a meaning, ``<br/>`` for a line end.

    https://mermaid.js.org/syntax/flowchart.html#entity-codes-to-escape-characters
    """
    lines = _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "<br/>".join(_escape_line(line) for line in lines)


def _escape_line(line: str) -> str:
    line = _SPECIAL.sub(lambda found: f"#{ord(found[0])};", line)
    return _LIST.sub(lambda found: f"{found[1]}#{ord(found[2])};", line)


def mermaid(drawing: Drawing) -> str:
    """The drawing as text, the same for the same rows."""
    shown = bundles(drawing)
    lines = [*front_matter(drawing.title), "stateDiagram-v2", "    direction TB"]
    asides = [LEGEND, *([ANY] if any(bundle.frm == ANY for bundle in shown) else [])]
    lines.extend(_legend(drawing))
    if ANY in asides:
        lines.append(f'    state "in any state" as {ANY}')
    for node in drawing.nodes:
        now = " (now)" if node.current else ""
        lines.append(f'    state "{escape(node.id)}{now}" as {_id(node.id)}')
    if drawing.splits:
        lines.append(f"    state {REST} <<choice>>")
    lines.append("")
    lines.extend(f"    {_id(b.frm)} : {escape(label(edge))}" for b in shown if b.stays for edge in b.edges)
    lines.append("")
    lines.extend(f"    [*] --> {_id(node.id)}" for node in drawing.nodes if node.initial)
    lines.extend(_arrow(bundle) for bundle in shown if not bundle.stays)
    lines.extend(
        f"    {REST} --> {_id(split.to)} : {escape(mark_words(split.marks) + split.when)}" for split in drawing.splits
    )
    lines.append("")
    for node in drawing.nodes:
        fill, line = COLOURS[node.color % len(COLOURS)]
        width = "3px" if node.current else "1px"
        stroke = CURRENT if node.current else line
        lines.append(f"    classDef {_id(node.id)}_ fill:{fill},stroke:{stroke},stroke-width:{width},color:{INK}")
        lines.append(f"    class {_id(node.id)} {_id(node.id)}_")
    lines.append(f"    classDef aside_ fill:#ffffff,stroke:{FAINT},stroke-dasharray:4 3,color:{INK}")
    lines.extend(f"    class {name} aside_" for name in asides)
    return "\n".join(lines) + "\n"


def _arrow(bundle: Bundle) -> str:
    bullet = "• " if len(bundle.edges) > 1 else ""
    again = f" {AGAIN}" if bundle.again else ""
    text = "<br/>".join(f"{bullet}{escape(label(edge))}{again}" for edge in bundle.edges)
    return f"    {_id(bundle.frm)} --> {_id(bundle.to)} : {text}"


def _legend(drawing: Drawing) -> list[str]:
    return [
        f'    state "how to read" as {LEGEND}',
        *(f"    {LEGEND} : {escape(line)}" for line in legend(drawing)),
    ]


def front_matter(title: str) -> list[str]:
    """The lines above a diagram that give it a title (YAML, in which JSON's quoting holds)."""
    return ["---", f"title: {json.dumps(_INVISIBLE.sub('', title), ensure_ascii=False)}", "---"]


def _id(name: str) -> str:
    """A name that is safe as an identifier; different names stay different."""
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"_{ord(found[0]):x}_", name)
