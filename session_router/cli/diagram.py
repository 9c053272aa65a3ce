"""``diagram``: the machines as pictures, drawn from their tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from session_router.cli.conventions import (
    WRONG,
    Command,
    Option,
    agent_option,
    config_option,
    load_config,
    progress,
    run,
    stop,
)
from session_router.cli.spoken import Both, spoken

if TYPE_CHECKING:
    from fsm.conversation import Edge

FORMATS = ("mermaid", "dot", "svg", "png", "table")
NAMES = (
    "conversation", "conversation-idle", "conversation-awaiting_selection", "conversation-command_looping",
    "conversation-silenced", "xmpp", "xmpp-offline", "xmpp-connecting", "xmpp-joining", "xmpp-joined",
    "xmpp-backing_off", "xmpp-refused",
)  # fmt: skip
"""What can be drawn, here as text, so that the help need not load the tables."""


@click.command(
    "diagram", cls=Command,
    says=Both(
        f"Draw a machine from its table.\n\nNAME is a machine or one state of it: {', '.join(NAMES)}.\n\n"
        "--live marks where a conversation stands and its last steps. --check compares the files in a folder with "
        "fresh drawings and exits 1 when they differ.",
        f"按转移表画出状态机。\n\nNAME 是一个状态机或它的一个状态：{'、'.join(NAMES)}。\n\n--live 标出"
        "某个对话的当前状态和最近几步。--check 把文件夹里的图与新画的比较，不一致时退出码为 1。",
    ),
    examples=(
        "diagram", "diagram conversation-idle --format svg --output idle.svg", "diagram --live console hmo",
        "diagram --check diagrams",
    ),
)  # fmt: skip
@click.argument("name", default="conversation")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="mermaid", cls=Option,
              says=Both("mermaid by default.", "默认 mermaid。"))
@click.option("--live", nargs=2, metavar="CHANNEL SENDER", cls=Option,
              says=Both("Mark this conversation's state and last steps.", "标出这个对话的状态和最近几步。"))
@click.option("--check", "folder", type=click.Path(path_type=Path), metavar="DIR", cls=Option,
              says=Both("Compare the files there with fresh drawings.", "检查该文件夹里的图是否最新。"))
@click.option("--output", "output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", cls=Option,
              says=Both("Write to a file in place of stdout.", "写到文件，而不是 stdout。"))
@agent_option
@config_option
def diagram(
    name: str, format_: Any, live: tuple[str, str] | None, folder: Path | None, output: Path | None,
    agent_name: str | None, config_file: str | None,
) -> int:  # fmt: skip
    with progress("Drawing", "正在绘制"):
        from session_router import diagrams

        if folder is not None:
            return _check(folder)
        marked = _live(live, agent_name, config_file) if live else None
        try:
            drawn = diagrams.render(name, format_, marked)
        except diagrams.UnknownDrawing as error:
            stop(f"{str(error)[0].upper()}{str(error)[1:]}.", f"{error}。", WRONG)
        except (diagrams.PicturesMissing, ValueError) as error:
            stop(f"{error}.", f"{error}。")
    content = drawn if isinstance(drawn, bytes) else drawn.encode()
    if output is not None:
        output.write_bytes(content)
    elif isinstance(drawn, bytes) and sys.stdout.isatty():
        stop("A PNG is no text for a terminal. Name a file with --output.",
             "PNG 不能显示在终端里。用 --output 写到文件。", WRONG)
    else:
        click.echo(content, nl=False)
    return 0


def _check(folder: Path) -> int:
    from session_router.diagrams import check, left_over

    if not folder.is_dir():
        stop(f"There is no folder {folder}. Name the one with the drawings.",
             f"没有文件夹 {folder}。请指明图所在的文件夹。", WRONG)
    if wrong := check(folder):
        click.echo("\n".join(wrong))
        extra = left_over(folder)
        stale, mend = len(wrong) - len(extra), f"python -m session_router.diagrams {folder}"
        en, zh = [], []
        if stale:
            en.append(f"Not as the tables say: {stale}. Write anew with: {mend}")
            zh.append(f"与转移表不一致：{stale} 个。重新生成：{mend}")
        if extra:
            en.append(f"Of no machine any more, to be removed: {', '.join(extra)}")
            zh.append(f"不再属于任何状态机，请删除：{'、'.join(extra)}")
        stop("\n".join(en), "\n".join(zh))
    click.echo(spoken("All drawings are as the tables say.", "所有图都与转移表一致。"))
    return 0


def _live(live: tuple[str, str], agent: str | None, config_file: str | None) -> tuple[str, tuple[Edge, ...]]:
    from session_router.cli.look import find_conversation, no_store
    from session_router.reading import reading

    config = load_config(config_file)

    async def look() -> tuple[str, tuple[Edge, ...]]:
        async with reading(config) as (store, _):
            if store is None:
                no_store(config)
            _, now = await find_conversation(store, *live, agent)
            return now.state.value, now.trail

    return run(look())
