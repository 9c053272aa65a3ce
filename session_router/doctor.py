"""Looks at everything the engine will lean on, and says what is well, what is doubtful and what is broken.

Nothing is changed: no file and no folder is made, and the model is asked only where that is wished for. It speaks the
language of the environment that it is given; what a store, a source or the config says of itself stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsm.commands.builtin import BUILTIN
from fsm.language.redact import redact
from fsm.ports import ModelError, SessionRouterError, SourceError, StoreError
from session_router.choose_model import choose
from session_router.config import AgentConfig, Config, ConfigError, ModelSettings
from session_router.config_sources import language_of
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


_language: ContextVar[str] = ContextVar("language of the report", default="en")


def spoken(en: str, zh: str) -> str:
    return zh if _language.get() == "zh" else en


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


def refused(error: ConfigError, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """The report on a config that cannot even be read."""
    _language.set(language_of(environ))
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
    _language.set(language_of(environ))
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
    what, agents = spoken("config", "配置"), ", ".join(config.agents)
    if config.file is None:
        yield Finding(
            "ok", what, spoken(f"no file, so the defaults; agent: {agents}", f"没有文件，用默认值；agent：{agents}")
        )
        return
    yield Finding("ok", what, spoken(f"{config.file}; agents: {agents}", f"{config.file}；agent：{agents}"))
    servers = (config.sources.opencode_server, config.sources.hermes_gateway)
    written = (getattr(server, "password", None) or getattr(server, "key", None) for server in servers if server)
    if (any(agent.password for agent in config.agents.values()) or any(written)) and _others_may_read(config.file):
        yield Finding(
            "warning",
            what,
            spoken(
                f"others on this machine may read {config.file}, which may hold a password",
                f"本机的其他用户能读 {config.file}，里面可能有密码",
            ),
            spoken(
                f"Run `chmod 600 {config.file}`, or use password_env or password_file.",
                f"执行 `chmod 600 {config.file}`，或改用 password_env、password_file。",
            ),
        )


def _clock(wall: Callable[[], float], monotonic: Callable[[], float]) -> Iterable[Finding]:
    what = spoken("clock", "时钟")
    if wall() < YEAR_2024:
        yield Finding(
            "problem",
            what,
            spoken(
                "the clock of this machine stands before 2024, so deadlines stored now are wrong",
                "本机时钟还在 2024 年以前，现在存下的期限都会是错的",
            ),
            spoken(
                "Set the clock, or switch on its synchronisation (timedatectl set-ntp true).",
                "校准时钟，或打开自动同步（timedatectl set-ntp true）。",
            ),
        )
    elif monotonic() > monotonic():
        yield Finding(
            "problem",
            what,
            spoken("the monotonic clock of this machine runs backwards", "本机的单调时钟在倒走"),
            spoken("Restart the machine, or the host of this virtual one.", "重启本机，或虚拟机所在的主机。"),
        )
    else:
        yield Finding("ok", what, spoken("set, and running forward", "已校准，正常向前"))


# -- the store -----------------------------------------------------------------------------------


def _store_mend() -> str:
    return spoken(
        "Name another file as path under [store], or mend this one.", "在 [store] 的 path 里写另一个文件，或修好这个。"
    )


def _store(path: Path) -> Finding:
    what = spoken("store", "存储")
    try:
        if not path.exists():
            return _new_store(path)
        check_file(path)
        if path.stat().st_size == 0:
            return Finding(
                "ok",
                what,
                spoken(f"{path} is empty and will be set up at the first start", f"{path} 是空的，第一次启动时建立"),
            )
        with path.open("rb") as file:
            version = int.from_bytes(file.read(64)[60:], "big")  # user_version, in SQLite's header
        # Opened as it is where nobody is at it: otherwise SQLite would put two files beside it.
        idle = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{idle}", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
    except StoreError as error:
        detail, _, mend = str(error).partition(". ")
        return Finding("problem", what, detail, mend or _store_mend())
    except sqlite3.Error as error:
        detail, _, mend = explain(error, path).partition(". ")
        return Finding("problem", what, detail, mend or _store_mend())
    except OSError as error:
        return Finding(
            "problem",
            what,
            spoken(f"{path} cannot be read ({error.strerror})", f"{path} 读不了（{error.strerror}）"),
            _store_mend(),
        )
    old = (
        ""
        if version == VERSION
        else spoken(f", to be brought to {VERSION} at the next start", f"，下次启动升到 {VERSION}")
    )
    return Finding(
        "ok",
        what,
        spoken(
            f"{path}: schema {version}{old}, {_counted(count, 'conversation')}",
            f"{path}：结构版本 {version}{old}，{count} 个对话",
        ),
    )


def _new_store(path: Path) -> Finding:
    what = spoken("store", "存储")
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return Finding(
            "problem",
            what,
            spoken(f"{folder} is a file, so {path} cannot be made", f"{folder} 是个文件，所以建不了 {path}"),
            _store_mend(),
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "problem",
            what,
            spoken(
                f"this user may not write in {folder}, where the store is to be made",
                f"存储要建在 {folder}，但当前用户不能写那里",
            ),
            spoken(
                "Give this user the right to write there, or set data_dir to another folder.",
                "给当前用户写权限，或把 data_dir 设为别的文件夹。",
            ),
        )
    return Finding("ok", what, spoken(f"{path} will be made at the first start", f"{path} 会在第一次启动时建立"))


# -- sessions ------------------------------------------------------------------------------------


def _source_mend(kind: str, program: str, key: str) -> str:
    """What to do about a file of ``program`` that ``key`` under [sources] names."""
    match kind:
        case "missing":
            return spoken(
                f"Name the file as {key} under [sources], or write {key} = false.",
                f"在 [sources] 的 {key} 里写明文件，或写 {key} = false。",
            )
        case "empty":
            return spoken(
                f"Start {program} once, or name its own file as {key} under [sources].",
                f"启动一次 {program}，或在 [sources] 的 {key} 里写它自己的文件。",
            )
        case "foreign":
            return spoken(
                f"Name {program}'s own file as {key} under [sources], or update Session Router.",
                f"在 [sources] 的 {key} 里写 {program} 自己的文件，或升级 Session Router。",
            )
        case "damaged":
            return spoken(f"Let {program} mend it, or bring back a backup.", f"让 {program} 修复它，或恢复备份。")
        case "locked":
            return spoken(
                "Try again in a moment; if it stays so, close whatever holds the file.",
                "稍后再试；一直如此就关掉占用文件的程序。",
            )
    return spoken("Check the path and who may read it.", "检查路径和读取权限。")


async def _opencode(config: Config) -> Sequence[Finding]:
    what = spoken("sessions of OpenCode", "OpenCode 的会话")
    path = config.sources.opencode
    if path is None:
        return [Finding("ok", what, spoken("switched off in the config", "配置里已关闭"))]
    try:
        probe = await OpenCodeSource(path).probe()
    except SourceError as error:
        # Nobody asked for OpenCode where its usual place is merely empty.
        asked = "opencode" in config.sources.model_fields_set
        level: Level = "warning" if error.kind == "missing" and not asked else "problem"
        mend = _source_mend(error.kind, "OpenCode", "opencode")
        return [Finding(level, what, str(error), mend)]
    generations = spoken(" and ", "、").join(probe.generations)
    newest = spoken(f", newest migration {probe.migration}", f"，最新迁移 {probe.migration}") if probe.migration else ""
    seen = spoken(
        f"{probe.path}: schema {generations}{newest}, {_counted(probe.sessions, 'session')}",
        f"{probe.path}：结构 {generations}{newest}，{probe.sessions} 个会话",
    )
    return [Finding("ok", what, seen)]


async def _hermes(config: Config) -> Sequence[Finding]:
    what, path = spoken("sessions of Hermes", "Hermes 的会话"), config.sources.hermes
    if path is None or not ("hermes" in config.sources.model_fields_set or path.exists()):
        return []
    from storage.hermes import HermesSource

    try:
        probe = await HermesSource(path).probe()
    except SourceError as error:
        mend = _source_mend(error.kind, "Hermes", "hermes")
        return [Finding("problem", what, str(error), mend)]
    seen = spoken(
        f"{probe.path}: schema {probe.version}, {_counted(probe.sessions, 'session')}",
        f"{probe.path}：结构版本 {probe.version}，{probe.sessions} 个会话",
    )
    return [Finding("ok", what, seen)]


async def _opencode_server(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = spoken("server of OpenCode", "OpenCode 的服务"), config.sources.opencode_server
    if settings is None:
        return []
    from storage.opencode import OpenCodeServer

    try:
        password = settings.secret(environ)
    except ConfigError as error:
        return [
            Finding(
                "problem",
                what,
                error.text,
                spoken(f"Correct {error.key} in the config.", f"在配置里改正 {error.key}。"),
            )
        ]
    server = OpenCodeServer(settings.url, username=settings.username, password=password, model=settings.model_pair)
    try:
        version = await server.version()
        names = await server.models() if settings.model_pair else ()
    except SourceError as error:
        # Sessions can be read without it, so a server that is merely not started keeps nobody from working.
        level: Level = "warning" if error.detail == "connection" else "problem"
        return [
            Finding(
                level,
                what,
                str(error),
                spoken("Start it, or correct [sources.opencode_server].", "启动它，或改正 [sources.opencode_server]。"),
            )
        ]
    finally:
        await server.close()
    seen = spoken(
        f"{settings.url}: OpenCode {version}, {settings.model or 'no model named'}",
        f"{settings.url}：OpenCode {version}，{settings.model or '没有指定模型'}",
    )
    found = [Finding("ok", what, seen)]
    if not settings.model:
        found.append(
            Finding(
                "warning",
                what,
                spoken(
                    "no model is named, so each turn takes the one that its session named last",
                    "没有指定模型，每一轮用其会话上次指定的那个",
                ),
                spoken(
                    'Write model = "provider/model" under [sources.opencode_server].',
                    '在 [sources.opencode_server] 里写 model = "provider/model"。',
                ),
            )
        )
    elif names and settings.model not in names:
        found.append(
            Finding(
                "problem",
                what,
                spoken(f"it knows no model {settings.model}", f"它没有模型 {settings.model}"),
                spoken(
                    f"Name one that it has, such as {', '.join(names[:3])}.", f"写它有的，例如 {'、'.join(names[:3])}。"
                ),
            )
        )
    if settings.password_file and _others_may_read(settings.password_file):
        found.append(
            Finding(
                "warning",
                what,
                spoken(
                    f"others on this machine may read the password in {settings.password_file}",
                    f"本机的其他用户能读 {settings.password_file} 里的密码",
                ),
                _chmod(settings.password_file),
            )
        )
    return found


async def _hermes_gateway(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = spoken("gateway of Hermes", "Hermes 的网关"), config.sources.hermes_gateway
    if settings is None or config.sources.hermes is None:
        return []
    from storage.hermes.gateway import HermesGateway
    from storage.hermes.source import HermesSource

    try:
        key = settings.secret(environ)
    except ConfigError as error:
        return [
            Finding(
                "problem",
                what,
                error.text,
                spoken(f"Correct {error.key} in the config.", f"在配置里改正 {error.key}。"),
            )
        ]
    gateway = HermesGateway(HermesSource(config.sources.hermes), settings.url, lambda: key)
    try:
        await gateway.look()
        names = await gateway.models()
    except SourceError as error:
        level: Level = "warning" if error.detail == "connection" else "problem"
        return [
            Finding(
                level,
                what,
                str(error),
                spoken("Start it, or correct [sources.hermes_gateway].", "启动它，或改正 [sources.hermes_gateway]。"),
            )
        ]
    finally:
        await gateway.close()
    model = ", ".join(names) or spoken("its own", "它自己的")
    seen = spoken(
        f"{settings.url}: it answers and takes the key; model {model}",
        f"{settings.url}：有应答，接受密钥；模型 {model}",
    )
    found = [Finding("ok", what, seen)]
    if settings.key_file and _others_may_read(settings.key_file):
        found.append(
            Finding(
                "warning",
                what,
                spoken(
                    f"others on this machine may read the key in {settings.key_file}",
                    f"本机的其他用户能读 {settings.key_file} 里的密钥",
                ),
                _chmod(settings.key_file),
            )
        )
    return found


async def _journals(config: Config) -> Sequence[Finding]:
    what, folder = spoken("sessions of our own", "本程序的会话"), config.sources.journal
    if folder is None:
        return [Finding("ok", what, spoken("switched off in the config", "配置里已关闭"))]
    if not folder.exists():
        return [
            Finding("ok", what, spoken(f"{folder} will be made with the first session", f"{folder} 会随第一个会话建立"))
        ]
    from storage.journal import JournalSource

    try:
        many = len(await JournalSource(folder).list())
    except SourceError as error:
        mend = spoken(
            "Name another folder as journal under [sources], or mend this one.",
            "在 [sources] 的 journal 里写别的文件夹，或修好这个。",
        )
        return [Finding("problem", what, str(error), mend)]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [
            Finding(
                "problem",
                what,
                spoken(f"this user may not write in {folder}", f"当前用户不能写 {folder}"),
                spoken(
                    "Give this user the right to write there, or name another folder as journal under [sources].",
                    "给当前用户写权限，或在 [sources] 的 journal 里写别的文件夹。",
                ),
            )
        ]
    return [Finding("ok", what, spoken(f"{folder}: {_counted(many, 'session')}", f"{folder}：{many} 个会话"))]


# -- the model -----------------------------------------------------------------------------------


def _model_mend() -> str:
    return spoken(
        "Correct the model in the config, or put a key such as OPENAI_API_KEY into the environment.",
        "在配置里改正模型，或在环境变量里放密钥（如 OPENAI_API_KEY）。",
    )


async def _models(config: Config, environ: Mapping[str, str], call: bool) -> list[Finding]:
    users: list[tuple[ModelSettings | None, list[str]]] = []
    for name, agent in config.agents.items():
        same = next((names for settings, names in users if settings == agent.model), None)
        if same is None:
            users.append((agent.model, [name]))
        else:
            same.append(name)
    return [
        await _model(spoken(f"model of {', '.join(names)}", f"{'、'.join(names)} 的模型"), settings, environ, call)
        for settings, names in users
    ]


async def _model(what: str, settings: ModelSettings | None, environ: Mapping[str, str], call: bool) -> Finding:
    try:
        chosen = await choose(settings, environ)
    except ModelError as error:
        return Finding("problem", what, redact(str(error)), _model_mend())
    why, why_zh = chosen.why, chosen.why_in("zh")
    seen = redact(spoken(f"{chosen.label}, because {why}", f"{chosen.label_in('zh')}，因为{why_zh}"))
    try:
        if call:
            async with asyncio.timeout(CALL_TIMEOUT):
                reply = await chosen.model.complete([{"role": "user", "content": "Say: ready"}])
            if not reply.text.strip():
                return Finding(
                    "problem",
                    what,
                    spoken(f"{seen}; it answered with nothing", f"{seen}；它什么也没回答"),
                    _model_mend(),
                )
            seen += spoken("; it answered", "；已回答")
        else:
            seen += spoken("; it was not asked", "；没有去问它")
    except TimeoutError:
        return Finding(
            "problem",
            what,
            spoken(f"{seen}; no answer in {CALL_TIMEOUT:.0f} s", f"{seen}；{CALL_TIMEOUT:.0f} 秒内没有回答"),
            _model_mend(),
        )
    except ModelError as error:
        return Finding(
            "problem",
            what,
            spoken(f"{seen}; it failed: {redact(str(error))}", f"{seen}；失败：{redact(str(error))}"),
            _model_mend(),
        )
    finally:
        await chosen.model.close()
    if chosen.demo:
        return Finding(
            "warning", what, spoken(f"{seen}; it is good for a trial only", f"{seen}；只适合试用"), _model_mend()
        )
    return Finding("ok", what, seen)


# -- agents --------------------------------------------------------------------------------------


def _agent(name: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    what = f"agent {name}"
    if agent.jid:
        yield from _account(what, agent, environ)
        if not agent.allow:
            yield Finding(
                "warning",
                what,
                spoken(
                    "its allow list is empty, so nobody is answered in a direct chat",
                    "allow 是空的，私聊里谁也不会得到回答",
                ),
                spoken(
                    'List addresses under allow, such as ["hmo@example.org"], or ["*"] for everybody.',
                    '在 allow 里列出地址，如 ["hmo@example.org"]，或用 ["*"] 表示所有人。',
                ),
            )
    for room in agent.all_rooms:
        yield from _room(spoken(f"{what} in {room}", f"{what}，群 {room}"), agent, room)
    for command in sorted(set(agent.permissions) - BUILTIN.names):
        yield Finding(
            "warning",
            what,
            spoken(
                f"permissions narrow `{command}`, which is no command of ours",
                f"permissions 限制了 `{command}`，但内置命令里没有它",
            ),
            spoken(
                f"Correct the name unless you add that command yourself; ours are {', '.join(sorted(BUILTIN.names))}.",
                f"除非是自己加的命令，否则改正名字；内置的有 {'、'.join(sorted(BUILTIN.names))}。",
            ),
        )


def _account(what: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    try:
        if agent.secret(environ) is None:
            yield Finding(
                "problem",
                what,
                spoken(f"{agent.jid} has no password", f"{agent.jid} 没有密码"),
                spoken(
                    "Name a variable as password_env, or a file as password_file.",
                    "用 password_env 写环境变量名，或用 password_file 写文件。",
                ),
            )
    except ConfigError as error:
        yield Finding(
            "problem", what, error.text, spoken(f"Correct {error.key} in the config.", f"在配置里改正 {error.key}。")
        )
    if agent.password_file and _others_may_read(agent.password_file):
        yield Finding(
            "warning",
            what,
            spoken(
                f"others on this machine may read the password in {agent.password_file}",
                f"本机的其他用户能读 {agent.password_file} 里的密码",
            ),
            _chmod(agent.password_file),
        )


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


def _xmpp_mend() -> str:
    return spoken(
        'In the folder of Session Router, run pip install ".[xmpp]".',
        '在 Session Router 的文件夹里执行 pip install ".[xmpp]"。',
    )


async def _login(agent: AgentConfig, environ: Mapping[str, str]) -> list[Finding]:
    from channels.xmpp import Standing, State
    from session_router.clock import SystemClock
    from session_router.xmpp import second_connection

    what = spoken(f"login of {agent.name}", f"{agent.name} 的登录")
    # The running one keeps its resource, or each would put the other out.
    resource = f"doctor-{secrets.token_hex(3)}"
    try:
        async with second_connection(agent, environ, SystemClock(), resource, LOGIN_TIMEOUT) as channel:
            now = channel.connection
    except ConfigError as error:
        return [
            Finding(
                "problem",
                what,
                error.text,
                spoken(f"Correct {error.key} in the config.", f"在配置里改正 {error.key}。"),
            )
        ]
    except SessionRouterError as error:  # the library is not there
        return [Finding("problem", what, str(error), _xmpp_mend())]
    if now.state not in (State.JOINING, State.JOINED):
        reason = redact(now.reason) or spoken(
            f"no session within {LOGIN_TIMEOUT:.0f} s", f"{LOGIN_TIMEOUT:.0f} 秒内没有登录成功"
        )
        return [
            Finding(
                "problem",
                what,
                f"{agent.jid}: {reason}",
                spoken(
                    "Check the address, the password and that the server can be reached from here.",
                    "检查地址、密码，以及从这里能否连到服务器。",
                ),
            )
        ]
    found = [Finding("ok", what, spoken(f"{agent.jid} logged in", f"{agent.jid} 已登录"))]
    for room in now.rooms:
        where = f"{what}: {room.address}"
        if room.standing is not Standing.IN:
            reason = redact(room.reason) or spoken(
                f"not entered within {LOGIN_TIMEOUT:.0f} s", f"{LOGIN_TIMEOUT:.0f} 秒内没有进入"
            )
            found.append(
                Finding(
                    "problem",
                    where,
                    reason,
                    spoken(
                        "Check the room's address, and let its owner admit this account.",
                        "检查群地址，并请群主接纳这个账号。",
                    ),
                )
            )
        elif room.created:
            found.append(
                Finding(
                    "warning",
                    where,
                    spoken("it did not exist, so entering it has made it", "原来没有这个群，进入时已建立"),
                    spoken(
                        "Check its address; if it is right, set the room up with a client.",
                        "检查地址；没错的话，用客户端设置这个群。",
                    ),
                )
            )
        else:
            found.append(Finding("ok", where, spoken("entered", "已进入")))
    return found


def _room(what: str, agent: AgentConfig, room: str) -> Iterable[Finding]:
    group = agent.groups.get(room)
    allow = group.allow - {"*"} if group else frozenset()
    if not allow:
        star = spoken(" (`*` does not count in a room)", "（在群里 `*` 不算）") if group and group.allow else ""
        yield Finding(
            "warning",
            what,
            spoken(
                f"its allow list is empty, so nobody is answered there{star}",
                f"allow 是空的，那里谁也不会得到回答{star}",
            ),
            spoken(
                f'List real addresses in [agents.{agent.name}.groups."{room}"] as allow.',
                f'在 [agents.{agent.name}.groups."{room}"] 的 allow 里列出真实地址。',
            ),
        )
    elif group and group.nicks:
        yield Finding(
            "warning",
            what,
            spoken("nicks are trusted there, and anybody can take a nick", "那里认昵称，而昵称谁都能用"),
            spoken(
                "List real addresses or occupant ids and write nicks = false.",
                "列出真实地址或 occupant id，并写 nicks = false。",
            ),
        )
    elif short := sorted(who for who in allow if "@" not in who and len(who) < OCCUPANT_ID):
        yield Finding(
            "warning",
            what,
            spoken(
                f"{', '.join(short)}: neither an address nor an occupant id, so it admits nobody",
                f"{'、'.join(short)}：既不是地址也不是 occupant id，谁也放不进来",
            ),
            spoken(
                "Write the real address, such as hmo@example.org, or nicks = true if the nick has to do.",
                "写真实地址，如 hmo@example.org；只能用昵称时写 nicks = true。",
            ),
        )


# -- small things --------------------------------------------------------------------------------


def _chmod(file: Path) -> str:
    return spoken(f"Run `chmod 600 {file}`.", f"执行 `chmod 600 {file}`。")


def _others_may_read(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
