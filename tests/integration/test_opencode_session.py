"""A day with OpenCode in the chat: the whole engine over the server of the real OpenCode, with a fake model behind it.

With ``-s`` the conversation is printed as it happens.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from fsm.agent import Agent
from fsm.effects import Disposition
from fsm.ports import ChatMessage, Outgoing, Reply
from fsm.runner import Receipt
from session_router.config import load
from session_router.doctor import Finding, examine
from session_router.router import SessionRouter
from session_router.sources import sources_of
from storage.opencode import OpenCodeSessions
from storage.sqlite import SqliteStore
from tests.support.fake_agent_llm import FakeAgentLLM
from tests.support.opencode import MODEL, PASSWORD, VERSION, OpenCode
from tests.support.running import GatedLLM, World

# The fixtures' time does not count: on a machine's first run they download OpenCode.
pytestmark = pytest.mark.timeout(120, func_only=True)

ASK_TIMEOUT = 3
BASH_ASKS = {"permission": {"bash": "ask"}}


class OurModel:
    """The model of ours, which answers where OpenCode cannot."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> Reply:
        self.prompts.append(messages[-1]["content"])
        return Reply("I am only the model beside OpenCode.")


class Room:
    """People who write and read, each on a channel of the own; what is said stands in ``script``."""

    def __init__(self) -> None:
        self.router: SessionRouter
        self.examine: Callable[[], Awaitable[list[Finding]]]
        self.script: list[str] = []
        self.heard: dict[str, list[str]] = {}
        self._news = asyncio.Condition()
        self._count = 0

    async def send(self, outgoing: Outgoing) -> None:
        async with self._news:
            self.heard.setdefault(outgoing.to, []).append(outgoing.text)
            self.note(outgoing.to, "«", outgoing.text)
            self._news.notify_all()

    def note(self, who: str, mark: str, text: str) -> None:
        for number, line in enumerate(text.splitlines()):
            self.script.append(f"{who if not number else '':>6} {mark if not number else ' '} {line}")
            print(self.script[-1], flush=True)

    async def says(self, who: str, text: str, *, wait: bool = True) -> Receipt:
        self._count += 1
        self.note(who, "»", text)
        receipt = await self.router.submit("console", who, text, message_id=f"m{self._count}", reply_to=who)
        if wait:
            async with asyncio.timeout(40):
                await receipt.done
                await self.router.engine.drain()
        return receipt

    async def hears(self, who: str, many: int = 1) -> list[str]:
        """That many texts, as soon as they are there; nothing else may have come."""
        async with asyncio.timeout(40), self._news:
            await self._news.wait_for(lambda: len(self.heard.get(who, ())) >= many)
        found, self.heard[who] = self.heard[who], []
        assert len(found) == many, found
        return found


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeAgentLLM]:
    with FakeAgentLLM() as fake:
        yield fake


@pytest.fixture
def opencode(llm: FakeAgentLLM, tmp_path: Path) -> Iterator[OpenCode]:
    """One for each test: a day begins without sessions."""
    with OpenCode(tmp_path / "opencode", llm.url, config=BASH_ASKS) as running:
        running.start()
        yield running


@pytest.fixture
async def room(opencode: OpenCode, tmp_path: Path) -> AsyncIterator[Room]:
    """The engine, set up by a config as people write it; new sessions are made in OpenCode."""
    (tmp_path / "session-router.toml").write_text(f"""
data_dir = "data"
[sources]
opencode = "{opencode.database}"
hermes = false
journal = false
[sources.opencode_server]
url = "{opencode.url}"
password_env = "OPENCODE_SERVER_PASSWORD"
model = "{'/'.join(MODEL)}"
agent = "build"
directory = "{opencode.project}"
ask_timeout = {ASK_TIMEOUT}
start_patience = 5
[limits]
model_retries = 1
rate_limit = 1000
[agents.mohe]
language = "en"
allow = ["*"]
""")
    environ = {"HOME": str(tmp_path), "OPENCODE_SERVER_PASSWORD": PASSWORD, "OPENAI_API_KEY": "sk-x"}
    config = load(environ=environ, folder=tmp_path)
    agent: Agent = config.agent().to_agent()
    store = SqliteStore(tmp_path / "engine.db")
    made = Room()
    made.router = SessionRouter(
        bridge=OurModel(), store=store, agent=agent, channels={"console": made},
        sources=sources_of(config, store, agent.names, environ=environ),
    )  # fmt: skip
    made.examine = partial(examine, config, environ)
    async with made.router:
        yield made


def source(room: Room) -> OpenCodeSessions:
    (found,) = room.router.sessions.sources
    assert isinstance(found, OpenCodeSessions)
    return found


async def said_in(room: Room, who: str) -> list[str]:
    """Everything that stands in the session that ``who`` is bound to, as OpenCode keeps it."""
    bound = (await room.router.binding("console", who)).bound
    assert bound is not None
    return [line.text for line in await source(room).context(bound.session)]


async def asked(llm: FakeAgentLLM, words: str, count: int = 1) -> None:
    await asyncio.to_thread(llm.wait_for, words, count)


async def test_a_day_with_opencode_in_the_chat(room: Room, opencode: OpenCode, llm: FakeAgentLLM) -> None:
    llm.hold_again()
    (opencode.project / "colours.txt").write_text("blue\n")

    # A first message makes a session there; a turn with a tool in it; a third turn.
    await room.says("alice", "hello there")
    assert await room.hears("alice") == ["echo: [console] hello there"]
    await room.says("alice", f"look at the colours [read {opencode.project / 'colours.txt'}]")
    (seen,) = await room.hears("alice")
    assert seen.startswith("Let me read it.\n\nsaw: ")
    assert "blue" in seen
    await room.says("alice", "thanks")
    assert await room.hears("alice") == ["echo: [console] thanks"]
    assert [text.partition(" [read")[0] for text in await said_in(room, "alice")] == [
        "[console] hello there", "echo: [console] hello there", "[console] look at the colours", "Let me read it.",
        seen.partition("\n\n")[2], "[console] thanks", "echo: [console] thanks",
    ]  # fmt: skip

    checked = {one.what: one for one in await room.examine()}
    assert checked["server of OpenCode"].level == "ok"
    assert checked["server of OpenCode"].detail == f"{opencode.url}: OpenCode {VERSION}, {'/'.join(MODEL)}"

    # Another session, the list of both, and back.
    await room.says("alice", "/new Flaky logins")
    assert await room.hears("alice") == ["Now talking to “Flaky logins” (opencode)."]
    await room.says("alice", "who logs in?")
    assert await room.hears("alice") == ["echo: [console] who logs in?"]
    await room.says("alice", "/sessions")
    (listed,) = await room.hears("alice")
    assert listed.splitlines()[1].startswith("1. Flaky logins · opencode · just now ← current")
    assert listed.splitlines()[2].startswith("2. ")
    await room.says("alice", "2")
    (switched,) = await room.hears("alice")
    assert switched.endswith("(opencode).")
    assert (await said_in(room, "alice"))[0] == "[console] hello there"
    await room.says("alice", "switch to session Flaky logins")
    await room.hears("alice")

    # A busy session: the second message waits, and each gets the own answer.
    await room.says("bob", "switch to session Flaky logins")
    await room.hears("bob")
    first = await room.says("alice", "[hold] count the users", wait=False)
    await asked(llm, "count the users")
    second = await room.says("bob", "and me?", wait=False)
    assert llm.count("and me?") == 0
    llm.release()
    async with asyncio.timeout(30):
        await asyncio.gather(first.done, second.done)
    assert await room.hears("alice") == ["first last"]
    assert await room.hears("bob") == ["echo: [console] and me?"]
    llm.hold_again()

    # Stopping stops OpenCode as well.
    stopped = await room.says("alice", "[hold] think for ever", wait=False)
    await asked(llm, "think for ever")
    await room.says("alice", "/stop")
    assert await room.hears("alice") == ["Stopped."]
    assert await stopped.done is Disposition.STOPPED
    await room.says("alice", "still there?")
    assert await room.hears("alice") == ["echo: [console] still there?"]

    # Leave is asked for: given once, and refused where nobody answers.
    given = await room.says("alice", "[bash touch given.txt]", wait=False)
    (ask,) = await room.hears("alice")
    assert "The agent asks for leave: bash touch given.txt" in ask
    await room.says("alice", "/allow", wait=False)
    assert await given.done is Disposition.REPLIED
    allowed, answer = await room.hears("alice", 2)
    assert allowed == "All right, allowed: bash touch given.txt"
    assert answer.startswith("saw: ")
    assert (opencode.project / "given.txt").exists()
    await room.says("alice", "[bash touch refused.txt]")
    ask, answer = await room.hears("alice", 2)
    assert "touch refused.txt" in ask
    assert "Nobody answered in time" in answer
    assert not (opencode.project / "refused.txt").exists()

    # The server dies in mid turn and comes back: nothing is lost, and nothing is there twice.
    cut = await room.says("alice", "[hold] the long one", wait=False)
    await asked(llm, "the long one")
    room.note("", "·", "the server of OpenCode is killed, and started again")
    await asyncio.to_thread(opencode.kill)
    llm.release()
    await asyncio.to_thread(opencode.start)
    async with asyncio.timeout(40):
        assert await cut.done is Disposition.REPLIED
    assert (await room.hears("alice"))[0].endswith("last")
    said = await said_in(room, "alice")
    assert said.count("[console] [hold] the long one") == 1
    assert said.count("first last") == 2, "the one before, and this one"

    # It dies and stays away: whoever waits is told, later messages are answered by the model of ours.
    llm.hold_again()
    lost = await room.says("alice", "[hold] will you be back?", wait=False)
    await asked(llm, "will you be back?")
    room.note("", "·", "the server of OpenCode is killed")
    await asyncio.to_thread(opencode.kill)
    async with asyncio.timeout(60):
        assert await lost.done is Disposition.FAILED
    (told,) = await room.hears("alice")
    assert told.startswith("The agent of “Flaky logins” cannot be reached just now, so there is no answer.")
    await room.says("alice", "/status")
    (status,) = await room.hears("alice")
    assert "Flaky logins (opencode, chosen by hand)" in status
    assert "The session's own agent cannot be reached" in status
    assert [one.level for one in await room.examine() if one.what == "server of OpenCode"] == ["warning"]
    await room.says("alice", "who are you?")
    assert await room.hears("alice") == ["I am only the model beside OpenCode."]
    bridge = room.router.bridge
    assert isinstance(bridge, OurModel)
    (prompt,) = bridge.prompts
    assert "who logs in?" in prompt, "the context is read from the database"
    assert "cannot be reached, so a model of ours answers" in prompt

    # And once it is back, everything goes on in OpenCode.
    llm.release()
    room.note("", "·", "the server of OpenCode is started again")
    await asyncio.to_thread(opencode.start)
    async with asyncio.timeout(20):
        while await source(room).away():
            await asyncio.sleep(0.05)
    await room.says("alice", "good to see you")
    assert await room.hears("alice") == ["echo: [console] good to see you"]
    await room.says("alice", "/status")
    (status,) = await room.hears("alice")
    assert "Flaky logins (opencode, chosen by hand)" in status
    assert "cannot be reached" not in status
    said = await said_in(room, "alice")
    assert said.count("[console] [hold] will you be back?") == 1
    assert "[console] who are you?" not in said, "what a model of ours was told stays out of the agent's record"


async def test_what_a_stopped_turn_asked_leave_for_can_be_allowed_by_nobody_afterwards(
    room: Room, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    llm.hold_again()
    await room.says("alice", "/new Dangerous")
    await room.says("bob", "switch to session Dangerous")
    await room.hears("alice")
    await room.hears("bob")
    stopped = await room.says("alice", "[bash touch stopped.txt]", wait=False)
    (ask,) = await room.hears("alice")
    assert "touch stopped.txt" in ask

    await room.says("alice", "/stop")
    assert await stopped.done is Disposition.STOPPED
    assert await room.hears("alice") == ["Stopped."]
    await room.says("alice", "/allow")
    assert await room.hears("alice") == ["Nothing is waiting for permission."]
    held = await room.says("bob", "[hold] good morning", wait=False)
    await asked(llm, "good morning")
    await room.says("bob", "/allow", wait=False)
    assert await room.hears("bob") == ["Nothing is waiting for permission."]
    llm.release()
    assert await held.done is Disposition.REPLIED

    assert await room.hears("bob") == ["first last"]
    assert not (opencode.project / "stopped.txt").exists()


async def test_an_answer_that_comes_too_late_is_not_told_as_given(
    room: Room, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    llm.hold_again()
    late = await room.says("alice", "[bash touch late.txt] [hold]", wait=False)
    await room.hears("alice")
    await asked(llm, "late.txt", 2)  # nobody answered, so the agent goes on without it

    await room.says("alice", "/allow", wait=False)
    (told,) = await room.hears("alice")
    assert told.startswith("Nobody waits for an answer to this just now: bash touch late.txt")
    llm.release()
    assert await late.done is Disposition.REPLIED
    assert not (opencode.project / "late.txt").exists()


async def test_an_answer_that_the_server_does_not_take_is_not_told_as_given(
    room: Room, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    answered = await room.says("alice", "[bash touch slow.txt]", wait=False)
    await room.hears("alice")
    with opencode.halted():
        await room.says("alice", "/deny", wait=False)
        assert await room.hears("alice") == [
            "The agent has not confirmed your answer: bash touch slow.txt\n"
            "If it still waits, say it again: /allow 1 or /deny 1."
        ]
    assert await answered.done is Disposition.REPLIED
    assert not (opencode.project / "slow.txt").exists()


async def test_an_answer_to_a_server_that_is_gone_is_not_told_as_given(
    room: Room, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    answered = await room.says("alice", "[bash touch again.txt]", wait=False)
    await room.hears("alice")
    await asyncio.to_thread(opencode.kill)
    await room.says("alice", "/allow", wait=False)
    (told,) = await room.hears("alice")
    assert told.startswith(("Nobody waits for an answer", "The agent has not confirmed your answer"))

    await asyncio.to_thread(opencode.start)
    assert await answered.done is Disposition.REPLIED
    assert await room.hears("alice") == ["saw: [Tool execution was interrupted]"]
    assert not (opencode.project / "again.txt").exists()


# -- the process is killed -----------------------------------------------------------------------


@pytest.fixture
def world(opencode: OpenCode, tmp_path: Path) -> Iterator[World]:
    """A process of its own with OpenCode behind it, which goes on when the process is killed."""
    (tmp_path / "world").mkdir()
    with GatedLLM() as own:
        made = World(tmp_path / "world", own)
        made.line("mohe")
        made.env["OPENCODE_SERVER_PASSWORD"] = PASSWORD
        made.config("[agents.mohe]\nallow = ['alice']\n")
        config = made.folder / "session-router.toml"
        config.write_text(config.read_text().replace("opencode = false", f"""
opencode = '{opencode.database}'
journal = false
opencode_server.url = '{opencode.url}'
opencode_server.password_env = 'OPENCODE_SERVER_PASSWORD'
opencode_server.model = '{'/'.join(MODEL)}'
opencode_server.agent = 'build'
opencode_server.directory = '{opencode.project}'
opencode_server.ask_timeout = 60
"""))
        yield made
        made.close()


def test_a_turn_that_a_killed_process_left_is_stopped_by_whoever_says_stop_to_the_next(
    world: World, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    line, run = world.line("mohe"), world.start()
    line.says("alice", "[bash touch killed.txt]")
    assert "bash touch killed.txt" in line.hears("alice")
    run.tell(signal.SIGKILL)
    run.ends()
    run = world.start()

    line.says("alice", "/stop")
    line.until(lambda heard: heard.get("text") == "Stopped.")
    line.says("alice", "/allow")
    assert line.hears("alice") == "Nothing is waiting for permission."
    line.says("alice", "next")
    assert line.hears("alice") == "echo: [line] next"
    assert not (opencode.project / "killed.txt").exists()


def test_a_turn_that_is_given_up_after_too_many_kills_is_given_up_in_opencode_too(
    world: World, opencode: OpenCode, llm: FakeAgentLLM
) -> None:
    line, run = world.line("mohe"), world.start()
    line.says("alice", "[bash touch killed.txt]")
    known: set[str] = set()  # what a process said right before it was killed, the next one may say once more
    for _ in range(3):
        ask = line.until(lambda heard: "text" in heard and heard["id"] not in known)
        assert "bash touch killed.txt" in ask["text"]
        known.add(ask["id"])
        run.tell(signal.SIGKILL)
        run.ends()
        run = world.start()

    told = line.until(lambda heard: "text" in heard and heard["id"] not in known)
    assert told["text"].startswith("Sorry, the program was cut off several times over this message")
    line.says("alice", "next")
    assert line.hears("alice") == "echo: [line] next"
    assert not (opencode.project / "killed.txt").exists()
