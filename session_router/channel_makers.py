"""Which channels an agent can have beside the terminal: one maker each.

A new channel is its own module with a function like ``session_router.xmpp.make``, and one entry in ``MAKERS``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fsm.ports import Channel, Clock, Inbound
from session_router import xmpp
from session_router.agent_config import AgentConfig


@dataclass(frozen=True, slots=True)
class ChannelState:
    """How a connection stands: ``up`` when messages come and go in every place of it; ``connects`` counts how often it
    was made; ``stuck`` says that a person has to act, after which ``start`` tries again."""

    word: str
    up: bool
    connects: int
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Making:
    """What a maker has to work with. ``receive`` takes a message durably before it returns; ``report`` is told every
    change of the connection; ``folder`` is where the channel may keep files of its own."""

    settings: AgentConfig
    environ: Mapping[str, str]
    folder: Path
    receive: Callable[[Inbound], Awaitable[object]]
    clock: Clock
    report: Callable[[ChannelState], None]


class Running(Channel, Protocol):
    """A channel that is started and stopped. ``start`` returns at once and connects by itself, or tries again where it
    is stuck; ``close`` with ``drain`` lets out what is under way, and otherwise leaves at once."""

    async def start(self) -> None: ...

    async def close(self, drain: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class Made:
    """A channel, not started yet. ``kind`` is its name and the part before the colon of its rooms' names.

    ``label`` says where it leads, ``warnings`` what a person should know before it starts. A reload keeps the one that
    runs where ``identity`` is the same.
    """

    kind: str
    channel: Running
    label: str
    identity: object
    rooms: Sequence[str] = ()
    warnings: Sequence[str] = ()


Maker = Callable[[Making], Made | None]
"""Makes the channel where the agent's config asks for it, else gives None. Raises ConfigError."""

MAKERS: dict[str, Maker] = {xmpp.KIND: xmpp.make}


def make_all(making: Callable[[str], Making]) -> dict[str, Made]:
    """Every channel that the agent's config asks for, by kind; ``making`` gives each maker what it works with.

    Raises ConfigError.
    """
    made = {kind: maker(making(kind)) for kind, maker in MAKERS.items()}
    return {kind: one for kind, one in made.items() if one is not None}
