"""What a journal adds up to: the snapshot and its names, interrupted turns, open commands, a changed config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.journal import (
    Difference,
    Journal,
    JournalFile,
    JournalForeign,
    Record,
    SessionConfig,
    SessionMessage,
    check,
    compare_config,
    record,
    resume,
    show,
)
from storage.journal.records import encode, iso, seconds
from storage.journal.tools import migrate

CONFIG = SessionConfig("some-model", 40, 8000)


def a_session(folder: Path) -> Path:
    """Two turns: one with a command, one that was cut off in the middle of a command."""
    with Journal(folder).create("ses_a", at=1768464000.0, title="天气", config=CONFIG) as session:
        session.append(1, "turn_start", {"content": "天气怎么样？", "tag": "[xmpp]"}, 1768464001.0)
        session.append(1, "tool_call", {"id": "c1", "name": "list_sessions", "input": "天气"}, 1768464002.0)
        session.append(1, "tool_result", {"id": "c1", "content": "1. 天气机器人"}, 1768464003.0)
        session.append(1, "turn_end", {"content": [{"type": "text", "text": "晴。"}],
                                       "usage": {"input_tokens": 120, "output_tokens": 7}, "cost": 0.002}, 1768464004.0)
        session.append(2, "turn_start", {"content": "换一个"}, 1768464010.5)
        session.append(2, "tool_call", {"id": "c2", "name": "switch_session", "input": "ses_b"}, 1768464011.0)
    return folder / "ses_a.jsonl"


def test_the_snapshot_has_the_names_of_older_setups(tmp_path: Path) -> None:
    found = Journal(tmp_path).load("ses_a")
    assert found is None
    a_session(tmp_path)
    found = Journal(tmp_path).load("ses_a")
    assert found is not None

    assert json.loads(json.dumps(found.to_json())) == {
        "id": "ses_a",
        "startedAt": "2026-01-15T08:00:00.000000Z",
        "lastActivityAt": "2026-01-15T08:00:11.000000Z",
        "messages": [
            {"role": "user", "content": "天气怎么样？"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "list_sessions", "input": "天气"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1. 天气机器人"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "晴。"}]},
            {"role": "user", "content": "换一个"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c2", "name": "switch_session", "input": "ses_b"}]},
        ],
        "turnCount": 2,
        "currentTurnStartedAt": "2026-01-15T08:00:10.500000Z",
        "totalTokens": {"input": 120, "output": 7},
        "sessionCost": 0.002,
        "config": {"model": "some-model", "maxTurns": 40, "maxTokensPerTurn": 8000},
    }  # fmt: skip


def test_show_and_check_tell_of_the_interrupted_turn_and_the_open_command_and_change_nothing(tmp_path: Path) -> None:
    path = a_session(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"torn')
    before = path.read_bytes(), path.stat().st_mtime_ns

    shown, checked = show(path), check(path)

    for told in (shown, checked):
        assert told["interruptedTurn"] == {"turn": 2, "startedAt": "2026-01-15T08:00:10.500000Z"}
        assert told["openCommands"] == [{"turn": 2, "id": "c2", "name": "switch_session", "line": 7}]
        assert [complaint["line"] for complaint in told["complaints"]] == [8]
        assert told["versions"] == {"3": 7}
        json.dumps(told)
    assert shown["title"] == "天气"
    assert len(show(path, messages=2)["messages"]) == 2
    assert checked["ok"] is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [file.name for file in tmp_path.iterdir()] == ["ses_a.jsonl"]


def test_a_journal_in_the_form_of_older_setups_loads(tmp_path: Path) -> None:
    path = tmp_path / "ses_old.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [
        {"timestamp": "2026-01-15T08:00:00.000Z", "turn": 1, "event": "turn_start", "data": "你好"},
        {"timestamp": "2026-01-15T08:00:01.000Z", "turn": 1, "event": "tool_call",
         "data": {"name": "ls", "arguments": {}}},
        {"timestamp": "2026-01-15T08:00:02.000Z", "turn": 1, "event": "tool_result", "data": "a b"},
        {"timestamp": "2026-01-15T08:00:03.000Z", "turn": 1, "event": "turn_end",
         "data": {"message": {"role": "assistant", "content": "好"}, "usage": {"input_tokens": 5, "output_tokens": 2}}},
    ]), encoding="utf-8")  # fmt: skip

    found = resume(path, "ses_old")

    assert found.complaint_count == 0
    assert found.open_calls == ()
    assert found.title == "你好"
    assert found.snapshot.started_at == "2026-01-15T08:00:00.000Z"
    said = [message.content for message in found.snapshot.messages if isinstance(message.content, str)]
    assert said == ["你好", "好"]
    assert found.snapshot.total_tokens.input == 5
    assert found.snapshot.config == SessionConfig()


def test_instants_that_are_numbers_or_missing_harm_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    lines = ['{"v":3,"turn":1,"event":"turn_start","data":{}}',
             '{"v":3,"timestamp":1768464000000,"turn":1,"event":"turn_end","data":{}}',
             '{"v":3,"timestamp":[],"turn":2,"event":"turn_start","data":null}']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    found = resume(path, "ses_a").snapshot

    assert found.started_at == found.last_activity_at == "2026-01-15T08:00:00.000000Z"
    assert show(path)["interruptedTurn"] == {"turn": 2, "startedAt": None}


@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_a_resume_may_ask_for_the_newest_messages_only(tmp_path: Path, count: int) -> None:
    path = a_session(tmp_path)

    every = resume(path, "ses_a").snapshot.messages
    newest = resume(path, "ses_a", messages=count).snapshot

    assert newest.messages == (every[-count:] if count else ())
    assert newest.total_tokens.input == 120


def test_silent_turns_do_not_push_messages_out_of_a_resume(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        for turn in range(50):
            file.append(record(turn, "turn_start", {"content": str(turn)}, 0.0), record(turn, "turn_end", {}, 0.0))

    found = resume(file.path, "ses_a", messages=20).snapshot

    assert found.messages == tuple(SessionMessage("user", str(turn)) for turn in range(30, 50))


def test_a_later_header_replaces_what_it_names_and_earlier_spending_is_added(tmp_path: Path) -> None:
    path = a_session(tmp_path)
    with JournalFile(path) as file:
        file.append(Record(0, "header", {"title": "新", "totalTokens": {"input": 1000, "output": 1}, "sessionCost": 2}))
        file.append(Record(0, "header", {"totalTokens": {"input": 2000}}))

    found = resume(path, "ses_a")

    assert found.title == "新"
    assert found.snapshot.config == CONFIG
    assert (found.snapshot.total_tokens.input, found.snapshot.total_tokens.output) == (2120, 8)
    assert found.snapshot.session_cost == 2.002


def test_commands_without_ids_are_answered_in_order(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "ses_a.jsonl") as file:
        file.append(Record(1, "tool_call", {"name": "a"}), Record(1, "tool_call", {"name": "b"}),
                    Record(1, "tool_result", "done"), Record(1, "tool_call", None))

    assert [call.name for call in resume(file.path, "ses_a").open_calls] == ["b", ""]


# -- config ----------------------------------------------------------------------------------------


def test_a_config_that_differs_is_told_field_by_field() -> None:
    now = SessionConfig("other", 40, None, {"tools": {"a": 1, "b": 2}})
    stored = SessionConfig("some-model", 40, 8000, {"tools": {"a": 1, "b": 3}, "cwd": "x"})

    assert compare_config(stored, now) == [
        Difference("cwd", "x", None), Difference("maxTokensPerTurn", 8000, None),
        Difference("model", "some-model", "other"),
        Difference("tools.b", 3, 2),
    ]  # fmt: skip
    assert str(Difference("model", "a", "b")) == "model was 'a' and is 'b' now"


@pytest.mark.parametrize(("stored", "now"), [
    (None, CONFIG), ({}, CONFIG), (SessionConfig(), CONFIG), (CONFIG, CONFIG), (CONFIG.to_json(), CONFIG),
    ({"model": "some-model"}, CONFIG),
])  # fmt: skip
def test_what_was_not_stored_is_not_known_to_differ(stored: Any, now: Any) -> None:
    assert compare_config(stored, now) == []


def test_one_and_true_are_not_the_same_setting() -> None:
    assert compare_config({"stream": True}, {"stream": 1}) == [Difference("stream", True, 1)]


def test_a_session_remembers_the_config_it_was_last_run_with(tmp_path: Path) -> None:
    with Journal(tmp_path).create("ses_a", at=0.0) as session:
        assert session.configure(CONFIG, 1.0) == []
        assert session.configure(CONFIG, 2.0) == []
        assert session.configure({"model": "other"}, 3.0) == [
            Difference("maxTokensPerTurn", 8000, None), Difference("maxTurns", 40, None),
            Difference("model", "some-model", "other"),
        ]  # fmt: skip
        assert session.resume().snapshot.config == SessionConfig("other")
        assert session.resume().records == 3, "what did not change was not written"


def test_a_setting_of_the_wrong_type_stays_visible() -> None:
    config = SessionConfig.of({"model": 5, "maxTurns": "40", "x": 1})
    assert (config.model, config.to_json()) == (None, {"model": 5, "maxTurns": "40", "maxTokensPerTurn": None, "x": 1})


# -- round trips -----------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
EVENT_NAMES = st.sampled_from(["turn_start", "tool_call", "tool_result", "turn_end"])
RECORDS = st.builds(Record, st.integers(0, 2**70), EVENT_NAMES, VALUES, st.floats(0, 4e9).map(iso))


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=6))
def test_whatever_is_written_is_read_as_it_was_and_one_record_is_one_line(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "ses_a.jsonl"
    with JournalFile(path) as file:
        for one in records:
            file.append(one)
    if not records:
        assert not path.exists()
        return

    assert path.read_bytes().count(b"\n") == len(records)
    loaded = JournalFile(path).load()
    assert loaded.records == tuple(records)
    assert loaded.complaint_count == 0
    assert resume(path, "ses_a").records == len(records)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(RECORDS.map(encode), st.binary(max_size=30), st.sampled_from([b"\n", b"\0" * 8, b"\r\n"])),
                max_size=8))
def test_no_bytes_make_a_reader_or_the_next_append_fail(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "ses_a.jsonl"
    path.write_bytes(b"".join(parts))
    end = record(1, "turn_end", {"content": "bye"}, 0.0)

    found, loaded = resume(path, "ses_a"), JournalFile(path).load()
    try:
        JournalFile(path).append(end)
    except JournalForeign:
        assert loaded.records == ()
        assert path.read_bytes() == b"".join(parts)
        return
    migrate(path)

    assert found.records == len(loaded.records)
    assert found.complaint_count >= loaded.complaint_count
    assert JournalFile(path).load().records == (*loaded.records, end)
    assert show(path)["messages"][-1] == {"role": "assistant", "content": "bye"}


@given(st.floats(0, 4e9))
def test_an_instant_is_written_to_the_microsecond(at: float) -> None:
    found = seconds(iso(at))
    assert found is not None
    assert abs(found - at) < 2e-6


@pytest.mark.parametrize(("written", "at"), [
    ("2026-01-15T08:00:00Z", 1768464000.0), ("2026-01-15T08:00:00.5+01:00", 1768460400.5),
    ("2026-01-15T08:00:00", 1768464000.0), (1768464000, 1768464000.0), (1768464000500, 1768464000.5),
    ("yesterday", None), (True, None), (None, None), (float("inf"), None), (10**400, None), ([], None),
])  # fmt: skip
def test_instants_of_other_writers_are_understood(written: object, at: float | None) -> None:
    assert seconds(written) == at
