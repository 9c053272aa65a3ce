"""The config: one TOML file and the environment over it, checked whole before anything starts.

Adding an agent is adding one table ``[agents.NAME]``; nothing else, anywhere, lists agents. Every key
can also be a variable of the environment, ``SESSION_ROUTER_`` and the keys joined by two underscores
(``SESSION_ROUTER_AGENTS__MOHE__TURN_TIMEOUT=60``; lists and tables as JSON), which wins over the file.
A wrong value and an unknown key are refused with the file, the key and the mend; values are never repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fsm.agent import Agent
from fsm.commands.builtin import BUILTIN
from fsm.commands.engine import ENGINE_COMMANDS
from fsm.commands.registry import Registry
from fsm.constants import Limits
from fsm.language.redact import HIDDEN, redact
from fsm.language.words import WORDS, Words
from session_router import config_sources
from session_router.agent_config import (
    DEFAULT_AGENT,
    LIMITS,
    SPELLINGS,
    AgentConfig,
    ExtraWords,
    FilePath,
    GroupConfig,
    Language,
    LimitKeys,
    Table,
    XmppConfig,
    absolute,
    bad_name,
    environ_of,
    not_a_switch,
    one_spelling,
    with_absolute_paths,
)
from session_router.config_errors import ConfigError, Path_, Problem, did_you_mean, problems_of
from session_router.model_settings import ModelSettings
from session_router.server_config import HermesGatewayConfig, OpenCodeServerConfig
from storage.hermes.files import default_path as hermes_path
from storage.opencode.files import default_path

__all__ = [
    "DEFAULT_AGENT",
    "DRAIN_TIMEOUT",
    "AgentConfig",
    "Config",
    "ConfigError",
    "GroupConfig",
    "LimitKeys",
    "ModelSettings",
    "Sources",
    "StoreConfig",
    "XmppConfig",
    "agent_from_mapping",
    "describe",
    "load",
]

DRAIN_TIMEOUT = 20.0


JOURNALS = "sessions"
"""The folder of our own sessions, in ``data_dir``."""


class StoreConfig(Table):
    """The engine's own file. A relative ``path`` begins in ``data_dir``. ``synchronous`` is SQLite's: with
    FULL nothing accepted is lost in a power cut, with NORMAL nothing when the process is killed. ``mirror``: a
    ``state.db`` of Hermes (true for its usual place) that gets a copy of the active senders, for programs that look
    for them there; after validation an absolute path, or None."""

    path: FilePath = Path("engine.db")
    mirror: Annotated[Path | None, PlainValidator(lambda value, info: _hermes(value, info))] = None
    synchronous: Annotated[
        Literal["FULL", "NORMAL", "OFF"], BeforeValidator(lambda v: v.upper() if isinstance(v, str) else v)
    ] = "FULL"


def _source(value: object, info: ValidationInfo, usual: Path) -> Path | None:
    match {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value:
        case None | False:
            return None
        case True:
            return usual
        case str() | Path() as path if str(path).strip():
            return absolute(path, info)
        case _:
            raise ValueError("expected the path of a file, true for its usual place, or false")


def _opencode(value: object, info: ValidationInfo) -> Path | None:
    return _source(value, info, default_path(environ_of(info)))


def _hermes(value: object, info: ValidationInfo) -> Path | None:
    return _source(value, info, hermes_path(environ_of(info)))


def _journal(value: object, info: ValidationInfo) -> Path | None:
    return _source(value, info, Path(JOURNALS))  # in data_dir, which is not known in here


class Sources(Table):
    """Where sessions are: a path, true for the place where the program itself keeps them, false for nothing. After
    validation an absolute path, or None where it is off. ``journal`` is a folder, our own sessions. The two servers
    let sessions be talked to as well.

    ``titles`` of our own sessions that were given none: their first message, or what the model makes of their first
    turn."""

    opencode: Annotated[Path | None, PlainValidator(_opencode)] = Field(default_factory=lambda: _usual())
    hermes: Annotated[Path | None, PlainValidator(_hermes)] = Field(default_factory=lambda: _usual())
    journal: Annotated[Path | None, PlainValidator(_journal)] = Field(default_factory=lambda: _usual())
    opencode_server: OpenCodeServerConfig | None = None
    hermes_gateway: HermesGatewayConfig | None = None
    titles: Literal["model", "first_message"] = "first_message"

    @model_validator(mode="before")
    @classmethod
    def _older_name(cls, values: Any) -> Any:
        return one_spelling(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.hermes_gateway is not None and self.hermes is None:
            raise ValueError("hermes_gateway needs hermes, the state.db that its sessions are read from")
        return self


def _usual() -> Any:
    return True  # a default is validated like any value, and so becomes the path


def _defaults() -> Any:
    return {}  # validated with the context, which a ready instance would have missed


class Config(Table):
    """The whole config. Each agent in ``agents`` is complete: language, words, constants and model that
    stand at the top are already in it where it does not set its own, and the other agents are among its ``bots``."""

    language: Language = "zh"
    data_dir: FilePath | None = None
    store: StoreConfig = StoreConfig()
    sources: Sources = Field(default_factory=lambda: _defaults())
    model: ModelSettings | None = None
    words: ExtraWords = Field(default=WORDS, repr=False)
    limits: LimitKeys = LimitKeys()
    drain_timeout: Annotated[
        float, BeforeValidator(not_a_switch), Field(ge=0, le=3600, allow_inf_nan=False)
    ] = DRAIN_TIMEOUT
    """Seconds that running turns have to end when `run` is told to stop, or an agent is taken out."""
    log_bodies: bool = False
    """Whether the log of `run` may hold what people and agents write."""
    agents: dict[str, AgentConfig] = Field(default_factory=dict)

    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """The file that it was read from, None without one."""
        return self._file

    @property
    def folder(self) -> Path:
        """``data_dir``, which is always set once validated."""
        assert self.data_dir is not None
        return self.data_dir

    @field_validator("data_dir")
    @classmethod
    def _found(cls, folder: Path | None, info: ValidationInfo) -> Path:
        if folder is None:
            return config_sources.data_folder(environ_of(info))
        found = absolute(folder, info)
        in_the_way = next((each for each in (found, *found.parents) if os.path.exists(each)), found)
        if os.path.isfile(in_the_way):
            raise ValueError(f"{in_the_way} is a file; name a folder, which is made where it is missing")
        return found

    @field_validator("store")
    @classmethod
    def _in_the_data_folder(cls, store: StoreConfig, info: ValidationInfo) -> StoreConfig:
        folder = info.data.get("data_dir") or Path.cwd()
        return store.model_copy(update={"path": config_sources.under(store.path, folder, environ_of(info))})

    @field_validator("sources")
    @classmethod
    def _ours_in_the_data_folder(cls, sources: Sources, info: ValidationInfo) -> Sources:
        if sources.journal is None or sources.journal.is_absolute():
            return sources
        folder = info.data.get("data_dir") or Path.cwd()
        return sources.model_copy(update={"journal": folder / sources.journal})

    @field_validator("model")
    @classmethod
    def _rooted(cls, model: ModelSettings | None, info: ValidationInfo) -> ModelSettings | None:
        return model and with_absolute_paths(model, info)

    @field_validator("agents")
    @classmethod
    def _complete(cls, agents: dict[str, AgentConfig], info: ValidationInfo) -> dict[str, AgentConfig]:
        for name, agent in agents.items():
            if problem := "an agent needs a name" if not name else bad_name(name):
                raise ValueError(problem)
            if agent.name not in ("", name):
                raise ValueError(f"the agent is named {name} by its table; leave `name` out of it")
        for kind in ("jid", "http_port"):
            seen: dict[Any, str] = {}
            for name, agent in agents.items():
                value = getattr(agent, kind)
                if value and seen.setdefault(value, name) != name:
                    raise ValueError(f"{seen[value]} and {name} have the same {kind}; give each its own")
        top = info.data
        if not {"language", "words", "limits", "model"} <= top.keys():
            return agents  # one of them is wrong, which is reported by itself
        ours = frozenset(agent.jid for agent in agents.values() if agent.jid)
        return {
            name: agent.model_copy(
                update={
                    "name": name,
                    # Bots like any others, or two of ours in one room would go on for ever.
                    "bots": agent.bots | ours - {agent.jid},
                    "language": agent.language or top["language"],
                    "words": top["words"].joined(agent.words),
                    "limits": LimitKeys(**{**top["limits"].given(), **agent.limits.given()}),
                    "model": agent.model or top["model"],
                }
            )
            for name, agent in (agents or {DEFAULT_AGENT: AgentConfig()}).items()
        }

    def agent(self, name: str | None = None) -> AgentConfig:
        """The agent of that name, the first one without a name. Raises :class:`ConfigError`."""
        if name is None:
            return next(iter(self.agents.values()))
        if (found := self.agents.get(name)) is None:
            raise ConfigError([Problem((), f"there is no agent `{name}`; {did_you_mean(name, self.agents)}")])
        return found


def load(
    path: Path | str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    folder: Path | None = None,
    commands: Registry = BUILTIN,
) -> Config:
    """The config of ``path`` (see :func:`session_router.config_sources.find_file`) and of ``environ``;
    without a file the defaults. ``folder`` is where the program was started, ``commands`` are those that
    ``permissions`` may narrow beside the engine's own. Raises :class:`ConfigError`."""
    folder = folder or Path.cwd()
    file = config_sources.find_file(path, environ, folder)
    written = config_sources.read_toml(file) if file else {}
    named = config_sources.from_environment(Config, environ)
    raw = config_sources.laid_over(written, named, SPELLINGS, any_case=("agents",))
    raw.setdefault("language", config_sources.language_of(environ))
    context = {
        "environ": environ,
        "folder": file.parent if file else folder,
        "permissions": commands.permissions | ENGINE_COMMANDS.keys(),
    }

    def place(path: Path_) -> str:
        variable = config_sources.variable_of(path, environ)
        return f"environment variable {variable}" if variable else str(file or "")

    try:
        config = Config.model_validate(raw, context=context)
    except ValidationError as error:
        # from None: what pydantic knows includes the values.
        raise ConfigError(_problems(error, Config, raw, place)) from None
    config._file = file
    return config


def agent_from_mapping(mapping: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Agent:
    """The agent that a mapping of config keys describes, laid key by key over those of ``base``.

    ``name`` may stand among them. Raises :class:`ConfigError` with ``key`` and ``path`` into the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError([Problem((), "expected a table of an agent's keys")])
    limits = mapping.get("limits")
    replaced = {SPELLINGS.get(key, key) for key in limits} if isinstance(limits, Mapping) else set()
    below = {key: value for key, value in (base or {}).items() if SPELLINGS.get(key, key) not in replaced}
    raw = config_sources.laid_over(below, mapping, SPELLINGS, depth=0)
    try:
        return AgentConfig.model_validate(raw).to_agent()
    except ValidationError as error:
        raise ConfigError(_problems(error, AgentConfig, raw, lambda path: "")) from None


def _problems(
    error: ValidationError, model: type[BaseModel], raw: Mapping[str, Any], place: Callable[[Path_], str]
) -> list[Problem]:
    return problems_of(error, model, lambda path: _as_written(path, raw), place, {AgentConfig: LIMITS})


def _as_written(path: Path_, raw: Any) -> Path_:
    """A path of the models as the config spells it: a constant may be in capitals and a level higher."""
    found: list[str | int] = []
    parts = list(path)
    while parts:
        part = parts.pop(0)
        if isinstance(raw, Mapping):
            spellings = [part, *(other for other, own in SPELLINGS.items() if own == part)]
            if part == "limits" and not _holds(raw.get("limits"), parts):
                continue  # it was gathered from the level above
            part = next((key for key in spellings if key in raw), part)
            raw = raw.get(part)
        elif isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        elif isinstance(raw, str) and isinstance(part, int):
            continue  # one text that stands for a list
        found.append(part)
    return tuple(found)


def _holds(table: Any, rest: list[str | int]) -> bool:
    return isinstance(table, Mapping) and (not rest or any(SPELLINGS.get(k, k) == rest[0] for k in table))


# -- showing it ----------------------------------------------------------------------------------


def describe(config: Config) -> dict[str, Any]:
    """The config in force as JSON values, every agent whole; of a secret only whether there is one."""
    shown: dict[str, Any] = {
        "file": str(config.file) if config.file else None,
        "language": config.language,
        "data_dir": str(config.data_dir),
        "store": config.store.model_dump(mode="json"),
        "sources": _hidden(config.sources.model_dump(mode="json")),
        "drain_timeout": config.drain_timeout,
        "log_bodies": config.log_bodies,
        "agents": {name: _describe_agent(agent) for name, agent in config.agents.items()},
    }
    masked: dict[str, Any] = _plain(shown)
    return masked


def _describe_agent(agent: AgentConfig) -> dict[str, Any]:
    values = agent.model_dump(exclude={"words", "limits", "password"})
    extra = {
        name: [word for word in getattr(agent.words, name) if word not in getattr(WORDS, name)]
        for name in Words.__struct_fields__
    }
    return {
        **values,
        "password": HIDDEN if agent.password else None,
        "words": {name: added for name, added in extra.items() if added},
        **asdict(Limits(**agent.limits.given())),
    }


def _hidden(values: dict[str, Any]) -> dict[str, Any]:
    """The same with our own sign in place of pydantic's for a secret."""
    for table in values.values():
        if isinstance(table, dict):
            table.update({name: HIDDEN for name in ("password", "key") if table.get(name)})
    return values


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(map(_plain, value))
        case list() | tuple():
            return [_plain(each) for each in value]
        case str() | Path():
            return redact(str(value))
        case _:
            return value
