"""``chat`` with piped input, against OpenCode's own database and a model behind HTTP."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections import deque

import pytest

from tests.cli.conftest import PARSER, Home
from tests.support.fake_llm import Answer, FakeLLM


def test_a_conversation_through_a_pipe(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("__REPLY__ It has **two** bugs.")])

    done = home.run("chat", input="/sessions\n切换到 Refactor the parser\nWhat is wrong with it?\n")

    assert done.returncode == 0
    listed, confirmed, answer = done.stdout.partition("\n已切换")[0], done.stdout, done.stdout.splitlines()[-1]
    assert "Refactor the parser · opencode" in listed
    assert "Archived but newest" not in listed
    assert "已切换到「Refactor the parser」（opencode）。" in confirmed
    assert answer == "It has **two** bugs."
    prompt = llm.requests[0]["messages"]
    assert "What is wrong with it?" in prompt[-1]["content"]
    statuses = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert statuses == [
        "[awaiting_selection · Killed in mid turn (opencode, most recently active) · queue 0]",
        "[idle · Refactor the parser (opencode, chosen by hand) · queue 0]",
        "[idle · Refactor the parser (opencode, chosen by hand) · queue 0]",
    ]


def test_it_says_which_model_it_uses_and_where_its_data_is(home: Home, llm: FakeLLM) -> None:
    done = home.run("chat")

    assert done.returncode == 0
    assert done.stdout == ""
    assert "Model: fake-1 (OpenAI), because OPENAI_BASE_URL is set." in done.stderr
    assert str(home.store) in done.stderr


def test_more_lines_than_a_minute_allows_others_are_all_answered_in_order(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque(Answer(f"answer {n}") for n in range(25))

    done = home.run("chat", input="".join(f"question {n}\n" for n in range(25)))

    assert done.stdout.splitlines() == [f"answer {n}" for n in range(25)]


def test_the_session_to_begin_with_can_be_named(home: Home, llm: FakeLLM) -> None:
    done = home.run("chat", "--session", PARSER, input="hello\n")

    assert "[idle · Refactor the parser (opencode, chosen by hand) · queue 0]" in done.stderr
    missing = home.run("chat", "--session", "ses_nope", input="hello\n")
    assert missing.returncode == 1
    assert missing.stdout == ""
    assert "There is no session ses_nope." in missing.stderr


def test_bytes_that_are_no_text_are_replaced_with_a_note(home: Home, llm: FakeLLM) -> None:
    done = home.run("chat", input=b"\xef\xbb\xbfone\r\n\n   \ncaf\xe9 \xef\xbf\xbd\nlast without an end")

    assert done.returncode == 0
    assert "Line 4 is not UTF-8" in done.stderr
    assert done.stderr.count("not UTF-8") == 1
    asked = [request["messages"][-1]["content"] for request in llm.requests]
    assert len(asked) == 3
    assert asked[0].endswith("one")
    assert asked[1].endswith("caf� �")
    assert asked[2].endswith("last without an end")


def test_an_answer_cannot_steer_the_terminal(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer("red \x1b[31mtext\x07 and\ttab")])

    assert home.run("chat", input="hello\n").stdout == "red [31mtext and\ttab\n"


def test_a_model_that_fails_is_told_with_the_reason_beside_it(home: Home, llm: FakeLLM) -> None:
    llm.answers = deque([Answer(status=401)])

    done = home.run("chat", input="hello\n")

    assert done.returncode == 0
    assert done.stdout == "Sorry, the model did not answer just now. Please try again in a moment.\n"
    assert "auth" in done.stderr
    assert "failed: the model call failed]" in done.stderr


def test_without_opencode_a_session_of_our_own_is_made(home: Home, llm: FakeLLM) -> None:
    done = home.run("chat", input="hello there\n", env={"OPENCODE_DB": "/nowhere/opencode.db"})

    assert done.stdout == "Hello from the fake.\n"
    assert "[idle · hello there (journal, most recently active) · queue 0]" in done.stderr


def test_a_database_that_cannot_be_read_is_said_with_the_mend(home: Home, llm: FakeLLM) -> None:
    home.opencode.write_bytes(b"no database at all" * 100)

    done = home.run("chat", input="/sessions\n")

    assert "is damaged or not a database at all" in done.stdout


def test_without_any_model_it_says_what_to_do(home: Home) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SESSION_ROUTER_MODEL"):
        del home.env[name]
    (home.folder / "session-router.toml").write_text('[model]\nprovider = "deepseek"\n')

    done = home.run("chat", input="hello\n")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "DEEPSEEK_API_KEY" in done.stderr


def test_a_second_chat_on_the_same_data_is_refused(home: Home, llm: FakeLLM) -> None:
    with subprocess.Popen(
        home.command("chat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.env,
        cwd=home.folder,
    ) as first:  # fmt: skip
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"hello\n")
        first.stdin.flush()
        assert first.stdout.readline() == b"Hello from the fake.\n"

        second = home.run("chat", input="hello\n")

        first.stdin.close()
        assert first.wait(30) == 0
    assert second.returncode == 1
    assert "Another session-router" in second.stderr


@pytest.mark.parametrize(("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_whoever_is_told_to_end_in_the_middle_of_an_answer_closes_well_and_the_next_chat_takes_it_up(
    home: Home, llm: FakeLLM, told: signal.Signals, code: int
) -> None:
    llm.answers = deque([Answer(hang=True), Answer("here it is")])
    with subprocess.Popen(
        home.command("chat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.env,
        cwd=home.folder,
    ) as chat:  # fmt: skip
        assert chat.stdin is not None
        assert chat.stderr is not None
        chat.stdin.write(b"hello\n")
        chat.stdin.flush()
        assert llm.asked.wait(30)
        os.kill(chat.pid, told)
        assert chat.wait(30) == code
        assert b"Traceback" not in chat.stderr.read()
    with sqlite3.connect(home.store) as store:
        left = store.execute("SELECT key FROM state_meta WHERE key LIKE 'parked:%'").fetchall()
    assert len(left) == 1, "it was left, which does not count as cut off"

    again = home.run("chat", input="")

    assert again.stdout == "here it is\n", "it stays for the answer that was left"


def test_data_goes_where_the_config_says(home: Home, llm: FakeLLM) -> None:
    config = home.folder / "mine.toml"
    config.write_text('data_dir = "elsewhere"\n[agents.mohe]\n[agents.zhiwei]\n')

    assert home.run("chat", "--config", "mine.toml", "--agent", "zhiwei", input="hi\n").returncode == 0

    with sqlite3.connect(home.folder / "elsewhere" / "engine.db") as store:
        assert store.execute("SELECT agent, channel, sender FROM conversations").fetchall() == [
            ("zhiwei", "console", "hmo")
        ]
    assert not home.store.exists()
