"""Where sessions come from: the files of OpenCode and Hermes, their servers, and our own journals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fsm.ports import SourceError
from session_router.config import Config, ConfigError
from session_router.doctor.finding import Finding, Level, counted, open_secret, spoken, unreached, wrong_setting
from storage.opencode import OpenCodeSource


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


async def opencode(config: Config) -> Sequence[Finding]:
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
        f"{probe.path}: schema {generations}{newest}, {counted(probe.sessions, 'session')}",
        f"{probe.path}：结构 {generations}{newest}，{probe.sessions} 个会话",
    )
    return [Finding("ok", what, seen)]


async def hermes(config: Config) -> Sequence[Finding]:
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
        f"{probe.path}: schema {probe.version}, {counted(probe.sessions, 'session')}",
        f"{probe.path}：结构版本 {probe.version}，{probe.sessions} 个会话",
    )
    return [Finding("ok", what, seen)]


async def opencode_server(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = spoken("server of OpenCode", "OpenCode 的服务"), config.sources.opencode_server
    if settings is None:
        return []
    from storage.opencode import OpenCodeServer

    try:
        password = settings.secret(environ)
    except ConfigError as error:
        return [wrong_setting(what, error)]
    server = OpenCodeServer(settings.url, username=settings.username, password=password, model=settings.model_pair)
    try:
        version = await server.version()
        names = await server.models() if settings.model_pair else ()
    except SourceError as error:
        return [unreached(what, error, "sources.opencode_server")]
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
    return [*found, *open_secret(what, settings.password_file, "password", "密码")]


async def hermes_gateway(config: Config, environ: Mapping[str, str]) -> Sequence[Finding]:
    what, settings = spoken("gateway of Hermes", "Hermes 的网关"), config.sources.hermes_gateway
    if settings is None or config.sources.hermes is None:
        return []
    from storage.hermes.gateway import HermesGateway
    from storage.hermes.source import HermesSource

    try:
        key = settings.secret(environ)
    except ConfigError as error:
        return [wrong_setting(what, error)]
    gateway = HermesGateway(HermesSource(config.sources.hermes), settings.url, lambda: key)
    try:
        await gateway.look()
        names = await gateway.models()
    except SourceError as error:
        return [unreached(what, error, "sources.hermes_gateway")]
    finally:
        await gateway.close()
    model = ", ".join(names) or spoken("its own", "它自己的")
    seen = spoken(
        f"{settings.url}: it answers and takes the key; model {model}",
        f"{settings.url}：有应答，接受密钥；模型 {model}",
    )
    found = [Finding("ok", what, seen)]
    return [*found, *open_secret(what, settings.key_file, "key", "密钥")]


async def journals(config: Config) -> Sequence[Finding]:
    what, folder = spoken("sessions of our own", "本程序的会话"), config.sources.journal
    if folder is None:
        return [Finding("ok", what, spoken("switched off in the config", "配置里已关闭"))]
    if not folder.exists():
        return [
            Finding("ok", what, spoken(f"{folder} will be made with the first session", f"{folder} 会随第一个会话建立"))
        ]
    from storage.journal import JournalSource

    try:
        source = JournalSource(folder)
        many = len(await source.list())
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
    mend = spoken(
        "Mend that file or move it out of the folder. Until then nobody is bound past it by itself.",
        "修好这个文件，或把它移出文件夹。在那之前不会自动绑定到更早的会话。",
    )
    return [
        *(Finding("problem", what, str(one), mend) for one in source.unread()),
        Finding("ok", what, spoken(f"{folder}: {counted(many, 'session')}", f"{folder}：{many} 个会话")),
    ]
