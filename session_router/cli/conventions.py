"""What every command has in common: help with examples, exit codes, errors, colour, progress.

Exit codes: 0 done, 1 the answer is no or something failed, 2 wrong usage or config, 130 after Ctrl-C,
143 after SIGTERM, 129 when the terminal went away.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.exceptions import NoArgsIsHelpError

from session_router.cli.spoken import LANGUAGES, Both, choose, environ, pick, spoken
from session_router.cli.streams import OutputLost, standard_streams

if TYPE_CHECKING:
    from session_router.config import AgentConfig, Config

T = TypeVar("T")

FAILED = 1
WRONG = 2
INTERRUPTED = 130
ENDS = ("SIGTERM", "SIGHUP")
SPINNER = "|/-\\"
QUIET_SECONDS = 0.5
"""How long something may take before progress is shown."""

MOST = 10**9
"""The greatest number that an option takes; far greater ones fit no database."""
COUNT = click.IntRange(1, MOST)
COUNT_OR_NONE = click.IntRange(0, MOST)


class Problem(Exception):
    """Ends a command with one plain sentence on stderr; ``code`` is the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def stop(en: str, zh: str, code: int = FAILED) -> NoReturn:
    raise Problem(spoken(en, zh), code)


# -- help ------------------------------------------------------------------------------------------

_HEADINGS = {"Usage": "用法", "Options": "选项", "Commands": "命令", "Examples": "示例"}


class _Formatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or spoken("Usage: ", "用法："))

    def write_heading(self, heading: str) -> None:
        super().write_heading(spoken(heading, _HEADINGS.get(heading, heading)))


class _Context(click.Context):
    formatter_class = _Formatter


class Option(click.Option):
    """An option whose help is in both languages (``says``)."""

    def __init__(self, *args: Any, says: Both | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.says = says

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if self.says is not None:
            self.help = pick(self.says)
        return super().get_help_record(ctx)


class _Spoken(click.Command):
    """A command whose help is in both languages and ends in examples."""

    context_class = _Context

    def __init__(self, *args: Any, says: Both, examples: Sequence[str], **kwargs: Any) -> None:
        self.says, self.examples = says, tuple(examples)
        super().__init__(*args, **kwargs)
        self.params += [
            Option(["--lang"], type=click.Choice(LANGUAGES), expose_value=False,
                   says=Both("Language of this tool's own words; by default that of the system.",
                             "本工具自己说话用的语言；默认跟随系统。")),
            Option(["--debug"], is_flag=True, expose_value=False,
                   says=Both("Show the traceback of an error.", "出错时显示调用栈。")),
        ]  # fmt: skip

    def get_short_help_str(self, limit: int = 45) -> str:
        return pick(self.says).partition("\n")[0].rstrip("。.")

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = spoken("Show this help.", "显示这份帮助。")
        return option

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(pick(self.says))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            formatter.write_paragraph()
            formatter.write_heading("Examples")
            for line in self.examples:
                formatter.write(f"  session-router {line}".rstrip() + "\n")


class Command(_Spoken):
    pass


class Group(_Spoken, click.Group):
    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which people meet them

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = spoken(f"; did you mean {near[0]}?", f"；是不是 {near[0]}？") if near else ""
            raise click.UsageError(spoken(f"There is no command {args[0]}{hint}", f"没有命令 {args[0]}{hint}"), ctx)
        return super().resolve_command(ctx, args)


Group.group_class = Group


class Program(Group):
    """The outermost group: everything that goes wrong anywhere becomes an exit code and a sentence here."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None,
             complete_var: str | None = None, standalone_mode: bool = True, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        choose(words)
        with standard_streams():
            code = self._run(words, prog_name or "session-router", complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, words: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]) -> int:
        debug = "--debug" in (words[: words.index("--")] if "--" in words else words)
        log_to_stderr(debug)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a title may hold what the terminal's charset has not
        try:
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return WRONG
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else prog_name
            text = _usage(error).rstrip(".。")
            end = "" if text.endswith(("?", "？")) else spoken(".", "。")
            complain(f"{text}{end}" + spoken(f" See: {where} --help", f"用法见：{where} --help"))
            return WRONG
        except click.ClickException as error:
            complain(error.format_message())
            return error.exit_code
        except (KeyboardInterrupt, click.Abort, asyncio.CancelledError):
            return INTERRUPTED
        except BrokenPipeError:  # whoever reads has seen enough
            return 0
        except Exception as error:
            if debug:
                traceback.print_exc()
            return _told(error, debug)


def _told(error: Exception, debug: bool) -> int:
    from fsm.ports import SessionRouterError

    if isinstance(error, Problem):
        complain(str(error))
        return error.code
    if isinstance(error, SessionRouterError):
        complain(str(error))
        return FAILED
    if isinstance(error, OutputLost):
        complain(spoken(f"The output could not be written ({error.strerror}); send it somewhere else.",
                        f"输出写不出去（{error.strerror}）；请换个地方输出。"))  # fmt: skip
        return FAILED
    if isinstance(error, FileNotFoundError) and not _has_a_folder():
        complain(spoken("The folder that this was started in is gone; change to one that is there.",
                        "启动时所在的文件夹已经不在了；请换到一个存在的文件夹。"))  # fmt: skip
        return FAILED
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        complain(f"{name}{error.strerror or error}")
        return FAILED
    text = f"{type(error).__name__}: {error}"
    complain(text if debug else spoken(f"Something unforeseen happened ({text}). With --debug it shows where.",
                                       f"出了意料之外的错误（{text}）。加上 --debug 可看到出错的位置。"))
    return FAILED


def _has_a_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _usage(error: click.UsageError) -> str:
    """The error in the tool's language; the ones that people meet most."""
    match error:
        case click.NoSuchOption():
            near = ", ".join(error.possibilities or ())
            hint = spoken(f"; did you mean {near}?", f"；是不是 {near}？") if near else ""
            return spoken(f"There is no option {error.option_name}{hint}", f"没有选项 {error.option_name}{hint}")
        case click.MissingParameter():
            name = error.param.make_metavar(error.ctx) if error.param and error.ctx else error.param_hint or ""
            return spoken(f"{name} is missing", f"缺少 {name}")
        case _:
            return error.format_message()


def log_to_stderr(debug: bool) -> None:
    """The log is for --debug; without it, or a file of its own, Python would print warnings between answers."""
    root = logging.getLogger()
    if debug:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    elif not root.handlers:
        root.addHandler(logging.NullHandler())


def complain(text: str) -> None:
    """A sentence on stderr."""
    head = spoken("Error: ", "错误：")
    click.echo(click.style(head, fg="red", bold=True) + text, err=True, color=colour(sys.stderr))


def remark(text: str) -> None:
    """Something worth knowing, on stderr, so that stdout holds the answer alone."""
    click.echo(text, err=True)


def colour(stream: Any = None) -> bool:
    """Only on a terminal, and not where NO_COLOR or a dumb terminal ask for none."""
    stream = stream or sys.stdout
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, **style: Any) -> str:
    return click.style(text, **style) if colour() else text


# -- what commands share -----------------------------------------------------------------------------


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config", "config_file", metavar="FILE", cls=Option,
        says=Both(
            "The config file; by default the first that is there of $SESSION_ROUTER_CONFIG, ./session-router.toml, and "
            "the one that `init` writes.",
            "配置文件；默认依次找 $SESSION_ROUTER_CONFIG、./session-router.toml、init 写的那个，用第一个存在的。",
        ),
    )(function)  # fmt: skip


def agent_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--agent", "agent_name", metavar="NAME", cls=Option,
        says=Both("One of the agents in the config; by default the first.", "配置里的某个 agent；默认第一个。"),
    )(function)  # fmt: skip


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--json", "as_json", is_flag=True, cls=Option,
        says=Both("Print JSON, for programs.", "输出 JSON，供程序读取。"),
    )(function)  # fmt: skip


def load_config(file: str | None) -> Config:
    """The config; a wrong one ends the command with exit code 2."""
    from session_router.config import ConfigError, load

    try:
        return load(file, environ())
    except ConfigError as error:
        raise Problem(str(error), WRONG) from error


def print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def run(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of ``work``. Told to end, or when its terminal goes away, it ends as after Ctrl-C: whatever is open
    is closed and nothing counts as cut off."""
    told: list[int] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop, cancel = asyncio.get_running_loop(), task.cancel

        def end(number: int) -> None:
            told.append(number)
            cancel()

        for name in ENDS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                with suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread
                    loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if told:
            raise SystemExit(128 + told[0]) from None
        raise


@contextmanager
def progress(en: str, zh: str) -> Iterator[None]:
    """A line on stderr that shows work is going on, once it takes long; only on a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    text, done, begun = spoken(en, zh), threading.Event(), time.monotonic()

    def spin() -> None:
        turn = 0
        if done.wait(QUIET_SECONDS):
            return
        while not done.wait(0.1):
            turn += 1
            seconds = int(time.monotonic() - begun)
            print(f"\r\x1b[K{SPINNER[turn % 4]} {text} {seconds} s", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=spin, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def agent_of(config: Config, name: str | None) -> AgentConfig:
    """That agent of the config, the first without a name; an unknown one ends the command with 2."""
    from session_router.config import ConfigError

    try:
        return config.agent(name)
    except ConfigError as error:
        raise Problem(str(error), WRONG) from error
