"""What the log says when the model fails: enough to help, and no secret."""

from __future__ import annotations

import logging

import pytest

from fsm.conversation import State
from fsm.effects import Disposition
from session_router.scenario.script import Answer
from session_router.scenario.story import Bot

SECRETIVE = "401 invalid x-api-key sk-abc123 request_id=req_1"


def test_run_05_the_log_has_the_request_id_and_lacks_the_key(bot: Bot, caplog: pytest.LogCaptureFixture) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer(error=SECRETIVE))
    alice = bot.person("alice", channel="tg")
    with caplog.at_level(logging.DEBUG):
        alice.says("你好")
    assert "req_1" in caplog.text
    assert "sk-abc123" not in caplog.text
    (heard,) = alice.hears()
    for internal in ("sk-abc123", "req_1", "Traceback", "401"):
        assert internal not in heard
    assert alice.state is State.IDLE


def test_run_05_a_failure_in_a_group_is_an_error_in_the_log_and_no_text(
    bot: Bot, caplog: pytest.LogCaptureFixture
) -> None:
    bot.configure(groups={"r@muc.example": {"allow": ["alice@example.org"]}})
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer(error="500"))
    alice = bot.person("alice@example.org", channel="xmpp:r@muc.example", nick="Alice")
    alice.says("大家早")
    assert alice.hears() == []
    assert (alice.state, alice.disposition) == (State.IDLE, Disposition.FAILED)
    assert any(record.levelno == logging.ERROR for record in caplog.records)


def test_run_05_an_empty_answer_where_none_is_owed_is_a_warning(bot: Bot, caplog: pytest.LogCaptureFixture) -> None:
    bot.configure(groups={"r@muc.example": {"allow": ["alice@example.org"]}})
    bot.session("ses_a", "天气机器人")
    bot.answers("")
    alice = bot.person("alice@example.org", channel="xmpp:r@muc.example", nick="Alice")
    alice.says("大家早")
    assert alice.hears() == []
    assert bot.counts["empty_reply"] == 1
    assert [record.levelno for record in caplog.records if "empty_reply" in record.message] == [logging.WARNING]


def test_run_05_a_bridge_that_raises_anything_at_all_is_a_failed_call(bot: Bot) -> None:
    class Raising:
        async def chat(self, messages: object, *, session_id: str) -> str:
            raise KeyError("choices")

    bot.session("ses_a", "天气机器人")
    alice = bot.person("alice", channel="tg")
    bot.stage.desk.bridge = Raising()
    alice.says("你好")
    assert alice.hears() == ["抱歉，模型暂时没有回应，请稍后再试。"]
    assert alice.disposition is Disposition.FAILED


@pytest.mark.parametrize("answer", [Answer(error="boom"), Answer(""), Answer("__SILENT__"), Answer("好")])
def test_run_05_the_typing_indicator_is_cleared_on_every_way_out(bot: Bot, answer: Answer) -> None:
    bot.session("ses_a", "天气机器人")
    bot.answers(Answer("", takes=5), answer) if answer.text is not None else bot.answers(answer)
    alice = bot.person("alice", channel="tg")
    alice.says("你好", wait_reply=False)
    bot.waits(seconds=6)
    assert len(alice.hears()) == 1
    assert bot.stage.channel.on == {"alice": False}
