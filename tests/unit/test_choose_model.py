"""Which model is taken, and what is said where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsm.ports import ModelError
from session_router import choose_model, embedded
from session_router.choose_model import PROVIDERS, choose
from session_router.embedded import EmbeddedModel
from session_router.model_settings import ModelSettings
from session_router.models import FallbackChain, PydanticAIModel
from tests.support.fake_llm import KEY, Answer, FakeLLM

NOBODY = "http://127.0.0.1:9/v1"
"""The discard port: nothing listens there."""


@pytest.fixture(autouse=True)
def nothing_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server on this machine answers, whatever really runs on it."""
    monkeypatch.setattr(choose_model, "LOCAL", {"ollama": NOBODY, "vllm": NOBODY})


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        yield llm


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "")
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: tmp_path / "small.gguf")


async def refusal(settings: ModelSettings | None, environ: dict[str, str]) -> str:
    with pytest.raises(ModelError) as caught:
        await choose(settings, environ)
    assert not caught.value.retryable
    return str(caught.value)


async def test_what_the_config_names_comes_before_a_key_in_the_environment(llm: FakeLLM) -> None:
    settings = ModelSettings(base_url=llm.url, model="mine", api_key_env="MY_KEY")
    chosen = await choose(settings, {"MY_KEY": KEY, "OPENAI_API_KEY": "sk-other"})
    assert (chosen.why, chosen.demo) == ("the config names it", False)
    assert chosen.label.startswith("mine (")
    reply = await chosen.model.complete([{"role": "user", "content": "Hi"}])
    await chosen.model.close()
    assert reply.text == "Hello from the fake."
    assert llm.requests[0]["model"] == "mine"
    assert llm.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_a_providers_key_is_not_sent_to_another_address(llm: FakeLLM) -> None:
    settings = ModelSettings(provider="openai", base_url=llm.url, model="mine")
    chosen = await choose(settings, {"OPENAI_API_KEY": KEY})
    await chosen.model.complete([{"role": "user", "content": "Hi"}])
    await chosen.model.close()
    assert KEY not in str(llm.headers)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_key_in_the_environment_is_enough(name: str) -> None:
    provider = PROVIDERS[name]
    chosen = await choose(None, {provider.key: KEY})
    assert isinstance(chosen.model, PydanticAIModel)
    assert (chosen.label, chosen.why) == (f"{provider.model} ({provider.title})", f"{provider.key} is set")
    assert KEY not in repr(chosen)


@pytest.mark.parametrize("name", ["openai", "anthropic", "deepseek", "moonshot"])
def test_the_usual_model_of_a_provider_is_one_that_is_known(name: str) -> None:
    from pydantic_ai.models import known_model_names

    prefix = {"moonshot": "moonshotai"}.get(name, name)
    assert f"{prefix}:{PROVIDERS[name].model}" in known_model_names()


async def test_the_environment_may_name_the_model_too() -> None:
    environ = {"DEEPSEEK_API_KEY": KEY, "SESSION_ROUTER_MODEL": "other"}
    assert (await choose(None, environ)).label == "other (DeepSeek)"
    assert (await choose(ModelSettings(model="mine"), environ)).label == "mine (DeepSeek)"


async def test_an_address_beside_openais_key_is_asked_for_its_first_model(llm: FakeLLM) -> None:
    chosen = await choose(None, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{llm.url}/"})
    assert (chosen.label, chosen.why) == ("fake-1 (OpenAI)", "OPENAI_BASE_URL is set")


async def test_an_address_that_lists_nothing_is_an_error_that_says_what_to_set() -> None:
    assert "SESSION_ROUTER_MODEL" in await refusal(None, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": NOBODY})
    assert "name one as model" in await refusal(ModelSettings(base_url=NOBODY), {})


async def test_a_local_ollama_is_found_and_its_embedding_models_passed_over() -> None:
    with FakeLLM(models=("nomic-embed-text", "qwen3:8b")) as llm:
        chosen = await choose(None, {"OLLAMA_HOST": llm.host.replace("127.0.0.1", "0.0.0.0")})
    assert (chosen.label, chosen.why) == ("qwen3:8b (Ollama)", "Ollama answers on this machine")


async def test_a_local_vllm_is_found(llm: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose_model.LOCAL, "vllm", llm.url)
    assert (await choose(None, {})).label == "fake-1 (vLLM)"


@pytest.mark.parametrize("models", [b"<html>", b"[]", b'{"data": 3}', b'{"data": [3, {"id": ""}]}', b"\xff"])
async def test_something_else_on_a_servers_port_is_passed_over(
    models: Any, monkeypatch: pytest.MonkeyPatch, packaged: None
) -> None:
    with FakeLLM(models=models) as other:
        monkeypatch.setitem(choose_model.LOCAL, "vllm", other.url)
        assert (await choose(None, {})).demo


async def test_without_anything_else_the_embedded_model_is_taken_and_called_a_demo(packaged: None) -> None:
    chosen = await choose(None, {"OPENAI_API_KEY": ""})
    assert isinstance(chosen.model, EmbeddedModel)
    assert chosen.demo
    assert "demo quality" in chosen.label
    assert chosen.why == "no key and no local server was found"


async def test_a_server_that_never_answers_does_not_hold_up_the_start(
    packaged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        monkeypatch.setattr(choose_model, "LOCAL", {"ollama": url, "vllm": url})
        began = time.monotonic()
        assert (await choose(None, {})).demo
        assert time.monotonic() - began < 2


async def test_where_there_is_nothing_every_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "")
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    said = await refusal(None, {})
    for mend in ("OPENAI_API_KEY", "Ollama", "config", "make chat"):
        assert mend in said


async def test_a_model_file_of_ones_own_is_no_demo(packaged: None, tmp_path: Path) -> None:
    chosen = await choose(ModelSettings(gguf=tmp_path / "qwen3-4b.gguf"), {"OPENAI_API_KEY": KEY})
    assert (chosen.label, chosen.demo) == ("qwen3-4b (embedded)", False)


async def test_fallbacks_make_a_chain_in_their_order(llm: FakeLLM) -> None:
    with FakeLLM([Answer(status=500)]) as broken:
        second = ModelSettings(base_url=llm.url, model="second")
        chosen = await choose(ModelSettings(base_url=broken.url, fallbacks=(second,)), {})
        assert isinstance(chosen.model, FallbackChain)
        reply = await chosen.model.complete([{"role": "user", "content": "Hi"}])
        await chosen.model.close()
    assert reply.text == "Hello from the fake."
    assert chosen.model.name == "fake-1 → second"


async def test_a_key_comes_from_a_file_with_nothing_else_in_it(llm: FakeLLM, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    settings = ModelSettings(base_url=llm.url, api_key_file=file)
    chosen = await choose(settings, {})
    await chosen.model.complete([{"role": "user", "content": "Hi"}])
    await chosen.model.close()
    assert llm.headers[0]["authorization"] == f"Bearer {KEY}"

    file.write_text(f"OPENAI_API_KEY = {KEY}")
    said = await refusal(settings, {})
    assert "nothing else" in said
    assert KEY not in said
    file.unlink()
    assert "check api_key_file" in await refusal(settings, {})


async def test_a_key_that_the_config_wants_and_nobody_set_is_named() -> None:
    assert "MY_KEY" in await refusal(ModelSettings(provider="openai", api_key_env="MY_KEY"), {})
    assert "OPENAI_API_KEY" in await refusal(ModelSettings(provider="openai"), {})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"api_key_env": KEY, "provider": "openai"}, "the name of a variable"),
        ({"api_key": KEY}, "Extra inputs"),
        ({"base_url": f"https://user:{KEY}@host/v1"}, "without a user name or key"),
        ({"base_url": "host:8000/v1"}, "https://host/v1"),
        ({"provider": "compatible"}, "needs base_url"),
        ({"provider": "embedded", "base_url": "http://host/v1"}, "takes no base_url"),
        ({"provider": "openai", "gguf": "a.gguf"}, "provider embedded"),
        ({"api_key_env": "MY_KEY"}, "needs its provider"),
        ({"provider": "openai", "api_key_env": "A", "api_key_file": "b"}, "not both"),
        ({"request_timeout": 0}, "greater than 0"),
        ({"max_retries": 9}, "less than or equal to 5"),
        ({"fallbacks": [{"fallbacks": [{}]}]}, "one list"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused_without_showing_what_stood_there(
    wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelSettings.model_validate(wrong)
    assert says in str(caught.value)
    assert KEY not in str(caught.value)
