"""The token of an agent's HTTP port: from the config, else made up once and kept where only this user can read it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from session_router.agent_config import AgentConfig
from session_router.config_errors import ConfigError, Problem


def token_file(folder: Path, agent: str) -> Path:
    """Where a token that was made up is kept."""
    return folder / f"http-{agent}.token"


def token_of(settings: AgentConfig, folder: Path, environ: Mapping[str, str]) -> str | None:
    """The token as it is now; None where there is none yet. Raises ConfigError."""
    if (given := settings.http_token(environ)) is not None:
        return given.get_secret_value()
    file = token_file(folder, settings.name)
    try:
        return file.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(settings, file, error) from None


def token_for(settings: AgentConfig, folder: Path, environ: Mapping[str, str]) -> str:
    """The token, made up and kept (mode 0600) where there is none. Raises ConfigError."""
    if (token := token_of(settings, folder, environ)) is not None:
        return token
    file, token = token_file(folder, settings.name), secrets.token_urlsafe(32)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as out:
            out.write(token + "\n")
        os.replace(fresh, file)  # whoever reads finds all of it or nothing
    except OSError as error:
        raise _unusable(settings, file, error) from None
    return token


def _unusable(settings: AgentConfig, file: Path, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else "it is no token"
    text = f"{file} cannot be used ({reason}); correct that, or name another file as http_token_file"
    return ConfigError([Problem(("agents", settings.name, "http_port"), text)])
