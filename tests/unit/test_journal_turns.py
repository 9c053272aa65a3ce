"""Records of the engine's turns in a journal: numbered, each once, and never in a session that is not there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fsm.conversation import Key
from fsm.ports import Channel, DeliveryError, Journals, Outgoing, SourceError
from storage.journal import HEADER, JournalChannel, JournalFile, JournalSource, SessionConfig, record, resume

KEY = Key("mohe", "xmpp", "hmo@example.org")


def takes_records(source: Journals) -> Journals:
    return source


def is_a_channel(channel: Channel) -> Channel:
    return channel


async def made(folder: Path, session: str = "ses_a", **options: Any) -> JournalSource:
    source = JournalSource(folder, **options)
    await source.create("t", session_id=session, at=0.0)
    return source


async def one_turn(source: JournalSource, turn: str, at: float = 10.0) -> None:
    """A turn with a command in it, as the machine records it."""
    used = {"input_tokens": 100, "output_tokens": 10}
    await source.take_record("ses_a", turn=turn, event="turn_start", at=at,
                             data={"id": turn, "role": "user", "content": f"do {turn}", "tag": "[xmpp]"})
    await source.take_record("ses_a", turn=turn, event="tool_call", at=at + 1,
                             data={"id": f"{turn}/1/0", "name": "weather", "input": "Berlin",
                                   "usage": {"id": f"{turn}/1", **used}})
    await source.take_record("ses_a", turn=turn, event="tool_result", at=at + 2,
                             data={"id": f"{turn}/1/0", "content": "sunny", "ok": True})
    await source.take_record("ses_a", turn=turn, event="turn_end", at=at + 3,
                             data={"id": turn, "content": f"done {turn}", "disposition": "replied",
                                   "usage": {"id": f"{turn}/2", **used}})


def events(folder: Path) -> list[tuple[int, str, str]]:
    """(number, event, the turn's name) of every record but headers."""
    loaded = JournalFile(folder / "ses_a.jsonl").load()
    assert loaded.complaints == ()
    return [(one.turn, one.event, one.data["turn"]) for one in loaded.records if one.event != HEADER]


ONE = ["turn_start", "tool_call", "tool_result", "turn_end"]


async def test_turns_are_numbered_from_one_and_every_call_is_counted_once(tmp_path: Path) -> None:
    source = await made(tmp_path)
    takes_records(source)
    await one_turn(source, "mohe/xmpp/m1")
    await one_turn(source, "mohe/xmpp/m2", 20.0)

    assert events(tmp_path) == [(1, event, "mohe/xmpp/m1") for event in ONE] + [
        (2, event, "mohe/xmpp/m2") for event in ONE]  # fmt: skip
    snapshot = resume(tmp_path / "ses_a.jsonl", "ses_a").snapshot
    assert (snapshot.turn_count, snapshot.current_turn_started_at) == (2, None)
    assert (snapshot.total_tokens.input, snapshot.total_tokens.output) == (400, 40)


async def test_the_same_record_again_changes_nothing_also_after_a_restart(tmp_path: Path) -> None:
    await one_turn(await made(tmp_path), "m1")
    before = (tmp_path / "ses_a.jsonl").read_bytes()

    await one_turn(JournalSource(tmp_path), "m1", at=99.0)

    assert (tmp_path / "ses_a.jsonl").read_bytes() == before


async def test_a_turn_that_was_cut_off_goes_on_under_its_number_after_a_restart(tmp_path: Path) -> None:
    first = await made(tmp_path)
    await one_turn(first, "m1")
    await first.take_record("ses_a", turn="m2", event="turn_start", data={"id": "m2", "content": "x"}, at=20.0)

    after = JournalSource(tmp_path)
    await after.take_record("ses_a", turn="m2", event="turn_start", data={"id": "m2", "content": "x"}, at=20.0)
    await after.take_record("ses_a", turn="m2", event="turn_end", data={"id": "m2", "content": "y"}, at=30.0)

    assert events(tmp_path)[4:] == [(2, "turn_start", "m2"), (2, "turn_end", "m2")]


async def test_numbers_go_on_behind_those_of_another_writer(tmp_path: Path) -> None:
    source = await made(tmp_path)
    await one_turn(source, "m1")
    JournalFile(tmp_path / "ses_a.jsonl").append(
        record(7, "turn_start", {"content": "theirs"}, 50.0), record(7, "turn_end", {"content": "done"}, 51.0)
    )

    await source.take_record("ses_a", turn="m2", event="turn_start", data={"id": "m2", "content": "ours"}, at=60.0)
    await source.take_record("ses_a", turn="m1", event="turn_end", data={"id": "m1"}, at=60.0)

    last = JournalFile(tmp_path / "ses_a.jsonl").load().records[-1]
    assert (last.turn, last.event, last.data["content"]) == (8, "turn_start", "ours")


async def test_two_processes_that_write_the_same_record_write_it_once(tmp_path: Path) -> None:
    await made(tmp_path)

    await asyncio.gather(*(one_turn(JournalSource(tmp_path), "m1") for _ in range(8)))

    assert sorted(event for _, event, _ in events(tmp_path)) == sorted(ONE)


async def test_a_half_line_that_a_kill_left_is_cut_off_before_the_next_record(tmp_path: Path) -> None:
    source = await made(tmp_path)
    await source.take_record("ses_a", turn="m1", event="turn_start", data={"id": "m1", "content": "x"}, at=1.0)
    path = tmp_path / "ses_a.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v":3,"timestamp":"2026-01-15T08:00:00Z","turn":1,"event":"turn_e')

    await JournalSource(tmp_path).take_record("ses_a", turn="m1", event="turn_end", data={"id": "m1"}, at=2.0)

    assert events(tmp_path) == [(1, "turn_start", "m1"), (1, "turn_end", "m1")]


async def test_no_record_makes_a_session_that_is_not_there(tmp_path: Path) -> None:
    source = await made(tmp_path)
    (tmp_path / "ses_a.jsonl").unlink()

    with pytest.raises(SourceError) as caught:
        await source.take_record("ses_a", turn="m1", event="turn_start", data={"id": "m1"}, at=1.0)

    assert caught.value.kind == "missing"
    assert not (tmp_path / "ses_a.jsonl").exists()


def outgoing(text: str, to: str = "ses_a") -> Outgoing:
    return Outgoing("m1!start", KEY, "journal", to, text)


async def test_the_channel_writes_what_the_engine_owes(tmp_path: Path) -> None:
    channel = JournalChannel(await made(tmp_path))
    text = json.dumps({"turn": "m1", "event": "turn_start", "data": {"id": "m1", "content": "hi"}, "at": 5.0})

    await is_a_channel(channel).send(outgoing(text))
    await channel.send(outgoing(text))

    assert events(tmp_path) == [(1, "turn_start", "m1")]


@pytest.mark.parametrize("text", ["{", "{}", '{"turn":"m","event":"nothing","data":{},"at":1}',
                                  '{"turn":"m","event":"turn_end","data":3,"at":1}'])  # fmt: skip
async def test_what_is_no_record_is_given_up_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(DeliveryError) as caught:
        await JournalChannel(await made(tmp_path)).send(outgoing(text))

    assert caught.value.final


async def test_a_session_that_is_gone_is_given_up_and_a_folder_without_rights_is_tried_again(tmp_path: Path) -> None:
    text = json.dumps({"turn": "m1", "event": "turn_start", "data": {"id": "m1"}, "at": 5.0})
    channel = JournalChannel(await made(tmp_path))
    with pytest.raises(DeliveryError) as gone:
        await channel.send(outgoing(text, "ses_other"))
    (tmp_path / "ses_a.jsonl").unlink()
    (tmp_path / "ses_a.jsonl").mkdir()
    with pytest.raises(DeliveryError) as later:
        await channel.send(outgoing(text))

    assert (gone.value.final, later.value.final) == (True, False)


# -- what there is to say when a session is taken up ---------------------------------------------------


async def test_taking_a_session_up_tells_what_was_cut_off_and_what_is_set_otherwise(tmp_path: Path) -> None:
    old = await made(tmp_path, config=SessionConfig("gpt-a", 10, 4096))
    await one_turn(old, "m1")
    await old.take_record("ses_a", turn="m2", event="turn_start", data={"id": "m2", "content": "x"}, at=20.0)
    await old.take_record("ses_a", turn="m2", event="tool_call", at=21.0, data={"id": "m2/1/0", "name": "deploy"})

    source = JournalSource(tmp_path, config=SessionConfig("gpt-b", 10, 2048))
    found = await source.take_up("ses_a", at=30.0)

    assert found is not None
    assert (found.title, found.interrupted, found.since, found.turn) == ("t", 2, 20.0, "m2")
    assert [(call.turn, call.name) for call in found.open_calls] == [(2, "deploy")]
    assert [(one.field, one.was, one.now) for one in found.different] == [
        ("maxTokensPerTurn", 4096, 2048), ("model", "gpt-a", "gpt-b")]  # fmt: skip
    again = await source.take_up("ses_a", at=40.0)
    assert again is not None
    assert again.different == ()
    assert (await JournalSource(tmp_path).take_up("ses_none")) is None


async def test_only_a_session_with_one_turn_and_no_title_is_there_to_be_named(tmp_path: Path) -> None:
    source = await made(tmp_path)
    await source.create("", session_id="ses_b", at=0.0)
    await one_turn(source, "m1")
    assert await source.opening("ses_a") == []
    for turn, left in (("m1", ["hi", "ho"]), ("m2", [])):
        await source.take_record("ses_b", turn=turn, event="turn_start", data={"id": turn, "content": "hi"}, at=1.0)
        await source.take_record("ses_b", turn=turn, event="turn_end", data={"id": turn, "content": "ho"}, at=2.0)
        assert [line.text for line in await source.opening("ses_b")] == left
