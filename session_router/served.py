"""One agent as a running process serves it: its desk, its channels, its HTTP port, and what is counted of it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsm.agent import Agent
from fsm.conversation import Key
from fsm.desk import Desk
from fsm.ports import Channel, Clock, DeliveryError, Outgoing, SessionSource, Store
from fsm.sessions import Sessions
from session_router import cli_bridge
from session_router.agent_config import AgentConfig
from session_router.bridge import SessionBridge
from session_router.channel_makers import ChannelState, Made
from session_router.choose_model import Chosen
from session_router.cli_bridge import Active, Mirror, Sent, Speaker
from session_router.config import Sources
from session_router.config_errors import ConfigError, Problem
from session_router.sources import writable_of

if TYPE_CHECKING:
    from session_router.http_port import HttpPort, SendBody
    from session_router.metrics import AgentMetrics

log = logging.getLogger("session_router.run")

SEND_TIMEOUT = 30.0
"""Seconds for a text of the command line to be seen in its room."""


def desk_of(agent: Agent, sources: Sequence[SessionSource], store: Store, chosen: Chosen, clock: Clock) -> Desk:
    """The agent at work: its sessions in these sources (new ones in ours), its turns on this model."""
    sessions = Sessions(sources, store, writable_of(sources), clock.now)
    return Desk(agent, sessions, SessionBridge(chosen.model, sources))


@dataclass(slots=True, eq=False)
class Served:
    """``settings`` and ``sources`` are what it has, whatever the config says since. ``holds`` is given back at the
    end: the lock of the agent's part of the store. One that is ``leaving`` begins no turn any more."""

    settings: AgentConfig
    sources: Sources
    desk: Desk
    chosen: Chosen
    made: dict[str, Made]
    clock: Clock
    holds: ExitStack = field(default_factory=ExitStack)
    states: dict[str, ChannelState] = field(default_factory=dict)
    metrics: AgentMetrics | None = None
    http: HttpPort | None = None
    alone: bool = False
    leaving: bool = False
    mirror: Mirror | None = None

    @property
    def name(self) -> str:
        return self.desk.agent.name

    def channel_changed(self, kind: str, state: ChannelState) -> None:
        """Remember, count and log how a connection stands."""
        before = self.states.get(kind)
        self.states[kind] = state
        if self.metrics is not None:
            self.metrics.channel_changed(kind, state)
        # What happens on the way the channel logs itself.
        if (state.up, state.stuck) != ((before.up, before.stuck) if before is not None else (False, False)):
            log.info("%s of %s: %s", kind, self.name, state.word, extra={"agent": self.name, "channel": kind})

    @property
    def speaker(self) -> Speaker:
        """Who the command line speaks as."""
        return Speaker(self.desk.agent, tuple(self.settings.all_rooms), self.desk.sessions, self.mirror, self.alone)

    async def send(self, body: SendBody) -> Sent:
        """What ``POST /send`` does. Raises the errors of :func:`session_router.cli_bridge.send`."""
        id = f"cli-{body.id or uuid.uuid4().hex}"
        return await cli_bridge.send(
            body.text, body.session_id, self.speaker, post=self._post, id=id, now=self.clock.now
        )

    async def _post(self, room: str, text: str, id: str) -> None:
        made = next((one for one in self.made.values() if room in one.rooms), None)
        if made is None:
            raise DeliveryError("no channel that is running leads there", final=True)
        key = Key(self.name, cli_bridge.CLI_KEY, cli_bridge.CLI_KEY)
        await post_through(made.channel, Outgoing(id, key, f"{made.kind}:{room}", room, text))

    async def active(self) -> Active | None:
        return await cli_bridge.active(self.speaker, self.clock.now())

    async def clear(self) -> bool:
        return await cli_bridge.clear(self.speaker)


async def post_through(channel: Channel, outgoing: Outgoing) -> None:
    """Deliver a text now or not at all. Raises DeliveryError."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            await channel.send(outgoing)
    except TimeoutError:
        raise DeliveryError(
            f"it was not seen there within {SEND_TIMEOUT:g} seconds; look whether it arrived before sending it again"
        ) from None


def wants_http(settings: AgentConfig, environ: Mapping[str, str]) -> bool:
    """Whether the agent has an HTTP port. Raises ConfigError where it has and what that needs is not installed."""
    if settings.http_port is None:
        return False
    try:
        import aiohttp  # noqa: F401
        import prometheus_client  # noqa: F401
    except ImportError as error:
        mend = 'in the folder of Session Router, pip install ".[run]", or leave http_port out'
        text = f"an HTTP port needs {error.name}: {mend}"
        raise ConfigError([Problem(("agents", settings.name, "http_port"), text)]) from None
    return True
