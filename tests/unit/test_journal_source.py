"""The journals of a folder as a session source."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from fsm.ports import Line, SourceError, WritableSource
from storage.journal import Journal, JournalFile, JournalSource, Record, record, resume
from storage.journal.lines import LONGEST


async def said(source: JournalSource, session: str, text: str, at: float, *, turn: int = 1, tag: str = "") -> None:
    """One turn: a text, and its answer a second later."""
    await source.append_turn(session, turn, "turn_start", {"content": text, "tag": tag, "id": f"m{turn}"}, at)
    await source.append_turn(session, turn, "turn_end", {"content": f"re: {text}"}, at + 1)


def is_a_source(source: WritableSource) -> WritableSource:
    return source


async def test_a_folder_that_is_not_there_holds_no_sessions_and_is_not_made(tmp_path: Path) -> None:
    source = is_a_source(JournalSource(tmp_path / "sessions"))

    assert await source.list() == []
    assert await source.latest() is None
    assert await source.find("ses_a") is None
    with pytest.raises(SourceError, match="no session journal"):
        await source.context("ses_a")
    assert await source.search("x") == []
    assert list(tmp_path.iterdir()) == []


async def test_sessions_come_most_recently_active_first_then_by_id(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await source.create("天气机器人", session_id="ses_b", at=100.0)
    await source.create("weather-api", session_id="ses_a", at=100.0)
    await source.create("", session_id="ses_c", at=50.0)
    await said(source, "ses_c", "  \n第一句话\n第二行", 200.0)

    found = await source.list()

    assert [(info.id, info.title, info.active_at) for info in found] == [
        ("ses_c", "第一句话", 201.0), ("ses_a", "weather-api", 100.0), ("ses_b", "天气机器人", 100.0),
    ]  # fmt: skip
    assert {info.source for info in found} == {"journal"}
    assert await source.latest() == found[0]
    assert await source.list(2) == found[:2]
    assert [info.id for info in await source.search("WEATHER")] == ["ses_a"]
    assert [info.id for info in await source.search("ses_b")] == ["ses_b"]
    assert await source.search("  ") == []
    assert await source.find("ses_b") == found[2]


async def test_a_session_is_made_once_and_another_title_does_not_make_it_again(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)

    made = await asyncio.gather(*(source.create(f"T{n}", session_id="own_bot/xmpp:r@x/m 1", at=1.0) for n in range(5)))

    assert {info.title for info in made} == {"T0"}
    assert made[0].id == "own_bot/xmpp:r@x/m 1"
    assert [info.id for info in await source.list()] == ["own_bot/xmpp:r@x/m 1"]
    assert os.listdir(tmp_path) == ["own_bot%2Fxmpp:r@x%2Fm 1.jsonl"]
    assert JournalFile(tmp_path / os.listdir(tmp_path)[0]).load().versions == {3: 1}


async def test_an_empty_file_left_by_a_full_disk_is_found_and_becomes_a_session(tmp_path: Path) -> None:
    (tmp_path / "ses_a.jsonl").touch()
    source = JournalSource(tmp_path)

    assert await source.list() == []
    assert await source.find("ses_a") is not None
    assert (await source.create("T", session_id="ses_a", at=5.0)).title == "T"


@pytest.mark.parametrize("session_id", ["../x", "", "a\0b"])
async def test_an_id_that_would_leave_the_folder_is_no_session_and_makes_none(tmp_path: Path, session_id: str) -> None:
    source = JournalSource(tmp_path / "sessions")

    assert await source.find(session_id) is None
    with pytest.raises(SourceError, match="No session can be called"):
        await source.context(session_id)
    with pytest.raises(SourceError, match="No session can be called"):
        await source.create("T", session_id=session_id, at=0.0)
    with pytest.raises(SourceError):
        await source.append_turn(session_id, 1, "turn_start", {}, 0.0)
    assert list(tmp_path.iterdir()) == []


async def test_the_context_holds_what_was_said_with_its_tags_oldest_first(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await said(source, "ses_a", "你好", 10.0, tag="[xmpp]")
    await source.append_turn("ses_a", 2, "tool_call", {"id": "c1", "name": "ls"}, 20.0)
    await source.append_turn("ses_a", 2, "tool_result", {"id": "c1", "content": "x"}, 21.0)
    await source.append_turn("ses_a", 2, "turn_end", {}, 22.0)
    await source.append_turn("ses_a", 3, "turn_start", {"content": [{"type": "text", "text": "a"}, {"type": "image"},
                                                                    {"type": "text", "text": "b"}]}, 23.0)

    assert await source.context("ses_a") == [
        Line("user", "你好", 10.0, "[xmpp]", "m1"), Line("assistant", "re: 你好", 11.0), Line("user", "a\nb", 23.0),
    ]  # fmt: skip
    assert [line.text for line in await source.context("ses_a", 2)] == ["re: 你好", "a\nb"]
    assert await source.context("ses_a", 0) == []


async def test_a_context_of_a_long_journal_is_its_end_whatever_lies_between(tmp_path: Path) -> None:
    path = tmp_path / "ses_a.jsonl"
    with JournalFile(path) as file:
        file.append(*(record(n, "turn_start", {"content": f"{n} " + "长" * (n % 400)}, float(n)) for n in range(3000)))
    with path.open("ab") as raw:
        raw.write(b'{"x":"' + b"y" * (LONGEST + 1000) + b'"}\n' + b"bad\n\n")
    with JournalFile(path) as file:
        file.append(record(3000, "turn_start", {"content": "3000 "}, 3000.0))
    with path.open("ab") as raw:
        raw.write('{"v":3,"turn":9,"event":"turn_end","data":"torn 天'.encode()[:-1])

    lines = await JournalSource(tmp_path).context("ses_a", 1500)

    assert [int(line.text.split()[0]) for line in lines] == list(range(1501, 3001))


async def test_writes_to_one_session_keep_the_order_of_the_calls(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)

    calls = [asyncio.ensure_future(source.append_turn("ses_a", n, "tool_result", {}, float(n))) for n in range(40)]
    await asyncio.sleep(0)
    calls[3].cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    held = JournalFile(tmp_path / "ses_a.jsonl").load().records
    assert [one.turn for one in held if one.event != "header"] == list(range(40))


async def test_a_title_that_was_set_later_is_found_however_large_the_journal_grows(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await source.create("old", session_id="ses_a", at=0.0)
    await source.set_title("ses_a", "新标题", at=1.0)
    large = {"content": "x" * 200_000}

    after_restart = JournalSource(tmp_path)
    await after_restart.append_turn("ses_a", 1, "turn_start", {"content": "hi"}, 2.0)
    for _ in range(3):
        await after_restart.append_turn("ses_a", 1, "tool_result", large, 3.0)
    in_the_middle = JournalSource(tmp_path)
    await in_the_middle.append_turn("ses_a", 1, "turn_end", {"content": "bye"}, 4.0)

    for reader in (after_restart, in_the_middle, JournalSource(tmp_path)):
        assert [info.title for info in await reader.list()] == ["新标题"]
    assert resume(tmp_path / "ses_a.jsonl", "ses_a").title == "新标题"
    with pytest.raises(SourceError, match="no session journal"):
        await source.set_title("ses_none", "x", at=1.0)


async def test_a_title_that_another_process_set_is_taken_up(tmp_path: Path) -> None:
    source, other = JournalSource(tmp_path), JournalSource(tmp_path)
    await source.create("old", session_id="ses_a", at=0.0)
    await source.set_title("ses_a", "ours", at=1.0)

    await other.set_title("ses_a", "theirs", at=2.0)

    assert [info.title for info in await source.list()] == ["theirs"]
    await said(source, "ses_a", "hi", 3.0)
    assert [info.title for info in await JournalSource(tmp_path).list()] == ["theirs"]


async def test_a_session_that_nobody_renamed_gets_no_titles_among_its_turns(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await source.create("T", session_id="ses_a", at=0.0)
    await said(source, "ses_a", "hi", 1.0)
    await JournalSource(tmp_path).append_turn("ses_a", 2, "turn_start", {"content": "x"}, 2.0)

    assert [one.event for one in JournalFile(tmp_path / "ses_a.jsonl").load().records] == [
        "header", "turn_start", "turn_end", "turn_start"]


async def test_a_list_reads_the_ends_of_large_files_and_nothing_of_files_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ses_a.jsonl"
    first = "第一句" + "x" * 500_000  # a first line larger than the piece that is read at once
    with JournalFile(path) as file:
        file.append(record(1, "turn_start", {"content": first}, 1.0))
        for n in range(40):
            file.append(record(n, "tool_result", {"content": "y" * 500_000}, float(n)))
    read = 0
    seen_path = "storage.journal.glance.opened"
    from storage.journal import lines

    def counting(path: Path):  # type: ignore[no-untyped-def]
        nonlocal read
        read += 1
        return lines.opened(path)

    monkeypatch.setattr(seen_path, counting)
    source = JournalSource(tmp_path)

    found = await source.list()
    assert found[0].title.startswith("第一句xxx")
    assert len(found[0].title) == 80
    assert found[0].active_at == 39.0
    assert await source.list() == found
    assert read == 1
    await source.append_turn("ses_a", 41, "tool_result", {}, 500.0)
    assert (await source.list())[0].active_at == 500.0


async def test_one_session_that_cannot_be_read_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "future.jsonl").write_text('{"v":99,"turn":1,"event":"turn_start"}\n')
    (tmp_path / "nuls.jsonl").write_bytes(b"\0" * 100_000)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "a%zz%2e.jsonl").write_text('{"turn":1,"event":"turn_start"}\n')
    source = JournalSource(tmp_path)
    await source.create("T", session_id="ses_a", at=1.0)

    with caplog.at_level(logging.WARNING):
        assert [info.id for info in await source.list()] == ["ses_a"]
        await source.list()

    assert [(one.session, one.kind) for one in source.unread()] == [("future", "foreign")]
    assert sum("99" in line for line in caplog.messages) == 1, "said once"
    with pytest.raises(SourceError, match="99") as future:
        await source.find("future")
    assert future.value.kind == "foreign"
    with pytest.raises(SourceError, match="99"):
        await source.append_turn("future", 1, "turn_end", {}, 0.0)


async def test_of_many_sessions_that_cannot_be_read_three_are_named_and_the_others_counted(tmp_path: Path) -> None:
    for number in range(9):
        path = tmp_path / f"ses_{number}.jsonl"
        path.write_text('{"v":99,"turn":1,"event":"turn_start"}\n')
        os.utime(path, (number, number))
    source = JournalSource(tmp_path)
    await source.list()

    found = source.unread()
    assert [(one.session, one.active_at) for one in found] == [("ses_8", 8), ("ses_7", 7), ("ses_6", 6), ("", 5)]
    assert str(found[3]) == f"6 more session journals in {tmp_path} cannot be read either."


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everybody may read everything here")
async def test_a_session_that_may_be_read_again_is_listed_again(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await source.create("T", session_id="ses_a", at=1.0)
    source.path("ses_a").chmod(0)
    assert await source.list() == []
    assert [one.kind for one in source.unread()] == ["unreadable"]
    source.path("ses_a").chmod(0o600)

    assert [info.id for info in await source.list()] == ["ses_a"]
    assert source.unread() == ()


async def test_a_session_that_was_deleted_is_gone(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    await source.create("T", session_id="ses_a", at=1.0)
    assert len(await source.list()) == 1
    (tmp_path / "ses_a.jsonl").unlink()

    assert await source.list() == []
    assert await source.find("ses_a") is None


async def test_the_owner_of_a_session_and_a_source_work_side_by_side(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    with Journal(tmp_path).create("ses_a", at=0.0, title="T") as session:
        session.append(1, "turn_start", {"content": "hi"}, 1.0)
        await source.append_turn("ses_a", 1, "turn_end", {"content": "[YOU] hello"}, 2.0)
        session.append(2, "turn_start", {"content": "again"}, 3.0)
        assert session.resume().complaint_count == 0
    assert [line.text for line in await source.context("ses_a")] == ["hi", "[YOU] hello", "again"]


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    source = JournalSource(tmp_path / "sessions")
    await source.create("T", session_id="ses_a", at=1.0)

    assert (tmp_path / "sessions").stat().st_mode & 0o077 == 0
    assert (tmp_path / "sessions" / "ses_a.jsonl").stat().st_mode & 0o077 == 0


async def test_what_is_no_record_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="turn_over"):
        await JournalSource(tmp_path).append_turn("ses_a", 1, "turn_over", {}, 0.0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="no event"):
        JournalFile(tmp_path / "ses_a.jsonl").append(Record(1, "", {}))
