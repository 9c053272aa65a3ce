"""What the log says of silence: nothing where the model chose it, a warning where it had nothing to say."""

from __future__ import annotations

import logging

import pytest

from session_router.scenario.story import Bot, Person

ROOM = "xmpp:team@muc.example"


@pytest.fixture
def hmo(bot: Bot) -> Person:
    """Somebody in a group who writes without a mention, so that no reply is owed."""
    bot.configure(groups={"team@muc.example": {"allow": ["hmo@example.org"]}})
    bot.session("ses_a", "天气机器人")
    return bot.person("hmo@example.org", channel=ROOM, nick="hmo")


def loud(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_SIL_07_silence_that_the_model_chose_leaves_no_warning(
    bot: Bot, hmo: Person, caplog: pytest.LogCaptureFixture
) -> None:
    bot.answers("__SILENT__")

    hmo.says("中午吃什么")

    assert (hmo.hears(), bot.model_calls) == ([], 1)
    assert loud(caplog) == []
    assert "empty_reply" not in bot.counts
    assert bot.counts["silent"] == 1


@pytest.mark.parametrize("nothing", ["", None, "​", "<think>只有思考</think>", "__REPLY__"])
def test_SIL_07_an_empty_answer_where_none_is_owed_is_a_warning_and_is_counted(
    bot: Bot, hmo: Person, caplog: pytest.LogCaptureFixture, nothing: str | None
) -> None:
    bot.answers(nothing)

    hmo.says("中午吃什么")

    assert (hmo.hears(), bot.model_calls) == ([], 1)
    assert len(loud(caplog)) == 1
    assert "empty_reply" in loud(caplog)[0]
    assert bot.counts["empty_reply"] == 1


def test_SIL_07_markers_that_stay_text_are_counted(bot: Bot) -> None:
    bot.answers("静默口令是 __SILENT__，大小写敏感。", "__reply__你好", "今天晴")
    alice = bot.person("alice")

    alice.says("口令是什么")
    assert bot.counts["near_miss"] == 1
    alice.says("你好")
    assert bot.counts["near_miss"] == 2
    alice.says("天气")
    assert bot.counts["near_miss"] == 2


def test_the_typing_indicator_is_cleared_whether_the_model_answers_or_keeps_silent(bot: Bot, hmo: Person) -> None:
    bot.answers("__SILENT__", "__REPLY__在")

    hmo.says("一")
    assert bot.stage.channel.on == {"team@muc.example": False}
    hmo.says("二")
    assert bot.stage.channel.on == {"team@muc.example": False}
