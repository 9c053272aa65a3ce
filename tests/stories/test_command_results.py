"""What commands give the model has an end, however many there are and whatever they hold."""

from __future__ import annotations

import argparse
import asyncio
from typing import NoReturn

import pytest

from fsm.commands.registry import RESULT_CHARS, ROUND_CHARS, CommandContext
from fsm.conversation import Command
from fsm.language.texts import say
from session_router.scenario.story import Bot


def read_by_the_model(bot: Bot) -> str:
    """The command results in the last prompt."""
    return bot.stage.model.prompts[-1][-1]["content"]


def test_two_hundred_histories_in_one_reply_fit_a_prompt(bot: Bot) -> None:
    bot.session("ses_a", "天气机器人", said=[("user", "早" * 100), ("assistant", "好" * 100)] * 100)
    alice = bot.person("alice")
    bot.answers("##context:200##\n" * 200, "看完了")
    alice.says("看看")
    assert alice.hears() == ["看完了"]
    results = read_by_the_model(bot)
    assert len(results) < ROUND_CHARS + 200 * len("\n\n[context] …") + 500
    assert results.count("后面的都略去") == 1
    assert results.rstrip().endswith("[context] …")


def test_one_result_too_long_is_cut_with_a_note_and_the_next_is_whole(bot: Bot) -> None:
    @bot.commands.command()
    async def flood(ctx: CommandContext) -> str:
        """A great deal."""
        return "水" * 1_000_000

    alice = bot.person("alice")
    bot.answers("##flood##\n##current_session##", "好")
    alice.says("来")
    assert alice.hears() == ["好"]
    first, second = read_by_the_model(bot).removeprefix("（系统）命令结果：\n").split("\n\n")
    assert first.startswith("[flood] 水水")
    assert f"只给出前 {RESULT_CHARS} 个" in first
    assert len(first) < RESULT_CHARS + 100
    assert "天气机器人" in second


def test_of_a_long_history_the_newest_lines_are_given(bot: Bot) -> None:
    said = [("user", f"第{n}句" + "话" * 400) for n in range(100)]
    bot.session("ses_a", "天气机器人", said=said)
    bot.configure(context_chars=1_000_000)
    alice = bot.person("alice")
    bot.answers("##context:200##", "好")
    alice.says("看看")
    results = read_by_the_model(bot)
    assert "第99句" in results
    assert "第0句" not in results
    assert "只给出前" not in results


def test_the_use_of_commands_is_explained_once_in_a_reply_and_again_in_the_next(bot: Bot) -> None:
    alice = bot.person("alice")
    bot.answers("##dummy##\n##dummy2##\n##switch_session##\n##switch_session:##", "##dummy##\n##switch_session##", "好")
    alice.says("来")
    assert alice.hears() == ["好"]
    first, second = (prompt[-1]["content"] for prompt in bot.stage.model.prompts[1:])
    assert "没有名为 dummy2 的命令" in first
    for results in (first, second):
        assert results.count("可用的命令：") == 1
        assert results.count("用法：switch_session:SESSION") == 1


def test_a_name_without_end_is_not_said_back_whole(bot: Bot) -> None:
    alice = bot.person("alice")
    bot.answers("##" + "x" * 100_000 + "##", "好")
    alice.says("来")
    assert alice.hears() == ["好"]
    assert len(read_by_the_model(bot)) < 2_000


class Panics(BaseException):
    """What a library in another language raises."""


def parse_arguments() -> NoReturn:
    argparse.ArgumentParser().parse_args(["--unknown"])
    raise AssertionError


def raiser(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    "error",
    [None, Panics("at the disco"), BaseExceptionGroup("both", [Panics()]), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__ if error else "SystemExit",
)
def test_whatever_a_command_raises_is_a_failed_command_and_the_turn_goes_on(
    bot: Bot, error: BaseException | None
) -> None:
    @bot.commands.command()
    async def boom(ctx: CommandContext) -> str:
        """Fails in its own way."""
        raiser(error) if error is not None else parse_arguments()

    alice = bot.person("alice")
    bot.answers("##boom##\n##current_session##", "没成")
    alice.says("来")
    assert alice.hears() == ["没成"]
    first, second = read_by_the_model(bot).removeprefix("（系统）命令结果：\n").split("\n\n")
    assert first == say("zh", "command_failed", name="boom")
    assert "天气机器人" in second


def test_ctrl_c_within_a_command_is_no_failure_of_the_command(bot: Bot) -> None:
    contexts: list[CommandContext] = []

    @bot.commands.command()
    async def look(ctx: CommandContext) -> str:
        """Keeps the context of a turn."""
        contexts.append(ctx)
        return ""

    @bot.commands.command()
    async def boom(ctx: CommandContext) -> str:
        """Is interrupted."""
        raise KeyboardInterrupt

    alice = bot.person("alice")
    bot.answers("##look##", "好")
    alice.says("来")
    running = bot.commands.run(Command("boom", None), contexts[0])
    with pytest.raises(KeyboardInterrupt):
        running.send(None)
