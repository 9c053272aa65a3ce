"""A database that cannot be read is said to the sender, never passed off as an empty chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsm.conversation import State
from fsm.effects import Disposition
from session_router.scenario.story import Bot
from storage.opencode.source import OpenCodeSource


def _on(bot: Bot, path: Path) -> None:
    bot.configure(make_sessions=False)
    bot.stage.desk.sessions.sources = (OpenCodeSource(path),)


def test_ctx_03_an_absent_database_is_named_to_the_sender_and_not_made(bot: Bot, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    _on(bot, path)
    alice = bot.person("alice", channel="tg")
    alice.says("继续")
    (heard,) = alice.hears()
    assert heard.startswith("没有可用的会话。")
    assert str(path) in heard or "opencode" in heard.lower()
    assert (alice.bound, alice.state, alice.disposition) == (None, State.IDLE, Disposition.REPLIED)
    assert bot.model_calls == 0
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"not a database file" * 100], ids=["zero bytes", "no database"])
def test_ctx_03_a_file_that_is_no_database_ends_nothing_and_is_left_alone(
    bot: Bot, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(content)
    _on(bot, path)
    alice = bot.person("alice", channel="tg")
    alice.says("继续")
    alice.says("/sessions")
    said, listed = alice.hears()
    assert said.startswith("没有可用的会话。" if not content else "有会话来源现在读不到")
    assert "opencode" in listed.lower(), "the list says why it is empty"
    assert (alice.state, bot.model_calls) == (State.IDLE, 0)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_ctx_03_a_history_that_cannot_be_read_any_more_is_no_empty_chat(bot: Bot, tmp_path: Path) -> None:
    bot.session("ses_a", "天气机器人")
    alice = bot.person("alice", channel="tg")
    path = tmp_path / "opencode.db"
    path.write_bytes(b"not a database file" * 100)
    broken, source = OpenCodeSource(path), bot.stage.source

    class Half:
        """Knows its sessions, and cannot read what is in them."""

        name = "opencode"
        latest, find, list = source.latest, source.find, source.list
        context = broken.context

    bot.stage.desk.sessions.sources = (Half(),)  # type: ignore[assignment]
    alice.says("继续")
    assert alice.hears() == [
        "抱歉，会话的历史现在读不到，所以没有回答。请稍后再试，或用 /sessions 换一个会话。"
    ]
    assert (bot.model_calls, alice.disposition) == (0, Disposition.FAILED)
