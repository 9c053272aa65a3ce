"""What is said to whoever goes on with a session: only what is true just now."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsm.conversation import Bound, Conversation, Key, Message, Phase, State, Turn
from fsm.owed import JOURNAL, record_text
from fsm.ports import Change, Outgoing
from fsm.runner.engine import PARKED
from session_router.clock import SystemClock
from session_router.resuming import Resuming
from storage.journal import JournalSource, SessionConfig
from storage.sqlite import SqliteStore

HERE, THERE = Key("mohe", "console", "hmo"), Key("mohe", "xmpp", "hmo@example.org")
BOUND = Bound("ses_a", "manual", "Weather", "journal", kept="journal")


def running(key: Key, turn: str) -> Conversation:
    """A conversation in the middle of that turn, as the store keeps it."""
    message = Message(turn, "m2", key.channel, key.sender, "hi", "hi", "", True, "en")
    return Conversation(state=State.COMMAND_LOOPING, turn=Turn(turn, message, BOUND, 20.0, phase=Phase.MODEL))


async def cut_off(folder: Path, turn: str = "mohe/console/m2") -> None:
    """A journal whose second turn has no end, with a command in it that has no result."""
    source = JournalSource(folder / "sessions", config=SessionConfig("gpt-a", 10, 4096))
    await source.create("Weather", session_id="ses_a", at=0.0)
    for name, event, more in (
        ("mohe/console/m1", "turn_start", {}), ("mohe/console/m1", "turn_end", {}), (turn, "turn_start", {}),
        (turn, "tool_call", {"id": "c", "name": "deploy"}),
    ):  # fmt: skip
        await source.take_record("ses_a", turn=name, event=event, data={"id": name, "content": "x", **more}, at=20.0)


@pytest.mark.parametrize(
    ("owner", "starting", "said"),
    [
        (None, True, "is_left"), (None, False, "is_left"),
        (HERE, True, "goes_on"), (HERE, False, None),
        (THERE, True, None), (THERE, False, None),
    ],
)  # fmt: skip
async def test_a_turn_that_somebody_is_at_work_on_was_not_cut_off(
    tmp_path: Path, owner: Key | None, starting: bool, said: str | None
) -> None:
    await cut_off(tmp_path)
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    if owner is not None:
        await store.commit(Change(owner, conversation=running(owner, "mohe/console/m2")))
    told: list[str] = []
    resuming = Resuming(JournalSource(tmp_path / "sessions"), store, HERE, SystemClock(), "en", told.append)

    if starting:
        await resuming.begin(BOUND)
    else:
        resuming.watch(HERE, Conversation(manual=BOUND))
        for task in list(resuming._tasks):
            await task
    await resuming.close()
    await store.close()

    ends = {"is_left": "so say it again if it still matters.", "goes_on": "it is taken up again now."}
    assert [sentence.rpartition("; ")[2].removeprefix("it has no answer, ") for sentence in told] == (
        [ends[said]] if said else [])  # fmt: skip
    assert all("one command left without a result (deploy)" in sentence for sentence in told)


@pytest.mark.parametrize(("lang", "said"), [
    ("en", "“Weather” was left in the middle of turn 2, which began "),
    ("zh", "上次离开时，「Weather」的第 2 轮还没做完（"),
])
async def test_a_turn_that_was_left_on_purpose_was_not_cut_off_but_left(tmp_path: Path, lang: str, said: str) -> None:
    await cut_off(tmp_path)
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    await store.commit(Change(HERE, conversation=running(HERE, "mohe/console/m2")))
    await store.set_meta(PARKED + "mohe/console/m2", "")
    told: list[str] = []
    await Resuming(JournalSource(tmp_path / "sessions"), store, HERE, SystemClock(), lang, told.append).begin(BOUND)
    await store.close()

    assert len(told) == 1
    assert told[0].startswith(said)


async def test_a_turn_whose_end_is_still_owed_to_the_journal_was_not_cut_off(tmp_path: Path) -> None:
    await cut_off(tmp_path)
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    told: list[str] = []
    end = record_text("mohe/console/m2", "turn_end", {"id": "mohe/console/m2", "content": "done"}, 30.0)
    await store.commit(Change(HERE, sends=(Outgoing("mohe/console/m2!end", HERE, JOURNAL, "ses_a", end),)))
    await Resuming(JournalSource(tmp_path / "sessions"), store, HERE, SystemClock(), "en", told.append).begin(BOUND)
    await store.close()

    assert told == []


async def test_other_settings_are_said_once_in_either_language_and_then_are_the_sessions_own(tmp_path: Path) -> None:
    await cut_off(tmp_path)
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    told: list[str] = []
    for _ in range(2):
        journal = JournalSource(tmp_path / "sessions", config=SessionConfig("gpt-b", 10, 4096))
        resuming = Resuming(journal, store, HERE, SystemClock(), "zh", told.append)
        await resuming.begin(BOUND)
        await resuming.begin(BOUND)
    await store.close()

    assert [one for one in told if "设置" in one] == ["「Weather」的设置和上次不同：model gpt-a → gpt-b。"]
    assert len([one for one in told if "第 2 轮在中途断了" in one]) == 2


async def test_a_session_of_another_source_or_that_is_gone_says_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "engine.db")
    await store.open()
    told: list[str] = []
    resuming = Resuming(JournalSource(tmp_path / "sessions"), store, HERE, SystemClock(), "en", told.append)
    await resuming.begin(None)
    await resuming.begin(Bound("ses_x", "manual", "", "opencode"))
    await resuming.begin(BOUND)
    await store.close()

    assert told == []
