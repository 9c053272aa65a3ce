"""Sessions of our own, end to end: made by a first message, continued, switched, cut off, and gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsm.agent import Agent
from fsm.conversation import Bound, State
from fsm.effects import Disposition
from fsm.events import Choice
from fsm.ports import ChatMessage, ModelError, Reply, SourceError
from session_router.router import SessionRouter
from session_router.scenario.script import Answer as Scripted
from session_router.scenario.story import Bot
from session_router.titles import give_title
from storage.journal import HEADER, JournalFile, JournalSource
from storage.sqlite import SqliteStore
from tests.cli.conftest import Home
from tests.support.fake_llm import Answer, FakeLLM

HERMES = Path(__file__).parents[1] / "fixtures" / "hermes" / "state.db"


@pytest.fixture
def bot(bot: Bot) -> Bot:
    """Nobody has a session yet: the first text makes a journal."""
    return bot.has_no_sessions()


def records(bot: Bot, session: str) -> list[tuple[int, str, str, object]]:
    """(turn, event, id, content or command) of a journal of the bot's, headers left out."""
    loaded = JournalFile(bot.stage.journals.path(session)).load()
    assert loaded.complaints == ()
    return [(one.turn, one.event, one.data["id"], one.data.get("content", one.data.get("name")))
            for one in loaded.records if one.event != HEADER]  # fmt: skip


@contextmanager
def a_bot() -> Iterator[Bot]:
    bot = Bot().has_no_sessions()
    try:
        yield bot
    finally:
        bot.close()


# -- one engine ----------------------------------------------------------------------------------------


def test_a_first_message_makes_a_session_that_is_listed_titled_and_gone_on_with(bot: Bot) -> None:
    bot.answers("一", "二")
    alice = bot.person("alice", channel="tg")
    alice.says("帮我看看天气")
    session = alice.bound
    assert session is not None
    assert session.startswith("ses_")
    assert len(session) == 16
    alice.hears()

    alice.says("/sessions")
    assert "1. 帮我看看天气 · journal" in alice.hears()[0]
    alice.says("取消")
    alice.says("那明天呢")

    assert alice.bound == session
    assert "帮我看看天气" in bot.prompt
    assert "一" in bot.prompt
    assert [record[:2] for record in records(bot, session)] == [
        (1, "turn_start"), (1, "turn_end"), (2, "turn_start"), (2, "turn_end")]  # fmt: skip


def test_new_makes_another_session_and_a_switch_leads_back(bot: Bot) -> None:
    bot.answers("好", "行", "回来了")
    alice = bot.person("alice", channel="tg")
    alice.says("第一件事")
    first = alice.bound
    alice.says("/new 旅行计划")
    alice.says("去哪里")
    second = alice.bound
    alice.hears()
    alice.says("切换到 第一件事")
    assert alice.hears() == ["已切换到「第一件事」（journal）。"]
    alice.says("继续")

    assert first is not None
    assert second is not None
    assert [record[3] for record in records(bot, first)] == ["第一件事", "好", "继续", "回来了"]
    assert [record[3] for record in records(bot, second)] == ["去哪里", "行"]
    assert "去哪里" not in bot.prompt


def test_an_answer_is_in_the_journal_before_the_next_message_is_asked_about(bot: Bot) -> None:
    bot.answers(Scripted("答案是四十二", takes=5), "知道了")
    alice = bot.person("alice", channel="tg")
    alice.says("问题", wait_reply=False)
    alice.says("再说一遍", wait_reply=False)
    bot.waits(seconds=10)

    assert alice.hears() == ["答案是四十二", "知道了"]
    assert "答案是四十二" in bot.prompt


def test_two_people_on_one_session_take_turns_and_each_gets_the_own_answer(bot: Bot) -> None:
    bot.answers("开始", Scripted("给甲", takes=10), Scripted("给乙", takes=10))
    alice, bob = bot.person("alice", channel="tg"), bot.person("bob", channel="xmpp")
    alice.says("开始吧")
    session = alice.bound
    assert session is not None
    alice.hears()
    alice.says("甲的问题", wait_reply=False)
    bob.says("乙的问题", wait_reply=False)
    bot.waits(seconds=5)
    assert (bob.state, bob.bound, bob.hears()) == (State.COMMAND_LOOPING, session, [])
    assert len(bot.stage.model.prompts) == 2, "the second waits for the session"
    bot.waits(seconds=20)

    assert (alice.hears(), bob.hears()) == (["给甲"], ["给乙"])
    assert [record[3] for record in records(bot, session)][2:] == ["甲的问题", "给甲", "乙的问题", "给乙"]
    assert "给甲" in bot.prompt


def test_a_turn_keeps_its_session_whatever_is_chosen_meanwhile(bot: Bot) -> None:
    bot.answers("一", "二", Scripted("三", takes=10))
    alice = bot.person("alice", channel="tg")
    alice.says("甲")
    first = alice.bound
    alice.says("/new 另一个")
    alice.says("乙")
    second = alice.bound
    alice.says("还是乙", wait_reply=False)
    assert first is not None
    assert second is not None
    info = bot._do(bot.stage.journals.find(first))
    assert info is not None

    choice = Choice(Bound(info.id, "manual", info.title, info.source))

    async def choose() -> None:
        bot.stage.engine.rebind(alice.key, choice)

    bot._do(choose())
    bot.waits(seconds=10)

    assert alice.bound == first
    assert [record[3] for record in records(bot, second)] == ["乙", "二", "还是乙", "三"]
    assert len(records(bot, first)) == 2


def test_a_chosen_session_that_has_vanished_is_said_and_not_replaced(bot: Bot) -> None:
    bot.answers("一", "二")
    alice = bot.person("alice", channel="tg")
    alice.says("甲")
    alice.says("/new 会不见的")
    alice.hears()
    assert alice.bound is not None
    bot.stage.journals.path(alice.bound).unlink()
    alice.says("还在吗")

    assert alice.hears() == ["你选的会话「会不见的」已经不在了。发送 /sessions 另选一个，或 /auto 恢复自动绑定。"]
    assert len(bot.stage.model.prompts) == 1
    alice.says("/auto")
    alice.hears()
    alice.says("那这个呢")
    assert alice.hears() == ["二"]


def test_a_session_that_vanishes_while_a_turn_waits_for_it_is_said_too(bot: Bot) -> None:
    bot.answers("一", Scripted("甲的", takes=10), "不该问的")
    alice, bob = bot.person("alice", channel="tg"), bot.person("bob", channel="xmpp")
    alice.says("开始")
    session = alice.bound
    assert session is not None
    alice.hears()
    alice.says("甲", wait_reply=False)
    bob.says("乙", wait_reply=False)
    bot.stage.journals.path(session).unlink()
    bot.waits(seconds=20)

    assert alice.hears() == ["甲的"], "what was asked already is answered"
    assert bob.hears() == ["会话「开始」在处理时不见了，所以没有回答。发送 /sessions 另选一个，或 /auto 恢复自动绑定。"]
    assert bob.disposition is Disposition.FAILED
    assert not bot.stage.journals.path(session).exists(), "no record brings it back"


def test_a_message_that_was_stopped_before_it_had_the_session_leaves_nothing_there(bot: Bot) -> None:
    bot.answers("一", Scripted("甲的", takes=10))
    alice, bob = bot.person("alice", channel="tg"), bot.person("bob", channel="xmpp")
    alice.says("开始")
    session = alice.bound
    assert session is not None
    alice.says("甲", wait_reply=False)
    bob.says("乙", wait_reply=False)
    bob.says("/stop")
    bot.waits(seconds=20)

    assert [record[3] for record in records(bot, session)] == ["开始", "一", "甲", "甲的"]


def test_a_record_waits_for_as_long_as_its_journal_cannot_be_written(bot: Bot) -> None:
    bot.answers("一", "二")
    alice = bot.person("alice", channel="tg")
    alice.says("开始")
    session = alice.bound
    assert session is not None
    take = bot.stage.journals.take_record
    refused: list[float] = []

    async def refuse(*args: Any, **named: Any) -> None:
        refused.append(bot.stage.clock.now())
        raise SourceError("the disk is full", kind="unreadable", source="journal")

    bot.stage.journals.take_record = refuse  # type: ignore[method-assign]
    alice.says("继续")
    assert alice.hears() == ["一", "二"], "the answer does not wait for the disk"
    bot.waits(hours=1)
    assert len(refused) > 20, "far more often than a text is tried"
    assert len(records(bot, session)) == 2
    bot.stage.journals.take_record = take  # type: ignore[method-assign]
    bot.waits(minutes=2)

    assert [record[3] for record in records(bot, session)] == ["开始", "一", "继续", "二"]


def test_tokens_of_an_answer_that_was_asked_for_again_are_counted(bot: Bot) -> None:
    bot.answers(Scripted("", input_tokens=100, output_tokens=1), Scripted("好", input_tokens=110, output_tokens=7))
    alice = bot.person("alice", channel="tg")
    alice.says("在吗")
    assert alice.bound is not None

    loaded = JournalFile(bot.stage.journals.path(alice.bound)).load()
    (end,) = [one for one in loaded.records if one.event == "turn_end"]
    assert (end.data["usage"]["input_tokens"], end.data["usage"]["output_tokens"]) == (210, 8)


def _story(bot: Bot) -> tuple[list[tuple[int, str, str, object]], list[str]]:
    """Two turns in one session, a command in the first: its journal and what was heard."""
    bot.answers("##current_session##", "好", "又好")
    alice = bot.person("alice", channel="tg")
    alice.says("看看", wait_reply=False)
    alice.says("还有")
    bot.settles()
    assert alice.bound is not None
    return records(bot, alice.bound), alice.hears()


def test_a_crash_at_any_moment_leaves_the_journal_whole_with_every_record_once() -> None:
    with a_bot() as bot:
        plain, heard = _story(bot)
        moments = [(kind, when, which) for (kind, when), many in sorted(bot.stage.touches.items())
                   for which in range(1, many + 1)]  # fmt: skip
    assert [event for _, event, _, _ in plain] == ["turn_start", "tool_call", "tool_result", "turn_end",
                                                   "turn_start", "turn_end"]  # fmt: skip
    assert sum(kind == "send" for kind, _, _ in moments) == 2 * (6 + 2), "records go the way of texts"
    for kind, when, which in moments:
        with a_bot() as bot:
            bot.stage.crash(kind, when, which)
            found, said = _story(bot)
            # A command that was cut off is not run again, and its result says so.
            found = [plain[at] if "结果不明" in str(record[3]) else record for at, record in enumerate(found)]
            assert found == plain, (kind, when, which)
            assert said == heard, (kind, when, which)
            assert bot.stage.restarts == 1


# -- several sources -----------------------------------------------------------------------------------


class Echo:
    """Says what it was told, and gives titles."""

    name = "echo-1"

    def __init__(self, title: str | None = None) -> None:
        self.title = title
        self.asked: list[str] = []

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        return Reply("echo: " + messages[-1]["content"].splitlines()[-1], 10, 2)

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        self.asked.append(messages[-1]["content"])
        if self.title is None:
            raise ModelError("no titles today")
        return Reply(self.title)

    async def stream(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> AsyncIterator[str | Reply]:
        yield await self.complete(messages, session_id=session_id)

    async def close(self) -> None:
        pass


OPEN = Agent(name="mohe", language="en", allow=frozenset({"*"}))


def router_over(folder: Path, model: Echo, *sources: JournalSource) -> SessionRouter:
    return SessionRouter(bridge=model, store=SqliteStore(folder / "engine.db"), agent=OPEN, sources=sources)


@pytest.mark.parametrize(("title", "shown"), [("“Weather in Berlin.”\n", "Weather in Berlin"), (None, "how is it?")])
async def test_a_model_may_give_a_title_after_the_first_turn_and_its_failure_changes_nothing(
    tmp_path: Path, title: str | None, shown: str
) -> None:
    model, source = Echo(title), JournalSource(tmp_path / "sessions")
    source.ended = partial(give_title, source, model)
    async with router_over(tmp_path, model, source) as router:
        for number, text in enumerate(("how is it?", "and now?"), start=1):
            await router.route("xmpp", "hmo", text, message_id=f"m{number}")
            await router.engine.drain()
            await asyncio.gather(*source._beside)

        (session,) = await source.list()
        assert session.title == shown
        assert len(model.asked) == 1, "the second turn asks for no title"
        assert model.asked == ["user: how is it?\nassistant: echo: [xmpp] how is it?"]


async def test_one_id_in_two_sources_is_one_session_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(JournalSource):
        name = "other"

    first, second = JournalSource(tmp_path / "a"), Other(tmp_path / "b")
    await first.create("the first one", session_id="ses_same", at=10.0)
    await second.create("the second one", session_id="ses_same", at=90.0)
    await second.create("only there", session_id="ses_only", at=50.0)
    async with router_over(tmp_path, Echo(), first, second) as router:
        for number in range(2):
            listed = await router.route("xmpp", "hmo", "/sessions", message_id=f"l{number}")
            assert listed is not None
            titles = [line.partition(" · ")[0] for line in listed.splitlines()[1:3]]
            assert titles == ["1. only there", "2. the first one"]
            await router.route("xmpp", "hmo", "cancel", message_id=f"c{number}")
        bound = (await router.binding("xmpp", "hmo")).bound

    assert bound is not None
    assert (bound.session, bound.source) != ("ses_same", "other")
    (warning,) = [record.message for record in caplog.records if "left out" in record.message]
    assert warning.startswith("other has a session with the id ses_same, which is one of journal already")


def test_sessions_of_opencode_hermes_and_our_own_stand_in_one_list_each_with_its_source(
    home: Home, llm: FakeLLM
) -> None:
    shutil.copy(HERMES, home.folder / "state.db")
    (home.folder / "session-router.toml").write_text(
        'language = "en"\n[sources]\nhermes = "state.db"\n[limits]\nsession_list_limit = 100\n'
    )
    llm.answers = deque(Answer(f"answer {number}") for number in range(9))

    done = home.run("chat", input="\n".join([
        "/new trip to the sea", "hello", "/sessions", "switch to session Refactor the parser", "how far is it?",
        "switch to session files work", "and this?", "switch to session trip to the sea", "back again",
    ]) + "\n")  # fmt: skip

    out = done.stdout.splitlines()
    assert out[0] == "Now talking to “trip to the sea” (journal)."
    sources = {line.split(" · ")[1] for line in out if re.match(r"\d+\. ", line)}
    assert sources == {"opencode", "hermes", "journal"}
    assert "1. trip to the sea · journal · just now ← current" in out
    assert "Now talking to “Refactor the parser” (opencode)." in out
    assert "Now talking to “files work” (hermes)." in out
    assert out[-2:] == ["Now talking to “trip to the sea” (journal).", "answer 3"]
    (journal,) = [each for each in json.loads(home.run("sessions", "--json").stdout) if each["source"] == "journal"]
    lines = json.loads(home.run("context", journal["id"], "--json").stdout)["lines"]
    assert [line["text"] for line in lines] == ["hello", "answer 0", "back again", "answer 3"]


# -- a real process ------------------------------------------------------------------------------------


def kill_in_mid_turn(home: Home, llm: FakeLLM, *said: str) -> None:
    """A ``chat`` that is killed while the model is asked about the last of these."""
    llm.asked.clear()
    with subprocess.Popen(
        home.command("chat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.env,
        cwd=home.folder,
    ) as chat:  # fmt: skip
        assert chat.stdin is not None
        assert chat.stdout is not None
        for text in said[:-1]:
            chat.stdin.write(text.encode() + b"\n")
            chat.stdin.flush()
            assert chat.stdout.readline()
        llm.asked.clear()
        chat.stdin.write(said[-1].encode() + b"\n")
        chat.stdin.flush()
        assert llm.asked.wait(30)
        os.kill(chat.pid, signal.SIGKILL)
        chat.wait(30)


def test_a_chat_killed_in_mid_turn_is_said_by_the_next_one_which_goes_on(home: Home, llm: FakeLLM) -> None:
    home.env["OPENCODE_DB"] = "/nowhere/opencode.db"
    config = home.folder / "session-router.toml"
    config.write_text('language = "en"\n[limits]\nmax_loops = 7\n')
    llm.answers = deque([Answer("first answer"), Answer(hang=True)])
    kill_in_mid_turn(home, llm, "plan the trip", "and the hotel")

    listed = json.loads(home.run("sessions", "--source", "journal", "--json").stdout)
    assert [each["title"] for each in listed] == ["plan the trip"]
    shown = json.loads(home.run("journal", "show", listed[0]["id"], "--json").stdout)
    assert shown["currentTurnStartedAt"] is not None
    assert shown["interruptedTurn"]["turn"] == 2
    assert (shown["turnCount"], shown["totalTokens"]) == (2, {"input": 120, "output": 7})
    assert shown["config"] == {"model": "fake-1", "maxTurns": 7, "maxTokensPerTurn": 4096}
    assert shown["configDifference"] == []

    config.write_text('language = "en"\n[limits]\nmax_loops = 5\n')
    shown = json.loads(home.run("journal", "show", listed[0]["id"], "--json").stdout)
    assert shown["configDifference"] == [{"field": "maxTurns", "was": 7, "now": 5}]
    llm.answers = deque([Answer("the hotel is booked"), Answer("here I am")])
    again = home.run("chat", input="still there?\n")

    assert "“plan the trip” was cut off in the middle of turn 2" in again.stderr
    assert "it is taken up again now" in again.stderr
    assert "“plan the trip” runs with other settings than the last time: maxTurns 7 → 5." in again.stderr
    assert again.stdout.splitlines() == ["the hotel is booked", "here I am"]
    prompt = llm.requests[-1]["messages"][-1]["content"]
    assert "first answer" in prompt
    assert "the hotel is booked" in prompt
    shown = json.loads(home.run("journal", "show", listed[0]["id"], "--json").stdout)
    assert (shown["turnCount"], shown["currentTurnStartedAt"], shown["interruptedTurn"]) == (3, None, None)
    assert [message["content"] for message in shown["messages"]] == [
        "plan the trip", "first answer", "and the hotel", "the hotel is booked", "still there?", "here I am",
    ]  # fmt: skip
    assert home.run("journal", "check", listed[0]["id"]).returncode == 0
    quiet = home.run("chat", input="/status\n")
    assert "cut off" not in quiet.stderr
    assert "other settings" not in quiet.stderr


def test_a_session_that_nobody_goes_on_with_is_said_when_it_is_bound(home: Home, llm: FakeLLM) -> None:
    home.env["OPENCODE_DB"] = "/nowhere/opencode.db"
    (home.folder / "session-router.toml").write_text('language = "en"\n')
    llm.answers = deque([Answer(hang=True)])
    kill_in_mid_turn(home, llm, "an old question")
    home.store.unlink()  # the engine's own memory is lost; the journal is not
    llm.answers = deque([Answer("new answer"), Answer("the other one")])

    done = home.run("chat", input="/new something else\nhello\nswitch to session an old question\nagain\n")

    said = [line for line in done.stderr.splitlines() if "cut off" in line]
    assert len(said) == 1, "once for each session"
    assert "so say it again if it still matters" in said[0]
    assert done.stdout.splitlines()[-1] == "the other one"


def test_without_any_agent_the_chat_goes_on_with_the_newest_session(home: Home, llm: FakeLLM) -> None:
    home.env["OPENCODE_DB"] = "/nowhere/opencode.db"
    home.run("chat", input="the first talk\n")
    home.run("chat", input="/new the second talk\nhi\n")

    done = home.run("chat", input="/status\n")

    assert "[idle · the second talk (journal, " in done.stderr
    listed = json.loads(home.run("sessions", "--json").stdout)
    assert [(each["title"], each["source"]) for each in listed] == [
        ("the second talk", "journal"), ("the first talk", "journal")]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def llm(home: Home) -> Iterator[FakeLLM]:
    with FakeLLM() as fake:
        home.talks_to(fake)
        yield fake
