"""Help, usage errors and the conventions that hold for every command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from session_router.cli import main, program
from tests.cli.conftest import Home


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EVERY = [(), *commands(program)]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_the_help_of_every_command_ends_in_examples(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(program, [*words, "--help"], env={"LC_ALL": "C"})

    assert shown.exit_code == 0
    examples = shown.output.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert [line for line in examples if not line.startswith(f"  session-router {' '.join(words)}".rstrip())] == []


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_example_is_a_command_line_that_parses(words: tuple[str, ...]) -> None:
    command: click.Command = program
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]

    for example in command.examples:  # type: ignore[attr-defined]
        typed = example.partition(" <")[0].split()
        found: click.Command = program
        while isinstance(found, click.Group) and typed:
            found = found.commands[typed.pop(0)]
        found.make_context(example, typed, resilient_parsing=False)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_speaks_chinese_where_the_system_does(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(program, [*words, "--help"], env={"LC_ALL": "zh_CN.UTF-8"})

    assert shown.output.startswith("用法：")
    assert "\n示例:\n" in shown.output
    assert "Show this" not in shown.output


def test_lang_wins_over_the_system_in_help_and_in_errors() -> None:
    runner = CliRunner(env={"LC_ALL": "zh_CN.UTF-8"})

    assert runner.invoke(program, ["chat", "--lang", "en", "--help"]).output.startswith("Usage: ")
    assert runner.invoke(program, ["--lang", "en", "nosuch"]).stderr.startswith("Error: There is no command nosuch")
    assert runner.invoke(program, ["nosuch"]).stderr.startswith("错误：没有命令 nosuch")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nosuch"], "There is no option --nosuch"),
        (["conversation"], "did you mean conversations? See: session-router --help"),
        (["chat", "--sesion", "x"], "did you mean --session? See: session-router chat --help"),
        (["context"], "SESSION_ID is missing. See: session-router context --help"),
        (["why", "console"], "SENDER is missing"),
        (["replay"], "FILE... is missing"),
        (["diagram", "--format", "gif"], "gif"),
        (["context", "x", "--limit", "0"], "0 is not in the range"),
        (["sessions", "--source", "nosuch"], "nosuch"),
        (["chat", "--lang", "fr"], "fr"),
        (["setup", "nosuch"], "There is no command nosuch. See: session-router setup --help"),
    ],
)
def test_wrong_usage_exits_2_with_one_line_and_where_to_look(words: list[str], said: str) -> None:
    done = CliRunner().invoke(program, words, env={"LC_ALL": "C"})

    assert done.exit_code == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["journal"], ["setup"]], ids=["session-router", "journal", "setup"])
def test_a_group_alone_shows_its_help_and_exits_2(words: list[str]) -> None:
    done = CliRunner().invoke(program, words, env={"LC_ALL": "C"})

    assert done.exit_code == 2
    assert done.stderr.startswith("Usage: ")
    assert done.stderr == CliRunner().invoke(program, [*words, "--help"], env={"LC_ALL": "C"}).stdout


def test_the_help_of_diagram_names_every_drawing() -> None:
    from session_router.cli.diagram import NAMES
    from session_router.diagrams import names

    assert names() == NAMES


def test_main_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("session-router ")
    assert main(["nosuch"]) == 2


def test_a_wrong_config_exits_2_and_names_file_and_key(home: Home) -> None:
    (home.folder / "session-router.toml").write_text("langage = 'zh'\n")

    done = home.run("sessions")

    assert done.returncode == 2
    assert "session-router.toml" in done.stderr
    assert "langage" in done.stderr
    assert "did you mean" in done.stderr


def test_a_config_or_an_agent_that_is_not_there_exits_2(home: Home) -> None:
    assert home.run("doctor", "--config", "nosuch.toml").returncode == 2
    done = home.run("chat", "--agent", "nosuch")
    assert done.returncode == 2
    assert "there is no agent `nosuch`" in done.stderr


def test_what_nobody_foresaw_is_a_sentence_and_with_debug_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("the roof is on fire")

    monkeypatch.setattr("session_router.config.load", fail)
    runner = CliRunner(env={"LC_ALL": "C"})

    short, long = runner.invoke(program, ["sessions"]), runner.invoke(program, ["sessions", "--debug"])

    assert (short.exit_code, long.exit_code) == (1, 1)
    assert "RuntimeError: the roof is on fire" in short.stderr
    assert "--debug" in short.stderr
    assert "Traceback" not in short.stderr
    assert "Traceback" in long.stderr


def test_ctrl_c_exits_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("session_router.config.load", interrupt)

    done = CliRunner().invoke(program, ["sessions"])

    assert done.exit_code == 130
    assert done.output.strip() == ""


def test_a_reader_that_has_seen_enough_is_no_error(home: Home) -> None:
    file = home.folder / "long.scenario.yaml"
    file.write_text("scenario: long\nsteps:\n" + "  - wait: 1\n" * 2000)
    done = subprocess.run(
        f"{sys.executable} -m session_router replay {file} --json | head -n 1", shell=True, capture_output=True,
        text=True, env=home.env, cwd=home.folder, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout.startswith('{"step": 1')
    assert done.stderr == ""


def test_help_and_the_package_load_nothing_heavy(home: Home) -> None:
    heavy = ["pydantic", "pydantic_ai", "transitions", "aiosqlite", "prompt_toolkit", "yaml"]
    code = (
        "import sys, session_router\n"
        "assert 'click' not in sys.modules\n"
        "session_router.main(['--help'])\n"
        f"sys.exit(', '.join(name for name in {heavy} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=home.env, check=False)

    assert done.stderr == ""
    assert done.returncode == 0


def test_the_package_gives_its_public_names_and_no_others() -> None:
    import session_router

    assert callable(session_router.SessionRouter)
    assert callable(session_router.SessionBridge)
    assert callable(session_router.extract_session_context)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = session_router.Nonsense
