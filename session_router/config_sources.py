"""Where the config comes from: one TOML file, and the environment laid over it.

Both are plain nested mappings here; :mod:`session_router.config` says what they mean.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from session_router.config_errors import ConfigError, Path_, Problem, did_you_mean

PREFIX = "SESSION_ROUTER_"
DELIMITER = "__"
FILE_VARIABLE = "SESSION_ROUTER_CONFIG"
FILE_NAME = "session-router.toml"
NOT_OURS = frozenset({FILE_VARIABLE, "SESSION_ROUTER_MODEL"})
"""Variables that begin like ours and are no keys: the file itself, and the model's bare name, which the
search for a model reads."""


def home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _folder(environ: Mapping[str, str], variable: str, windows: str, otherwise: str) -> Path:
    # The XDG rules: a relative path in these variables is to be ignored.
    for name in (variable, windows):
        if (value := environ.get(name)) and Path(value).is_absolute():
            return Path(value) / "session-router"
    return home(environ) / otherwise / "session-router"


def data_folder(environ: Mapping[str, str]) -> Path:
    """``$XDG_DATA_HOME/session-router``, else ``~/.local/share/session-router``."""
    return _folder(environ, "XDG_DATA_HOME", "LOCALAPPDATA", ".local/share")


def config_folder(environ: Mapping[str, str]) -> Path:
    """``$XDG_CONFIG_HOME/session-router``, else ``~/.config/session-router``."""
    return _folder(environ, "XDG_CONFIG_HOME", "APPDATA", ".config")


def language_of(environ: Mapping[str, str]) -> str:
    """``zh`` or ``en``, from the first of LC_ALL, LC_MESSAGES and LANG that is set."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def find_file(path: Path | str | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    """The config file: ``path``, else ``$SESSION_ROUTER_CONFIG``, else ``session-router.toml`` in
    ``folder``, else ``config.toml`` in :func:`config_folder`; None where there is none.

    Raises :class:`ConfigError` where one that was named is not there, or the first that is there is a folder.
    """
    for named, by in ((path, "--config"), (environ.get(FILE_VARIABLE), FILE_VARIABLE)):
        if named:
            file = under(named, folder, environ)
            if not file.is_file():
                kind = "is a folder" if file.is_dir() else "is not there"
                raise ConfigError(
                    [
                        Problem(
                            (),
                            f"the config file {file} {kind}: correct {by}, or make it with `session-router init`",
                        )
                    ]
                )
            return file
    for file in (folder / FILE_NAME, config_folder(environ) / "config.toml"):
        if file.is_file():
            return file
        if file.is_dir():
            text = f"the config file {file} is a folder: rename or remove it, or name another file with --config"
            raise ConfigError([Problem((), text)])
    return None


def under(path: Path | str, folder: Path, environ: Mapping[str, str]) -> Path:
    """``path`` made absolute: ``~`` is the home of ``environ``, a relative one begins in ``folder``."""
    text = str(path)
    if text == "~" or text.startswith(("~/", "~\\")):
        return home(environ) / text[2:]
    return folder / text


def read_toml(file: Path) -> dict[str, Any]:
    """The tables of a file. Raises :class:`ConfigError` where it cannot be read or is no TOML."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        reason = f"cannot be read ({error.strerror or type(error).__name__}): check who may read it"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start}): save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason = f"this is not TOML: {error}"
    raise ConfigError([Problem((), reason, str(file))])


class _Environment(EnvSettingsSource):
    """pydantic-settings' reading of nested variables, from the mapping that it is given."""

    def __init__(self, model: type[BaseModel], environ: Mapping[str, str]) -> None:
        self._environ = {
            name.lower(): value
            for name, value in environ.items()
            if name.upper().startswith(PREFIX) and name.upper() not in NOT_OURS
        }
        # Only the fields of the class are looked at, which any model has.
        super().__init__(cast(Any, model), case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter=DELIMITER)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(self._environ)

    def decode_complex_value(self, field_name: str, field: FieldInfo | None, value: Any) -> Any:
        """JSON, or for a list also ``one, two``. Anything else stays text, for validation to judge."""
        try:
            return json.loads(value)
        except ValueError:
            if field is not None and get_origin(field.annotation) in (tuple, frozenset):
                return [part.strip() for part in value.split(",") if part.strip()]
            return value


def from_environment(model: type[BaseModel], environ: Mapping[str, str]) -> dict[str, Any]:
    """The nested mapping of all ``SESSION_ROUTER_...`` variables.

    Raises :class:`ConfigError` for one that seems to be meant for a key and matches none.
    """
    known = model.model_fields
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name.upper() in NOT_OURS:
            continue
        word, nested, _ = name[len(PREFIX) :].lower().partition(DELIMITER)
        hint = did_you_mean(word, known)
        # One without a nested key may well be somebody's own, such as the variable that holds a password.
        if word not in known and (nested or "mean" in hint):
            raise ConfigError([Problem((), f"unknown key `{word}`; {hint}", f"environment variable {name}")])
    return _Environment(model, environ)()


def variable_of(path: Path_, environ: Mapping[str, str]) -> str:
    """The variable that a value at ``path`` was read from: the nearest that is set, else nothing."""
    names = {name.upper(): name for name in environ}
    for end in range(len(path), 0, -1):
        name = PREFIX + DELIMITER.join(map(str, path[:end])).upper()
        if name in names and name not in NOT_OURS:
            return names[name]
    return ""


def laid_over(
    below: Mapping[str, Any],
    above: Mapping[str, Any],
    same: Mapping[str, str],
    any_case: Iterable[str] = (),
    depth: int | None = None,
) -> dict[str, Any]:
    """``below`` with the keys of ``above``, tables merged key by key down to ``depth`` (all by default).

    ``same`` turns other spellings of a key into its own, so that one spelling replaces the other. In
    tables named by ``any_case`` a key of ``above`` means the one of ``below`` that differs in case only.
    """
    merged = dict(below)
    for key, value in above.items():
        old = next((k for k in merged if same.get(k, k) == same.get(key, key)), key)
        before = merged.get(old)
        if old != key:
            del merged[old]
        if isinstance(before, Mapping) and isinstance(value, Mapping) and depth != 0:
            if key in any_case:
                cases = {str(k).casefold(): k for k in before}
                value = {cases.get(str(k).casefold(), k): v for k, v in value.items()}
            merged[key] = laid_over(before, value, same, any_case, None if depth is None else depth - 1)
        else:
            merged[key] = value
    return merged
