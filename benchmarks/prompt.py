"""How much of a turn's prompts a provider's prompt cache can serve: the share that repeats the call before."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import Row
from benchmarks.world import AGENT, InstantChannel, MemorySource, agent
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.ports import ChatMessage, Inbound, Line, Reply, SessionInfo
from fsm.runner import Engine
from fsm.sessions import Sessions
from session_router.clock import SystemClock
from storage.sqlite import SqliteStore

LIMIT = 0.95
LOOPS = 10
LINES = 200
AT = 1_768_464_000.0

SAID = (
    "Could you look at the nightly build? It has failed since the billing tables moved.",
    "The ledger test reads a table that the migration renames. I would rename it in the test as well and run the suite "
    "again; the other four tables are through, and the backup finishes tonight.",
    "Do that, please, and tell me when it is green.",
    "Done: the test reads ledger_entries now and passes, and so does the rest of the suite. I have not touched the "
    "migration itself. If the backup is late, the switch can wait until tomorrow without harm.",
)


class _Full(MemorySource):
    """Eighteen sessions, the newest with a long history."""

    async def list(self, limit: int | None = None) -> Sequence[SessionInfo]:
        return [
            SessionInfo(f"ses_{n:020}", f"Billing migration, part {n}", self.name, AT - 3600 * n) for n in range(18)
        ][:limit]

    async def latest(self) -> SessionInfo | None:
        return (await self.list(1))[0]

    async def context(self, session_id: str, limit: int = 200) -> Sequence[Line]:
        return [
            Line("assistant" if n % 2 else "user", SAID[n % 4], AT - LINES + n, "" if n % 3 else "[xmpp]", f"l{n}")
            for n in range(LINES)
        ][-limit:]


@dataclass(slots=True)
class _AlwaysLists:
    """A model that asks for the list of sessions, whatever it is told."""

    prompts: list[str] = field(default_factory=list)

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        # The messages one after the other, as they would stand in a provider's cache.
        self.prompts.append("\n".join(json.dumps(message, ensure_ascii=False) for message in messages))
        return Reply("I will look at the sessions first.\n##list_sessions##")


async def _turn(folder: Path) -> list[str]:
    store, model = SqliteStore(folder / "engine.db"), _AlwaysLists()
    engine = Engine(
        desks={AGENT: Desk(agent, Sessions((_Full(),), store), model)}, store=store, clock=SystemClock(),
        channels={(AGENT, "*"): InstantChannel()},
    )  # fmt: skip
    await engine.start()
    who, asks = "person@example.org", "Which sessions are there about billing?"
    receipt = await engine.receive(AGENT, Inbound("xmpp", who, asks, "m1", AT, who))
    assert await receipt.done is Disposition.REPLIED
    await engine.close()
    return model.prompts


def _tokens(text: str) -> float:
    return len(text) / 4


def _common(one: str, other: str) -> str:
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def compare(*, quick: bool = False) -> list[Row]:
    """The share over all calls of the turn that have one before them."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        prompts = asyncio.run(_turn(Path(folder)))
    assert len(prompts) == LOOPS
    whole = sum(_tokens(prompt) for prompt in prompts[1:])
    repeated = sum(_tokens(_common(before, prompt)) for before, prompt in pairwise(prompts))
    return [
        Row("prompt / repeated from the call before", f"{repeated:,.0f} tokens", f"{whole:,.0f} tokens",
            repeated / whole, LIMIT, "at least",
            how=f"One turn of {LOOPS} calls, each answered with a list of sessions, over {LINES} lines of context; "
            f"calls 2 to {LOOPS}, as JSON messages in order; a token is four characters. The peer is all of their "
            "tokens."),
    ]  # fmt: skip
