"""What a picture shows, before any format: the states and rows of one table, neutral and in order.

Everything comes from the rows, nothing from a running machine, so a picture cannot show what the table does
not say. A renderer needs only this module; a new machine needs only a call of :func:`extract`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Any, Protocol

from fsm.conversation import Edge as Taken
from fsm.rows import Go

ANY = "any"
"""Stands for every state at once, where a row names them all."""
REST = "rest"
"""The choice between the states that a machine rests in."""
AGAIN = "↻"
"""Behind a row: the event is answered once more where the arrow leads."""
NAMED_FROM = 3
"""Events that make a group worth its name; fewer are listed."""


class RowLike(Protocol):
    """What a row must tell to be drawn; :class:`fsm.rows.Row` does."""

    @property
    def states(self) -> tuple[Enum, ...]: ...
    @property
    def events(self) -> tuple[type[Any], ...]: ...
    @property
    def goes(self) -> Enum: ...
    @property
    def do(self) -> Callable[..., Any]: ...
    @property
    def when(self) -> Callable[..., Any] | None: ...


@dataclass(frozen=True, slots=True)
class Node:
    """A state. ``color`` numbers it, so that each keeps its colour in every picture."""

    id: str
    color: int = 0
    initial: bool = False
    current: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A row. ``frm`` names the states it stands for; ``to`` is a state, ``REST`` or, for unchanged, empty.

    ``again``: the event is answered once more where the edge leads. ``silent``: nothing happens, so it is
    listed and not drawn. ``group`` names the events where the table does, ``goes`` is the table's own word
    for ``to``. ``asks`` and ``says`` explain guard and reaction. ``marks`` number the steps of a live
    conversation that took this row, 1 the oldest.
    """

    frm: tuple[str, ...]
    events: tuple[str, ...]
    to: str
    guard: str
    reaction: str
    group: str = ""
    again: bool = False
    silent: bool = False
    says: str = ""
    asks: str = ""
    goes: str = ""
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A way out of ``REST`` and when it is taken."""

    to: str
    when: str
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawing:
    """One machine as a picture: ``edges`` in the table's order, which decides between rows of one event;
    ``groups`` are the named groups of events that the edges use. ``steps`` is how many steps are marked."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    splits: tuple[Split, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    steps: int = 0

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(node.id for node in self.nodes)

    @property
    def drawn(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if not edge.silent)

    @property
    def current(self) -> str | None:
        return next((node.id for node in self.nodes if node.current), None)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rows that lead the same way and so share one arrow, in the table's order."""

    frm: str
    to: str
    again: bool
    edges: tuple[Edge, ...]

    @property
    def stays(self) -> bool:
        """Whether nothing moves, so that the rows are written inside the state."""
        return not self.again and self.to in ("", self.frm)


def extract(
    title: str,
    rows: Iterable[RowLike],
    *,
    states: Sequence[Enum],
    initial: Enum,
    rests: Mapping[Enum, str] | None = None,
    groups: Mapping[str, tuple[type[Any], ...]] | None = None,
    ignored: str = "ignore",
) -> Drawing:
    """The picture of ``rows``.

    ``rests`` says, for a table that uses ``Go.REST``, which states that means and when; ``groups`` names
    groups of events; a row whose reaction is called ``ignored`` does nothing and is only listed.
    """
    named = {frozenset(e.__name__ for e in events): name for name, events in (groups or {}).items()}
    leads = {Go.SAME: "", Go.REST: REST, Go.AS_FROM_REST: REST, Go.AS_FROM_IDLE: str(initial.value)}

    def edge(row: RowLike) -> Edge:
        events = tuple(e.__name__ for e in row.events)
        goes = row.goes
        return Edge(
            frm=(ANY,) if len(row.states) == len(states) > 1 else tuple(str(s.value) for s in row.states),
            events=events,
            to=leads[goes] if isinstance(goes, Go) else str(goes.value),
            guard=row.when.__name__ if row.when else "",
            reaction=row.do.__name__,
            group=named.get(frozenset(events), "") if len(events) >= NAMED_FROM else "",
            again=isinstance(goes, Go) and goes.again,
            silent=row.do.__name__ == ignored,
            says=_first_paragraph(row.do),
            asks=_first_paragraph(row.when) if row.when else "",
            goes=str(goes.value),
        )

    edges = tuple(edge(row) for row in rows)
    return Drawing(
        title,
        tuple(Node(str(state.value), n, state is initial) for n, state in enumerate(states)),
        edges,
        tuple(Split(str(state.value), when) for state, when in (rests or {}).items())
        if any(edge.to == REST for edge in edges)
        else (),
        tuple(dict.fromkeys((edge.group, edge.events) for edge in edges if edge.group)),
    )


def _first_paragraph(function: Callable[..., Any]) -> str:
    """The first paragraph of a docstring on one line, without the marks of reStructuredText."""
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`([^`]*)`|``([^`]*)``", lambda found: found[1] or found[2], text)


def words(name: str) -> str:
    """``reply_is_owed`` as a person reads it."""
    return name.replace("_", " ").strip()


def on_words(edge: Edge) -> str:
    """The events of an edge: the group's name, or each."""
    return edge.group or ", ".join(edge.events)


def label(edge: Edge) -> str:
    """``event [guard] / effect``, after the marks of a live conversation."""
    guard = f" [{words(edge.guard)}]" if edge.guard else ""
    return f"{mark_words(edge.marks)}{on_words(edge)}{guard} / {words(edge.reaction)}"


def mark_words(marks: Sequence[int]) -> str:
    """The numbers of the steps that went this way, in front of a label."""
    return "".join(f"({mark}) " for mark in marks)


def legend(drawing: Drawing) -> tuple[str, ...]:
    """How to read this drawing, a line each: only what it needs."""
    shown = drawing.drawn
    lines = [
        "event [only when] / what is done; without [only when]: in all other cases",
        "where several hold, the first row of the table counts",
    ]
    if any(bundle.stays for bundle in bundles(drawing)):
        lines.append("inside a state: it stays there")
    if any(edge.again for edge in shown):
        lines.append(f"{AGAIN} the same event is answered again where the arrow leads")
    if drawing.steps:
        lines.append(f"(1) to ({drawing.steps}): the last steps, ({drawing.steps}) the newest")
    used = {edge.group for edge in shown}
    lines.extend(f"{name}: {', '.join(events)}" for name, events in drawing.groups if name in used)
    return tuple(lines)


def bundles(drawing: Drawing) -> tuple[Bundle, ...]:
    """The drawn rows gathered into arrows: one for each from, to, and whether the event is answered again."""
    gathered: dict[tuple[str, str, bool], list[Edge]] = {}
    for edge in drawing.drawn:
        for frm in edge.frm:
            gathered.setdefault((frm, edge.to or frm, edge.again), []).append(edge)
    return tuple(Bundle(frm, to, again, tuple(edges)) for (frm, to, again), edges in gathered.items())


def only(drawing: Drawing, state: str) -> Drawing:
    """The part of ``drawing`` that answers in ``state``.

    Raises:
        ValueError: there is no such state.
    """
    if state not in drawing.states:
        raise ValueError(f"there is no state {state!r}; there are {', '.join(drawing.states)}")
    edges = tuple(replace(e, frm=(state,)) for e in drawing.edges if state in e.frm or e.frm == (ANY,))
    used = {edge.group for edge in edges}
    rests = any(edge.to == REST and not edge.silent for edge in edges)
    splits = drawing.splits if rests else ()
    shown = {state, *(edge.to for edge in edges if not edge.silent), *(split.to for split in splits)}
    return replace(
        drawing,
        title=f"{drawing.title}: {state}",
        nodes=tuple(
            replace(node, initial=node.initial and node.id == state) for node in drawing.nodes if node.id in shown
        ),
        edges=edges,
        splits=splits,
        groups=tuple((name, events) for name, events in drawing.groups if name in used),
    )


def live(drawing: Drawing, state: str, trail: Sequence[Taken]) -> Drawing:
    """``drawing`` with the current state and the last steps marked, oldest first as 1, 2, …

    ``trail`` is a conversation's, oldest first. A step whose row is not in the drawing keeps its number and
    marks nothing: a stored trail may be older than the code.

    Raises:
        ValueError: there is no such state.
    """
    if state not in drawing.states:
        raise ValueError(f"there is no state {state!r}; there are {', '.join(drawing.states)}")
    edges, splits = list(drawing.edges), list(drawing.splits)
    for mark, taken in enumerate(trail, start=1):
        at = next((n for n, edge in enumerate(edges) if _took(edge, taken)), None)
        if at is None:
            continue
        edges[at] = replace(edges[at], marks=(*edges[at].marks, mark))
        if edges[at].to == REST:
            splits = [
                replace(split, marks=(*split.marks, mark)) if split.to == taken.went_to else split for split in splits
            ]
    return replace(
        drawing,
        title=f"{drawing.title}, now {state}",
        nodes=tuple(replace(node, current=node.id == state) for node in drawing.nodes),
        edges=tuple(edges),
        splits=tuple(splits),
        steps=len(trail),
    )


def _took(edge: Edge, taken: Taken) -> bool:
    return (
        edge.reaction == taken.row
        and taken.event in edge.events
        and (taken.went_from in edge.frm or edge.frm == (ANY,))
        and (edge.to in (taken.went_to, REST) or (not edge.to and taken.went_from == taken.went_to))
    )


def named_groups(module: ModuleType) -> dict[str, tuple[type[Any], ...]]:
    """The groups of events that a table's module names: its capitalised tuples of classes."""
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, tuple) and value and all(isinstance(event, type) for event in value)
    }
