"""SVG and PNG through pygraphviz, whose wheel brings Graphviz along; imported only when one is drawn."""

from __future__ import annotations

from typing import Literal

from session_router.diagrams.dot import dot
from session_router.diagrams.graph import Drawing

PNG_DPI = "144"


class PicturesMissing(Exception):
    """The extra that draws SVG and PNG is not installed."""


def picture(drawing: Drawing, format: Literal["svg", "png"]) -> bytes:
    """The drawing laid out.

    Raises:
        PicturesMissing: pygraphviz is not installed; the message says how to install it.
    """
    try:
        from pygraphviz import AGraph
    except ImportError as error:
        raise PicturesMissing(
            f'{format.upper()} pictures need pygraphviz: pip install "session-router[diagrams]"'
            " (mermaid, dot and table need nothing)"
        ) from error
    graph = AGraph(string=dot(drawing))
    if format == "png":
        graph.graph_attr["dpi"] = PNG_DPI
    drawn: bytes = graph.draw(format=format, prog="dot")
    return drawn
