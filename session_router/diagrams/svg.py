"""SVG and PNG through pygraphviz, whose wheel brings Graphviz along; imported only when one is drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
            f'{format.upper()} pictures need pygraphviz: in the folder of Session Router, pip install ".[diagrams]"'
            " (mermaid, dot and table need nothing)"
        ) from error
    graph = AGraph(string=dot(drawing))
    if format == "png":
        graph.graph_attr["dpi"] = PNG_DPI
    with _quiet():
        drawn: bytes = graph.draw(format=format, prog="dot")
    return drawn


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing from C on stderr meanwhile: fontconfig complains there of this machine's font settings, which is
    nothing that whoever draws could mend. What goes wrong in earnest is an exception."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
