"""The colours that every format shares: each state keeps its own in every picture."""

from __future__ import annotations

COLOURS = (
    ("#ddf4e4", "#2f7d4f"),
    ("#fff1cc", "#9a6a00"),
    ("#dceafe", "#2159a6"),
    ("#ebe6f5", "#6a4fa3"),
    ("#fde3e1", "#b03a2e"),
    ("#d9f2f4", "#1d7480"),
)
"""Fill and line of the states, in their order. Dark text keeps a contrast of 7 and more on every fill."""

INK = "#1f2328"
GUARD = "#0a5a9c"
EFFECT = "#1a6b37"
FAINT = "#57606a"
CURRENT = "#d1242f"
TRAIL = ("#f3b0b4", "#ea868d", "#df5c66", "#d1242f")
"""From the oldest marked step to the newest."""
