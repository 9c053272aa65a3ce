"""``journal show``, ``check`` and ``migrate``: the files that our own sessions are kept in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from session_router.cli.conventions import (
    COUNT_OR_NONE,
    FAILED,
    Command,
    Group,
    Option,
    complain,
    config_option,
    json_option,
    load_config,
    print_json,
    progress,
    styled,
)
from session_router.cli.spoken import Both, language, spoken

if TYPE_CHECKING:
    from session_router.config import Config
    from storage.journal import JournalError

SHOWN = 20
"""Complaints that are shown to a person; --json has the rest."""


@click.group(
    "journal", cls=Group,
    says=Both(
        "Show, check and migrate session journals.\n\nA journal is named by its file or by the id of its session.",
        "查看、检查和迁移会话日志。\n\n用文件名或会话 id 指明日志。",
    ),
    examples=("journal show ses_k3v9qm2x7abc", "journal check ~/.local/share/session-router/sessions/*.jsonl"),
)  # fmt: skip
def journal() -> None:
    pass


def _files(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("names", nargs=-1, required=True, metavar="FILE...")(function)


@journal.command(
    "show", cls=Command,
    says=Both(
        "Rebuild a session from its journal and show it.\n\nChanges nothing. With one FILE, --json prints one object, "
        "otherwise a list.",
        "从日志重建会话并显示。\n\n不改动任何东西。--json 在只有一个 FILE 时输出一个对象，否则输出列表。",
    ),
    examples=("journal show ses_k3v9qm2x7abc", "journal show ses_k3v9qm2x7abc --messages 5",
              "journal show old.jsonl --json"),
)  # fmt: skip
@_files
@click.option("--messages", type=COUNT_OR_NONE, cls=Option,
              says=Both("Newest messages to show; by default all with --json, else 10.",
                        "显示最新的几条消息；默认 --json 时全部，否则 10 条。"))  # fmt: skip
@config_option
@json_option
def show(names: tuple[str, ...], messages: int | None, config_file: str | None, as_json: bool) -> int:
    limit = messages if messages is not None else None if as_json else 10

    def one(path: Path, config: Config) -> dict[str, Any]:
        from storage.journal import show as rebuilt

        found = rebuilt(path, messages=limit)
        if found["complaintCount"] and not found["records"]:
            raise _no_journal(path)
        return {**found, "configDifference": _difference(found["config"], config)}

    return _each(names, config_file, as_json, one, _shown)


@journal.command(
    "check", cls=Command,
    says=Both(
        "Verify journals line by line.\n\nChanges nothing. Exit code 1 when something is wrong; an older version, an "
        "interrupted turn and open commands are told and are nothing wrong.",
        "逐行检查日志。\n\n不改动任何东西。有问题时退出码为 1；旧版本、中断的一轮和没有结果的命令会说明，但不算问题。",
    ),
    examples=("journal check ses_k3v9qm2x7abc", "journal check *.jsonl --json"),
)  # fmt: skip
@_files
@config_option
@json_option
def check(names: tuple[str, ...], config_file: str | None, as_json: bool) -> int:
    def one(path: Path, config: Config) -> dict[str, Any]:
        from storage.journal import check as verified

        return verified(path)

    return _each(names, config_file, as_json, one, _checked)


@journal.command(
    "migrate", cls=Command,
    says=Both(
        "Write journals anew in the present version.\n\nThe old file is kept beside it as NAME.vN.bak. A session that "
        "is in use is left alone.",
        "把日志改写成当前版本。\n\n旧文件保留为同目录下的 NAME.vN.bak。正在使用的会话不会改动。",
    ),
    examples=("journal migrate ses_k3v9qm2x7abc", "journal migrate *.jsonl --json"),
)  # fmt: skip
@_files
@config_option
@json_option
def migrate(names: tuple[str, ...], config_file: str | None, as_json: bool) -> int:
    def one(path: Path, config: Config) -> dict[str, Any]:
        from storage.journal import check as verified
        from storage.journal import migrate as migrated
        from storage.journal.names import id_of

        done = migrated(path)
        if done.complaint_count and not done.changed and not verified(path)["records"]:
            raise _no_journal(path)
        return {
            "id": id_of(path), "file": str(path), "changed": done.changed,
            "backup": None if done.backup is None else str(done.backup),
            "complaints": [{"line": each.line, "problem": each.problem} for each in done.complaints],
            "complaintCount": done.complaint_count,
        }  # fmt: skip

    return _each(names, config_file, as_json, one, _migrated)


def _no_journal(path: Path) -> JournalError:
    """The file holds something, and no record at all."""
    from storage.journal import JournalForeign

    return JournalForeign(spoken(
        f"{path} is no session journal: none of its lines is a record. `session-router journal check` says why.",
        f"{path} 不是会话日志：没有一行是记录。原因见 session-router journal check。",
    ))  # fmt: skip


def _each(names: tuple[str, ...], config_file: str | None, as_json: bool, one: Callable[[Path, Config], dict[str, Any]],
          tell: Callable[[dict[str, Any]], Iterator[str]]) -> int:
    """Do it with each of them; what cannot be done with one is an error beside the others."""
    from storage.journal import JournalError

    config = load_config(config_file)
    done: list[dict[str, Any]] = []
    ok = True
    for at, name in enumerate(names):
        try:
            with progress(f"Reading {name}", f"正在读取 {name}"):
                found = one(_path(name, config), config)
        except JournalError as error:
            complain(str(error))
            ok = False
            if as_json:
                done.append({"id": name, "ok": False, "error": str(error)})
            continue
        ok = ok and found.get("ok", True)
        done.append(found)
        if not as_json:
            if at:
                click.echo()
            for line in tell(found):
                click.echo(line)
    if as_json:
        print_json(done[0] if len(names) == 1 else done)
    return 0 if ok else FAILED


def _path(name: str, config: Config) -> Path:
    """The file that ``name`` means: one that is there, else the journal of the session with that id."""
    from storage.journal import JournalIdError, JournalMissing
    from storage.journal.names import path_of

    path = Path(name).expanduser()
    if path.exists() or config.sources.journal is None:
        return path
    looks_like_an_id = re.fullmatch(r"[^/\\]+", name) and not name.endswith(".jsonl")
    try:
        own = path_of(config.sources.journal, name)
    except JournalIdError:
        return path
    if own.exists():
        return own
    raise JournalMissing(own if looks_like_an_id else path)


def _difference(stored: dict[str, Any], config: Config) -> list[dict[str, Any]]:
    """What the first agent of the config would run the session with otherwise. Its model's name counts only where the
    config gives one: which is found otherwise is known at the start."""
    from session_router.model_settings import ModelSettings
    from storage.journal import compare_config

    agent = config.agent()
    model = agent.model or ModelSettings()
    now: dict[str, Any] = {
        "model": model.model or stored.get("model"), "maxTurns": agent.to_agent().limits.max_loops,
        "maxTokensPerTurn": model.max_tokens,
    }  # fmt: skip
    others = {name: value for name, value in stored.items() if name not in now}
    different = compare_config(stored, {**now, **others})
    return [{"field": each.field, "was": each.was, "now": each.now} for each in different]


# -- for people --------------------------------------------------------------------------------------


def _shown(found: dict[str, Any]) -> Iterator[str]:
    from fsm.language.titles import show_title

    yield f"{styled(show_title(found['title'], 60, lang=language()), bold=True)} · {found['id']}"
    tokens, config = found["totalTokens"], found["config"]
    yield spoken(
        f"{found['turnCount']} turns, {tokens['input']} tokens in and {tokens['output']} out, "
        f"from {found['startedAt'] or '-'} to {found['lastActivityAt'] or '-'}",
        f"{found['turnCount']} 轮，输入 {tokens['input']} token、输出 {tokens['output']} token，"
        f"{found['startedAt'] or '-'} 至 {found['lastActivityAt'] or '-'}",
    )
    if found["sessionCost"]:
        yield spoken(f"cost {found['sessionCost']:g}", f"费用 {found['sessionCost']:g}")
    if known := {name: value for name, value in config.items() if value is not None}:
        yield spoken("config: ", "设置：") + ", ".join(f"{name} {value}" for name, value in known.items())
    for one in found["configDifference"]:
        yield spoken(f"  the config now says {one['field']} {one['now']}",
                     f"  现在的配置里 {one['field']} 是 {one['now']}")  # fmt: skip
    yield from _told(found)
    for message in found["messages"]:
        from channels.console import printable
        from storage.journal.content import text_of

        text = text_of(message["content"]) or spoken("(a command)", "（命令）")
        yield f"  {message['role']}: {printable(text)}"


def _checked(found: dict[str, Any]) -> Iterator[str]:
    mark, fg = ("✓", "green") if found["ok"] else ("✗", "red")
    versions = ", ".join(f"v{version}: {count}" for version, count in found["versions"].items())
    yield f"{styled(mark, fg=fg)} {found['id']}: " + spoken(
        f"{found['records']} records ({versions or '-'}), {found['complaintCount']} complaints",
        f"{found['records']} 条记录（{versions or '-'}），{found['complaintCount']} 处问题",
    )
    yield from _told(found)


def _migrated(found: dict[str, Any]) -> Iterator[str]:
    if found["changed"]:
        yield f"{styled('✓', fg='green')} {found['id']}: " + spoken(
            f"{found['changed']} records brought to the present version; as it was: {found['backup']}",
            f"{found['changed']} 条记录已改写成当前版本；原文件：{found['backup']}",
        )
    else:
        yield f"{styled('✓', fg='green')} {found['id']}: " + spoken("nothing to do", "无需改动")
    yield from _complaints(found)


def _told(found: dict[str, Any]) -> Iterator[str]:
    if (turn := found["interruptedTurn"]) is not None:
        yield spoken(f"  turn {turn['turn']} was interrupted; it began at {turn['startedAt'] or '-'}",
                     f"  第 {turn['turn']} 轮中断了，开始于 {turn['startedAt'] or '-'}")  # fmt: skip
    for call in found["openCommands"]:
        yield spoken(f"  line {call['line']}: the command {call['name'] or '?'} of turn {call['turn']} has no result",
                     f"  第 {call['line']} 行：第 {call['turn']} 轮的命令 {call['name'] or '?'} 没有结果")  # fmt: skip
    yield from _complaints(found)


def _complaints(found: dict[str, Any]) -> Iterator[str]:
    for one in found["complaints"][:SHOWN]:
        yield spoken(f"  line {one['line']}: {one['problem']}", f"  第 {one['line']} 行：{one['problem']}")
    if found["complaintCount"] > SHOWN:
        more = found["complaintCount"] - SHOWN
        yield spoken(f"  and {more} more; --json lists them", f"  另有 {more} 处；用 --json 查看")
