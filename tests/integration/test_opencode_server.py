"""Sessions and turns through the server of the real OpenCode, with a fake model behind it."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fsm.ports import ModelError, PermissionAsk, SessionInfo, SourceError
from storage.opencode import OpenCodeSource, SessionNotFound
from storage.opencode.answer import message_id
from storage.opencode.server import OpenCodeServer
from tests.support.fake_agent_llm import CACHED, INPUT, OUTPUT, FakeAgentLLM
from tests.support.opencode import MODEL, PASSWORD, OpenCode

# The fixtures' time does not count: on a machine's first run they download OpenCode.
pytestmark = pytest.mark.timeout(120, func_only=True)

SYSTEM = "Answer briefly."


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeAgentLLM]:
    with FakeAgentLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def opencode(llm: FakeAgentLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCode]:
    with OpenCode(tmp_path_factory.mktemp("opencode"), llm.url) as running:
        running.start()
        yield running


@pytest.fixture
def own_opencode(llm: FakeAgentLLM, tmp_path: Path) -> Iterator[OpenCode]:
    """One that a test may start and kill as it likes; not started yet."""
    with OpenCode(tmp_path / "own", llm.url) as own:
        yield own


@pytest.fixture(autouse=True)
def _answers_are_held(llm: FakeAgentLLM) -> Iterator[None]:
    llm.hold_again()
    yield
    llm.release()


Connect = Callable[..., OpenCodeServer]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients, and closes them."""
    made: list[OpenCodeServer] = []

    def connect(opencode: OpenCode, **changes: Any) -> OpenCodeServer:
        options: dict[str, Any] = {"password": PASSWORD, "model": MODEL, **changes}
        made.append(OpenCodeServer(options.pop("url", opencode.url), **options))
        return made[-1]

    yield connect
    for server in made:
        await server.close()


@pytest.fixture
def server(opencode: OpenCode, connect: Connect) -> OpenCodeServer:
    return connect(opencode)


@pytest.fixture
async def session(server: OpenCodeServer, request: pytest.FixtureRequest) -> SessionInfo:
    return await server.create(request.node.name, session_id=f"own_{request.node.name}", at=0.0)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await true():
            await asyncio.sleep(0.02)


async def raw(opencode: OpenCode, method: str, path: str, body: object = None) -> Any:
    """A request as another program would make it."""
    def send() -> Any:
        key = b64encode(f"opencode:{PASSWORD}".encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Basic {key}", "content-type": "application/json"}
        request = urllib.request.Request(opencode.url + path, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            text = response.read()
        return json.loads(text) if text else None

    return await asyncio.to_thread(send)


async def is_busy(opencode: OpenCode, session: SessionInfo) -> bool:
    return session.id in await raw(opencode, "GET", f"/session/status?directory={session.folder}")


async def prompts(server: OpenCodeServer, session: SessionInfo) -> list[str]:
    return [line.text for line in await server.context(session.id) if line.role == "user"]


async def leave_behind(opencode: OpenCode, session: SessionInfo, call_id: str, text: str) -> None:
    """A prompt as a process of ours leaves it that is killed while OpenCode is at it."""
    part = {"type": "text", "text": text, "metadata": {"session_router": True}}
    body = {"messageID": message_id(session.id, call_id), "agent": "build", "parts": [part]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)


async def open_asks(opencode: OpenCode, session: SessionInfo) -> list[Any]:
    found = await raw(opencode, "GET", f"/permission?directory={session.folder}")
    assert isinstance(found, list)
    return [one["id"] for one in found if one["sessionID"] == session.id]


async def asked(llm: FakeAgentLLM, words: str, count: int = 1) -> None:
    await asyncio.to_thread(llm.wait_for, words, count)


# -- sessions ------------------------------------------------------------------------------------


async def test_a_session_made_through_the_server_is_listed_searched_and_found(
    server: OpenCodeServer, opencode: OpenCode
) -> None:
    made = await server.create("Flaky logins 登录", session_id="own_flaky", at=0.0)

    assert (made.title, made.source, made.folder) == ("Flaky logins 登录", "opencode", str(opencode.project))
    assert made in await server.list()
    assert await server.search("flaky LOGINS") == [made]
    assert await server.search(made.id) == [made]
    assert await server.find(made.id) == made
    assert await server.search("f%y") == []
    assert await server.search(" ") == ()


async def test_an_unknown_id_of_whatever_shape_is_no_session(server: OpenCodeServer) -> None:
    for unknown in ("ses_nothing", "own_1", "", "ses_../../global/config", "ses_登录"):
        assert await server.find(unknown) is None
        with pytest.raises(SessionNotFound):
            await server.context(unknown)


async def test_a_session_asked_for_twice_is_made_once_also_after_a_crash(
    server: OpenCodeServer, opencode: OpenCode, connect: Connect
) -> None:
    made = await server.create("Twice", session_id="own_twice", at=0.0)

    assert await server.create("Twice", session_id="own_twice", at=60.0) == made
    after_a_crash = connect(opencode)
    assert await after_a_crash.create("Twice", session_id="own_twice", at=60.0) == made
    assert (await after_a_crash.create("Twice", session_id="own_other", at=60.0)).id != made.id


async def test_a_session_left_empty_at_the_terminal_is_found_but_not_listed(
    server: OpenCodeServer, opencode: OpenCode
) -> None:
    empty = await raw(opencode, "POST", "/session", {})

    assert empty["id"] not in [info.id for info in await server.list()]
    assert await server.find(empty["id"]) is not None


async def test_an_archived_session_is_found_but_not_listed(
    server: OpenCodeServer, opencode: OpenCode, session: SessionInfo
) -> None:
    await raw(opencode, "PATCH", f"/session/{session.id}", {"time": {"archived": 1_790_000_000_000}})

    assert session.id not in [info.id for info in await server.list()]
    assert await server.find(session.id) is not None


async def test_the_latest_session_is_the_one_that_was_talked_to_last(
    server: OpenCodeServer, session: SessionInfo
) -> None:
    await server.create("Younger", session_id="own_younger", at=0.0)
    await server.talk(session.id, "me again", system="", call_id="latest/1")

    latest = await server.latest()
    assert latest is not None
    assert latest.id == session.id
    assert [info.id for info in await server.list(1)] == [session.id]


# -- turns ---------------------------------------------------------------------------------------


async def test_three_turns_a_tool_call_among_them_give_the_whole_answers_and_their_tokens(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    (opencode.project / "colours.txt").write_text("blue\n")
    path = opencode.project / "colours.txt"

    first = await server.talk(session.id, "three: hello", system=SYSTEM, call_id="three/1")
    second = await server.talk(session.id, f"three: [read {path}]", system=SYSTEM, call_id="three/2")
    third = await server.talk(session.id, "three: thanks", system=SYSTEM, call_id="three/3")

    assert first.text == "echo: three: hello"
    assert second.text.startswith("Let me read it.\n\nsaw: ")
    assert "blue" in second.text
    assert third.text == "echo: three: thanks"
    assert (first.input_tokens, first.output_tokens, first.cached_tokens) == (INPUT, OUTPUT, CACHED)
    assert (second.input_tokens, second.output_tokens, second.cached_tokens) == (2 * INPUT, 2 * OUTPUT, 2 * CACHED)
    assert await prompts(server, session) == ["three: hello", f"three: [read {path}]", "three: thanks"]
    body = next(each.body for each in llm.asked if each.prompt == "three: hello")
    assert body["model"] == MODEL[1]
    assert SYSTEM in json.dumps(body["messages"][0])


async def test_half_a_character_is_replaced_and_keeps_no_text_from_being_sent(server: OpenCodeServer) -> None:
    session = await server.create("half \ud83d", session_id="own_half", at=0.0)
    reply = await server.talk(session.id, "half \ud83d of it", system="half \udc00", call_id="half/\ud83d")

    assert session.title == "half \ufffd"
    assert reply.text == "echo: half \ufffd of it"


async def test_what_the_server_gives_as_context_is_what_its_live_database_holds(
    server: OpenCodeServer, opencode: OpenCode, session: SessionInfo
) -> None:
    await server.talk(session.id, f"live: [read {opencode.project}/nothing]", system="", call_id="live/1")
    await server.talk(session.id, "live: 你好 🚀\nsecond line", system="", call_id="live/2")
    source = OpenCodeSource(opencode.database)

    assert opencode.database.with_name("opencode.db-wal").exists()
    lines = await server.context(session.id)
    assert len(lines) == 5
    assert list(lines) == list(await source.context(session.id))
    assert list(await server.context(session.id, 2)) == list(lines[-2:])
    assert await source.find(session.id) == await server.find(session.id)


async def test_what_the_user_took_back_is_left_out_as_in_the_database(
    server: OpenCodeServer, opencode: OpenCode, session: SessionInfo
) -> None:
    await server.talk(session.id, "take back: this stays", system="", call_id="undo/1")
    await server.talk(session.id, "take back: this goes", system="", call_id="undo/2")
    gone = (await server.context(session.id))[2]
    await raw(opencode, "POST", f"/session/{session.id}/revert", {"messageID": gone.id})

    lines = await server.context(session.id)
    assert [line.text for line in lines] == ["take back: this stays", "echo: take back: this stays"]
    assert list(lines) == list(await OpenCodeSource(opencode.database).context(session.id))


async def test_the_text_is_shown_in_pieces_while_it_is_written(
    server: OpenCodeServer, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    shown: list[str] = []
    begun = asyncio.Event()

    def show(text: str) -> None:
        shown.append(text)
        begun.set()

    talking = asyncio.create_task(server.talk(session.id, "grow [hold]", system="", call_id="grow/1", show=show))
    async with asyncio.timeout(20):
        await begun.wait()
    assert shown == ["first "]
    llm.release()

    assert (await talking).text == "first last"
    assert shown == ["first ", "last"]


async def test_reasoning_is_neither_shown_nor_answered(server: OpenCodeServer, session: SessionInfo) -> None:
    shown: list[str] = []
    reply = await server.talk(session.id, "why [reason]", system="", call_id="why/1", show=shown.append)

    assert reply.text == "answer"
    assert "".join(shown) == "answer"


async def test_two_turns_on_one_session_wait_for_one_another_and_each_gets_its_own_answer(
    server: OpenCodeServer, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    first = asyncio.create_task(server.talk(session.id, "busy one [hold]", system="", call_id="busy/1"))
    await asked(llm, "busy one")
    second = asyncio.create_task(server.talk(session.id, "busy two", system="", call_id="busy/2"))
    other = await server.create("Not held up", session_id="own_not_held_up", at=0.0)
    assert (await server.talk(other.id, "beside it", system="", call_id="busy/3")).text == "echo: beside it"
    assert await prompts(server, session) == ["busy one [hold]"]
    llm.release()

    assert (await first).text == "first last"
    assert (await second).text == "echo: busy two"


async def test_a_turn_waits_for_the_one_of_somebody_at_the_terminal(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    body = {"agent": "plan", "parts": [{"type": "text", "text": "terminal [hold]"}]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)
    await asked(llm, "terminal")
    talking = asyncio.create_task(server.talk(session.id, "chat", system="", call_id="terminal/1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.2):  # time enough for it to look, and to be wrong
            await asyncio.shield(talking)
    assert await prompts(server, session) == ["terminal [hold]"]
    llm.release()

    assert (await talking).text == "echo: chat"
    assert [line.text for line in await server.context(session.id)] == [
        "terminal [hold]", "first last", "chat", "echo: chat"]


async def test_a_turn_cancelled_while_it_waits_leaves_the_one_of_somebody_at_the_terminal_alone(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    body = {"agent": "plan", "parts": [{"type": "text", "text": "left alone [hold]"}]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)
    await asked(llm, "left alone")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.7):
            await server.talk(session.id, "never mind", system="", call_id="alone/1")
    assert await is_busy(opencode, session)
    llm.release()

    async def is_answered() -> bool:
        return [line.text for line in await server.context(session.id)] == ["left alone [hold]", "first last"]

    await until(is_answered)


async def test_a_cancelled_turn_is_stopped_in_opencode_too(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    talking = asyncio.create_task(server.talk(session.id, "cancel [hold]", system="", call_id="cancel/1"))
    await asked(llm, "cancel")
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking

    assert not await is_busy(opencode, session)
    assert (await server.talk(session.id, "afterwards", system="", call_id="cancel/2")).text == "echo: afterwards"


async def test_a_turn_cancelled_at_once_is_stopped_in_opencode_too(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    async def is_stored() -> bool:
        return bool(await raw(opencode, "GET", f"/session/{session.id}/message"))

    talking = asyncio.create_task(server.talk(session.id, "at once [hold]", system="", call_id="at-once/1"))
    await until(is_stored)
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking

    assert not await is_busy(opencode, session)


async def test_a_turn_that_takes_too_long_is_stopped_and_may_be_asked_again(
    opencode: OpenCode, connect: Connect, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    hasty, patient = connect(opencode, turn_timeout=3.0), connect(opencode)
    with pytest.raises(ModelError) as failed:
        await hasty.talk(session.id, "too long [hold]", system="", call_id="long/1")
    assert (failed.value.kind, failed.value.retryable) == ("timeout", True)
    assert not await is_busy(opencode, session)
    llm.release()

    assert (await patient.talk(session.id, "too long [hold]", system="", call_id="long/1")).text == "first last"
    assert await prompts(patient, session) == ["too long [hold]"]


async def test_a_turn_stopped_at_the_terminal_is_not_repeated(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    talking = asyncio.create_task(server.talk(session.id, "stop me [hold]", system="", call_id="stop/1"))
    await asked(llm, "stop me")
    await raw(opencode, "POST", f"/session/{session.id}/abort")

    with pytest.raises(ModelError) as failed:
        await talking
    assert (failed.value.kind, failed.value.retryable) == ("aborted", False)


async def test_a_turn_goes_on_where_opencode_makes_a_summary_in_the_middle_of_it(
    server: OpenCodeServer, opencode: OpenCode, session: SessionInfo
) -> None:
    text = f"forget [read {opencode.project}/nothing] [full]"
    reply = await server.talk(session.id, text, system="", call_id="forget/1")

    messages = await raw(opencode, "GET", f"/session/{session.id}/message")
    assert [message["info"].get("summary") is True for message in messages].count(True) == 1
    assert reply.text.startswith("Let me read it.\n\necho: Continue if you have next steps")
    assert await server.talk(session.id, text, system="", call_id="forget/1") == reply


class Faulty(httpx2.AsyncHTTPTransport):
    """The way to the server, with one fault: no events come through, or the request for the turn is cut
    as soon as ``cut`` allows it."""

    def __init__(self, *, events: bool = True, cut: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__()
        self.events, self.cut = events, cut

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/event" and not self.events:
            raise httpx2.ReadError("no events")
        if self.cut is not None and request.method == "POST" and request.url.path.endswith("/message"):
            sending = asyncio.create_task(super().handle_async_request(request))
            await self.cut()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            raise httpx2.ReadError("cut")
        return await super().handle_async_request(request)


async def test_without_events_the_answer_and_what_is_asked_come_all_the_same(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("the secret is blue\n")
    shown: list[str] = []
    asks: asyncio.Queue[PermissionAsk] = asyncio.Queue()
    server = connect(opencode, http=Faulty(events=False))
    talking = asyncio.create_task(server.talk(session.id, f"deaf [read {outside}]", system="", call_id="deaf/1",
                                              show=shown.append, ask=asks.put_nowait))
    async with asyncio.timeout(20):
        await server.answer((await asks.get()).id, True)

    reply = await talking
    assert "blue" in reply.text
    assert "".join(shown) == reply.text


async def test_a_lost_connection_does_not_lose_the_turn(
    opencode: OpenCode, connect: Connect, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    server = connect(opencode, http=Faulty(cut=lambda: asked(llm, "cut off")))
    talking = asyncio.create_task(server.talk(session.id, "cut off [hold]", system="", call_id="cut/1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):  # time enough to give up
            await asyncio.shield(talking)
    llm.release()

    assert (await talking).text == "first last"
    assert llm.count("cut off") == 1


# -- the same call again -------------------------------------------------------------------------


async def test_a_call_made_again_gives_the_answer_that_is_there(
    server: OpenCodeServer, opencode: OpenCode, connect: Connect, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    first = await server.talk(session.id, "only once", system="", call_id="once/1")
    again = await server.talk(session.id, "only once", system="", call_id="once/1")
    after_a_crash = await connect(opencode).talk(session.id, "only once", system="", call_id="once/1")

    assert first == again == after_a_crash
    assert llm.count("only once") == 1
    assert await prompts(server, session) == ["only once"]


async def test_a_call_made_again_while_it_runs_waits_for_its_answer(
    server: OpenCodeServer, opencode: OpenCode, connect: Connect, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    first = asyncio.create_task(server.talk(session.id, "still on [hold]", system="", call_id="on/1"))
    await asked(llm, "still on")
    other = connect(opencode)
    after_a_crash = asyncio.create_task(other.talk(session.id, "still on [hold]", system="", call_id="on/1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.shield(after_a_crash)
    llm.release()

    assert (await first).text == (await after_a_crash).text == "first last"
    assert llm.count("still on") == 1
    assert await prompts(server, session) == ["still on [hold]"]


async def test_a_server_killed_in_the_middle_of_a_turn_does_nothing_twice(
    own_opencode: OpenCode, connect: Connect, llm: FakeAgentLLM, tmp_path: Path
) -> None:
    own_opencode.start()
    server = connect(own_opencode)
    session = await server.create("Killed", session_id="own_killed", at=0.0)
    text = "killed [bash echo ran >> ran.txt] [hold]"
    talking = asyncio.create_task(server.talk(session.id, text, system="", call_id="killed/1"))
    await asked(llm, "killed", 2)  # the second request is the one behind the command
    own_opencode.kill()
    with pytest.raises(ModelError) as failed:
        await talking
    assert (failed.value.kind, failed.value.retryable) == ("connection", True)

    own_opencode.launch()
    again = asyncio.create_task(server.talk(session.id, text, system="", call_id="killed/1"))
    await asked(llm, "killed", 3)
    llm.release()
    assert (await again).text == "first last"
    assert (own_opencode.project / "ran.txt").read_text() == "ran\n"
    assert await prompts(server, session) == [text]


# -- asking for leave ----------------------------------------------------------------------------


@pytest.mark.parametrize(("allow", "seen"), [(True, "the secret is blue"), (False, "did not allow this")],
                         ids=["allowed", "refused"])
async def test_what_the_agent_asks_leave_for_is_done_as_the_person_says(
    server: OpenCodeServer, tmp_path: Path, session: SessionInfo, allow: bool, seen: str
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("the secret is blue\n")
    asks: asyncio.Queue[PermissionAsk] = asyncio.Queue()
    talking = asyncio.create_task(server.talk(
        session.id, f"leave [read {outside}]", system="", call_id=f"leave/{allow}", ask=asks.put_nowait))
    async with asyncio.timeout(20):
        ask = await asks.get()

    assert (ask.session, ask.what) == (session.id, "external_directory")
    assert ask.patterns == (f"{tmp_path}/*",)
    assert ask.detail == str(outside)
    assert server.asks() == (ask,)
    assert await server.answer(ask.id, allow)
    assert seen in (await talking).text
    assert asks.empty()
    assert server.asks() == ()
    assert not await server.answer(ask.id, allow)


async def test_what_a_sub_agent_asks_leave_for_comes_to_whom_its_agent_talks_to(
    server: OpenCodeServer, tmp_path: Path, session: SessionInfo
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("the secret is blue\n")
    other = await server.create("Beside it", session_id="own_beside_it", at=0.0)
    asks: asyncio.Queue[PermissionAsk] = asyncio.Queue()
    others: asyncio.Queue[PermissionAsk] = asyncio.Queue()
    talking = asyncio.create_task(server.talk(
        session.id, f"[task read {outside}]", system="", call_id="sub/1", ask=asks.put_nowait))
    beside = asyncio.create_task(server.talk(
        other.id, f"beside [read {outside}]", system="", call_id="sub/2", ask=others.put_nowait))
    async with asyncio.timeout(20):
        ask, other_ask = await asks.get(), await others.get()

    assert (ask.session, other_ask.session) == (session.id, other.id)
    assert await server.answer(ask.id, True)
    assert await server.answer(other_ask.id, False)
    assert "blue" in (await talking).text
    assert "blue" not in (await beside).text
    assert asks.empty()
    assert others.empty()


async def test_what_nobody_answers_in_time_is_not_allowed(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("the secret is blue\n")
    asks: list[PermissionAsk] = []
    reply = await connect(opencode, ask_timeout=0.5).talk(
        session.id, f"in time [read {outside}]", system="", call_id="in-time/1", ask=asks.append)

    assert [ask.over for ask in asks] == [False, True]
    assert asks[0].id == asks[1].id
    assert "Nobody answered in time" in reply.text
    assert "blue" not in reply.text


@pytest.mark.parametrize("way", ["stopped", "too long"])
@pytest.mark.parametrize("text", ["[read {}]", "[task read {}]"], ids=["itself", "sub-agent"])
async def test_what_a_turn_asked_leave_for_is_refused_when_it_is_cut_off(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo, way: str, text: str
) -> None:
    asks: asyncio.Queue[PermissionAsk] = asyncio.Queue()
    server = connect(opencode, turn_timeout=5.0 if way == "too long" else 60.0)
    talking = asyncio.create_task(server.talk(session.id, text.format(tmp_path / "x"), system="", call_id=f"{way}/1",
                                              ask=asks.put_nowait))
    async with asyncio.timeout(20):
        ask = await asks.get()
    if way == "stopped":
        talking.cancel()
    with pytest.raises(asyncio.CancelledError if way == "stopped" else ModelError):
        await talking

    assert await raw(opencode, "GET", f"/permission?directory={session.folder}") == []
    assert not await server.answer(ask.id, True)
    assert not await is_busy(opencode, session)


async def test_a_call_that_a_killed_process_left_is_stopped_with_what_it_asks_once_it_is_abandoned(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo
) -> None:
    await leave_behind(opencode, session, "left/1", f"left [read {tmp_path / 'x'}]")

    async def is_asked() -> bool:
        return bool(await open_asks(opencode, session))

    await until(is_asked)
    server = connect(opencode)
    await server.abandon(session.id, "another/1")
    assert await is_asked(), "another call is not to be stopped"

    await server.abandon(session.id, "left/1")

    assert not await is_asked()
    assert not await is_busy(opencode, session)
    assert (await server.talk(session.id, "go on", system="", call_id="left/2")).text == "echo: go on"


async def test_a_call_that_another_client_of_ours_has_left_is_known_by_its_prompt(
    server: OpenCodeServer, opencode: OpenCode, session: SessionInfo
) -> None:
    await server.talk(session.id, "is it ours?", system="", call_id="ours/1")

    (prompt, _) = await raw(opencode, "GET", f"/session/{session.id}/message")

    assert prompt["info"]["id"] == message_id(session.id, "ours/1")
    assert [part["metadata"] for part in prompt["parts"]] == [{"session_router": True}]


async def test_abandoning_a_call_leaves_what_came_after_it_alone(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    await server.talk(session.id, "over by now", system="", call_id="over/1")
    talking = asyncio.create_task(server.talk(session.id, "the next [hold]", system="", call_id="over/2"))
    await asked(llm, "the next")

    await server.abandon(session.id, "over/1")
    await server.abandon("ses_gone", "over/1")

    assert await is_busy(opencode, session)
    llm.release()
    assert (await talking).text == "first last"


async def test_abandoning_a_call_at_a_server_that_is_gone_is_an_error_and_nothing_else(
    own_opencode: OpenCode, connect: Connect
) -> None:
    with pytest.raises(SourceError):
        await connect(own_opencode, start_patience=0.1).abandon("ses_a", "gone/1")


@pytest.mark.parametrize("text", ["[read {}]", "[task read {}]", "[question]"], ids=["leave", "sub-agent", "choice"])
async def test_what_a_call_of_ours_asks_that_nobody_runs_any_more_holds_up_nobody_for_ever(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo, text: str
) -> None:
    await leave_behind(opencode, session, "forgotten/1", text.format(tmp_path / "x"))

    reply = await connect(opencode, ask_timeout=1.0).talk(session.id, "my turn", system="", call_id="mine/1")

    assert reply.text == "echo: my turn"
    assert await open_asks(opencode, session) == []


async def test_what_somebody_at_the_terminal_is_asked_is_for_him_to_answer(
    opencode: OpenCode, connect: Connect, tmp_path: Path, session: SessionInfo
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("the secret is blue\n")
    body = {"parts": [{"type": "text", "text": f"his own [read {outside}]"}]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)
    told: list[PermissionAsk] = []
    server = connect(opencode, ask_timeout=0.5)
    talking = asyncio.create_task(server.talk(session.id, "and me?", system="", call_id="his/1", ask=told.append))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3.5):  # time enough for three looks
            await asyncio.shield(talking)

    (his,) = await open_asks(opencode, session)
    assert told == []
    await raw(opencode, "POST", f"/permission/{his}/reply?directory={session.folder}", {"reply": "once"})

    assert (await talking).text == "echo: and me?"
    assert "the secret is blue" in (await server.context(session.id))[-3].text


async def test_what_was_asked_before_a_turn_is_none_of_its_asks(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, tmp_path: Path, session: SessionInfo
) -> None:
    body = {"parts": [{"type": "text", "text": f"before it [read {tmp_path / 'x'}]"}]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)

    async def is_asked() -> bool:
        return bool(await raw(opencode, "GET", f"/permission?directory={session.folder}"))

    await until(is_asked)
    await raw(opencode, "POST", f"/session/{session.id}/abort")
    assert await is_asked(), "OpenCode goes on asking"
    asks: list[PermissionAsk] = []

    assert (await server.talk(session.id, "behind it", system="", call_id="before/1", ask=asks.append)).text == (
        "echo: behind it")
    assert asks == []
    assert not await is_asked()


async def test_an_old_choice_is_dropped_before_a_turn_begins(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    body = {"parts": [{"type": "text", "text": "an old choice [question]"}]}
    await raw(opencode, "POST", f"/session/{session.id}/prompt_async", body)

    async def is_offered() -> bool:
        return bool(await raw(opencode, "GET", f"/question?directory={session.folder}"))

    await until(is_offered)
    await raw(opencode, "POST", f"/session/{session.id}/abort")
    assert await is_offered(), "OpenCode goes on offering it"
    talking = asyncio.create_task(server.talk(session.id, "no choice [hold]", system="", call_id="old/1"))
    await asked(llm, "no choice")

    assert not await is_offered()
    llm.release()
    await talking


async def test_a_choice_that_the_agent_offers_goes_back_to_it(server: OpenCodeServer, session: SessionInfo) -> None:
    reply = await server.talk(session.id, "choose [question]", system="", call_id="choose/1")

    assert "Put the question into your reply" in reply.text


# -- failures ------------------------------------------------------------------------------------


async def test_a_model_that_never_ends_properly_is_stopped_after_a_few_tries(
    server: OpenCodeServer, opencode: OpenCode, llm: FakeAgentLLM, session: SessionInfo
) -> None:
    with pytest.raises(ModelError) as failed:
        await server.talk(session.id, "loop [nofinish]", system="", call_id="loop/1")

    assert (failed.value.kind, failed.value.retryable) == ("loop", False)
    assert not await is_busy(opencode, session)
    assert 4 <= llm.count("loop") <= 12


async def test_a_failing_model_behind_opencode_is_told_by_its_kind(
    server: OpenCodeServer, session: SessionInfo
) -> None:
    with pytest.raises(ModelError) as failed:
        await server.talk(session.id, "[status 401]", system="", call_id="fails/1")
    assert (failed.value.kind, failed.value.retryable) == ("auth", False)
    with pytest.raises(ModelError) as failed:
        await server.talk(session.id, "[status 400]", system="", call_id="fails/2")
    assert (failed.value.kind, failed.value.retryable) == ("rejected", False)

    assert (await server.talk(session.id, "and now", system="", call_id="fails/3")).text == "echo: and now"


async def test_opencode_asking_a_failing_model_again_is_told(
    opencode: OpenCode, connect: Connect, session: SessionInfo
) -> None:
    told = asyncio.Event()
    tries: list[tuple[str, int, str]] = []

    def on_retry(session_id: str, number: int, words: str) -> None:
        tries.append((session_id, number, words))
        told.set()

    server = connect(opencode, on_retry=on_retry)
    talking = asyncio.create_task(server.talk(session.id, "[status 500]", system="", call_id="retry/1"))
    async with asyncio.timeout(20):
        await told.wait()
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking

    assert tries[0][:2] == (session.id, 1)
    assert not await is_busy(opencode, session)


@pytest.mark.parametrize("wrong", [{"model": ("fake", "none")}, {"agent": "none"}], ids=["model", "agent"])
async def test_a_model_or_agent_that_opencode_does_not_have_is_a_matter_of_config(
    opencode: OpenCode, connect: Connect, server: OpenCodeServer, session: SessionInfo, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="none") as failed:
        await connect(opencode, **wrong).talk(session.id, "hello?", system="", call_id="config/1")
    assert (failed.value.kind, failed.value.retryable) == ("config", False)

    assert (await server.talk(session.id, "hello!", system="", call_id="config/2")).text == "echo: hello!"


async def test_a_turn_in_no_session_fails_for_good(server: OpenCodeServer) -> None:
    with pytest.raises(ModelError) as failed:
        await server.talk("ses_nothing", "hello", system="", call_id="nowhere/1")
    assert (failed.value.kind, failed.value.retryable) == ("not_found", False)


@pytest.mark.parametrize("password", ["wrong-password-123", None])
async def test_a_wrong_password_is_told_and_never_shown(
    opencode: OpenCode, connect: Connect, password: str | None
) -> None:
    server = connect(opencode, password=password)
    with pytest.raises(SourceError, match="OPENCODE_SERVER_PASSWORD") as unread:
        await server.list()
    with pytest.raises(ModelError) as failed:
        await server.talk("ses_any", "hello", system="", call_id="wrong/1")

    assert unread.value.kind == "unreadable"
    assert (failed.value.kind, failed.value.retryable) == ("auth", False)
    for text in (str(unread.value), unread.value.detail, str(failed.value), repr(server)):
        assert str(password) not in text


async def test_an_address_that_leads_to_the_web_page_is_told(opencode: OpenCode, connect: Connect) -> None:
    server = connect(opencode, url=f"{opencode.url}/app")
    with pytest.raises(SourceError, match="the address that opencode serve prints") as unread:
        await server.list()
    with pytest.raises(ModelError) as failed:
        await server.talk("ses_any", "hello", system="", call_id="page/1")

    assert unread.value.kind == "foreign"
    assert (failed.value.kind, failed.value.retryable) == ("config", False)


async def test_opencode_2_is_told_to_be_not_supported(opencode: OpenCode, connect: Connect) -> None:
    """As OpenCode 2 answers by its published types: only /api is there, the rest is the web page."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/api/info"
            body = b'{"version": "2.0.26"}' if found else b"<!doctype html>"
            self.send_response(200)
            self.send_header("content-type", "application/json" if found else "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as newer:
        threading.Thread(target=newer.serve_forever, args=(0.02,), daemon=True).start()
        server = connect(opencode, url=f"http://127.0.0.1:{newer.server_address[1]}")
        with pytest.raises(SourceError, match="OpenCode 2, which is not supported yet") as unread:
            await server.list()
        newer.shutdown()
    assert unread.value.kind == "foreign"


async def test_a_server_that_hangs_is_not_waited_for_by_whoever_looks_at_sessions(
    own_opencode: OpenCode, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.opencode.server.LOOK_TIMEOUT", 0.5)
    own_opencode.start()
    server = connect(own_opencode, start_patience=0.0)
    made = await server.create("Flaky logins", session_id="own_hangs", at=0.0)
    with own_opencode.halted():
        with pytest.raises(SourceError, match=r"does not answer.*nothing within 0\.5 seconds") as caught:
            await server.list()
        assert caught.value.kind == "unreadable"

    assert await server.find(made.id) == made


async def test_a_server_that_is_still_starting_is_waited_for(own_opencode: OpenCode, connect: Connect) -> None:
    own_opencode.launch()
    server = connect(own_opencode, start_patience=60.0)
    session = await server.create("Early", session_id="own_early", at=0.0)

    assert (await server.talk(session.id, "early", system="", call_id="early/1")).text == "echo: early"


async def test_where_no_server_is_the_error_says_to_start_one(own_opencode: OpenCode, connect: Connect) -> None:
    server = connect(own_opencode, start_patience=0.2)
    with pytest.raises(SourceError, match="start opencode serve") as unread:
        await server.list()
    with pytest.raises(ModelError) as failed:
        await server.talk("ses_any", "hello", system="", call_id="nobody/1")

    assert unread.value.kind == "unreadable"
    assert (failed.value.kind, failed.value.retryable) == ("connection", True)


@pytest.mark.parametrize("address", ["127.0.0.1:4096", "http://opencode:hush@127.0.0.1:4096", "ftp://127.0.0.1", ""])
def test_an_address_that_cannot_be_right_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ValueError, match="OpenCode server") as refused:
        OpenCodeServer(address, password=None, model=None)
    assert "hush" not in str(refused.value)
