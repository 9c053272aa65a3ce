"""``sessions``, ``context``, ``conversations``, ``why``, ``diagram``, ``init``, ``doctor`` and ``setup``."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import deque
from contextlib import closing

import pytest

from session_router.diagrams import write_all
from tests.cli.conftest import PARSER, Home
from tests.support.fake_llm import Answer, FakeLLM


@pytest.fixture
def talked(home: Home, llm: FakeLLM) -> Home:
    """A home in which a conversation has been."""
    llm.answers = deque([Answer("Two bugs."), Answer(status=401)])
    assert home.run("chat", input="/switch Refactor the parser\nWhat is wrong?\nand then?\n").returncode == 0
    return home


# -- sessions and context --------------------------------------------------------------------------


def test_sessions_lists_the_real_ones_most_recently_active_first(home: Home) -> None:
    done = home.run("sessions")

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith(" 1. Killed in mid turn · opencode · ")
    assert "Archived" not in done.stdout
    assert done.stderr == ""


def test_sessions_finds_by_words_and_says_when_there_is_none(home: Home) -> None:
    found = json.loads(home.run("sessions", "refactor", "the", "--json").stdout)
    assert [(each["id"], each["source"]) for each in found] == [(PARSER, "opencode")]

    none = home.run("sessions", "qqqqqqqq")
    assert (none.returncode, none.stdout) == (1, "")
    assert "No session matches “qqqqqqqq”." in none.stderr
    assert json.loads(home.run("sessions", "qqqqqqqq", "--json").stdout) == []


def test_sessions_are_cut_at_the_limit_unless_all_are_wanted(home: Home) -> None:
    (home.folder / "session-router.toml").write_text("[limits]\nsession_list_limit = 3\n")

    assert len(home.run("sessions").stdout.splitlines()) == 3
    assert "3 of 11" in home.run("sessions").stderr
    assert len(home.run("sessions", "--all").stdout.splitlines()) == 11


def test_looking_makes_no_store(home: Home) -> None:
    assert home.run("sessions").returncode == 0
    assert home.run("context", PARSER).returncode == 0
    assert home.run("conversations").returncode == 1
    assert not home.store.exists()


@pytest.mark.parametrize("words", [("sessions",), ("context", "ses_x")])
def test_a_missing_database_is_said_with_what_to_do(home: Home, words: tuple[str, ...]) -> None:
    done = home.run(*words, env={"OPENCODE_DB": str(home.folder / "nosuch.db")})

    assert done.returncode == 1
    assert done.stdout == ""
    assert "no" in done.stderr
    if words == ("sessions",):
        assert "start OpenCode once, or set OPENCODE_DB" in done.stderr


def test_a_source_that_is_switched_off_is_wrong_usage(home: Home) -> None:
    (home.folder / "session-router.toml").write_text("[sources]\nopencode = false\n")

    done = home.run("sessions", "--source", "opencode")

    assert done.returncode == 2
    assert "are not read here" in done.stderr


def test_context_is_what_the_model_would_see(home: Home) -> None:
    text = home.run("context", PARSER, "--limit", "2").stdout
    data = json.loads(home.run("context", PARSER, "--limit", "2", "--json").stdout)

    assert len(data["lines"]) == 2
    assert text == data["text"] + "\n"
    assert data["session"]["title"] == "Refactor the parser"
    assert home.run("context", "ses_nope").returncode == 1


# -- conversations and why -------------------------------------------------------------------------


def test_conversations_shows_how_each_stands(talked: Home) -> None:
    line = talked.run("conversations").stdout
    assert line.startswith("assistant console hmo: idle · Refactor the parser (opencode, chosen by hand)")

    (one,) = json.loads(talked.run("conversations", "--json").stdout)
    assert {name: one[name] for name in ("channel", "sender", "state", "bound", "binding", "queued")} == {
        "channel": "console", "sender": "hmo", "state": "idle", "bound": PARSER, "binding": "manual", "queued": 0,
    }  # fmt: skip


def test_a_conversation_that_cannot_be_read_is_told_beside_those_that_can(talked: Home) -> None:
    with closing(sqlite3.connect(talked.store)) as connection:
        connection.execute(
            "INSERT INTO conversations "
            "SELECT agent, channel, 'xxm', state, busy, due, started, '{}x' FROM conversations"
        )
        connection.commit()

    listed, as_json = talked.run("conversations"), talked.run("conversations", "--json")

    assert (listed.returncode, as_json.returncode) == (1, 1)
    assert listed.stdout.startswith("assistant console hmo: idle")
    assert [each["sender"] for each in json.loads(as_json.stdout)] == ["hmo"]
    for done in (listed, as_json, talked.run("why", "console", "xxm")):
        assert "sender='xxm' cannot be read" in done.stderr
        assert "Delete its row from the table conversations" in done.stderr
    assert talked.run("why", "console", "hmo").returncode == 0


def test_why_gives_every_message_its_reason(talked: Home) -> None:
    text = talked.run("why", "console", "hmo").stdout
    assert "“What is wrong?” → replied: the model answered" in text
    assert "“and then?” → failed: the model call failed" in text
    assert "→ replied: a session was chosen" in text
    assert "command_looping → idle (ModelFailed: apologise)" in text

    data = json.loads(talked.run("why", "console", "hmo", "--json", "--limit", "2").stdout)
    assert [(m["text"], m["disposition"]) for m in data["messages"]] == [
        ("and then?", "failed"),
        ("What is wrong?", "replied"),
    ]
    assert data["trail"][-1]["went_to"] == "idle"


def test_why_of_nobody_says_where_to_look(talked: Home) -> None:
    done = talked.run("why", "console", "nobody")

    assert done.returncode == 1
    assert "`session-router conversations` lists them" in done.stderr


def test_without_a_store_they_say_what_makes_one(home: Home) -> None:
    for words in (("conversations",), ("why", "console", "hmo"), ("export", "console", "hmo")):
        done = home.run(*words)
        assert done.returncode == 1
        assert "session-router chat" in done.stderr


def test_the_answers_come_in_chinese_too(talked: Home) -> None:
    assert "模型调用失败" in talked.run("why", "console", "hmo", "--lang", "zh").stdout
    assert "没有" in talked.run("why", "console", "nobody", env={"LC_ALL": "zh_CN.UTF-8"}).stderr


@pytest.mark.parametrize("words", [
    ("context", PARSER, "--limit"), ("why", "console", "hmo", "--limit"), ("export", "console", "hmo", "--limit"),
    ("journal", "show", "ses_x", "--messages"),
])  # fmt: skip
@pytest.mark.parametrize("number", ["99999999999999999999", "9" * 5000, "-1"])
def test_a_number_that_no_database_takes_is_wrong_usage(home: Home, words: tuple[str, ...], number: str) -> None:
    done = home.run(*words, number)
    assert done.returncode == 2
    assert f"'{words[-1]}'" in done.stderr
    assert "unforeseen" not in done.stderr


def _without_leave_to_write() -> None:
    """Runs in the child: root heeds file modes only without this power."""
    import ctypes

    if os.geteuid() == 0:
        drop_from_bounding_set, to_override_modes = 24, 1
        if ctypes.CDLL(None, use_errno=True).prctl(drop_from_bounding_set, to_override_modes, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere root cannot be made to heed file modes")
@pytest.mark.parametrize("crashed", [False, True])
def test_a_store_that_may_only_be_read_is_read(talked: Home, crashed: bool) -> None:
    folder = talked.store.parent
    if crashed:  # what was said last stands in the -wal only
        with closing(sqlite3.connect(talked.store)) as writer:
            writer.execute("PRAGMA wal_autocheckpoint = 0")
            writer.execute("UPDATE inbox SET text = 'said in the wal' WHERE text = 'and then?'")
            writer.commit()
            held = {path.name: path.read_bytes() for path in folder.glob("engine.db*") if path.suffix != ".db-shm"}
        for name, content in held.items():
            (folder / name).write_bytes(content)
    was = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for path in [*folder.iterdir(), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = [
            subprocess.run(talked.command(*words), env=talked.env, cwd=talked.folder, capture_output=True, text=True,
                           timeout=60, check=False, preexec_fn=_without_leave_to_write)
            for words in (("conversations",), ("why", "console", "hmo"), ("sessions",), ("export", "console", "hmo"),
                          ("active",))
        ]  # fmt: skip
    finally:
        for path in [folder, *folder.iterdir()]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    active = done.pop()
    assert (active.returncode, "has no active session" in active.stderr) == (1, True), active.stderr
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 4
    assert done[0].stdout.startswith("assistant console hmo: idle")
    assert ("said in the wal" if crashed else "and then?") in done[1].stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == was


# -- diagram ---------------------------------------------------------------------------------------


def test_a_diagram_of_a_live_conversation_marks_where_it_stands(talked: Home) -> None:
    shown = talked.run("diagram", "--live", "console", "hmo").stdout

    assert "conversation, now idle" in shown
    assert talked.run("diagram", "--live", "console", "nobody").returncode == 1


def test_check_holds_the_pictures_of_a_folder_against_the_table(home: Home) -> None:
    pytest.importorskip("pygraphviz")
    pictures = home.folder / "pictures"
    write_all(pictures)
    assert home.run("diagram", "--check", str(pictures)).returncode == 0

    (pictures / "conversation.mmd").write_text("stateDiagram-v2")
    done = home.run("diagram", "--check", str(pictures))
    assert done.returncode == 1
    assert done.stdout == "conversation.mmd\n"
    assert home.run("diagram", "--check", str(home.folder / "nosuch")).returncode == 2


def test_a_picture_can_go_to_a_file_and_an_unknown_one_is_wrong_usage(home: Home) -> None:
    assert home.run("diagram", "conversation-idle", "--format", "dot", "--output", "idle.dot").stdout == ""
    assert (home.folder / "idle.dot").read_text().startswith("digraph")
    assert home.run("diagram", "nosuch").returncode == 2


# -- init, doctor, setup ---------------------------------------------------------------------------


def test_init_writes_a_config_that_doctor_accepts_and_no_other_user_reads(home: Home, llm: FakeLLM) -> None:
    done = home.run("init")
    file = home.folder / ".config" / "session-router" / "config.toml"
    assert done.returncode == 0
    assert done.stdout == f"{file}\n"
    assert file.stat().st_mode & 0o077 == 0

    checked = home.run("doctor")

    assert checked.returncode == 0
    assert f"✓ config: {file}" in checked.stdout
    assert "✓ sessions of OpenCode" in checked.stdout


def test_init_replaces_nothing_unless_forced(home: Home) -> None:
    file = home.folder / "session-router.toml"
    file.write_text("# mine\n")

    refused = home.run("init", "--path", str(home.folder))
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert file.read_text() == "# mine\n"

    assert home.run("init", "--path", str(file), "--force", "--lang", "zh").returncode == 0
    assert 'language = "zh"' in file.read_text()


def test_doctor_exits_1_for_a_problem_and_2_for_a_wrong_config(home: Home, llm: FakeLLM) -> None:
    home.opencode.write_bytes(b"no database at all" * 100)
    done = home.run("doctor", "--json")
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["sessions of OpenCode"]["level"] == "problem"
    assert found["sessions of OpenCode"]["mend"]

    (home.folder / "session-router.toml").write_text("[agents.mohe]\nturn_timeout = -1\n")
    wrong = home.run("doctor")
    assert wrong.returncode == 2
    assert "turn_timeout" in wrong.stdout


def test_doctor_asks_the_model_only_when_told_to(home: Home, llm: FakeLLM) -> None:
    home.run("doctor")
    assert llm.requests == []
    assert "it answered" in home.run("doctor", "--ask-model").stdout
    assert len(llm.requests) == 1


def test_setup_embedded_installs_nothing_where_all_is_there(home: Home) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("pydantic_ai")

    done = home.run("setup", "embedded", env={"PIP_NO_INDEX": "1"})

    assert (done.returncode, "installed" in done.stdout) == (0, True)
    assert "Installing" not in done.stderr
