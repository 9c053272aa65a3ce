"""A drawing as a Markdown transition table: every row, those that do nothing included."""

from __future__ import annotations

import re

from session_router.diagrams.graph import ANY, REST, Drawing, Edge, mark_words, words

_SPECIAL = re.compile(r"[\\`*{}\[\]#|!~$]|(?<!\w)_|_(?!\w)")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """``text`` as plain words in a Markdown table's cell."""
    text = _INVISIBLE.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(lambda found: "\\" + found[0], text)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "<br>")


def table(drawing: Drawing) -> str:
    """The whole table, in its own order, and the groups and conditions explained below."""
    lines = [f"# {escape(drawing.title)}", ""]
    if drawing.current is not None:
        steps = f" The last steps are numbered, ({drawing.steps}) the newest." if drawing.steps else ""
        lines += [f"Now in **{escape(drawing.current)}**.{steps}", ""]
    lines += [
        "Rows for one state and event are tried downward; the first whose condition holds is taken.",
        "",
        "| in state | on | only when | goes to | does |",
        "|---|---|---|---|---|",
        *(_row(edge) for edge in drawing.edges),
    ]
    if drawing.splits:
        ways = ", ".join(f"{escape(split.to)} {escape(split.when)}" for split in drawing.splits)
        lines += ["", f"*{REST}*: {ways}."]
    if any(edge.again for edge in drawing.edges):
        lines += ["", "*as from …*: the row is carried out, and the same event answered again in that state."]
    if drawing.groups:
        lines += ["", "| events together | are |", "|---|---|"]
        lines += [f"| {escape(name)} | {escape(', '.join(events))} |" for name, events in drawing.groups]
    asked = {edge.guard: edge.asks for edge in drawing.edges if edge.asks}
    if asked:
        lines += ["", "| condition | means |", "|---|---|"]
        lines += [f"| {escape(words(guard))} | {escape(means)} |" for guard, means in sorted(asked.items())]
    return "\n".join(lines) + "\n"


def _row(edge: Edge) -> str:
    states = "any" if edge.frm == (ANY,) else ", ".join(edge.frm)
    does = f"**{escape(words(edge.reaction))}**"
    if edge.marks:
        does = f"{escape(mark_words(edge.marks))}{does}"
    if edge.says:
        does += f": {escape(edge.says)}"
    events = edge.group or ", ".join(edge.events)
    cells = (escape(states), escape(events), escape(words(edge.guard)), escape(edge.goes), does)
    return "| " + " | ".join(cells) + " |"
