"""``run``: serve the agents of the config."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import click

from session_router.cli.conventions import WRONG, Command, Option, Problem, config_option, run
from session_router.cli.spoken import Both, environ


def _take_no_more_signals() -> None:
    """From here to the end of the process: one that comes when the loop has let go of them would kill it."""
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            with suppress(NotImplementedError):  # Windows
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


@click.command(
    "run", cls=Command,
    says=Both(
        "Serve the agents of the config on all their channels.\n\nSIGTERM and Ctrl-C let running turns end "
        "(drain_timeout in the config, 20 s) and leave the others to the next start; a second one does not wait. "
        "SIGHUP reads the config again: agents come, go and change, conversations stay. The log goes to stderr.",
        "运行配置里的 agent 及其全部渠道。\n\n收到 SIGTERM 或 Ctrl-C 时等进行中的回合结束（配置里的 drain_timeout，"
        "默认 20 秒），没结束的留给下次启动；再来一次则不再等待。SIGHUP 重新读取配置：agent 可增、可减、可改，"
        "对话保留。日志写到 stderr。",
    ),
    examples=("run", "run --config bots.toml", "run --agent mohe --agent zhiwei", "run --log-format json"),
)  # fmt: skip
@config_option
@click.option(
    "--agent", "names", metavar="NAME", multiple=True, cls=Option,
    says=Both("Only this agent; may be given several times. Other processes may serve the others.",
              "只运行这个 agent，可多次给出；其余的可由别的进程运行。"),
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", cls=Option,
    says=Both("How the log is written: text, or a JSON object a line.", "日志格式：文本，或每行一个 JSON 对象。"),
)
@click.pass_context
def run_(ctx: click.Context, config_file: str | None, names: tuple[str, ...], log_format: str) -> None:
    if hasattr(signal, "SIGHUP"):
        # Until the config is read there is nothing to read again, and it would end the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from session_router.config import Config, ConfigError, load
    from session_router.logs import log_to
    from session_router.run import Service

    def read() -> Config:
        config = load(config_file, environ())
        log_to(format="json" if log_format == "json" else "text", bodies=config.log_bodies)
        return config

    async def serve() -> None:
        try:
            await Service(read, names, environ()).run()
        finally:
            _take_no_more_signals()

    try:
        run(serve())
    except ConfigError as error:
        raise Problem(str(error), WRONG) from error
