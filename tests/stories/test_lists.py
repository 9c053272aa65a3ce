"""A list of sessions says which source it could not look into."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fsm.conversation import Conversation, Key
from fsm.events import ListAsked, SwitchAsked
from fsm.ports import Inbound
from session_router.scenario.story import Bot
from storage.opencode.source import OpenCodeSource

KEY = Key("xxm", "tg", "alice")


def _broken_beside_the_usual(bot: Bot, folder: Path) -> None:
    path = folder / "opencode.db"
    path.write_bytes(b"not a database file" * 100)
    bot.stage.desk.sessions.sources = (OpenCodeSource(path), bot.stage.source)


def _heard(bot: Bot, text: str) -> ListAsked | SwitchAsked:
    inbound = Inbound("tg", "alice", text, "m1", 0.0, reply_to="alice")
    event = asyncio.run(bot.stage.desk.hear(KEY, inbound, Conversation(), bot.stage.clock.now()))
    assert isinstance(event, ListAsked | SwitchAsked)
    return event


@pytest.mark.parametrize("text", ["/sessions", "列出会话", "/sessions weather", "切换到weather"])
def test_what_a_list_could_not_look_into_goes_with_it(bot: Bot, tmp_path: Path, text: str) -> None:
    _broken_beside_the_usual(bot, tmp_path)
    event = _heard(bot, text)
    assert len(event.matches) > 1
    assert str(tmp_path / "opencode.db") in event.problem


@pytest.mark.parametrize("text", ["/sessions nothing-like-it", "切换到nothing-like-it"])
def test_where_nothing_matches_both_are_said(bot: Bot, tmp_path: Path, text: str) -> None:
    _broken_beside_the_usual(bot, tmp_path)
    alice = bot.person("alice", channel="tg")
    alice.says(text)
    (heard,) = alice.hears()
    first, *rest = heard.split("\n")
    assert "nothing-like-it" in first
    assert str(tmp_path / "opencode.db") in "\n".join(rest)


def test_a_bare_switch_asks_which_and_nothing_else(bot: Bot, tmp_path: Path) -> None:
    _broken_beside_the_usual(bot, tmp_path)
    alice = bot.person("alice", channel="tg")
    alice.says("切换到")
    (heard,) = alice.hears()
    assert heard.startswith("要切换到哪个会话？")
    assert "opencode" not in heard.lower()


@pytest.mark.parametrize("text", ["/sessions", "切换到weather"])
def test_below_what_could_not_be_read_a_number_still_picks_from_the_list(
    bot: Bot, tmp_path: Path, text: str
) -> None:
    _broken_beside_the_usual(bot, tmp_path)
    alice = bot.person("alice", channel="tg")
    alice.says(text)
    (heard,) = alice.hears()
    assert heard.split("\n")[0].startswith("会话")
    assert str(tmp_path / "opencode.db") in heard
    alice.says("2")
    assert alice.bound in ("ses_b", "ses_c")
