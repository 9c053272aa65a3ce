"""Looks at everything the engine will lean on, and says what is well, what is doubtful and what is broken.

Nothing is changed: no file and no folder is made, and the model is asked only where that is wished for. It speaks the
language of the environment that it is given; what a store, a source or the config says of itself stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from session_router.config import Config, ConfigError
from session_router.config_sources import language_of
from session_router.doctor.agents import agent_rules, logins
from session_router.doctor.finding import Finding, Level, language, spoken, worst
from session_router.doctor.machine import YEAR_2024, clock, config_file, store
from session_router.doctor.model import models
from session_router.doctor.sources import hermes, hermes_gateway, journals, opencode, opencode_server

__all__ = ["YEAR_2024", "Finding", "Level", "examine", "refused", "worst"]


def refused(error: ConfigError, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """The report on a config that cannot even be read."""
    language.set(language_of(environ))
    return [
        Finding(
            "problem",
            spoken("config", "配置"),
            str(problem),
            spoken("Correct this in the config, then run the check again.", "在配置里改正，然后再检查一次。"),
        )
        for problem in error.problems
    ]


async def examine(
    config: Config,
    environ: Mapping[str, str] = os.environ,
    *,
    call: bool = False,
    connect: bool = False,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """Everything there is to say about ``config`` on this machine, in the order of a start.

    ``call`` has the model answer one short question, which costs some tokens; ``connect`` logs in with every XMPP
    account, beside whoever uses it, and enters its rooms for a moment. Raises nothing: what goes
    wrong is a finding.
    """
    language.set(language_of(environ))
    return [
        *config_file(config),
        *clock(wall, monotonic),
        await asyncio.to_thread(store, config.store.path),
        *await opencode(config),
        *await opencode_server(config, environ),
        *await hermes(config),
        *await hermes_gateway(config, environ),
        *await journals(config),
        *await models(config, environ, call),
        *(finding for name, agent in config.agents.items() for finding in agent_rules(name, agent, environ)),
        *(await logins(config, environ) if connect else ()),
    ]
