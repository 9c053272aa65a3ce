"""Records of turns on their way to the journal of their session: they stay in our store until they are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsm.ports import Line, Store

JOURNAL = "journal"
"""The channel that the records of turns go out on; its addresses are sessions."""


def record_text(turn: str, event: str, data: Mapping[str, object], at: float) -> str:
    """The text of an :class:`fsm.ports.Outgoing` that is a record of that turn; ``at`` in unix seconds."""
    return json.dumps({"turn": turn, "event": event, "data": data, "at": at})


async def owed_records(store: Store, session: str) -> list[dict[str, Any]]:
    """What the journal of ``session`` has not been given yet, or not been marked as given, oldest first: ``turn``,
    ``event``, ``data`` and ``at`` of each."""
    return [json.loads(each.text) for each in await store.owed(JOURNAL, session)]


async def owed_lines(store: Store, session: str) -> list[Line]:
    """What was said in those, as the journal will give it."""
    return [
        Line("user" if held["event"] == "turn_start" else "assistant", held["data"]["content"], held["at"],
             held["data"].get("tag", ""), held["data"]["id"])
        for held in await owed_records(store, session)
        if held["event"] in ("turn_start", "turn_end") and held["data"]["content"]
    ]  # fmt: skip
