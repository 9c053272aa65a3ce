"""A drawing as Graphviz DOT: the text that the SVG and PNG are laid out from."""

from __future__ import annotations

import html
import re

from session_router.diagrams.graph import (
    AGAIN,
    ANY,
    REST,
    Bundle,
    Drawing,
    Edge,
    Node,
    bundles,
    legend,
    mark_words,
    on_words,
    words,
)
from session_router.diagrams.palette import COLOURS, CURRENT, EFFECT, FAINT, GUARD, INK, TRAIL

FONTS = "Helvetica Neue,Helvetica,Arial,Noto Sans,Noto Sans CJK SC,PingFang SC,Microsoft YaHei,sans-serif"
"""The first that the viewer has; the middle ones bring Chinese on Linux, macOS and Windows."""

_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_TABLE = '<table border="0" cellborder="0" cellspacing="0" cellpadding="3"'


def quote(text: str) -> str:
    """``text`` as a quoted DOT string. A backslash is doubled, for DOT would read ``\\N`` and its kin."""
    text = _INVISIBLE.sub("", text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\\n") + '"'


def escape(text: str) -> str:
    """``text`` inside an HTML-like label, where a backslash still has its meaning (``\\N`` is the node's name)."""
    lines = _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return '<br align="left"/>'.join(html.escape(line).replace("\\", r"\\") for line in lines)


def dot(drawing: Drawing) -> str:
    """The drawing as text, the same for the same rows."""
    shown = bundles(drawing)
    inside = {bundle.frm: bundle for bundle in shown if bundle.stays}
    lines = [
        f"digraph {quote(drawing.title)} {{",
        f"    graph [rankdir=TB, bgcolor=white, pad=0.3, nodesep=0.5, ranksep=0.45, fontname={quote(FONTS)},",
        f"           fontsize=11, fontcolor={quote(INK)}, labelloc=b, labeljust=l,",
        f"           label=<{_legend(drawing)}>]",
        f"    node [shape=plain, fontname={quote(FONTS)}, fontsize=11, fontcolor={quote(INK)}]",
        f"    edge [fontname={quote(FONTS)}, fontsize=10, fontcolor={quote(INK)}, color={quote(FAINT)},",
        "          arrowsize=0.8]",
        "",
    ]
    if any(bundle.frm == ANY for bundle in shown):
        box = _box("in any state", "#ffffff", FAINT, inside.get(ANY), dashed=True)
        lines.append(f"    {quote(ANY)} [label=<{box}>]")
    for node in drawing.nodes:
        lines.append(f"    {quote(node.id)} [label=<{_state(node, inside.get(node.id))}>]")
        if node.initial:
            start = quote(f"{node.id} start")
            lines.append(f'    {start} [shape=circle, style=filled, fillcolor={quote(INK)}, width=0.15, label=""]')
            lines.append(f"    {start} -> {quote(node.id)}")
    if drawing.splits:
        lines.append(
            f'    {quote(REST)} [shape=diamond, label="rest", width=0.8, height=0.5, fixedsize=true,'
            f' style=filled, fillcolor="#ffffff", color={quote(FAINT)}]'
        )
    lines.append("")
    colors = {node.id: _colors(node)[1] for node in drawing.nodes}
    tops = {node.id for node in drawing.nodes if node.initial}
    for bundle in shown:
        if not bundle.stays:
            lines.extend(_arrow(bundle, colors.get(bundle.frm, FAINT), drawing.steps, bundle.to in tops))
    for split in drawing.splits:
        text = f"{_TABLE}><tr><td>{escape(mark_words(split.marks) + split.when)}</td></tr></table>"
        look = ", ".join(filter(None, [f"label=<{text}>", _look(split.marks, drawing.steps)]))
        if split.to in tops:
            lines.append(f"    {quote(split.to)} -> {quote(REST)} [dir=back, {look}]")
        else:
            lines.append(f"    {quote(REST)} -> {quote(split.to)} [{look}]")
    return "\n".join(lines) + "\n}\n"


def _colors(node: Node) -> tuple[str, str]:
    return COLOURS[node.color % len(COLOURS)]


def _state(node: Node, stays: Bundle | None) -> str:
    fill, line = _colors(node)
    title = node.id + (" (now)" if node.current else "")
    return _box(title, fill, CURRENT if node.current else line, stays, thick=node.current)


def _box(title: str, fill: str, line: str, stays: Bundle | None, *, dashed: bool = False, thick: bool = False) -> str:
    style = "rounded,dashed" if dashed else "rounded"
    head = (
        f'<table border="{3 if thick else 1}" cellborder="0" cellspacing="0" cellpadding="3" style="{style}"'
        f' color="{line}" bgcolor="{fill}">'
        f'<tr><td colspan="3" cellpadding="5"><b><font point-size="13">{escape(title)}</font></b></td></tr>'
    )
    if stays is None:
        return head + "</table>"
    return head + "<hr/>" + "".join(_cells(edge) for edge in stays.edges) + "</table>"


def _cells(edge: Edge, again: bool = False) -> str:
    """A row as three aligned columns, so that it reads like a line of the table."""
    marks = f'<font color="{CURRENT}"><b>{escape(mark_words(edge.marks))}</b></font>' if edge.marks else ""
    guard = f'<font color="{GUARD}">[{escape(words(edge.guard))}]</font>' if edge.guard else " "
    sign = f" {AGAIN}" if again else ""
    return (
        f'<tr><td align="left">{marks}{escape(on_words(edge))}</td><td align="left">{guard}</td>'
        f'<td align="left"><font color="{EFFECT}">/ {escape(words(edge.reaction))}{sign}&#160;</font></td></tr>'
    )


def _arrow(bundle: Bundle, color: str, steps: int, back: bool) -> list[str]:
    """The rows as a box that the arrow runs through: a label beside a long curve is soon taken for another's.

    An arrow ``back`` to the top is written from there, else Graphviz puts its box below the state it leaves.
    """
    marks = tuple(mark for edge in bundle.edges for mark in edge.marks)
    look = _look(marks, steps) or f"color={quote(color)}"
    dashed = ", style=dashed" if bundle.again else ""
    box = quote(f"{bundle.frm} to {bundle.to}{' again' if bundle.again else ''}")
    style = "rounded,dashed" if bundle.again else "rounded"
    text = (
        f'<table border="1" cellborder="0" cellspacing="0" cellpadding="3" style="{style}" color="{color}"'
        f' bgcolor="#ffffff">{"".join(_cells(edge, bundle.again) for edge in bundle.edges)}</table>'
    )
    lines = [f"    {box} [label=<{text}>, fontsize=10]"]
    if back:
        lines.append(f"    {quote(bundle.to)} -> {box} [dir=back, {look}{dashed}]")
        lines.append(f"    {box} -> {quote(bundle.frm)} [dir=none, {look}{dashed}]")
    else:
        lines.append(f"    {quote(bundle.frm)} -> {box} [dir=none, {look}{dashed}]")
        lines.append(f"    {box} -> {quote(bundle.to)} [{look}{dashed}]")
    return lines


def _look(marks: tuple[int, ...], steps: int) -> str:
    """Colour and width by the newest step that went this way."""
    if not marks:
        return ""
    age = steps - max(marks)
    return f"color={quote(TRAIL[max(len(TRAIL) - 1 - age, 0)])}, penwidth={max(3.0 - 0.5 * age, 1.5):g}"


def _legend(drawing: Drawing) -> str:
    title = f'<tr><td align="left"><b><font point-size="15">{escape(drawing.title)}</font></b></td></tr>'
    rows = "".join(
        f'<tr><td align="left"><font color="{FAINT}">{escape(line)}</font></td></tr>' for line in legend(drawing)
    )
    return f"{_TABLE}>{title}{rows}</table>"
