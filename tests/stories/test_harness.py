"""Frozen time does not freeze the event loop: nothing sleeps, and time stops at every due moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from freezegun import freeze_time

from fsm.conversation import State
from session_router.scenario.script import Answer
from session_router.scenario.story import Bot


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every ``asyncio.sleep`` that anybody calls."""
    taken: list[float] = []
    sleep = asyncio.sleep

    async def counted(delay: float, result: object = None) -> object:
        taken.append(delay)
        return await sleep(delay, result)

    monkeypatch.setattr(asyncio, "sleep", counted)
    return taken


@pytest.fixture
def stopwatch() -> Iterator[None]:
    """The story takes at most two seconds of real time."""
    began = time.perf_counter()
    yield
    assert time.perf_counter() - began < 2


@pytest.mark.usefixtures("stopwatch")
def test_TMR_02_two_minutes_of_a_list_take_no_time_and_no_sleep(bot: Bot, naps: list[float]) -> None:
    bot.session("ses_a", "天气机器人", active=-60)
    bot.session("ses_b", "weather-api", active=-120)
    bot.session("ses_c", "博客 weather 草稿", active=-300)
    bot.answers("普通回答")
    alice = bot.person("u1", channel="tg")

    alice.says("切换到weather")
    bot.waits(seconds=120.001)
    alice.says("2")

    assert (alice.state, alice.bound, bot.model_calls) == (State.IDLE, "ses_a", 1)
    assert naps == []


@pytest.mark.usefixtures("stopwatch")
def test_TMR_02_a_model_that_never_answers_takes_no_time_and_no_sleep(bot: Bot, naps: list[float]) -> None:
    bot.configure(turn_timeout=60)
    bot.answers(Answer(hang=True), "二好了", Answer(hang=True), "三好了")
    alice = bot.person("u1", channel="tg")

    alice.says("a", wait_reply=False)
    bot.waits(seconds=30)
    alice.says("b")
    assert alice.hears() == ["Sorry, this took longer than 60 s and was given up. Please try again.", "二好了"]
    bot.waits(seconds=40)
    alice.says("c", wait_reply=False)
    alice.says("/stop")
    alice.says("d")

    assert alice.hears() == ["已停止。", "三好了"]
    assert alice.state is State.IDLE
    assert naps == []


def test_TMR_02_the_counter_of_sleeps_does_count(naps: list[float]) -> None:
    asyncio.run(asyncio.sleep(0))

    assert naps == [0]


def three_timers_in_one_hour(bot: Bot) -> list[tuple[str, float]]:
    """What three people were sent while an hour passed in one go, and when."""
    bot.session("ses_a", "天气机器人")
    bot.configure(turn_timeout=300)
    bot.answers(Answer(hang=True))
    start = bot.stage.start_at
    alice, bob, carol = (bot.person(name, channel="tg") for name in ("alice", "bob", "carol"))
    bob.says("想一想", wait_reply=False)
    bot.waits(seconds=10)
    carol.says("/sessions")
    bot.waits(seconds=10)
    alice.says("/sessions")
    sent = len(bot.stage.channel.sent)

    bot.waits(hours=1)

    return [(text.to, round(text.at - start, 3)) for text in bot.stage.channel.sent[sent:]]


def test_TMR_02_an_hour_in_one_step_fires_three_timers_in_due_order_each_at_its_time(bot: Bot) -> None:
    assert three_timers_in_one_hour(bot) == [("carol", 130), ("alice", 140), ("bob", 300)]


def test_TMR_02_the_same_on_a_clock_that_freezegun_moves() -> None:
    with freeze_time("2026-01-15T08:00:00Z", real_asyncio=True):
        bot = Bot()
        try:
            assert three_timers_in_one_hour(bot) == [("carol", 130), ("alice", 140), ("bob", 300)]
        finally:
            bot.close()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_wait_that_is_no_time_is_refused_and_no_time_passes(bot: Bot, seconds: float) -> None:
    with pytest.raises(ValueError, match="time passes forwards"):
        bot.waits(seconds=seconds)

    assert bot.stage.elapsed() == 0


def test_a_crash_that_could_never_strike_is_refused(bot: Bot) -> None:
    for wrong in ({}, {"before": "sent"}, {"before": "send", "after": "send"}):
        with pytest.raises(ValueError, match="of model, command, send or commit"):
            bot.crashes(**wrong)

    assert bot.stage.armed is None
