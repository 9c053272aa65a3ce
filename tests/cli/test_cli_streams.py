"""Output that cannot be written, standard streams that are closed, and a folder that is gone: a sentence each."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import PARSER, ROOT, Home

EXAMPLE = str(ROOT / "tests" / "scenarios" / "example.scenario.yaml")
JOURNAL = '{"timestamp":"2026-01-15T08:00:00Z","turn":1,"event":"turn_start","data":{"content":"hello"}}\n'
TALKERS = [
    ("--help",), ("sessions",), ("sessions", "--json"), ("doctor",), ("conversations",), ("context", PARSER),
    ("diagram",), ("diagram", "--format", "svg"), ("replay", EXAMPLE), ("replay", EXAMPLE, "--json"), ("chat",),
    ("journal", "show", "old.jsonl"),
]  # fmt: skip


def said(home: Home, redirected: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a command whose streams the shell has put elsewhere."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *home.command(*words)], env={**home.env, **more},
        cwd=home.folder, input="/help\n", text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def home_with_a_store(home: Home) -> Home:
    (home.folder / "old.jsonl").write_text(JOURNAL)
    assert home.run("chat", input="/help\n").returncode == 0
    return home


@pytest.mark.parametrize(("to", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
@pytest.mark.parametrize("words", TALKERS, ids=" ".join)
def test_output_that_cannot_be_written_is_one_sentence_and_1(
    home_with_a_store: Home, words: tuple[str, ...], to: str, why: str
) -> None:
    done = said(home_with_a_store, to, *words)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Error: The output could not be written ({why}); send it somewhere else."
    assert (done.stderr.count("Error"), "Exception" in done.stderr, "Traceback" in done.stderr) == (1, False, False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_it_is_so_whether_or_not_python_holds_output_back(home: Home, unbuffered: str) -> None:
    done = said(home, ">/dev/full", "sessions", PYTHONUNBUFFERED=unbuffered)

    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_what_has_nothing_to_say_does_not_mind_a_closed_output(home: Home) -> None:
    done = said(home, ">&-", "run")

    assert (done.returncode, "no agent has a channel" in done.stderr) == (2, True)


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_errors_that_nobody_can_be_told_still_have_their_exit_code(home: Home, redirected: str) -> None:
    wrong, well = said(home, redirected, "sesions"), said(home, redirected, "sessions", "parser")

    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", "")
    assert (well.returncode, "Refactor the parser" in well.stdout) == (0, True)


@pytest.mark.parametrize("redirected", ["<&-", "<&- 2>&-", "<&- >/dev/null 2>&-"])
def test_a_chat_with_a_closed_input_is_one_in_which_nothing_is_said(home: Home, redirected: str) -> None:
    done = said(home, redirected, "chat")

    assert (done.returncode, done.stdout) == (0, "")
    assert "Error" not in done.stderr


def test_no_file_that_is_opened_is_taken_for_a_stream_that_is_closed(home_with_a_store: Home) -> None:
    said(home_with_a_store, "<&- >&- 2>&-", "sessions")

    assert home_with_a_store.store.read_bytes().startswith(b"SQLite format 3")
    assert home_with_a_store.run("conversations").returncode == 0


@pytest.mark.parametrize("words", [("--help",), ("replay", EXAMPLE)], ids=" ".join)
def test_a_reader_that_is_gone_has_seen_enough(home: Home, words: tuple[str, ...]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        home.command(*words), env=home.env, cwd=home.folder, stdout=writes, stderr=subprocess.PIPE, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    os.close(writes)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [("sessions",), ("doctor",), ("chat",), ("run",)], ids=" ".join)
def test_a_folder_that_is_gone_is_said(home: Home, words: tuple[str, ...]) -> None:
    gone = home.folder / "gone"
    gone.mkdir()
    leave = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", leave, *home.command(*words)[1:]], env=home.env, cwd=gone, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert not gone.exists()
    assert done.returncode == 1
    assert done.stderr == "Error: The folder that this was started in is gone; change to one that is there.\n"
