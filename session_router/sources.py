"""The session sources that a config names, in the order in which they own an id: OpenCode, Hermes, our own journals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fsm.owed import JOURNAL
from fsm.ports import Channel, SessionSource, Store, WritableSource
from session_router.agent_config import AgentConfig
from session_router.choose_model import Chosen
from session_router.config import Config
from session_router.model_settings import ModelSettings
from session_router.models import is_loopback
from session_router.titles import give_title
from storage.journal import JournalChannel, JournalSource, SessionConfig
from storage.opencode.source import OpenCodeSource


def sources_of(
    config: Config,
    store: Store | None,
    names: Sequence[str] = (),
    *,
    settings: AgentConfig | None = None,
    chosen: Chosen | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[SessionSource, ...]:
    """Every session source that the config leaves on. ``names`` are what the agent is called, by which Hermes' lines
    are known as its own; ``store`` keeps notes of turns in Hermes. ``settings`` and ``chosen``, where turns are to run,
    are what new journals begin with and who makes titles.

    Raises :class:`session_router.config.ConfigError` where a secret that the config names is not there.
    """
    found: list[SessionSource] = []
    if (opencode := _opencode(config, environ)) is not None:
        found.append(opencode)
    if (hermes := _hermes(config, store, names, environ)) is not None:
        found.append(hermes)
    if config.sources.journal is not None:
        journal = JournalSource(config.sources.journal)
        if settings is not None and chosen is not None:
            journal.config = session_config(settings, chosen)
            if config.sources.titles == "model":
                journal.ended = partial(give_title, journal, chosen.model)
        found.append(journal)
    return tuple(found)


def _opencode(config: Config, environ: Mapping[str, str]) -> SessionSource | None:
    path, server = config.sources.opencode, config.sources.opencode_server
    if server is None:
        # Nobody asked for OpenCode where its usual place is empty: no need to name it in every answer.
        asked = "opencode" in config.sources.model_fields_set or bool(environ.get("OPENCODE_DB"))
        return OpenCodeSource(path) if path is not None and (asked or path.exists()) else None
    from storage.opencode import OpenCodeServer, OpenCodeSessions

    # The database in its usual place belongs to a server on this machine; another one's has to be named.
    is_its_own = is_loopback(server.url) or "opencode" in config.sources.model_fields_set
    return OpenCodeSessions(
        OpenCodeServer(
            server.url, username=server.username, password=server.secret(environ), model=server.model_pair,
            agent=server.agent, directory=str(server.directory) if server.directory else None,
            turn_timeout=server.turn_timeout, ask_timeout=server.ask_timeout,
            start_patience=server.start_patience,
        ),
        OpenCodeSource(path) if path is not None and is_its_own else None,
    )  # fmt: skip


def _hermes(config: Config, store: Store | None, names: Sequence[str], environ: Mapping[str, str]
            ) -> SessionSource | None:
    path, gateway = config.sources.hermes, config.sources.hermes_gateway
    # Nobody asked for Hermes where its usual place is empty: no need to name it in every answer.
    if path is None or not (gateway or "hermes" in config.sources.model_fields_set or path.exists()):
        return None
    from storage.hermes.source import HermesSource

    source = HermesSource(path, own_names=names)
    if gateway is None:
        return source
    from storage.hermes.gateway import HermesGateway

    key = gateway.secret(environ)
    return HermesGateway(source, gateway.url, lambda: key, request_timeout=gateway.turn_timeout, notes=store,
                         model=gateway.model or None)


def writable_of(sources: Sequence[SessionSource]) -> WritableSource | None:
    """Where new sessions are made: our journals, else the first agent that takes them."""
    journal = journal_of(sources)
    return journal or next((source for source in sources if isinstance(source, WritableSource)), None)


def journal_of(sources: Sequence[SessionSource]) -> JournalSource | None:
    return next((source for source in sources if isinstance(source, JournalSource)), None)


def journal_channels(agent: str, sources: Sequence[SessionSource]) -> dict[tuple[str, str], Channel]:
    """The channel on which the records of an agent's turns go out, by its name in the engine."""
    journal = journal_of(sources)
    return {} if journal is None else {(agent, JOURNAL): JournalChannel(journal)}


def session_config(settings: AgentConfig, chosen: Chosen) -> SessionConfig:
    """What a session of this agent runs with, as its journal keeps it."""
    model, limits = settings.model or ModelSettings(), settings.to_agent().limits
    return SessionConfig(chosen.model.name, limits.max_loops, model.max_tokens)


def beside(store: Store, otherwise: Path) -> Path:
    """The folder of journals beside a store's own file, else in ``otherwise``."""
    path = getattr(store, "path", None)
    return (path.parent if isinstance(path, Path) else otherwise) / "sessions"
