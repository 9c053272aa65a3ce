"""The scenarios that the first design of this router named: a loop without end, and a selection that runs out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from freezegun import freeze_time

from fsm.conversation import State
from fsm.ports import ChatMessage
from session_router.router import SessionRouter
from session_router.scenario.files import read_text
from session_router.scenario.play import play
from session_router.scenario.story import Bot
from storage.journal import JournalSource
from storage.sqlite import SqliteStore


class AlwaysACommand:
    """Whatever it is asked, it wants a command that there is not."""

    def __init__(self) -> None:
        self.calls = 0

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> str:
        self.calls += 1
        return "##dummy##"


async def test_SR02_a_bridge_that_always_answers_with_a_command_is_called_exactly_ten_times(tmp_path: Path) -> None:
    bridge, store = AlwaysACommand(), SqliteStore(tmp_path / "engine.db")
    async with SessionRouter(
        bridge=bridge, store=store, default_session="ses_xxm_xmpp", sources=(JournalSource(tmp_path / "sessions"),)
    ) as router:
        reply = await router.route(channel="xmpp", sender="hmo", message="你好", message_id="m1")

        assert bridge.calls == 10
        assert reply is not None
        assert reply.endswith("（已达到 10 轮命令上限，先停在这里。）")
        assert reply.count("上限") == 1
        assert "##" not in reply
        assert (await router.conversation("xmpp", "hmo")).state is State.IDLE

        await router.route(channel="xmpp", sender="hmo", message="还在吗", message_id="m2")

        assert bridge.calls == 20, "the next message starts at loop 0"


def test_SR02_the_same_as_a_scenario() -> None:
    (scenario,) = read_text("""
scenario: a model that always answers with a command
sessions: [{id: ses_xxm_xmpp, title: 小小莫}]
model: [{repeat: "##dummy##", times: 11}]
steps:
  - message: {channel: xmpp, sender: hmo, text: 你好, id: m1}
    expect: {model_calls: 10, loops: 10, state: idle, sent_count: 1, sent_has: 已达到 10 轮命令上限}
""")

    assert play(scenario).failed == []


def open_a_selection(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人", active=-60)
    bot.session("ses_b", "weather-api", active=-120)
    bot.session("ses_c", "博客 weather 草稿", active=-300)
    alice = bot.person("alice")
    alice.says("切换到weather")
    assert alice.state is State.AWAITING_SELECTION
    alice.hears()


@pytest.mark.parametrize(
    ("seconds", "state"),
    [(119.999, State.AWAITING_SELECTION), (120, State.IDLE), (130, State.IDLE)],
)
def test_SR03_a_selection_is_gone_after_120_seconds(bot: Bot, seconds: float, state: State) -> None:
    open_a_selection(bot)
    alice = bot.person("alice")

    bot.waits(seconds=seconds)

    assert alice.state is state
    assert alice.hears() == (["列表已过期，选择已取消。"] if state is State.IDLE else [])


@pytest.mark.parametrize(
    ("seconds", "state"),
    [(119.999, State.AWAITING_SELECTION), (120, State.IDLE), (130, State.IDLE)],
)
def test_SR03_the_same_in_frozen_time(seconds: float, state: State) -> None:
    with freeze_time("2026-01-15T08:00:00Z", real_asyncio=True) as frozen:
        bot = Bot()
        try:
            open_a_selection(bot)

            frozen.tick(seconds)
            bot.settles()

            assert bot.person("alice").state is state
        finally:
            bot.close()


def test_SR03_within_the_time_a_number_chooses_and_after_it_the_number_is_a_text(bot: Bot) -> None:
    open_a_selection(bot)
    alice = bot.person("alice")
    bot.waits(seconds=119.999)
    alice.says("1")
    assert (alice.bound, bot.model_calls) == ("ses_b", 0)

    bot.answers("一什么？")
    alice.says("切换到weather")
    alice.hears()
    bot.waits(seconds=130)
    alice.says("2")

    assert alice.hears() == ["列表已过期，选择已取消。", "一什么？"]
    assert (alice.bound, bot.model_calls) == ("ses_b", 1)
