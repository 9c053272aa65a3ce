"""Sessions and turns through the API of the real Hermes, with a fake model behind it."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from fsm.ports import ModelError, Reply, SessionInfo, SourceError, Talks, WritableSource
from storage.hermes import HermesSource
from storage.hermes.gateway import TEXT_LIMIT, HermesGateway
from storage.hermes.turn import GO_ON
from storage.memory import MemoryStore
from tests.support.fake_agent_llm import INPUT, OUTPUT, FakeAgentLLM
from tests.support.hermes import KEY, Hermes

# The fixtures' time does not count: on a machine's first run they install Hermes.
pytestmark = pytest.mark.timeout(120, func_only=True)

SYSTEM = "Answer briefly."


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeAgentLLM]:
    with FakeAgentLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def hermes(llm: FakeAgentLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hermes]:
    with Hermes(tmp_path_factory.mktemp("hermes"), llm.url) as running:
        running.start()
        yield running


@pytest.fixture
def own_hermes(llm: FakeAgentLLM, tmp_path: Path) -> Iterator[Hermes]:
    """One that a test may kill and start as it likes; not started yet."""
    with Hermes(tmp_path / "own", llm.url) as own:
        yield own


@pytest.fixture(autouse=True)
def _answers_are_held(llm: FakeAgentLLM) -> Iterator[None]:
    llm.hold_again()
    yield
    llm.release()


Connect = Callable[..., HermesGateway]


@pytest.fixture
async def connect(hermes: Hermes) -> AsyncIterator[Connect]:
    """Gateways on the running Hermes, or on another one, which are closed in the end."""
    opened: list[HermesGateway] = []

    def open_one(to: Hermes = hermes, url: str = "", key: str = KEY, **options: object) -> HermesGateway:
        gateway = HermesGateway(HermesSource(to.database), url or to.url, lambda: key, **options)  # type: ignore[arg-type]
        opened.append(gateway)
        return gateway

    yield open_one
    for gateway in opened:
        await gateway.close()


@pytest.fixture
def gateway(connect: Connect) -> HermesGateway:
    return connect()


@pytest.fixture
async def notes() -> AsyncIterator[MemoryStore]:
    """The engine's store, which outlives a gateway's object as it does a crash."""
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


async def new(gateway: HermesGateway, name: str) -> SessionInfo:
    return await gateway.create(name, session_id=f"test-{name.replace(' ', '-')}", at=0.0)


def stored(hermes: Hermes, session: str) -> list[tuple[str, str]]:
    """(role, content) of everything that Hermes stored."""
    with sqlite3.connect(f"file:{hermes.database}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT role, content FROM messages WHERE session_id = ? ORDER BY id", (session,))
        found = rows.fetchall()
    connection.close()
    return found


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


# -- turns ---------------------------------------------------------------------------------------


async def test_three_turns_build_on_each_other_and_the_database_tells_the_same(
    hermes: Hermes, gateway: HermesGateway, llm: FakeAgentLLM
) -> None:
    session = await new(gateway, "three turns")
    first = await gateway.talk(session.id, "three: hello", system=SYSTEM, call_id="three/1")
    second = await gateway.talk(session.id, "three: [terminal echo here]", system=SYSTEM, call_id="three/2")
    third = await gateway.talk(session.id, "three: 谢谢 🚀", system=SYSTEM, call_id="three/3")

    assert first == Reply("echo: three: hello", INPUT, OUTPUT)
    assert second.text.startswith("saw:")
    assert '"output": "here"' in second.text
    assert (second.input_tokens, second.output_tokens) == (2 * INPUT, 2 * OUTPUT)
    assert third.text == "echo: three: 谢谢 🚀"
    sent = llm.asked[-1].body["messages"]
    heard = [message["content"] for message in sent if message["role"] in ("user", "assistant")]
    assert heard == ["three: hello", first.text, "three: [terminal echo here]", "", second.text, "three: 谢谢 🚀"]

    source = HermesSource(hermes.database)
    assert next(info.title for info in await source.list() if info.id == session.id) == "three turns"
    lines = [(line.role, line.text) for line in await source.context(session.id)]
    assert lines == [
        ("user", "three: hello"), ("assistant", first.text),
        ("user", "three: [terminal echo here]"), ("assistant", second.text),
        ("user", "three: 谢谢 🚀"), ("assistant", third.text),
    ]  # fmt: skip
    assert [(line.role, line.text) for line in await gateway.context(session.id)] == lines


async def test_the_system_text_reaches_the_model_behind_hermes_own_and_is_not_stored(
    hermes: Hermes, gateway: HermesGateway, llm: FakeAgentLLM
) -> None:
    session = await new(gateway, "system")
    await gateway.talk(session.id, "system: one", system="You live in a lighthouse.", call_id="system/1")
    system = llm.asked[-1].body["messages"][0]
    assert system["role"] == "system"
    assert system["content"].endswith("You live in a lighthouse.")
    assert len(system["content"]) > 1000
    await gateway.talk(session.id, "system: two", system="", call_id="system/2")
    assert "lighthouse" not in str(llm.asked[-1].body)


async def test_pieces_are_shown_while_the_model_still_speaks(gateway: HermesGateway, llm: FakeAgentLLM) -> None:
    session = await new(gateway, "pieces")
    shown: list[str] = []
    talking = asyncio.create_task(
        gateway.talk(session.id, "pieces [hold]", system="", call_id="pieces/1", show=shown.append))
    await until(lambda: shown == ["first "])
    assert not talking.done()
    llm.release()
    assert (await talking).text == "first last"
    assert "".join(shown) == "first last"


async def test_what_the_agent_says_between_its_tools_is_shown_without_the_tools(gateway: HermesGateway) -> None:
    session = await new(gateway, "tools")
    shown: list[str] = []
    reply = await gateway.talk(session.id, "tools: [terminal echo a] [terminal echo b]", system="", call_id="tools/1",
                               show=shown.append)
    assert "".join(shown) == reply.text
    assert reply.text.startswith("saw:")
    assert '"output": "b"' in reply.text


async def test_turns_on_one_session_wait_for_one_another_and_other_sessions_do_not(
    gateway: HermesGateway, hermes: Hermes, llm: FakeAgentLLM
) -> None:
    session, other = await new(gateway, "busy"), await new(gateway, "beside")
    first = asyncio.create_task(gateway.talk(session.id, "busy one [hold]", system="", call_id="busy/1"))
    await asyncio.to_thread(llm.wait_for, "busy one")
    second = asyncio.create_task(gateway.talk(session.id, "busy two", system="", call_id="busy/2"))
    assert (await gateway.talk(other.id, "beside it", system="", call_id="busy/3")).text == "echo: beside it"
    assert llm.count("busy two") == 0
    llm.release()
    assert (await first).text == "first last"
    assert (await second).text == "echo: busy two"
    assert [role for role, _ in stored(hermes, session.id)] == ["user", "assistant"] * 2


async def test_a_compressed_session_goes_on_under_its_new_id_which_is_told(hermes: Hermes, connect: Connect) -> None:
    told: list[tuple[str, str]] = []
    gateway = connect(on_rotated=lambda old, now: told.append((old, now)))
    session = await new(gateway, "rotated")
    await gateway.talk(session.id, "rotated: before", system="", call_id="rotated/1")
    assert told == []
    with sqlite3.connect(hermes.database, timeout=10) as connection:  # as Hermes' own compression leaves it
        connection.execute("UPDATE sessions SET ended_at = started_at + 1, end_reason = 'compression' WHERE id = ?",
                           (session.id,))
        connection.execute("INSERT INTO sessions (id, source, parent_session_id, started_at) "
                           "SELECT 'rotated-now', source, id, started_at + 1 FROM sessions WHERE id = ?", (session.id,))
    connection.close()
    reply = await gateway.talk(session.id, "rotated: after", system="", call_id="rotated/2")
    assert reply.text == "echo: rotated: after"
    assert told == [(session.id, "rotated-now")]
    assert ("user", "rotated: after") in stored(hermes, "rotated-now")
    assert (await gateway.talk(session.id, "rotated: after", system="", call_id="rotated/2")).text == reply.text
    assert stored(hermes, "rotated-now").count(("user", "rotated: after")) == 1


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "kind", "again"), [(500, "server", True), (401, "auth", False),
                                                       (429, "rate_limit", True), (400, "rejected", False)])
async def test_a_failing_model_is_an_error_and_never_an_answer(
    gateway: HermesGateway, hermes: Hermes, status: int, kind: str, again: bool
) -> None:
    session = await new(gateway, f"fails {status}")
    shown: list[str] = []
    with pytest.raises(ModelError, match=f"the fake fails with {status}") as caught:
        await gateway.talk(session.id, f"[status {status}]", system="", call_id="fails/1", show=shown.append)
    assert (caught.value.kind, caught.value.retryable) == (kind, again)
    assert shown == []
    assert stored(hermes, session.id) == [("user", f"[status {status}]")]


async def test_a_call_repeated_after_a_failure_asks_again_without_saying_it_again(
    gateway: HermesGateway, hermes: Hermes, llm: FakeAgentLLM
) -> None:
    session = await new(gateway, "fails twice")
    for _ in range(2):
        with pytest.raises(ModelError, match="the fake fails with 500"):
            await gateway.talk(session.id, "twice: [status 500]", system="", call_id="twice/1")
    assert llm.count("twice:") == 2
    assert stored(hermes, session.id) == [("user", "twice: [status 500]"), ("user", GO_ON)]
    assert [line.text for line in await gateway.context(session.id)] == ["twice: [status 500]"]


async def test_a_wrong_key_is_an_error_of_the_kind_auth_that_does_not_tell_the_key(connect: Connect) -> None:
    session = await new(connect(), "wrong key")
    wrong = connect(key="battery-horse-correct")
    with pytest.raises(ModelError, match="API_SERVER_KEY") as caught:
        await wrong.talk(session.id, "x", system="", call_id="key/1")
    assert (caught.value.kind, caught.value.retryable) == ("auth", False)
    assert "battery" not in str(caught.value) + repr(wrong)
    with pytest.raises(SourceError, match="API_SERVER_KEY"):
        await wrong.create("x", session_id="wrong-key-2", at=0.0)
    with pytest.raises(ModelError, match="missing") as caught:
        await connect(key="").talk(session.id, "x", system="", call_id="key/2")
    assert caught.value.kind == "auth"


async def test_an_unknown_session_is_an_error_and_is_not_made(gateway: HermesGateway) -> None:
    with pytest.raises(ModelError, match="no-such-session") as caught:
        await gateway.talk("no-such-session", "x", system="", call_id="unknown/1")
    assert (caught.value.kind, caught.value.retryable) == ("not_found", False)
    assert await gateway.find("no-such-session") is None


async def test_nobody_at_the_address_is_an_error_that_asking_again_may_mend(connect: Connect) -> None:
    session = await new(connect(), "nobody")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        alone = connect(url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1/")
        with pytest.raises(ModelError, match="hermes gateway run") as caught:
            await alone.talk(session.id, "x", system="", call_id="nobody/1")
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)


async def test_another_program_at_the_address_is_named_as_such(connect: Connect, llm: FakeAgentLLM) -> None:
    session = await new(connect(), "another program")
    with pytest.raises(ModelError, match="not the API of a Hermes gateway") as caught:
        await connect(url=llm.url).talk(session.id, "x", system="", call_id="another/1")
    assert (caught.value.kind, caught.value.retryable) == ("config", False)


async def test_a_server_that_never_answers_costs_no_more_than_the_time_for_a_request(connect: Connect) -> None:
    session = await new(connect(), "never answers")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        never = connect(url=f"http://127.0.0.1:{silent.getsockname()[1]}", request_timeout=0.3)
        with pytest.raises(ModelError, match=r"0\.3 seconds") as caught:
            await never.talk(session.id, "x", system="", call_id="silent/1")
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


async def test_a_message_that_hermes_would_cut_off_is_refused(gateway: HermesGateway, hermes: Hermes) -> None:
    session = await new(gateway, "too long")
    with pytest.raises(ModelError, match="too long") as caught:
        await gateway.talk(session.id, "x" * (TEXT_LIMIT + 1), system="", call_id="long/1")
    assert (caught.value.kind, caught.value.retryable) == ("rejected", False)
    assert stored(hermes, session.id) == []


# -- calls that are cut off, and repeated --------------------------------------------------------


async def test_a_cancelled_call_is_stopped_and_the_next_one_waits_for_that(
    gateway: HermesGateway, hermes: Hermes, llm: FakeAgentLLM
) -> None:
    session = await new(gateway, "cancel")
    shown: list[str] = []
    talking = asyncio.create_task(
        gateway.talk(session.id, "cancel [hold]", system="", call_id="cancel/1", show=shown.append))
    await until(lambda: bool(shown))
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking
    following = asyncio.create_task(gateway.talk(session.id, "afterwards", system="", call_id="cancel/2"))
    await asyncio.wait([following], timeout=0.7)
    assert llm.count("afterwards") == 0, "Hermes still works on the turn before"
    llm.release()
    assert (await following).text == "echo: afterwards"
    assert [role for role, _ in stored(hermes, session.id)] == ["user", "assistant"] * 2


async def test_a_turn_that_takes_too_long_is_given_up(connect: Connect, llm: FakeAgentLLM) -> None:
    hasty = connect(request_timeout=1.0)
    session = await new(hasty, "hasty")
    with pytest.raises(ModelError, match="1 seconds") as caught:
        await hasty.talk(session.id, "hasty [hold]", system="", call_id="hasty/1")
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


async def test_an_answer_that_got_lost_is_taken_from_the_session_and_not_made_again(
    connect: Connect, hermes: Hermes, llm: FakeAgentLLM, notes: MemoryStore
) -> None:
    ran = hermes.home / "lost.txt"
    session = await new(connect(), "lost")
    text = f"lost: [terminal echo ran >> {ran}]"
    first = await connect(notes=notes).talk(session.id, text, system="", call_id="lost/1")
    asked, after_a_crash = len(llm.asked), connect(notes=notes)
    again = await after_a_crash.talk(session.id, text, system="", call_id="lost/1")
    assert again.text == first.text
    assert len(llm.asked) == asked
    assert ran.read_text() == "ran\n"
    # The same words in another call are another message.
    await after_a_crash.talk(session.id, text, system="", call_id="lost/2")
    assert stored(hermes, session.id).count(("user", text)) == 2


async def test_a_call_cut_off_by_our_own_end_is_stored_once(
    connect: Connect, hermes: Hermes, llm: FakeAgentLLM, notes: MemoryStore
) -> None:
    session = await new(connect(), "our end")
    text = "our end [hold]"
    talking = asyncio.create_task(connect(notes=notes).talk(session.id, text, system="", call_id="end/1"))
    await asyncio.to_thread(llm.wait_for, "our end")
    talking.cancel()
    await asyncio.wait([talking])
    llm.release()
    reply = await connect(notes=notes).talk(session.id, text, system="", call_id="end/1")
    assert reply.text
    assert [words for role, words in stored(hermes, session.id) if role == "user" and words != GO_ON] == [text]


async def test_a_gateway_killed_in_mid_turn_and_started_again_finishes_it_without_running_a_tool_twice(
    own_hermes: Hermes, connect: Connect, llm: FakeAgentLLM
) -> None:
    own_hermes.start()
    gateway = connect(own_hermes)
    ran, go = own_hermes.home / "ran.txt", own_hermes.home / "go"
    speaks, works = await new(gateway, "speaks"), await new(gateway, "works")
    texts = {speaks.id: "killed [hold]",
             works.id: f"[terminal echo ran >> {ran}; until test -e {go}; do sleep 0.05; done]"}
    talking = [asyncio.create_task(gateway.talk(name, text, system="", call_id=f"{name}/1"))
               for name, text in texts.items()]
    try:
        await asyncio.to_thread(llm.wait_for, "killed")
        await until(ran.exists)
        await asyncio.to_thread(own_hermes.kill)
        for failure in await asyncio.gather(*talking, return_exceptions=True):
            assert isinstance(failure, ModelError)
            assert (failure.kind, failure.retryable) == ("connection", True)
        with pytest.raises(ModelError, match="does not answer"):
            await gateway.talk(speaks.id, texts[speaks.id], system="", call_id=f"{speaks.id}/1")

        await asyncio.to_thread(own_hermes.start)
        llm.release()
        spoken = await gateway.talk(speaks.id, texts[speaks.id], system="", call_id=f"{speaks.id}/1")
        worked = await gateway.talk(works.id, texts[works.id], system="", call_id=f"{works.id}/1")
        assert spoken.text == "first last"
        assert worked.text == f"echo: {GO_ON}"
        assert ran.read_text() == "ran\n"
        for name, text in texts.items():
            assert [words for role, words in stored(own_hermes, name) if role == "user"] == [text, GO_ON]
    finally:
        go.touch()  # a tool outlives the gateway that was killed


# -- making sessions -----------------------------------------------------------------------------


async def test_a_session_made_again_is_the_same_one(connect: Connect) -> None:
    source: WritableSource = connect()  # for mypy
    made = await source.create("made", session_id="made-1", at=0.0)
    assert (made.id, made.title, made.source) == ("made-1", "made", "hermes")
    assert made.active_at > 0
    assert await connect().create("made", session_id="made-1", at=0.0) == made


async def test_an_id_that_hermes_does_not_take_is_replaced_by_one_of_its_own(gateway: HermesGateway) -> None:
    ids = ["own_mohe/xmpp/1", "own_mohe/xmpp/2", "..", " blank", "c:drive", "x" * 300, ""]
    made = [(await gateway.create("", session_id=name, at=0.0)).id for name in ids]
    assert made == [(await gateway.create("", session_id=name, at=0.0)).id for name in ids]
    assert len(set(made)) == len(ids)
    reply = await gateway.talk(made[0], "hello", system="", call_id="ids/1")
    assert reply.text == "echo: hello"


async def test_titles_are_made_to_fit_what_hermes_takes(gateway: HermesGateway) -> None:
    made = [await gateway.create(title, session_id=f"title-{number}", at=0.0)
            for number, title in enumerate(["同名", "同名", "同名", "t" * 300, "t" * 300, "", " two\nlines "])]
    assert [info.title for info in made] == ["同名", "同名 #2", "同名 #3", "t" * 100, "t" * 97 + " #2", "", "two lines"]


async def test_a_session_with_an_id_in_chinese_can_be_talked_to(gateway: HermesGateway, hermes: Hermes) -> None:
    made = await gateway.create("", session_id="会话一", at=0.0)
    assert made.id == "会话一"
    assert (await gateway.talk("会话一", "你好", system="", call_id="中文/1")).text == "echo: 你好"
    assert stored(hermes, "会话一")[0] == ("user", "你好")


# -- the rest ------------------------------------------------------------------------------------


async def test_nobody_waits_for_an_answer_to_a_request_for_leave(gateway: HermesGateway) -> None:
    agent: Talks = gateway  # for mypy
    assert isinstance(agent, Talks)
    assert await agent.answer("anything", True) is False


def test_an_address_that_cannot_be_one_is_refused_at_once() -> None:
    for address in ("127.0.0.1:8642", "http://", "http://name:key@127.0.0.1:8642"):
        with pytest.raises(ValueError, match="Hermes gateway"):
            HermesGateway(HermesSource(Path("nowhere")), address, lambda: KEY)


def test_the_http_client_is_not_imported_before_the_first_call() -> None:
    code = "import sys, storage.hermes.gateway; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
