"""``replay`` and ``export``: conversations as files, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from session_router.cli.conventions import (
    COUNT,
    FAILED,
    WRONG,
    Command,
    Option,
    Problem,
    agent_option,
    config_option,
    load_config,
    progress,
    remark,
    run,
    stop,
    styled,
)
from session_router.cli.spoken import Both, spoken

if TYPE_CHECKING:
    from session_router.scenario.files import Scenario
    from session_router.scenario.play import Run

SUFFIXES = ("*.scenario.yaml", "*.scenario.yml")


@click.command(
    "replay", cls=Command,
    says=Both(
        "Run scenario files on the real engine with a frozen clock and a scripted model.\n\nA folder means its "
        "*.scenario.yaml files. Exit code 1 when an expectation fails, 2 when a file is wrong.\n\n"
        "docs/scenarios.md has every key, verb and expectation of a file.",
        "在真实引擎上回放场景文件，时钟冻结，模型按脚本回答。\n\n文件夹表示其中的 *.scenario.yaml。"
        "有期望不成立时退出码为 1，文件有错时为 2。\n\n"
        "docs/scenarios.zh.md 列出文件的每个键、动词和期望。",
    ),
    examples=(
        "replay tests/scenarios", "replay selection.scenario.yaml --json", "replay selection.scenario.yaml --diagram",
        "replay tests/scenarios --coverage", "replay tests/scenarios --crash-everywhere",
    ),
)  # fmt: skip
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, cls=Option,
              says=Both("Print one JSON object a step.", "每一步输出一个 JSON 对象。"))
@click.option("--diagram", "diagram", is_flag=True, cls=Option,
              says=Both("Draw each run as a Mermaid sequence.", "把每次运行画成 Mermaid 时序图。"))
@click.option("--coverage", "coverage", is_flag=True, cls=Option,
              says=Both("Say which rows of the table were taken.", "列出走过和没走过的转移。"))
@click.option("--crash-everywhere", "crash", is_flag=True, cls=Option,
              says=Both("Run each again with a crash at every point where the engine touches the world.",
                        "在引擎接触外界的每一点各崩溃一次，逐一重跑。"))  # fmt: skip
def replay(files: tuple[Path, ...], as_json: bool, diagram: bool, coverage: bool, crash: bool) -> int:
    if as_json and (diagram or coverage):
        stop("--json prints JSON and nothing else. Leave out --diagram and --coverage.",
             "--json 只输出 JSON。请去掉 --diagram 和 --coverage。", WRONG)  # fmt: skip
    scenarios = _read(files)
    runs: list[Run] = []
    failed = False
    for scenario in scenarios:
        with progress(f"Playing {scenario.name}", f"正在回放 {scenario.name}"):
            from session_router.scenario.play import play

            done = play(scenario)
        runs.append(done)
        failed = failed or bool(done.failed)
        if as_json:
            for step in done.steps:
                click.echo(json.dumps(step.as_json(), ensure_ascii=False))
        else:
            if diagram:
                click.echo(_drawn(done, alone=len(scenarios) == 1))
            _tell(done, err=diagram)
        if crash:
            failed = not _survives(scenario, err=diagram or as_json) or failed
    if coverage:
        from session_router.scenario.coverage import report, rows_taken

        click.echo(("" if not runs else "\n") + report(rows_taken(runs)))
    if not as_json and len(runs) > 1:
        bad = sum(bool(each.failed) for each in runs)
        remark(spoken(f"{len(runs)} scenarios, {bad} failed", f"{len(runs)} 个场景，{bad} 个失败"))
    return FAILED if failed else 0


def _drawn(done: Run, *, alone: bool) -> str:
    """The run as plain Mermaid, or where there are several as a piece of Markdown, which can hold them all."""
    from session_router.scenario.picture import picture

    text = picture(done)
    return text if alone else f"## {done.scenario.name}\n\n```mermaid\n{text.rstrip()}\n```\n"


def _read(paths: Sequence[Path]) -> list[Scenario]:
    """Every scenario of the files and folders, all read before any is played."""
    from session_router.scenario.files import ScenarioError, read

    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for suffix in SUFFIXES for file in path.rglob(suffix))
            if not found:
                stop(f"There are no *.scenario.yaml files in {path}. Name the files themselves.",
                     f"{path} 里没有 *.scenario.yaml 文件。请直接写文件名。", WRONG)  # fmt: skip
            files += found
        else:
            files.append(path)
    scenarios: list[Scenario] = []
    problems: list[str] = []
    for file in dict.fromkeys(files):
        try:
            scenarios += read(file)
        except ScenarioError as error:
            problems.append(str(error))
    if problems:
        raise Problem("\n".join(problems), WRONG)
    return scenarios


def _tell(done: Run, *, err: bool) -> None:
    from session_router.scenario.play import tidy

    good = not done.failed
    mark = styled("✓", fg="green") if good else styled("✗", fg="red")
    time = tidy(done.steps[-1].t) if done.steps else 0
    steps = len(done.steps)
    click.echo(f"{mark} {done.scenario.name} ({spoken(f'{steps} steps', f'{steps} 步')}, {time} s)", err=err)
    for step in done.steps:
        for text in step.failed:
            what, expected, got = _difference(text)
            click.echo(f"  {done.scenario.file}:{step.line}: {what}", err=err)
            if expected:
                click.echo(f"    {spoken('expected', '期望')}  {expected}", err=err)
                click.echo(f"    {spoken('got     ', '实际')}  {got}", err=err)


def _difference(text: str) -> tuple[str, str, str]:
    """``state: expected "idle", got "silenced"`` in its three parts; other texts whole."""
    what, colon, rest = text.partition(": expected ")
    if not colon:
        return text, "", ""
    expected, comma, got = rest.rpartition(", got ")
    return (what, expected, got) if comma else (text, "", "")


def _survives(scenario: Scenario, *, err: bool) -> bool:
    """Whether no crash at any point changes what the scenario comes to."""
    from session_router.scenario.crashes import crash_everywhere, play_plain, verdict

    if any(step.verb == "crash_at" for step in scenario.steps):
        click.echo(f"  {spoken('it crashes by itself, so it is not run again', '场景自己会崩溃，不再重跑')}", err=err)
        return True
    many, bad = 0, 0
    with progress(f"Crashing {scenario.name}", f"正在逐点崩溃重跑 {scenario.name}"):
        plain = play_plain(scenario)
        found: list[tuple[str, list[str]]] = []
        for kind, when, which, crashed in crash_everywhere(scenario):
            many += 1
            if wrong := verdict(plain, crashed):
                bad += 1
                found.append((f"{when} {kind} {which}", wrong))
    mark = styled("✗", fg="red") if bad else styled("✓", fg="green")
    click.echo(f"  {mark} {spoken(f'{many} crashes, {bad} failed', f'{many} 次崩溃，{bad} 次失败')}", err=err)
    for where, wrong in found:
        click.echo(f"    {scenario.file}: {spoken('crashed', '崩溃于')} {where}", err=err)
        for line in wrong:
            click.echo(f"      {line}", err=err)
    return not bad


@click.command(
    "export", cls=Command,
    says=Both(
        "Write a real conversation as a scenario file, with the model's answers and the waits.\n\nWith --mask letters "
        "become x and 字; commands, numbers and punctuation stay, so that it plays as it did.",
        "把真实对话写成场景文件，包括模型的回答和间隔。\n\n"
        "--mask 把文字换成 x 和字；命令、数字和标点保留，回放结果不变。",
    ),
    examples=("export console hmo", "export console hmo --mask --output hmo.scenario.yaml"),
)  # fmt: skip
@click.argument("channel")
@click.argument("sender")
@click.option("--mask", is_flag=True, cls=Option, says=Both("Hide what was said.", "隐去说话内容。"))
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", cls=Option,
              says=Both("Write to a file in place of stdout.", "写到文件，而不是 stdout。"))
@click.option("--limit", type=COUNT, default=1000, cls=Option,
              says=Both("The newest messages only; 1000 by default.", "只取最新的几条消息；默认 1000。"))  # fmt: skip
@agent_option
@config_option
def export(
    channel: str, sender: str, mask: bool, output: Path | None, limit: int, agent_name: str | None,
    config_file: str | None,
) -> None:  # fmt: skip
    config = load_config(config_file)
    with progress("Reading the conversation", "正在读取对话"):
        from session_router.cli.look import find_conversation, no_store
        from session_router.reading import reading
        from session_router.scenario.export import export as write

        async def look() -> Any:
            async with reading(config) as (store, sessions):
                if store is None:
                    no_store(config)
                key, _ = await find_conversation(store, channel, sender, agent_name)
                settings = config.agents.get(key.agent)
                return await write(
                    key, store, sessions, agent=settings.to_agent() if settings else None, mask=mask, limit=limit
                )

        text = run(look())
        differences = _unlike(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    for line in differences:
        remark(spoken(f"Note: replayed, it goes another way: {line}", f"注意：回放结果有所不同：{line}"))


def _unlike(text: str) -> list[str]:
    """Where the scenario, played at once, does not end as the record says: what came from outside the
    conversation (a crash, another room's mute) cannot stand in its file."""
    from session_router.scenario.files import ScenarioError, read_text
    from session_router.scenario.play import play

    try:
        return [failure for scenario in read_text(text, "export") for failure in play(scenario).failed]
    except ScenarioError as error:
        return [str(error)]
