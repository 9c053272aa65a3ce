"""Models behind an address, against a real server on loopback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from fsm.language.redact import redact
from fsm.ports import ChatMessage, LanguageModel, ModelError, Reply
from session_router.models import FallbackChain, PydanticAIModel, closing_stream, openai_compatible
from tests.support.fake_llm import KEY, Answer, FakeLLM

HELLO: list[ChatMessage] = [{"role": "user", "content": "你好"}]

Connect = Callable[..., PydanticAIModel]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    models: list[PydanticAIModel] = []

    def connect(llm: FakeLLM | str, **options: Any) -> PydanticAIModel:
        url = llm if isinstance(llm, str) else llm.url
        models.append(openai_compatible(url, KEY, options.pop("model_name", "fake-1"), **options))
        return models[-1]

    yield connect
    for model in models:
        await model.close()


async def pieces_of(model: LanguageModel) -> tuple[list[str], Reply]:
    said: list[str | Reply] = [piece async for piece in model.stream(HELLO)]
    reply = said.pop()
    assert isinstance(reply, Reply)
    return [piece for piece in said if isinstance(piece, str)], reply


async def failure_of(model: LanguageModel, *, stream: bool) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await (pieces_of(model) if stream else model.complete(HELLO))
    return caught.value


async def test_an_answer_comes_with_its_usage_and_what_the_cache_saved(connect: Connect) -> None:
    with FakeLLM() as llm:
        reply = await connect(llm).complete(HELLO)
    assert reply == Reply("Hello from the fake.", input_tokens=120, output_tokens=7, cached_tokens=96)


async def test_a_stream_gives_pieces_and_then_the_whole_with_its_usage(connect: Connect) -> None:
    with FakeLLM() as llm:
        pieces, reply = await pieces_of(connect(llm))
    assert pieces == ["Hello", " from", " the", " fake."]
    assert reply == Reply("Hello from the fake.", input_tokens=120, output_tokens=7, cached_tokens=96)


async def test_messages_arrive_one_for_one_and_in_order(connect: Connect) -> None:
    messages: list[ChatMessage] = [
        {"role": "system", "content": "You are 小小莫."},
        {"role": "user", "content": "[xmpp] 一"},
        {"role": "user", "content": "[群聊] hmo: 二"},
        {"role": "assistant", "content": "三"},
        {"role": "system", "content": "##list_sessions## gave nothing"},
    ]
    with FakeLLM() as llm:
        await connect(llm, max_tokens=99, temperature=0.5).complete(messages)
    [sent] = llm.requests
    assert sent["messages"] == messages
    assert (sent["max_tokens"], sent["temperature"], sent["model"]) == (99, 0.5, "fake-1")
    assert "max_completion_tokens" not in sent
    assert llm.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_reasoning_is_not_part_of_the_text(connect: Connect) -> None:
    with FakeLLM([Answer("<think>so be it</think>Yes, gladly.")]) as llm:
        assert (await connect(llm).complete(HELLO)).text == "Yes, gladly."


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    with FakeLLM([Answer("")]) as llm:
        assert (await connect(llm).complete(HELLO)).text == ""
        assert (await pieces_of(connect(llm)))[1].text == ""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(500, "server", True), (503, "server", True), (429, "rate_limit", True), (401, "auth", False),
     (402, "quota", False), (404, "not_found", False), (400, "rejected", False)],
)
async def test_an_http_error_says_whether_asking_again_can_help(
    connect: Connect, status: int, kind: str, retryable: bool, stream: bool
) -> None:
    with FakeLLM([Answer(status=status)]) as llm:
        error = await failure_of(connect(llm), stream=stream)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert len(llm.requests) == 1, "the engine retries, not the client"


async def test_retries_happen_where_they_are_asked_for(connect: Connect) -> None:
    with FakeLLM([Answer(status=500), Answer("at last")]) as llm:
        assert (await connect(llm, max_retries=1).complete(HELLO)).text == "at last"


@pytest.mark.parametrize("answer", [Answer(body=b'{"choices": ['), Answer(body=b"<html>busy</html>"),
                                    Answer(body=b'{"choices": []}'), Answer(body=b"null")],
                         ids=["half", "html", "no-choice", "null"])
async def test_a_body_that_makes_no_sense_is_a_bad_reply(connect: Connect, answer: Answer) -> None:
    with FakeLLM([answer]) as llm:
        error = await failure_of(connect(llm), stream=False)
    assert (error.kind, error.retryable) == ("bad_reply", True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_connection_that_breaks_can_be_tried_again(connect: Connect, stream: bool) -> None:
    with FakeLLM([Answer(cut=True)]) as llm:
        error = await failure_of(connect(llm), stream=stream)
    assert (error.kind, error.retryable) == ("connection", True)


async def test_nobody_listening_is_a_connection_error(connect: Connect) -> None:
    with FakeLLM() as llm:
        pass
    error = await failure_of(connect(llm), stream=False)
    assert (error.kind, error.retryable) == ("connection", True)


async def test_a_stream_that_just_ends_is_not_a_whole_answer(connect: Connect) -> None:
    with FakeLLM([Answer(unfinished=True)]) as llm:
        error = await failure_of(connect(llm), stream=True)
    assert error.retryable
    assert "finish_reason" in str(error)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_time_limit_holds_for_all_that_a_request_does(connect: Connect, stream: bool) -> None:
    with FakeLLM([Answer(hang=True)]) as llm:
        model = connect(llm, request_timeout=0.3, max_retries=3)
        began = time.monotonic()
        error = await failure_of(model, stream=stream)
        took = time.monotonic() - began
        left = await asyncio.to_thread(llm.client_left.wait, 5)
    assert (error.kind, error.retryable) == ("timeout", True)
    assert left, "the connection was closed"
    assert took < 5
    assert len(llm.requests) == 1


async def test_a_cancelled_call_closes_its_connection(connect: Connect) -> None:
    with FakeLLM([Answer(hang=True)]) as llm:
        call = asyncio.create_task(connect(llm).complete(HELLO))
        assert await asyncio.to_thread(llm.asked.wait, 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(llm.client_left.wait, 5)


async def test_a_cancelled_stream_closes_its_connection(connect: Connect) -> None:
    with FakeLLM([Answer(hang=True)]) as llm:
        call = asyncio.create_task(pieces_of(connect(llm)))
        assert await asyncio.to_thread(llm.asked.wait, 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(llm.client_left.wait, 5)


async def test_a_reader_that_goes_away_closes_the_connection_and_the_model_lives_on(connect: Connect) -> None:
    with FakeLLM([Answer(hang=True), Answer("again")]) as llm:
        model = connect(llm)
        async with closing_stream(FallbackChain([model]).stream(HELLO)) as pieces:
            assert await anext(pieces) == "Hello"
        assert await asyncio.to_thread(llm.client_left.wait, 5)
        assert (await model.complete(HELLO)).text == "again"


async def test_a_closed_model_can_be_closed_again_and_opens_anew(connect: Connect) -> None:
    with FakeLLM() as llm:
        model = connect(llm)
        await model.complete(HELLO)
        await model.close()
        await model.close()
        assert (await model.complete(HELLO)).text == "Hello from the fake."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_RUN_05_a_key_is_never_shown(connect: Connect, stream: bool) -> None:
    words = f"Incorrect API key provided: {KEY} (Bearer {KEY}), request_id=req_1"
    with FakeLLM([Answer(status=401, error=words)]) as llm:
        model = connect(llm)
        error = await failure_of(model, stream=stream)
    assert "req_1" in str(error), "what helps to find the cause stays"
    for shown in (str(error), repr(error), repr(model), repr(error.args)):
        assert KEY not in shown
    assert error.__suppress_context__, "a traceback would print the provider's own words"


@pytest.mark.parametrize(
    ("text", "lacks", "keeps"),
    [
        ("401 invalid x-api-key sk-abc123 request_id=req_1", "sk-abc123", "req_1"),
        ("Authorization: Bearer eyJhbGciOi.J9", "eyJhbGciOi", "Authorization"),
        ('{"api_key": "0123456789", "model": "m"}', "0123456789", '"model": "m"'),
        ("Incorrect API key provided: sk-proj-ab****yz.", "ab****yz", "Incorrect"),
        ("the token hunter2 of the gateway", "hunter2", "gateway"),
        ("a task-list and a risk-free desk-job", "[hidden]", "task-list and a risk-free desk-job"),
    ],
)
def test_whatever_looks_like_a_key_is_hidden_and_the_rest_stays(text: str, lacks: str, keeps: str) -> None:
    shown = redact(text, ["hunter2", ""])
    assert lacks not in shown
    assert keeps in shown


class Scripted:
    """A model that says ``pieces`` and then fails, or ends."""

    def __init__(self, name: str, *pieces: str, fails: ModelError | None = None) -> None:
        self.name, self.pieces, self.fails, self.asked, self.closed = name, pieces, fails, 0, 0

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        self.asked += 1
        if self.fails:
            raise self.fails
        return Reply("".join(self.pieces))

    async def stream(
        self, messages: Sequence[ChatMessage], *, session_id: str = ""
    ) -> AsyncIterator[str | Reply]:
        self.asked += 1
        for piece in self.pieces:
            yield piece
        if self.fails:
            raise self.fails
        yield Reply("".join(self.pieces))

    async def close(self) -> None:
        self.closed += 1


DOWN = ModelError("a is down", kind="server")
REFUSED = ModelError("b wants a key", kind="auth", retryable=False)


async def test_the_next_model_answers_where_one_fails() -> None:
    a, b, c = Scripted("a", fails=DOWN), Scripted("b", "from b"), Scripted("c", "from c")
    chain = FallbackChain([a, b, c])
    assert chain.name == "a → b → c"
    assert (await chain.complete(HELLO)).text == "from b"
    assert await pieces_of(chain) == (["from b"], Reply("from b"))
    assert (a.asked, b.asked, c.asked) == (2, 2, 0)


async def test_a_stream_does_not_change_models_in_mid_sentence() -> None:
    a, b = Scripted("a", "half a", fails=DOWN), Scripted("b", "from b")
    pieces = FallbackChain([a, b]).stream(HELLO)
    assert await anext(pieces) == "half a"
    with pytest.raises(ModelError, match="a is down"):
        await anext(pieces)
    assert b.asked == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_when_all_fail_the_error_names_each_and_can_be_retried_if_one_can(stream: bool) -> None:
    chain = FallbackChain([Scripted("a", fails=DOWN), Scripted("b", fails=REFUSED)])
    error = await failure_of(chain, stream=stream)
    assert "a is down" in str(error)
    assert "b wants a key" in str(error)
    assert (error.kind, error.retryable) == ("auth", True)


async def test_closing_a_chain_closes_every_model() -> None:
    a, b = Scripted("a"), Scripted("b")
    await FallbackChain([a, b]).close()
    assert (a.closed, b.closed) == (1, 1)


async def test_a_chain_falls_over_a_server_that_is_gone(connect: Connect) -> None:
    with FakeLLM() as gone:
        pass
    with FakeLLM([Answer(status=500)]) as broken, FakeLLM([Answer("third time lucky")]) as good:
        chain = FallbackChain([connect(gone), connect(broken), connect(good)])
        assert (await pieces_of(chain))[1].text == "third time lucky"


async def test_a_package_that_is_missing_is_named_with_how_to_get_it() -> None:
    def open() -> Any:
        raise ModuleNotFoundError("No module named 'openai'", name="openai")

    error = await failure_of(PydanticAIModel(open, name="m"), stream=False)
    assert (error.kind, error.retryable) == ("missing", False)
    assert 'pip install ".[model]"' in str(error)


def test_more_retries_than_make_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 5, not 6"):
        openai_compatible("http://127.0.0.1:1/v1", KEY, "m", max_retries=6)


def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    code = (
        "import sys, session_router.choose_model\n"
        "print(sorted({'pydantic_ai', 'openai', 'httpx2', 'xllamacpp'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


async def test_no_test_can_leave_this_machine() -> None:
    with pytest.raises(BaseException, match=r"a test tried to reach .*192\.0\.2\.1"):
        await asyncio.open_connection("192.0.2.1", 80)
    with pytest.raises(BaseException, match="a test tried to look up example"):
        await openai_compatible("http://example.org/v1", KEY, "m").complete(HELLO)
