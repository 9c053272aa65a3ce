"""What a crash costs: a call at most, and never a command."""

from __future__ import annotations

import pytest

from fsm.commands.registry import CommandContext
from fsm.conversation import State
from fsm.effects import Disposition
from fsm.ports import Outgoing
from session_router.scenario.script import Answer
from session_router.scenario.story import Bot


@pytest.mark.parametrize(
    ("moment", "kind", "calls_made"),
    [("before", "model", 2), ("after", "model", 3), ("before", "command", 2), ("after", "command", 2),
     ("before", "send", 2), ("after", "send", 2)],
)  # fmt: skip
def test_run_08_an_answer_that_was_recorded_is_not_asked_for_again(
    bot: Bot, moment: str, kind: str, calls_made: int
) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers("##list_sessions##\n##current_session##", "好")
    alice = bot.person("alice", channel="tg")
    bot.crashes(**{moment: kind})
    alice.says("看看")
    assert alice.hears() == ["好"]
    assert alice.disposition is Disposition.REPLIED
    assert len(bot.stage.model.prompts) == calls_made
    assert bot.model_calls == 2


@pytest.mark.parametrize(("moment", "effects"), [("before", 0), ("after", 1)])
def test_run_08_a_command_with_an_effect_has_it_once_at_most(bot: Bot, moment: str, effects: int) -> None:
    paid: list[str] = []

    @bot.commands.command()
    async def pay(ctx: CommandContext, whom: str) -> str:
        """Pay somebody."""
        paid.append(whom)
        return "paid"

    bot.session("ses_a", "天气机器人")
    bot.answers("##pay:bob##", "付款结果不清楚，请查一下")
    alice = bot.person("alice", channel="tg")
    bot.crashes(**{moment: "command"})
    alice.says("付钱给 bob")
    assert len(paid) == effects
    assert "[pay] 结果不明" in bot.prompt
    assert alice.hears() == ["付款结果不清楚，请查一下"]


def test_run_08_what_an_earlier_command_of_the_reply_changed_is_not_lost_with_a_later_one(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人", active=-60)
    bot.session("ses_b", "weather-api", active=-120)
    done = []

    @bot.commands.command()
    async def slow(ctx: CommandContext) -> str:
        """Something that takes its time."""
        done.append(1)
        await bot.stage.clock.sleep_until(bot.stage.clock.now() + 10)
        return "slow"

    bot.answers("##switch_session:ses_b##\n##slow##\n##current_session##", "换好了")
    alice = bot.person("alice", channel="tg")
    alice.says("换一个", wait_reply=False)
    bot.waits(seconds=5)
    bot.restarts()
    assert alice.hears() == ["换好了"]
    assert done == [1]
    assert (alice.bound, alice.binding) == ("ses_b", "manual")
    for part in ("[switch_session] 已切换到「weather-api」", "[slow] 结果不明", "[current_session] weather-api"):
        assert part in bot.prompt


def test_run_08_a_text_that_was_sent_but_not_recorded_goes_out_again_under_the_same_id(bot: Bot) -> None:
    tried: list[str] = []
    bot.session("ses_a", "天气机器人")
    bot.answers("好")
    alice = bot.person("alice", channel="tg")
    channel = bot.stage.channel

    class Noting:
        sent = channel.sent

        async def send(self, outgoing: Outgoing) -> None:
            tried.append(outgoing.id)
            await channel.send(outgoing)

    bot.stage.channel = Noting()  # type: ignore[assignment]
    bot.restarts()  # the engine takes its channels when it starts
    bot.crashes(after="send")
    alice.says("你好")
    assert alice.hears() == ["好"]
    assert len(tried) == 2
    assert len(set(tried)) == 1


def test_run_08_a_turn_cut_off_a_third_time_is_not_resumed_for_ever(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer("好", takes=100))
    alice = bot.person("alice", channel="tg")
    alice.says("长的", wait_reply=False)
    for cut in range(3):
        assert (alice.state, alice.hears()) == (State.COMMAND_LOOPING, []), cut
        bot.restarts()
    assert alice.hears() == ["抱歉，处理这条消息时程序多次中断，已经放弃。请再发一次。"]
    assert (alice.state, alice.disposition) == (State.IDLE, Disposition.FAILED)
    bot.restarts()
    assert alice.hears() == []


def test_run_08_the_engine_can_be_cut_off_while_it_takes_up_what_was_left(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer("一", takes=10), "二")
    alice = bot.person("alice", channel="tg")
    alice.says("甲", wait_reply=False)
    alice.says("乙", wait_reply=False)
    bot.crashes(before="commit")
    bot.restarts()
    bot.waits(seconds=10)
    assert alice.hears() == ["一", "二"]
