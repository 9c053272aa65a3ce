"""The agents that a running process serves: they come, go and change while the engine runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fsm.closing import close_all, closings_of
from fsm.ports import Channel, Inbound, SessionRouterError, SessionSource
from fsm.runner import Engine
from session_router.channel_makers import ChannelState, Made, Making, make_all
from session_router.clock import SystemClock
from session_router.config import AgentConfig, Config, ConfigError
from session_router.config_errors import Problem
from session_router.hold import hold
from session_router.http_token import token_for
from session_router.model_leases import Models
from session_router.served import Served, desk_of, wants_http
from session_router.sources import journal_channels, sources_of
from storage.hermes import StateMetaMirror
from storage.sqlite import SqliteStore

if TYPE_CHECKING:
    from session_router.http_port import HttpPort
    from session_router.metrics import AgentMetrics

log = logging.getLogger("session_router.run")

CHANNEL_CLOSE = 5.0
"""Seconds for a channel to say good-bye."""

LET_GO = 10.0
"""Seconds for the engine to let go of an agent at which nothing runs any more."""


class NotLetGo(SessionRouterError):
    """Something of an agent does not end, so that it is served still, and nobody else may serve it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"something of the agent {name} does not end; send SIGHUP once more, or stop the process")


@dataclass(frozen=True, slots=True)
class _NextHttp:
    """What a reload makes of an agent's port: none, the one of now (perhaps with another token), or a new one."""

    http: HttpPort | None = None
    token: str = ""
    metrics: AgentMetrics | None = None


class Roster:
    """``config`` is the one in force. While it is ``draining`` no call from outside begins anything; ``hurry`` ends
    every waiting for running turns. ``served`` are the agents by name."""

    def __init__(
        self, config: Config, engine: Engine, store: SqliteStore, clock: SystemClock, environ: Mapping[str, str]
    ) -> None:
        self.config, self.engine = config, engine
        self.served: dict[str, Served] = {}
        self.draining = False
        self.hurry = asyncio.Event()
        self._store, self.clock, self._environ = store, clock, environ
        self._models = Models(environ)
        self._old_sources: list[SessionSource] = []
        self._mirror = StateMetaMirror(config.store.mirror) if config.store.mirror is not None else None

    def has_something_to_serve(self, settings: AgentConfig) -> bool:
        """Whether the agent has a channel or a port. Raises ConfigError where one of them cannot be had."""
        return bool(self._make(settings)) or wants_http(settings, self._environ)

    async def add(self, wanted: Iterable[AgentConfig]) -> None:
        """Serve these as well. Where one cannot be, none is, and the error is raised."""
        prepared: list[Served] = []
        try:
            for settings in wanted:
                prepared.append(await self._prepare(settings))
            for agent in prepared:
                self.served[agent.name] = agent
                if agent.metrics is not None:
                    token = token_for(agent.settings, self.config.folder, self._environ)
                    agent.http = await self._open_http(agent, agent.settings, token, agent.metrics)
            channels: dict[tuple[str, str], Channel] = {}
            for agent in prepared:
                channels |= journal_channels(agent.name, agent.desk.sessions.sources)
                channels |= {(agent.name, kind): made.channel for kind, made in agent.made.items()}
            await self.engine.adopt({agent.name: agent.desk for agent in prepared}, channels)
        except BaseException:
            for agent in prepared:
                self.served.pop(agent.name, None)
                if agent.http is not None:
                    await agent.http.close()
                self._models.release(agent.settings.model)
                agent.holds.close()
            raise
        for agent in prepared:
            self._introduce(agent)
            for made in list(agent.made.values()):
                await self._start(agent, made)

    async def _prepare(self, settings: AgentConfig) -> Served:
        with ExitStack() as holds:
            holds.enter_context(hold(self._store.path, settings.name))
            made = self._make(settings)
            has_http = wants_http(settings, self._environ)
            chosen = await self._models.lease(settings.model)
            agent = settings.to_agent()
            sources = sources_of(
                self.config, self._store, agent.names, settings=settings, chosen=chosen, environ=self._environ
            )
            served = Served(
                settings, self.config.sources, desk_of(agent, sources, self._store, chosen, self.clock), chosen, made,
                self.clock, alone=len(self.config.agents) == 1, mirror=self._mirror,
            )  # fmt: skip
            if has_http:
                from session_router.metrics import AgentMetrics

                served.metrics = AgentMetrics(settings.name, self.clock.now)
            served.holds = holds.pop_all()
            return served

    def _make(self, settings: AgentConfig) -> dict[str, Made]:
        name = settings.name

        async def receive(inbound: Inbound) -> None:
            facts = {"agent": name, "channel": inbound.channel, "sender": inbound.sender, "message_id": inbound.id}
            if self.config.log_bodies:
                facts["text"] = inbound.text
            log.info("message", extra=facts)
            await self.engine.receive(name, inbound)

        def making(kind: str) -> Making:
            def report(state: ChannelState) -> None:
                if (agent := self.served.get(name)) is not None:
                    agent.channel_changed(kind, state)

            return Making(settings, self._environ, self.config.folder, receive, self.clock, report)

        return make_all(making)

    async def _open_http(self, agent: Served, settings: AgentConfig, token: str, metrics: AgentMetrics) -> HttpPort:
        """The port of these settings, open. Raises ConfigError where it is taken."""
        from session_router.http_port import Calls, HttpPort
        from session_router.metrics import CONTENT_TYPE_LATEST

        calls = Calls(
            taking=lambda: not self.draining, metrics=metrics.text, metrics_type=CONTENT_TYPE_LATEST,
            send=agent.send, active=agent.active, clear=agent.clear,
        )  # fmt: skip
        assert settings.http_port is not None
        http = HttpPort(settings.http_port, token, calls)
        try:
            await http.start()
        except OSError as error:
            text = f"port {settings.http_port} of 127.0.0.1 cannot be used ({error.strerror}); free it, or name another"
            raise ConfigError([Problem(("agents", agent.name, "http_port"), text)]) from error
        return http

    def _introduce(self, agent: Served) -> None:
        """The lines at the start: who is served, where, by which model and why, and what to beware of."""
        where = [made.label for made in agent.made.values()]
        if agent.http is not None:
            where.append(f"http 127.0.0.1:{agent.http.port}")
        sources = ", ".join(source.name for source in agent.desk.sessions.sources)
        facts = {"agent": agent.name}
        log.info("agent %s: %s", agent.name, "; ".join(where) or "no channel", extra=facts)
        log.info("model of %s: %s, because %s", agent.name, agent.chosen.label, agent.chosen.why, extra=facts)
        log.info("sessions of %s: %s", agent.name, sources, extra=facts)
        _warn(agent)
        if not where:
            log.warning("agent %s has nothing to serve: give it a jid or an http_port", agent.name, extra=facts)

    async def remove(self, name: str) -> None:
        """Serve an agent no more. Raises NotLetGo where that takes too long; it may be told to go again."""
        agent = self.served[name]
        agent.leaving = True
        self.engine.hold([name])
        drained = await self.within(self.config.drain_timeout, self.engine.rest(name))
        if drained:
            await self._close_channels_of(agent, drain=True)
        if agent.http is not None:
            await agent.http.close()
            agent.http = None
        try:
            async with asyncio.timeout(LET_GO):
                await self.engine.dismiss(name)
        except TimeoutError:
            raise NotLetGo(name) from None
        finally:
            await self._close_channels_of(agent, drain=False)
        del self.served[name]
        self._models.release(agent.settings.model)
        self._old_sources += agent.desk.sessions.sources
        agent.holds.close()

    async def _close_channels_of(self, agent: Served, *, drain: bool) -> None:
        for made in agent.made.values():
            await _close_channel(made, drain=drain)
        agent.made = {}

    async def free_ports(self, wanted: Mapping[str, AgentConfig]) -> None:
        """Close every port that is to be another agent's, so that whoever is changed first can have it."""
        owners = {each.http_port: name for name, each in wanted.items()}
        for agent in self.served.values():
            if agent.http is not None and owners.get(agent.http.port, agent.name) != agent.name:
                await agent.http.close()
                agent.http = None

    async def change(self, agent: Served, settings: AgentConfig) -> bool:
        """Other rules, words, constants, sources, model, account or port for an agent; its conversations go on.

        False where all is as it was. Where an error is raised the agent goes on as before.
        """
        try:
            return await self._change(agent, settings)
        except SessionRouterError:
            if self.served.get(agent.name) is agent and not agent.leaving:
                await self._reopen_http(agent)
            raise

    async def _change(self, agent: Served, settings: AgentConfig) -> bool:
        made = self._make(settings)
        has_http = wants_http(settings, self._environ)
        if agent.leaving or made.keys() != agent.made.keys():
            # Another kind of channel has conversations of its own to take up.
            await self.remove(agent.name)
            try:
                await self.add([settings])
            except SessionRouterError:
                await self.add([agent.settings])
                raise
            return True
        old = agent.settings
        is_other = settings != old or agent.sources != self.config.sources
        moved = await self._next_http(agent, settings, has_http)
        try:
            if is_other:
                await self._seat(agent, settings)
        except BaseException:
            if moved.http is not None and moved.http is not agent.http:
                await moved.http.close()
            raise
        is_other = is_other or moved.http is not agent.http
        await self._move_http(agent, moved)
        for kind, new in made.items():
            running, state = agent.made[kind], agent.states.get(kind)
            if new.identity == running.identity:
                agent.made[kind] = replace(new, channel=running.channel)
                if state is not None and state.stuck:  # it waits for a person, who has just told us to look again
                    is_other = True
                    log.info("%s of %s is tried again", kind, agent.name, extra={"agent": agent.name, "channel": kind})
                    await _start_channel(settings, agent.made[kind])
                continue
            is_other = True
            log.info("%s of %s connects anew", kind, agent.name, extra={"agent": agent.name, "channel": kind})
            await _close_channel(running, drain=True)
            self.engine.channels[agent.name, kind] = new.channel
            if agent.metrics is not None:
                agent.metrics.channel_made(kind)
            await self._start(agent, new)
        if is_other:
            _warn(agent)
        return is_other

    async def _start(self, agent: Served, made: Made) -> None:
        # Where it does not start it is no channel of this config, so that the next reload makes it anew.
        agent.made[made.kind] = replace(made, identity=None)
        await _start_channel(agent.settings, made)
        agent.made[made.kind] = made

    async def _seat(self, agent: Served, settings: AgentConfig) -> None:
        chosen = await self._models.lease(settings.model)
        old, rules, sources = agent.settings, settings.to_agent(), agent.desk.sessions.sources
        if agent.sources != self.config.sources or rules.names != agent.desk.agent.names or settings.model != old.model:
            try:
                others = sources_of(
                    self.config, self._store, rules.names, settings=settings, chosen=chosen, environ=self._environ
                )
            except BaseException:
                self._models.release(settings.model)
                raise
            # The ones of before stay open: a turn may be at work in one of them.
            self._old_sources += sources
            sources = others
        agent.settings, agent.sources, agent.chosen = settings, self.config.sources, chosen
        self._models.release(old.model)
        agent.desk = desk_of(rules, sources, self._store, chosen, self.clock)
        self.engine.channels |= journal_channels(agent.name, sources)
        self.engine.seat(agent.desk)

    async def _next_http(self, agent: Served, settings: AgentConfig, has_http: bool) -> _NextHttp:
        """The port that the agent is to have, open beside the one of now where it is another. Raises ConfigError."""
        if not has_http:
            return _NextHttp()
        token, metrics = token_for(settings, self.config.folder, self._environ), agent.metrics
        if metrics is None:
            from session_router.metrics import AgentMetrics

            metrics = AgentMetrics(agent.name, self.clock.now)
            for kind, state in agent.states.items():
                metrics.channel_changed(kind, state)
        if agent.http is not None and agent.http.port == settings.http_port:
            return _NextHttp(agent.http, token, metrics)
        return _NextHttp(await self._open_http(agent, settings, token, metrics), token, metrics)

    async def _move_http(self, agent: Served, to: _NextHttp) -> None:
        if agent.http is not None and agent.http is not to.http:
            await agent.http.close()
        agent.http, agent.metrics = to.http, to.metrics
        if to.http is not None:
            to.http.token = to.token

    async def _reopen_http(self, agent: Served) -> None:
        """The port that was let go of for another agent, back again."""
        if agent.http is not None or agent.metrics is None:
            return
        try:
            token = token_for(agent.settings, self.config.folder, self._environ)
            agent.http = await self._open_http(agent, agent.settings, token, agent.metrics)
        except SessionRouterError as error:
            log.error("agent %s has no port just now: %s", agent.name, error, extra={"agent": agent.name})

    # -- the end ---------------------------------------------------------------------------------

    async def within(self, seconds: float, work: Coroutine[Any, Any, None]) -> bool:
        """Whether ``work`` ended in that time, and before somebody hurried."""
        task = asyncio.ensure_future(work)
        hurried = asyncio.ensure_future(self.hurry.wait())
        await asyncio.wait({task, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        done = task.done()
        task.cancel()
        await asyncio.gather(task, hurried, return_exceptions=True)
        return done

    async def close_channels(self, *, drain: bool) -> None:
        """Every channel of every agent."""
        await asyncio.gather(*(self._close_channels_of(agent, drain=drain) for agent in self.served.values()))

    async def close(self) -> None:
        """Let go of everything, once the engine is closed."""
        for agent in self.served.values():
            self._models.release(agent.settings.model)
            self._old_sources += agent.desk.sessions.sources
        await close_all([
            partial(self.close_channels, drain=False), *(agent.holds.close for agent in self.served.values()),
            self._models.close, *closings_of([*dict.fromkeys(self._old_sources), self._mirror]),
        ])  # fmt: skip

    async def close_ports(self) -> None:
        """Answer no call any more."""
        await asyncio.gather(*(agent.http.close() for agent in self.served.values() if agent.http is not None))


def _warn(agent: Served) -> None:
    facts = {"agent": agent.name}
    for made in agent.made.values():
        for warning in made.warnings:
            log.warning("agent %s: %s", agent.name, warning, extra=facts)
    if agent.chosen.demo:
        log.warning("agent %s: its model is good for a trial only; name one in the config", agent.name, extra=facts)


async def _start_channel(settings: AgentConfig, made: Made) -> None:
    try:
        await made.channel.start()
    except ValueError as error:  # an address that cannot be one
        raise ConfigError([Problem(("agents", settings.name), str(error))]) from None


async def _close_channel(made: Made, *, drain: bool) -> None:
    try:
        async with asyncio.timeout(CHANNEL_CLOSE):
            await made.channel.close(drain=drain)
            return
    except TimeoutError:
        log.warning("%s did not say good-bye in time", made.kind)
    except Exception as error:
        log.error("%s did not close: %s", made.kind, error, exc_info=error)
    if drain:
        await _close_channel(made, drain=False)
