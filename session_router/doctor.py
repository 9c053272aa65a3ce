"""Looks at everything the engine will lean on, and says what is well, what is doubtful and what is broken.

Nothing is changed: no file and no folder is made, and the model is asked only where that is wished for.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsm.commands.builtin import BUILTIN
from fsm.language.redact import redact
from fsm.ports import ModelError, SessionRouterError, SourceError, StoreError
from session_router.choose_model import choose
from session_router.config import AgentConfig, Config, ConfigError, ModelSettings
from storage.opencode import OpenCodeSource
from storage.schema import VERSION, check_file, explain

Level = Literal["ok", "warning", "problem"]

YEAR_2024 = 1704067200.0
"""Unix seconds. A wall clock before it was never set."""
CALL_TIMEOUT = 120.0
"""Seconds for the one short answer; a model on this machine may have to be loaded first."""
LOGIN_TIMEOUT = 15.0
"""Seconds for logging in and entering every room."""
OCCUPANT_ID = 16
"""Characters that an occupant id has at least; a shorter word is rather a nick."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: ``what`` was looked at, ``detail`` what was seen there, ``mend`` what to do
    about it (empty where all is well)."""

    level: Level
    what: str
    detail: str
    mend: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    """The gravest level among them, ``ok`` where there are none."""
    levels = {finding.level for finding in findings}
    return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"


def refused(error: ConfigError) -> list[Finding]:
    """The report on a config that cannot even be read."""
    return [
        Finding("problem", "config", str(problem), "Correct this in the config, then run the check again.")
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
    return [
        *_config(config),
        *_clock(wall, monotonic),
        await asyncio.to_thread(_store, config.store.path),
        *await _opencode(config),
        *await _opencode_server(config, environ),
        *await _hermes(config),
        *await _hermes_gateway(config, environ),
        *await _journals(config),
        *await _models(config, environ, call),
        *(finding for name, agent in config.agents.items() for finding in _agent(name, agent, environ)),
        *(await _logins(config, environ) if connect else ()),
    ]


# -- the file and the clock ----------------------------------------------------------------------


def _config(config: Config) -> Iterable[Finding]:
    agents = ", ".join(config.agents)
    if config.file is None:
        yield Finding("ok", "config", f"no file, so the defaults; agent: {agents}")
        return
    yield Finding("ok", "config", f"{config.file}; agents: {agents}")
    servers = (config.sources.opencode_server, config.sources.hermes_gateway)
    written = (getattr(server, "password", None) or getattr(server, "key", None) for server in servers if server)
    if (any(agent.password for agent in config.agents.values()) or any(written)) and _others_may_read(config.file):
        yield Finding(
            "warning", "config", f"others on this machine may read {config.file}, which may hold a password",
            f"Run `chmod 600 {config.file}`, or use password_env or password_file.",
        )  # fmt: skip


def _clock(wall: Callable[[], float], monotonic: Callable[[], float]) -> Iterable[Finding]:
    if wall() < YEAR_2024:
        yield Finding(
            "problem", "clock", "the clock of this machine stands before 2024, so deadlines stored now are wrong",
            "Set the clock, or switch on its synchronisation (timedatectl set-ntp true).",
        )  # fmt: skip
    elif monotonic() > monotonic():
        yield Finding(
            "problem", "clock", "the monotonic clock of this machine runs backwards",
            "Restart the machine, or the host of this virtual one.",
        )  # fmt: skip
    else:
        yield Finding("ok", "clock", "set, and running forward")


# -- the store -----------------------------------------------------------------------------------

_STORE_MEND = "Name another file as path under [store], or mend this one."


def _store(path: Path) -> Finding:
    try:
        if not path.exists():
            return _new_store(path)
        check_file(path)
        if path.stat().st_size == 0:
            return Finding("ok", "store", f"{path} is empty and will be set up at the first start")
        with path.open("rb") as file:
            version = int.from_bytes(file.read(64)[60:], "big")  # user_version, in SQLite's header
        # Opened as it is where nobody is at it: otherwise SQLite would put two files beside it.
        idle = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{idle}", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
    except StoreError as error:
        detail, _, mend = str(error).partition(". ")
        return Finding("problem", "store", detail, mend or _STORE_MEND)
    except sqlite3.Error as error:
        detail, _, mend = explain(error, path).partition(". ")
        return Finding("problem", "store", detail, mend or _STORE_MEND)
    except OSError as error:
        return Finding("problem", "store", f"{path} cannot be read ({error.strerror})", _STORE_MEND)
    old = "" if version == VERSION else f", to be brought to {VERSION} at the next start"
    return Finding("ok", "store", f"{path}: schema {version}{old}, {_counted(count, 'conversation')}")


def _new_store(path: Path) -> Finding:
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return Finding("problem", "store", f"{folder} is a file, so {path} cannot be made", _STORE_MEND)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "problem", "store", f"this user may not write in {folder}, where the store is to be made",
            "Give this user the right to write there, or set data_dir to another folder.",
        )  # fmt: skip
    return Finding("ok", "store", f"{path} will be made at the first start")


# -- sessions ------------------------------------------------------------------------------------

_SOURCE_MENDS = {
    "missing": "Name the file as opencode under [sources], or write opencode = false.",
    "empty": "Start OpenCode once, or name its own file as opencode under [sources].",
    "foreign": "Name OpenCode's own file as opencode under [sources], or update Session Router.",
    "damaged": "Let OpenCode mend it, or bring back a backup.",
    "locked": "Try again in a moment; if it stays so, close whatever holds the file.",
}


async def _opencode(config: Config) -> Sequence[Finding]:
    path = config.sources.opencode
    if path is None:
        return [Finding("ok", "sessions of OpenCode", "switched off in the config")]
    try:
        probe = await OpenCodeSource(path).probe()
    except SourceError as error:
        # Nobody asked for OpenCode where its usual place is merely empty.
        asked = "opencode" in config.sources.model_fields_set
        level: Level = "warning" if error.kind == "missing" and not asked else "problem"
        mend = _SOURCE_MENDS.get(error.kind, "Check the path and who may read it.")
        return [Finding(level, "sessions of OpenCode", str(error), mend)]
    generations = " and ".join(probe.generations)
    newest = f", newest migration {probe.migration}" if probe.migration else ""
    seen = f"{probe.path}: schema {generations}{newest}, {_counted(probe.sessions, 'session')}"
    return [Finding("ok", "sessions of OpenCode", seen)]


_HERMES_MENDS = {
    **_SOURCE_MENDS,
    "missing": "Name the file as hermes under [sources], or write hermes = false.",
    "empty": "Start Hermes once, or name its own file as hermes under [sources].",
    "foreign": "Name Hermes' own file as hermes under [sources], or update Session Router.",
    "damaged": "Let Hermes mend it, or bring back a backup.",
}


async def _hermes(config: Config) -> Sequence[Finding]:
    path = config.sources.hermes
    if path is None or not ("hermes" in config.sources.model_fields_set or path.exists()):
        return []
    from storage.hermes import HermesSource

    try:
        probe = await HermesSource(path).probe()
    except SourceError as error:
        mend = _HERMES_MENDS.get(error.kind, "Check the path and who may read it.")
        return [Finding("problem", "sessions of Hermes", str(error), mend)]
    seen = f"{probe.path}: schema {probe.version}, {_counted(probe.sessions, 'session')}"
    return [Finding("ok", "sessions of Hermes", seen)]


async def _opencode_server(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = "server of OpenCode", config.sources.opencode_server
    if settings is None:
        return []
    from storage.opencode import OpenCodeServer

    try:
        password = settings.secret(environ)
    except ConfigError as error:
        return [Finding("problem", what, error.text, f"Correct {error.key} in the config.")]
    server = OpenCodeServer(settings.url, username=settings.username, password=password, model=settings.model_pair)
    try:
        version = await server.version()
        names = await server.models() if settings.model_pair else ()
    except SourceError as error:
        # Sessions can be read without it, so a server that is merely not started keeps nobody from working.
        level: Level = "warning" if error.detail == "connection" else "problem"
        return [Finding(level, what, str(error), "Start it, or correct [sources.opencode_server].")]
    finally:
        await server.close()
    found = [Finding("ok", what, f"{settings.url}: OpenCode {version}, {settings.model or 'no model named'}")]
    if not settings.model:
        found.append(Finding(
            "warning", what, "no model is named, so each turn takes the one that its session named last",
            'Write model = "provider/model" under [sources.opencode_server].',
        ))  # fmt: skip
    elif names and settings.model not in names:
        found.append(Finding(
            "problem", what, f"it knows no model {settings.model}",
            f"Name one that it has, such as {', '.join(names[:3])}.",
        ))  # fmt: skip
    if settings.password_file and _others_may_read(settings.password_file):
        found.append(Finding(
            "warning", what, f"others on this machine may read the password in {settings.password_file}",
            f"Run `chmod 600 {settings.password_file}`.",
        ))  # fmt: skip
    return found


async def _hermes_gateway(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = "gateway of Hermes", config.sources.hermes_gateway
    if settings is None or config.sources.hermes is None:
        return []
    from storage.hermes.gateway import HermesGateway
    from storage.hermes.source import HermesSource

    try:
        key = settings.secret(environ)
    except ConfigError as error:
        return [Finding("problem", what, error.text, f"Correct {error.key} in the config.")]
    gateway = HermesGateway(HermesSource(config.sources.hermes), settings.url, lambda: key)
    try:
        await gateway.look()
        names = await gateway.models()
    except SourceError as error:
        level: Level = "warning" if error.detail == "connection" else "problem"
        return [Finding(level, what, str(error), "Start it, or correct [sources.hermes_gateway].")]
    finally:
        await gateway.close()
    model = ", ".join(names) or "its own"
    found = [Finding("ok", what, f"{settings.url}: it answers and takes the key; model {model}")]
    if settings.key_file and _others_may_read(settings.key_file):
        found.append(Finding(
            "warning", what, f"others on this machine may read the key in {settings.key_file}",
            f"Run `chmod 600 {settings.key_file}`.",
        ))  # fmt: skip
    return found


async def _journals(config: Config) -> Sequence[Finding]:
    what, folder = "sessions of our own", config.sources.journal
    if folder is None:
        return [Finding("ok", what, "switched off in the config")]
    if not folder.exists():
        return [Finding("ok", what, f"{folder} will be made with the first session")]
    from storage.journal import JournalSource

    try:
        many = len(await JournalSource(folder).list())
    except SourceError as error:
        mend = "Name another folder as journal under [sources], or mend this one."
        return [Finding("problem", what, str(error), mend)]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Finding(
            "problem", what, f"this user may not write in {folder}",
            "Give this user the right to write there, or name another folder as journal under [sources].",
        )]  # fmt: skip
    return [Finding("ok", what, f"{folder}: {_counted(many, 'session')}")]


# -- the model -----------------------------------------------------------------------------------

_MODEL_MEND = "Correct the model in the config, or put a key such as OPENAI_API_KEY into the environment."


async def _models(config: Config, environ: Mapping[str, str], call: bool) -> list[Finding]:
    users: list[tuple[ModelSettings | None, list[str]]] = []
    for name, agent in config.agents.items():
        same = next((names for settings, names in users if settings == agent.model), None)
        if same is None:
            users.append((agent.model, [name]))
        else:
            same.append(name)
    return [await _model(f"model of {', '.join(names)}", settings, environ, call) for settings, names in users]


async def _model(what: str, settings: ModelSettings | None, environ: Mapping[str, str], call: bool) -> Finding:
    try:
        chosen = await choose(settings, environ)
    except ModelError as error:
        return Finding("problem", what, redact(str(error)), _MODEL_MEND)
    seen = redact(f"{chosen.label}, because {chosen.why}")
    try:
        if call:
            async with asyncio.timeout(CALL_TIMEOUT):
                reply = await chosen.model.complete([{"role": "user", "content": "Say: ready"}])
            if not reply.text.strip():
                return Finding("problem", what, f"{seen}; it answered with nothing", _MODEL_MEND)
            seen += "; it answered"
        else:
            seen += "; it was not asked"
    except TimeoutError:
        return Finding("problem", what, f"{seen}; no answer in {CALL_TIMEOUT:.0f} s", _MODEL_MEND)
    except ModelError as error:
        return Finding("problem", what, f"{seen}; it failed: {redact(str(error))}", _MODEL_MEND)
    finally:
        await chosen.model.close()
    if chosen.demo:
        return Finding("warning", what, f"{seen}; it is good for a trial only", _MODEL_MEND)
    return Finding("ok", what, seen)


# -- agents --------------------------------------------------------------------------------------


def _agent(name: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    what = f"agent {name}"
    if agent.jid:
        yield from _account(what, agent, environ)
        if not agent.allow:
            yield Finding(
                "warning", what, "its allow list is empty, so nobody is answered in a direct chat",
                'List addresses under allow, such as ["hmo@example.org"], or ["*"] for everybody.',
            )  # fmt: skip
    for room in agent.all_rooms:
        yield from _room(f"{what} in {room}", agent, room)
    for command in sorted(set(agent.permissions) - BUILTIN.names):
        yield Finding(
            "warning", what, f"permissions narrow `{command}`, which is no command of ours",
            f"Correct the name unless you add that command yourself; ours are {', '.join(sorted(BUILTIN.names))}.",
        )  # fmt: skip


def _account(what: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    try:
        if agent.secret(environ) is None:
            yield Finding(
                "problem", what, f"{agent.jid} has no password",
                "Name a variable as password_env, or a file as password_file.",
            )  # fmt: skip
    except ConfigError as error:
        yield Finding("problem", what, error.text, f"Correct {error.key} in the config.")
    if agent.password_file and _others_may_read(agent.password_file):
        yield Finding(
            "warning", what, f"others on this machine may read the password in {agent.password_file}",
            f"Run `chmod 600 {agent.password_file}`.",
        )  # fmt: skip


async def _logins(config: Config, environ: Mapping[str, str]) -> Iterable[Finding]:
    """All accounts at once; one that has no password is told elsewhere."""
    agents = [agent for agent in config.agents.values() if agent.jid and _has_password(agent, environ)]
    found = await asyncio.gather(*(_login(agent, environ) for agent in agents))
    return [finding for findings in found for finding in findings]


def _has_password(agent: AgentConfig, environ: Mapping[str, str]) -> bool:
    try:
        return agent.secret(environ) is not None
    except ConfigError:
        return False


async def _login(agent: AgentConfig, environ: Mapping[str, str]) -> list[Finding]:
    from channels.xmpp import Standing, State
    from session_router.clock import SystemClock
    from session_router.xmpp import second_connection

    what = f"login of {agent.name}"
    # The running one keeps its resource, or each would put the other out.
    resource = f"doctor-{secrets.token_hex(3)}"
    try:
        async with second_connection(agent, environ, SystemClock(), resource, LOGIN_TIMEOUT) as channel:
            now = channel.connection
    except ConfigError as error:
        return [Finding("problem", what, error.text, f"Correct {error.key} in the config.")]
    except SessionRouterError as error:  # the library is not there
        return [Finding("problem", what, str(error), 'Run pip install "session-router[xmpp]".')]
    if now.state not in (State.JOINING, State.JOINED):
        reason = redact(now.reason) or f"no session within {LOGIN_TIMEOUT:.0f} s"
        return [Finding("problem", what, f"{agent.jid}: {reason}",
                        "Check the address, the password and that the server can be reached from here.")]  # fmt: skip
    found = [Finding("ok", what, f"{agent.jid} logged in")]
    for room in now.rooms:
        where = f"{what}: {room.address}"
        if room.standing is not Standing.IN:
            reason = redact(room.reason) or f"not entered within {LOGIN_TIMEOUT:.0f} s"
            found.append(Finding("problem", where, reason,
                                 "Check the room's address, and let its owner admit this account."))  # fmt: skip
        elif room.created:
            found.append(Finding("warning", where, "it did not exist, so entering it has made it",
                                 "Check its address; if it is right, set the room up with a client."))  # fmt: skip
        else:
            found.append(Finding("ok", where, "entered"))
    return found


def _room(what: str, agent: AgentConfig, room: str) -> Iterable[Finding]:
    group = agent.groups.get(room)
    allow = group.allow - {"*"} if group else frozenset()
    if not allow:
        star = " (`*` does not count in a room)" if group and group.allow else ""
        yield Finding(
            "warning", what, f"its allow list is empty, so nobody is answered there{star}",
            f'List real addresses in [agents.{agent.name}.groups."{room}"] as allow.',
        )  # fmt: skip
    elif group and group.nicks:
        yield Finding(
            "warning", what, "nicks are trusted there, and anybody can take a nick",
            "List real addresses or occupant ids and write nicks = false.",
        )  # fmt: skip
    elif short := sorted(who for who in allow if "@" not in who and len(who) < OCCUPANT_ID):
        yield Finding(
            "warning", what, f"{', '.join(short)}: neither an address nor an occupant id, so it admits nobody",
            "Write the real address, such as hmo@example.org, or nicks = true if the nick has to do.",
        )  # fmt: skip


# -- small things --------------------------------------------------------------------------------


def _others_may_read(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
