"""Pictures of the machines, drawn from their tables.

``render("conversation", "mermaid")`` gives the whole machine, ``render("conversation-idle", …)`` what it
answers in one state. ``write_all`` writes the files that the repository keeps under ``diagrams/``, ``check``
compares them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import channels.xmpp.connection
import fsm.table
from channels.xmpp.events import State as XmppState
from fsm.conversation import Edge as Taken
from fsm.conversation import State
from session_router.diagrams.dot import dot
from session_router.diagrams.graph import Drawing, extract, live, named_groups, only
from session_router.diagrams.mermaid import mermaid
from session_router.diagrams.svg import PicturesMissing, picture
from session_router.diagrams.table import table

__all__ = [
    "MACHINES",
    "Drawing",
    "Format",
    "PicturesMissing",
    "UnknownDrawing",
    "check",
    "drawing",
    "left_over",
    "live",
    "names",
    "render",
    "write_all",
]

Format = Literal["mermaid", "dot", "svg", "png", "table"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SUFFIXES: dict[Format, str] = {
    "mermaid": ".mmd",
    "dot": ".dot",
    "svg": ".svg",
    "png": ".png",
    "table": ".md",
}
_KEPT: tuple[Format, ...] = ("mermaid", "dot", "table", "svg")
_KEPT_OF_A_STATE: tuple[Format, ...] = ("mermaid", "svg")
_NOT_OURS = "README.md"


class UnknownDrawing(ValueError):
    """There is no picture of that name; the message says which there are."""


def _conversation() -> Drawing:
    return extract(
        "conversation",
        fsm.table.TABLE,
        states=tuple(State),
        initial=State.IDLE,
        rests={State.SILENCED: "while muted", State.IDLE: "otherwise"},
        groups=named_groups(fsm.table),
    )


def _xmpp() -> Drawing:
    table = channels.xmpp.connection
    return extract(
        "xmpp", table.TABLE, states=tuple(XmppState), initial=XmppState.OFFLINE, groups=named_groups(table)
    )


MACHINES: dict[str, Callable[[], Drawing]] = {"conversation": _conversation, "xmpp": _xmpp}
"""Every machine that is drawn, by the name that the command line takes."""


def names() -> tuple[str, ...]:
    """Every name that :func:`render` knows: each machine, then ``machine-state`` for each of its states."""
    return tuple(name for machine in MACHINES for name in (machine, *_states(machine)))


def _states(machine: str) -> Iterator[str]:
    return (f"{machine}-{state}" for state in MACHINES[machine]().states)


def drawing(name: str) -> Drawing:
    """The picture of that name.

    Raises:
        UnknownDrawing: there is none.
    """
    if name in MACHINES:
        return MACHINES[name]()
    for machine, draw in MACHINES.items():
        state = name.removeprefix(machine + "-")
        if state != name and state in (whole := draw()).states:
            return only(whole, state)
    raise UnknownDrawing(f"there is no picture {name!r}; there are {', '.join(names())}")


def render(name: str, format: Format, live: tuple[str, Sequence[Taken]] | None = None) -> str | bytes:
    """The picture ``name`` as text, or as bytes for ``png``.

    ``live`` is a conversation's state and trail (oldest first), which are marked in it.

    Raises:
        UnknownDrawing: no picture or no format of that name.
        PicturesMissing: ``svg`` and ``png`` without pygraphviz.
        ValueError: the state of ``live`` is not in the picture.
    """
    shown = drawing(name)
    return draw(shown if live is None else _live(shown, *live), format)


_live = live


def draw(shown: Drawing, format: Format) -> str | bytes:
    """A drawing in one format, as :func:`render`."""
    match format:
        case "mermaid":
            return mermaid(shown)
        case "dot":
            return dot(shown)
        case "table":
            return table(shown)
        case "svg":
            return _stamped(picture(shown, "svg").decode(), dot(shown))
        case "png":
            return picture(shown, "png")
    raise UnknownDrawing(f"there is no format {format!r}; there are {', '.join(FORMATS)}")


def _stamp(source: str) -> str:
    return f"<!-- drawn from DOT {hashlib.sha256(source.encode()).hexdigest()} -->"


def _stamped(svg: str, source: str) -> str:
    """An SVG that names its source: its own bytes depend on fonts and on Graphviz, the source does not."""
    return svg.rstrip("\n") + "\n" + _stamp(source) + "\n"


def _kept() -> Iterator[tuple[str, Format]]:
    """What the repository keeps, text first, so that it is written even where no picture can be drawn."""
    whole = [(machine, format) for machine in MACHINES for format in _KEPT]
    states = [(name, format) for machine in MACHINES for name in _states(machine) for format in _KEPT_OF_A_STATE]
    return iter(sorted((*whole, *states), key=lambda kept: kept[1] == "svg"))


def write_all(directory: Path | str) -> list[Path]:
    """Write every file that is kept into ``directory``, which is made where it is missing; the paths written.

    Raises:
        PicturesMissing: pygraphviz is not installed; the text files are written by then.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, format in _kept():
        path = directory / (name + _SUFFIXES[format])
        content = render(name, format)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        written.append(path)
    return written


def left_over(directory: Path | str) -> list[str]:
    """The names of the drawings in ``directory`` that belong to no machine any more, and are to be removed."""
    kept = {name + _SUFFIXES[format] for name, format in _kept()} | {_NOT_OURS}
    directory = Path(directory)
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted(path.name for path in found if path.suffix in _SUFFIXES.values() and path.name not in kept)


def check(directory: Path | str) -> list[str]:
    """The names of the files in ``directory`` that differ from a fresh drawing, are missing, or are
    :func:`left_over`. An SVG is compared by the source that it was drawn from, so this needs no pygraphviz."""
    directory = Path(directory)
    wrong = set(left_over(directory))
    for name, format in _kept():
        path = directory / (name + _SUFFIXES[format])
        found = path.read_bytes() if path.is_file() else None
        if found is None or not _is_current(found, drawing(name), format):
            wrong.add(path.name)
    return sorted(wrong)


def _is_current(found: bytes, shown: Drawing, format: Format) -> bool:
    if format == "svg":
        return _stamp(dot(shown)).encode() in found
    fresh = draw(shown, format)
    return found == (fresh.encode() if isinstance(fresh, str) else fresh)
