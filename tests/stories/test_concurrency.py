"""What happens when several things happen at once, as stories."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from fsm.commands.registry import CommandContext
from fsm.conversation import State
from fsm.effects import Disposition
from fsm.ports import ChatMessage, Reply
from session_router.scenario.script import Answer
from session_router.scenario.story import Bot


class Counting:
    """A bridge that counts how many calls are made at the same time."""

    def __init__(self, bot: Bot) -> None:
        self._model = bot.stage.model
        self.now = self.most = 0

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply | None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._model.chat(messages, session_id=session_id)
        finally:
            self.now -= 1


class Deaf:
    """A bridge that does not stop when it is cancelled, and answers in spite of it."""

    def __init__(self, bot: Bot) -> None:
        self._clock = bot.stage.clock

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await self._clock.sleep_until(float("inf"))
        return "迟到的答案"


def test_run_01_a_burst_of_one_person_never_has_two_model_calls_at_once_and_is_answered_in_order(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(*(Answer(f"答{n}", takes=0.01) for n in range(20)))
    bot.stage.desk.bridge = counting = Counting(bot)
    alice = bot.person("alice", channel="tg")
    for n in range(20):
        alice.says("n", id=f"m{n}", wait_reply=False)
    bot.waits(seconds=1)
    assert counting.most == 1
    assert alice.hears() == [f"答{n}" for n in range(20)]
    assert [sent.id.rpartition("/")[2].partition(".")[0] for sent in bot.stage.channel.sent] == [
        f"m{n}" for n in range(20)
    ]


def test_run_01_two_people_on_two_sessions_are_answered_side_by_side(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人", active=-60)
    bot.session("ses_b", "weather-api", active=-120)
    bot.answers(Answer("慢好了", takes=60), Answer("快好了", takes=1))
    bot.stage.desk.bridge = counting = Counting(bot)
    alice, bob = bot.person("alice", channel="tg"), bot.person("bob", channel="tg")
    bob.says("切换到weather-api")
    bob.hears()
    alice.says("慢", wait_reply=False)
    bob.says("快", wait_reply=False)
    assert counting.most == 2
    bot.waits(seconds=1)
    assert (bob.hears(), alice.hears()) == (["快好了"], [])
    bot.waits(seconds=59)
    assert alice.hears() == ["慢好了"]


def test_run_01_two_people_on_one_session_never_have_two_calls_at_once(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer("先", takes=5), Answer("后", takes=5))
    bot.stage.desk.bridge = counting = Counting(bot)
    alice, bob = bot.person("alice", channel="tg"), bot.person("bob", channel="tg")
    alice.says("一", wait_reply=False)
    bob.says("二", wait_reply=False)
    bot.waits(seconds=10)
    assert counting.most == 1
    assert (alice.hears(), bob.hears()) == (["先"], ["后"])


def test_run_03_an_answer_that_comes_after_its_turn_was_given_up_does_nothing(bot: Bot) -> None:
    bot.configure(turn_timeout=60)
    bot.session("ses_a", "天气机器人")
    alice = bot.person("alice", channel="tg")
    model, bot.stage.desk.bridge = bot.stage.model, Deaf(bot)
    alice.says("问", wait_reply=False)
    bot.waits(seconds=60)
    assert alice.hears() == ["抱歉，这次处理超过了 60 秒，已经停下。请再试一次。"]
    assert alice.state is State.IDLE
    assert alice.disposition is Disposition.FAILED
    journal, stale = bot.stage.journal("ses_a"), bot.counts["stale"]
    assert journal == ["turn_start", "turn_end"]
    assert stale == 1, "the late answer came, and was told from one that is awaited"
    bot.waits(minutes=30)
    assert alice.hears() == []
    bot.stage.desk.bridge = model
    bot.answers("好")
    alice.says("再问")
    assert alice.hears() == ["好"]
    assert "迟到的答案" not in bot.prompt


def test_run_03_a_call_whose_task_is_cancelled_by_somebody_else_has_failed(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer(hang=True), "三好了")
    alice = bot.person("alice", channel="tg")
    alice.says("问 c", wait_reply=False)
    ((job,),) = bot.stage.engine._turns._jobs.values()
    assert job.task is not None
    job.task.cancel()
    bot.settles()
    assert alice.state is State.IDLE
    assert alice.hears() == ["抱歉，模型暂时没有回应，请稍后再试。"]
    assert alice.disposition is Disposition.FAILED
    alice.says("问 d")
    assert alice.hears() == ["三好了"]


def test_run_03_a_command_that_comes_out_as_cancelled_is_a_failed_command(bot: Bot) -> None:
    @bot.commands.command()
    async def fetch(ctx: CommandContext) -> str:
        """Fetch a page with a client that has its own idea of cancelling."""
        raise asyncio.CancelledError

    bot.session("ses_a", "天气机器人")
    bot.answers("##fetch##", "没拿到")
    alice = bot.person("alice", channel="tg")
    alice.says("拿网页")
    assert alice.hears() == ["没拿到"]
    assert "[fetch] 执行失败" in bot.prompt


def test_run_03_a_command_that_hangs_is_stopped_and_the_turn_goes_on(bot: Bot) -> None:
    bot.configure(command_timeout=20)

    @bot.commands.command()
    async def fetch(ctx: CommandContext) -> str:
        """Fetch a page from a server that never answers."""
        await bot.stage.clock.sleep_until(float("inf"))
        return "never"

    bot.session("ses_a", "天气机器人")
    bot.answers("##fetch##", "没拿到")
    alice = bot.person("alice", channel="tg")
    alice.says("拿网页", wait_reply=False)
    bot.waits(seconds=19.999)
    assert alice.hears() == []
    bot.waits(seconds=0.001)
    assert alice.hears() == ["没拿到"]
    assert "[fetch] 超过 20 秒" in bot.prompt


def test_run_03_a_command_that_takes_no_notice_of_its_time_does_not_use_up_that_of_the_next(bot: Bot) -> None:
    bot.configure(command_timeout=20)

    @bot.commands.command()
    async def doze(ctx: CommandContext) -> str:
        """Sleep, and grumble when woken."""
        with contextlib.suppress(asyncio.CancelledError):
            await bot.stage.clock.sleep_until(float("inf"))
        return "grumble"

    @bot.commands.command()
    async def fetch(ctx: CommandContext) -> str:
        """Fetch a page from a server that never answers."""
        await bot.stage.clock.sleep_until(float("inf"))
        return "never"

    bot.session("ses_a", "天气机器人")
    bot.answers("##doze##\n##fetch##", "没拿到")
    alice = bot.person("alice", channel="tg")
    alice.says("拿网页", wait_reply=False)
    bot.waits(seconds=20)
    bot.waits(seconds=20)
    assert alice.hears() == ["没拿到"]
    assert "grumble" in bot.prompt
    assert "[fetch] 超过 20 秒" in bot.prompt


def test_run_04_a_session_chosen_from_outside_does_not_move_the_running_turn(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人", active=-60, said=[("user", "甲"), ("assistant", "好")])
    bot.session("ses_b", "weather-api", active=-120, said=[("user", "乙"), ("assistant", "好")])
    bot.answers(Answer("答 a", takes=10), "答 b")
    alice = bot.person("alice", channel="tg")
    alice.says("问 a", wait_reply=False)
    assert alice.bound == "ses_a"
    bot.waits(seconds=6)
    alice.is_bound_to("ses_b")
    assert (alice.bound, alice.binding, alice.state) == ("ses_b", "manual", State.COMMAND_LOOPING)
    bot.waits(seconds=4)
    assert alice.hears() == ["答 a"]
    assert alice.bound == "ses_b", "the turn does not write back what was bound when it began"
    assert (bot.stage.journal("ses_a"), bot.stage.journal("ses_b")) == (["turn_start", "turn_end"], [])
    alice.says("问 b")
    assert alice.hears() == ["答 b"]
    assert bot.stage.journal("ses_b") == ["turn_start", "turn_end"]
    assert "用户: 乙" in bot.prompt
    assert "答 a" not in bot.prompt


def test_run_01_a_queued_message_over_which_the_program_errs_fails_and_the_next_is_answered(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer("一", takes=10), "三")
    alice = bot.person("alice", channel="tg")
    alice.says("甲", wait_reply=False)
    alice.says("乙", wait_reply=False)

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw this")

    desk = bot.stage.desk
    desk.binding = broken  # type: ignore[method-assign,assignment]
    bot.waits(seconds=10)
    assert alice.hears() == ["一", "抱歉，程序处理这条消息时出错了，请再试一次。"]
    assert alice.disposition is Disposition.FAILED
    del desk.binding
    alice.says("丙")
    assert alice.hears() == ["三"]
    bot.restarts()
    assert alice.hears() == []
    assert bot.model_calls == 2
