"""How agents are reached that run their own turns: ``[sources.opencode_server]`` and ``[sources.hermes_gateway]``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from session_router.agent_config import MOST, Name, Table, absolute, not_a_switch, secret_of
from session_router.config_errors import ConfigError, Problem

Seconds = Annotated[float, BeforeValidator(not_a_switch), Field(gt=0, le=MOST, allow_inf_nan=False)]


class _Server(Table):
    url: Name
    turn_timeout: Seconds = 300.0

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", url):
            raise ValueError("write it like http://127.0.0.1:4096, without a user name or password in it")
        return url.rstrip("/")

    @field_validator("password_env", "key_env", check_fields=False)
    @classmethod
    def _is_a_variable(cls, name: str) -> str:
        if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError("expected the name of an environment variable in capitals, not the secret itself")
        return name

    @field_validator("password_file", "key_file", "directory", check_fields=False)
    @classmethod
    def _beside_the_config(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        return absolute(file, info) if file else None


class OpenCodeServerConfig(_Server):
    """A running ``opencode serve``. ``model`` is ``provider/model``; without it a turn takes the model that the
    session named last. ``agent`` is one of OpenCode's own; ``directory`` the folder of new sessions. Seconds for
    ``turn_timeout``, ``ask_timeout`` (a request for leave that nobody answers is refused then) and ``start_patience``
    (how long a turn waits for a server that is starting)."""

    username: Name = "opencode"
    password: SecretStr | None = None
    password_env: str = ""
    password_file: Path | None = None
    model: str = ""
    agent: Name = "plan"
    directory: Path | None = None
    ask_timeout: Seconds = 120.0
    start_patience: Seconds = 10.0

    @field_validator("model")
    @classmethod
    def _has_two_parts(cls, model: str) -> str:
        if model and not re.fullmatch(r"[^/\s]+/\S+", model):
            raise ValueError("write it as provider/model, such as anthropic/claude-haiku-4-5")
        return model

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if sum((self.password is not None, bool(self.password_env), self.password_file is not None)) > 1:
            raise ValueError("give one of password, password_env and password_file")
        return self

    @property
    def model_pair(self) -> tuple[str, str] | None:
        """(provider, model); a model's own name may hold slashes."""
        provider, _, model = self.model.partition("/")
        return (provider, model) if model else None

    def secret(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The password; None where there is none. Raises :class:`ConfigError`."""
        found = _secret("opencode_server", "password", self.password_env, self.password_file, environ) or self.password
        return found.get_secret_value() if found else None


class HermesGatewayConfig(_Server):
    """A running ``hermes gateway``. ``key`` is the ``API_SERVER_KEY`` that it was started with; ``model`` one of its
    ``model_routes``. Seconds for ``turn_timeout``."""

    key: SecretStr | None = None
    key_env: str = ""
    key_file: Path | None = None
    model: str = ""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if sum((self.key is not None, bool(self.key_env), self.key_file is not None)) != 1:
            raise ValueError("give one of key, key_env and key_file: the API_SERVER_KEY of the gateway")
        return self

    def secret(self, environ: Mapping[str, str] = os.environ) -> str:
        """The key. Raises :class:`ConfigError`."""
        found = _secret("hermes_gateway", "key", self.key_env, self.key_file, environ) or self.key
        assert found is not None
        return found.get_secret_value()


def _secret(table: str, key: str, variable: str, file: Path | None, environ: Mapping[str, str]) -> SecretStr | None:
    try:
        return secret_of(key, variable, file, environ)
    except ConfigError as error:
        raise ConfigError([Problem(("sources", table, *error.path), error.text)]) from None
