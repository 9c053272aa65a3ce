"""The command line, ``session-router``. Each module holds the commands of one purpose; what is heavy is
imported inside them, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Sequence

import click

from session_router.cli.bridge import active, clear, send
from session_router.cli.chat import chat
from session_router.cli.config import doctor, init, setup
from session_router.cli.conventions import Option, Program
from session_router.cli.diagram import diagram
from session_router.cli.journal import journal
from session_router.cli.look import context, conversations, sessions, why
from session_router.cli.run import run_
from session_router.cli.scenarios import export, replay
from session_router.cli.spoken import Both

__all__ = ["main", "program"]


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"session-router {version('session-router')}")
        except PackageNotFoundError:
            click.echo("session-router (not installed)")
        ctx.exit()


program = Program(
    "session-router",
    says=Both(
        "A state machine between chat channels and agents: sessions, switching, and knowing when to keep quiet.",
        "聊天渠道与 agent 之间的状态机：会话、切换，以及知道何时该安静。",
    ),
    examples=("chat", "init", "doctor", "sessions weather", "replay tests/scenarios"),
    params=[
        Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
               says=Both("Show the version.", "显示版本。"))
    ],
)  # fmt: skip

for command in (
    chat, run_, init, doctor, send, active, clear, sessions, context, conversations, why, diagram, replay,
    journal, export, setup,
):  # fmt: skip
    program.add_command(command)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process without ``args``) and return its exit code."""
    code: int = program.main(args, standalone_mode=False)
    return code
