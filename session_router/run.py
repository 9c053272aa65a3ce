"""``run``: agents of the config with all their channels in one process, until it is told to stop.

One engine serves every agent, each at a desk of its own. SIGTERM drains: nothing new is begun, running turns may end
within ``drain_timeout`` and are taken up by the next start otherwise. SIGHUP reads the config again: agents come, go
and change, conversations stay. Several processes may share a store, each with agents of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal

from fsm.closing import close_all
from fsm.conversation import Conversation, Key
from fsm.effects import Disposition
from fsm.ports import Reply, SessionRouterError
from fsm.runner import Engine
from session_router.clock import SystemClock
from session_router.compose import open_store
from session_router.config import AgentConfig, Config, ConfigError
from session_router.config_errors import Problem
from session_router.process import settle_memory, tune
from session_router.roster import Roster

log = logging.getLogger("session_router.run")

Signal = Literal["stop", "reload"]

CUT_SHORT = 5.0
"""Seconds that a start or a reload has to end in, when told to stop in the middle of it."""


class NothingToServe(ConfigError):
    """No agent that was asked for has a channel or a port."""

    def __init__(self) -> None:
        text = "no agent has a channel: give one a jid, or talk on the terminal with `session-router chat`"
        super().__init__([Problem(("agents",), text)])


def _is_still_there(config: Config) -> None:
    """Without its file a config would be read as an empty one. Raises ConfigError."""
    if config.file is not None and not config.file.is_file():
        text = f"the config file {config.file} is gone; put it back, or stop what runs"
        raise ConfigError([Problem((), text)])


def _with_the_places_of(before: Config, config: Config) -> Config:
    """``config`` with store and data folder of ``before``, and our own sessions there where they go with the folder."""
    sources, journal = config.sources, config.sources.journal
    if journal is not None and journal.is_relative_to(config.folder):
        journal = before.folder / journal.relative_to(config.folder)
        sources = sources.model_copy(update={"journal": journal})
    return config.model_copy(update={"store": before.store, "data_dir": before.data_dir, "sources": sources})


class Service:
    """``load`` reads the config, at the start and at every reload; ``names`` are the agents to serve (empty: all).

    ``run`` returns when it was told to stop. Raises ConfigError, StoreError or ModelError where it cannot start.
    """

    def __init__(
        self, load: Callable[[], Config], names: Sequence[str] = (), environ: Mapping[str, str] = os.environ
    ) -> None:
        self._load, self._names = load, tuple(names)
        config = load()
        self.clock = SystemClock()
        self.signals: asyncio.Queue[Signal] = asyncio.Queue()
        self._told, self._told_again = asyncio.Event(), asyncio.Event()
        self._turns: set[Key] = set()
        store = open_store(config)
        self.engine = Engine(desks={}, store=store, clock=self.clock, owns=self._is_served, observer=self)
        self.roster = Roster(config, self.engine, store, self.clock, environ)
        self.served = self.roster.served

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        wanted = self._wanted(self.roster.config)
        tune()
        self._listen()
        try:
            await self.engine.start()
            await self._unless_told_to_stop(self._begin(wanted))
            while await self._next_signal() == "reload":
                await self._unless_told_to_stop(self._reload())
            await self._drain()
        finally:
            await close_all([self.roster.close_ports, self.engine.close, self.roster.close])

    async def _begin(self, wanted: Sequence[AgentConfig]) -> None:
        await self.roster.add(wanted)
        if not any(agent.made or agent.http for agent in self.served.values()):
            raise NothingToServe
        settle_memory()
        log.info("ready", extra={"agents": list(self.served)})

    async def _unless_told_to_stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Do that; told to stop meanwhile, whatever it waits for is hurried, and then left."""
        task = asyncio.ensure_future(work)
        told, again = asyncio.ensure_future(self._told.wait()), asyncio.ensure_future(self._told_again.wait())
        try:
            await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.roster.hurry.set()
                await asyncio.wait({task, again}, timeout=CUT_SHORT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            again.cancel()
            if not (done := task.done()):
                task.cancel()
        if not done:
            log.warning("told to stop in the middle of a start or a reload, which is left")
            await asyncio.wait({task}, timeout=CUT_SHORT)
        if task.done() and not task.cancelled():
            task.result()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        names = {"SIGTERM": self._told_to_stop, "SIGINT": self._told_to_stop, "SIGHUP": self._told_to_reload}
        for name, told in names.items():
            try:
                loop.add_signal_handler(getattr(signal, name), told)
            except (AttributeError, NotImplementedError):  # Windows; there Ctrl-C ends it at once
                log.debug("%s is not known here", name)

    def _told_to_stop(self) -> None:
        if self._told.is_set():
            self._told_again.set()
            self.roster.hurry.set()  # whatever runs is left
        self._told.set()
        self.signals.put_nowait("stop")

    def _told_to_reload(self) -> None:
        self.signals.put_nowait("reload")

    async def _next_signal(self) -> Signal:
        """The next one; a stop overtakes reloads that wait."""
        found = await self.signals.get()
        while not self.signals.empty():
            if self.signals.get_nowait() == "stop":
                found = "stop"
        return found

    async def _drain(self) -> None:
        seconds = self.roster.config.drain_timeout
        self.roster.draining = True
        if not self._told_again.is_set():
            self.roster.hurry.clear()
        log.info("stopping: running turns have %g seconds to end", seconds)
        self.engine.hold()
        drained = await self.roster.within(seconds, self.engine.drain())
        if drained:
            # While the engine is still there: what a channel has taken in it may yet hand over.
            await self.roster.close_channels(drain=True)
        left = len(self._turns)
        log.info("stopped; %d running turns are left for the next start", left, extra={"turns_left": left})

    def _wanted(self, config: Config) -> list[AgentConfig]:
        """The agents to serve. Raises ConfigError for a name that is not there."""
        return [config.agent(name) for name in dict.fromkeys(self._names or config.agents)]

    async def _reload(self) -> None:
        """Read the config again. What cannot be done is logged, and everything else goes on as it was."""
        try:
            config = self._load()
            _is_still_there(self.roster.config)
            wanted = {settings.name: settings for settings in self._wanted(config)}
            if not [name for name, each in wanted.items() if self.roster.has_something_to_serve(each)]:
                raise NothingToServe
        except ConfigError as error:
            log.error("the config was not read again, everything goes on as before: %s", error)
            return
        before = self.roster.config
        if (before.store, before.folder) != (config.store, config.folder):
            log.warning("store and data_dir change only with a restart")
            config = _with_the_places_of(before, config)
        self.roster.config = config
        for name in [name for name in self.served if name not in wanted]:
            try:
                await self.roster.remove(name)
            except SessionRouterError as error:
                log.error("agent %s was not taken out: %s", name, error, extra={"agent": name})
                continue
            self._turns = {key for key in self._turns if key.agent != name}
            log.info("agent %s is served no more", name, extra={"agent": name})
        await self.roster.free_ports(wanted)
        for name, settings in wanted.items():
            try:
                if name not in self.served:
                    await self.roster.add([settings])
                elif await self.roster.change(self.served[name], settings):
                    log.info("agent %s was changed", name, extra={"agent": name})
            except SessionRouterError as error:
                log.error("agent %s was not changed: %s", name, error, extra={"agent": name})
        for agent in self.served.values():
            agent.alone = len(config.agents) == 1
        log.info("the config was read again", extra={"agents": list(self.served)})

    # -- what the engine tells (fsm.runner.Observer) -----------------------------------------------

    def _is_served(self, key: Key) -> bool:
        """Others may serve other channels of the same agent, such as its terminal."""
        return self.engine.delivery.channel(key.agent, key.channel) is not None

    def moved(self, key: Key, then: Conversation) -> None:
        if then.turn is not None:
            self._turns.add(key)
        else:
            self._turns.discard(key)
        if (agent := self.served.get(key.agent)) is not None and agent.metrics is not None:
            agent.metrics.moved(key, then)

    def settled(self, key: Key, message: str, disposition: Disposition, reason: str) -> None:
        log.info("%s", disposition.value, extra={
            "agent": key.agent, "channel": key.channel, "sender": key.sender, "message_id": message, "reason": reason,
        })  # fmt: skip
        if (agent := self.served.get(key.agent)) is not None and agent.metrics is not None:
            agent.metrics.settled(disposition)

    def model_called(self, agent: str, seconds: float, reply: Reply | None, failure: str) -> None:
        if (served := self.served.get(agent)) is not None and served.metrics is not None:
            served.metrics.model_called(seconds, reply, failure)

    def counted(self, agent: str, what: str, many: int) -> None:
        if (served := self.served.get(agent)) is not None and served.metrics is not None:
            served.metrics.counted(what, many)
