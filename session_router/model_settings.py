"""Which language model an agent uses, as its config says it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from session_router.models import MAX_TOKENS, MOST_RETRIES, REQUEST_TIMEOUT

Provider = Literal[
    "auto", "openai", "anthropic", "deepseek", "moonshot", "openrouter", "dashscope",
    "ollama", "vllm", "compatible", "embedded",
]


class ModelSettings(BaseModel):
    """The ``model`` part of an agent's config; without any of it a model is looked for.

    A key is named, never written down: ``api_key_env`` is a variable of the environment, ``api_key_file`` a
    file with nothing else in it. Seconds for ``request_timeout``, tokens for ``max_tokens`` and ``context``.
    """

    # A key put into the wrong field must not come back in the error about it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Provider = "auto"
    """``auto`` looks for one; with ``base_url`` it means ``compatible``, any server of the OpenAI API."""
    base_url: str = ""
    """Where the API begins, up to ``/v1``; a provider's own address when empty."""
    model: str = ""
    """The provider's name for it; its usual one, or the first that a local server has, when empty."""
    api_key_env: str = ""
    api_key_file: Path | None = None
    max_tokens: int = Field(default=MAX_TOKENS, ge=1)
    request_timeout: float = Field(default=REQUEST_TIMEOUT, gt=0, allow_inf_nan=False)
    max_retries: int = Field(default=0, ge=0, le=MOST_RETRIES)
    """Retries inside one request; the engine's own come on top, so leave it at 0."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    gguf: Path | None = None
    """For ``embedded``: a model file of one's own in place of the small one that comes as a package."""
    context: int = Field(default=2048, ge=512)
    """For ``embedded``: tokens that the model sees at once; memory and time grow with it."""
    fallbacks: tuple[ModelSettings, ...] = ()
    """Asked in this order where the one above fails."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and not re.match(r"https?://[^/@\s]+(/\S*)?$", url):
            raise ValueError("write it like https://host/v1, without a user name or key in it")
        return url.rstrip("/")

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("give the name of a variable, such as OPENAI_API_KEY, not the key itself")
        return name

    @field_validator("gguf", "api_key_file")
    @classmethod
    def _from_home(cls, path: Path | None) -> Path | None:
        return path.expanduser() if path else None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.api_key_env and self.api_key_file:
            raise ValueError("give api_key_env or api_key_file, not both")
        if (self.api_key_env or self.api_key_file) and not self.names_one:
            raise ValueError("a key needs its provider (such as provider: openai) or a base_url beside it")
        if self.provider == "compatible" and not self.base_url:
            raise ValueError("provider compatible needs base_url, such as http://127.0.0.1:8000/v1")
        if self.provider == "embedded" and self.base_url:
            raise ValueError("provider embedded runs inside this program and takes no base_url")
        if self.gguf and self.provider not in ("auto", "embedded"):
            raise ValueError("gguf goes with provider embedded")
        if any(fallback.fallbacks for fallback in self.fallbacks):
            raise ValueError("a fallback has no fallbacks of its own: put them all into one list, in order")
        return self

    @property
    def names_one(self) -> bool:
        """Whether the config itself says which model, so that none is looked for."""
        return self.provider != "auto" or bool(self.base_url) or self.gguf is not None
