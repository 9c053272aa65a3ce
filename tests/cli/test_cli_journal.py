"""``journal show``, ``check`` and ``migrate``, and sessions of our own in the other commands."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from storage.journal import EVENTS, JournalFile, Record, SessionConfig, record
from storage.journal.journal import header
from tests.cli.conftest import Home
from tests.support.fake_llm import Answer, FakeLLM

OLD = (
    '{"timestamp":"2026-01-15T08:00:00Z","turn":1,"event":"turn_start","data":{"content":"hello"}}\n'
    '{"timestamp":"2026-01-15T08:00:01Z","turn":1,"event":"turn_end","data":{"content":"hi",'
    '"usage":{"input_tokens":5,"output_tokens":2}}}\n'
)
"""As the first version wrote it."""


def folder(home: Home) -> Path:
    return home.store.parent / "sessions"


def write(home: Home, name: str = "ses_a", *more: Record) -> Path:
    """A session with one whole turn, and ``more`` behind it."""
    path = folder(home) / f"{name}.jsonl"
    with JournalFile(path) as file:
        file.append(
            header(name, at=0.0, title="Weather", config=SessionConfig("fake-1", 10, 4096)),
            record(1, "turn_start", {"content": "how is it?"}, 1.0),
            record(1, "tool_call", {"id": "c1", "name": "weather", "input": "Berlin"}, 2.0),
            record(1, "tool_result", {"id": "c1", "content": "sunny"}, 3.0),
            record(1, "turn_end", {"content": "sunny", "usage": {"input_tokens": 120, "output_tokens": 7}}, 4.0),
            *more,
        )
    return path


def shown(home: Home, *words: str) -> Any:
    done = home.run("journal", "show", *words, "--json")
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_show_rebuilds_the_session_under_its_own_names_and_changes_nothing(home: Home) -> None:
    path = write(home)
    before = path.read_bytes()

    found = shown(home, "ses_a")

    names = ["id", "startedAt", "lastActivityAt", "messages", "turnCount", "currentTurnStartedAt", "totalTokens",
             "sessionCost", "config"]  # fmt: skip
    assert list(found)[: len(names)] == names
    assert (found["id"], found["title"], found["turnCount"]) == ("ses_a", "Weather", 1)
    assert found["totalTokens"] == {"input": 120, "output": 7}
    assert found["config"] == {"model": "fake-1", "maxTurns": 10, "maxTokensPerTurn": 4096}
    assert [message["role"] for message in found["messages"]] == ["user", "assistant", "user", "assistant"]
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in folder(home).iterdir()) == ["ses_a.jsonl"]


def test_an_interrupted_turn_its_open_command_and_another_config_are_shown(home: Home) -> None:
    write(
        home, "ses_a", record(2, "turn_start", {"content": "and now?"}, 10.0),
        record(2, "tool_call", {"id": "c2", "name": "deploy", "input": ""}, 11.0),
    )  # fmt: skip
    (home.folder / "session-router.toml").write_text("[limits]\nmax_loops = 3\n")

    found = shown(home, "ses_a", "--messages", "1")

    assert found["currentTurnStartedAt"] == "1970-01-01T00:00:10.000000Z"
    assert found["interruptedTurn"] == {"turn": 2, "startedAt": "1970-01-01T00:00:10.000000Z"}
    assert [(call["turn"], call["name"]) for call in found["openCommands"]] == [(2, "deploy")]
    assert found["configDifference"] == [{"field": "maxTurns", "was": 10, "now": 3}]
    assert len(found["messages"]) == 1
    text = home.run("journal", "show", "ses_a").stdout
    assert "turn 2 was interrupted; it began at 1970-01-01T00:00:10.000000Z" in text
    assert "the command deploy of turn 2 has no result" in text
    assert "the config now says maxTurns 3" in text
    assert "  user: how is it?" in text
    chinese = home.run("journal", "show", "ses_a", "--lang", "zh").stdout
    assert "第 2 轮中断了" in chinese


def test_a_path_does_as_well_as_an_id_and_several_make_a_list(home: Home) -> None:
    path = write(home)
    other = home.folder / "elsewhere.jsonl"
    other.write_text(OLD)

    assert [found["id"] for found in shown(home, str(path), "elsewhere.jsonl")] == ["ses_a", "elsewhere"]


def test_check_says_what_is_wrong_line_by_line_and_leaves_with_1(home: Home) -> None:
    path = write(home)
    whole = home.run("journal", "check", "ses_a")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert "✓ ses_a: 5 records (v3: 5), 0 complaints" in whole.stdout

    path.write_bytes(path.read_bytes().replace(b'{"v":3', b'{"v":', 2).replace(b'{"v":', b'{"v":3', 1) + b'{"half')
    done = home.run("journal", "check", "ses_a", "--json")
    found = json.loads(done.stdout)

    assert done.returncode == 1
    assert (found["ok"], found["complaintCount"]) == (False, 2)
    assert [one["line"] for one in found["complaints"]] == [2, 6]
    plain = home.run("journal", "check", "ses_a")
    assert plain.returncode == 1
    assert "✗ ses_a" in plain.stdout
    assert "line 2: " in plain.stdout


def test_migrate_keeps_the_old_file_and_does_nothing_the_second_time(home: Home) -> None:
    path = folder(home) / "ses_old.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(OLD)

    done = json.loads(home.run("journal", "migrate", "ses_old", "--json").stdout)

    assert (done["id"], done["changed"]) == ("ses_old", 2)
    assert Path(done["backup"]).read_text() == OLD
    assert [json.loads(line)["v"] for line in path.read_text().splitlines()] == [3, 3]
    again = home.run("journal", "migrate", "ses_old")
    assert (again.returncode, again.stdout) == (0, "✓ ses_old: nothing to do\n")


def test_what_is_not_there_is_a_sentence_beside_what_is(home: Home) -> None:
    write(home)

    done = home.run("journal", "show", "ses_nope", "ses_a")

    assert done.returncode == 1
    assert "Weather" in done.stdout
    assert done.stderr.startswith("Error: There is no session journal ")
    assert "ses_nope.jsonl" in done.stderr
    listed = home.run("journal", "check", "nowhere/x.jsonl", "--json")
    assert listed.returncode == 1
    assert "nowhere/x.jsonl" in json.loads(listed.stdout)["error"]


@pytest.mark.parametrize("verb", ["show", "migrate"])
def test_a_file_in_which_nothing_is_a_record_is_no_journal(home: Home, verb: str) -> None:
    file = home.folder / "notes.jsonl"
    file.write_text("first note\n[1, 2]\n{\n" * 9)
    before = file.read_bytes()

    done = home.run("journal", verb, "notes.jsonl")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: notes.jsonl is no session journal: none of its lines is a record.")
    listed = home.run("journal", verb, "notes.jsonl", "--json")
    assert (listed.returncode, json.loads(listed.stdout)["ok"]) == (1, False)
    assert home.run("journal", "check", "notes.jsonl").returncode == 1
    assert (file.read_bytes(), [each.name for each in home.folder.glob("notes*")]) == (before, ["notes.jsonl"])


@pytest.mark.parametrize("verb", ["show", "check", "migrate"])
def test_one_record_among_broken_lines_and_an_empty_file_are_journals(home: Home, verb: str) -> None:
    (home.folder / "broken.jsonl").write_text("no record\n" * 5 + OLD)
    (home.folder / "empty.jsonl").write_text("")

    assert "no session journal" not in home.run("journal", verb, "broken.jsonl", "empty.jsonl").stderr
    assert home.run("journal", verb, "empty.jsonl").returncode == 0


@pytest.mark.parametrize("name", ["..", "/", "\x01", " "])
def test_no_name_is_too_odd_for_a_sentence(home: Home, name: str) -> None:
    done = home.run("journal", "show", name)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")


def test_a_record_from_a_newer_program_is_named_and_the_file_left_alone(home: Home) -> None:
    path = write(home)
    path.write_bytes(path.read_bytes() + b'{"v":9,"turn":2,"event":"turn_start","data":{}}\n')
    before = path.read_bytes()

    for verb in ("show", "check", "migrate"):
        done = home.run("journal", verb, "ses_a")
        assert done.returncode == 1
        assert "line 6: this record has version 9" in done.stderr
    assert path.read_bytes() == before


def test_a_chat_leaves_a_journal_that_check_finds_nothing_wrong_with(home: Home, llm: FakeLLM) -> None:
    home.env["OPENCODE_DB"] = "/nowhere/opencode.db"
    llm.answers = deque([Answer("##current_session##"), Answer("that one"), Answer("and again")])
    home.run("chat", input="which session is it?\nand now?\n")

    (each,) = json.loads(home.run("sessions", "--source", "journal", "--json").stdout)
    assert (each["title"], each["source"]) == ("which session is it?", "journal")
    assert home.run("journal", "check", each["id"]).returncode == 0
    found = shown(home, each["id"])
    assert (found["turnCount"], found["totalTokens"]) == (2, {"input": 360, "output": 21})
    events = [one.event for one in JournalFile(folder(home) / f"{each['id']}.jsonl").load().records]
    assert [event for event in events if event in EVENTS] == [
        "turn_start", "tool_call", "tool_result", "turn_end", "turn_start", "turn_end"]  # fmt: skip
    context = json.loads(home.run("context", each["id"], "--json").stdout)
    assert [line["text"] for line in context["lines"]] == [
        "which session is it?", "that one", "and now?", "and again"]  # fmt: skip
    assert home.run("sessions", "--source", "own").returncode == 2
