"""The config of one agent, and the kinds of values that stand in it.

Every field of :class:`fsm.agent.Agent` and every constant of :class:`fsm.constants.Limits` is a key here;
what else stands beside them says how the agent reaches its channels and its model.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from msgspec import structs
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from fsm.agent import Agent, Group
from fsm.constants import Limits
from fsm.language.words import WORDS, Words
from session_router import config_sources
from session_router.config_errors import ConfigError, Problem, did_you_mean
from session_router.model_settings import ModelSettings

DEFAULT_AGENT = "assistant"
"""The agent that is there without any config."""

Language = Literal["zh", "en"]

# -- kinds of values -----------------------------------------------------------------------------


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def not_a_switch(value: object) -> object:
    # pydantic would take true for 1.
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listed)]
"""A list of texts; one text stands for a list of one."""
NameSet = Annotated[frozenset[Name], BeforeValidator(_listed)]


def environ_of(info: ValidationInfo) -> Mapping[str, str]:
    """The environment that a config is read in; the process's own where none was handed over."""
    found: Mapping[str, str] = (info.context or {}).get("environ", os.environ)
    return found


def a_path(value: object) -> object:
    """``value``, where it is text that can be a path. Raises :class:`ValueError`."""
    if not isinstance(value, str | Path):
        return value
    text = str(value)
    if not text.strip():
        raise ValueError("expected a path, not empty text; leave the key out for what is usual")
    if any(sign < " " or sign == "\x7f" for sign in text):
        raise ValueError("a path holds no control characters, such as NUL or the end of a line")
    if text.startswith("~") and text[1:2] not in ("", "/", "\\"):
        raise ValueError("`~` stands for your own home only; write another's path out, or `./~…` for a file named so")
    return value


FilePath = Annotated[Path, BeforeValidator(a_path)]


def absolute(path: Path | str, info: ValidationInfo) -> Path:
    """Relative paths begin at the config file: it may be started from anywhere. Raises as :func:`a_path` for text."""
    if isinstance(path, str):
        a_path(path)
    return config_sources.under(path, (info.context or {}).get("folder") or Path.cwd(), environ_of(info))


class Table(BaseModel):
    """A table of the config: unknown keys are refused, and values stay out of pydantic's own errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


# -- the constants -------------------------------------------------------------------------------

LIMITS: Mapping[str, Any] = typing.get_type_hints(Limits)
"""The constants that a config may set, in lower case, with their types."""
MAY_BE_ZERO = frozenset({"queue_limit", "model_retries", "max_resumes", "rate_limit", "bot_budget"})
"""Counts that mean something at 0; every other one, and every time, begins above it."""
MOST = 10**9
SPELLINGS: Mapping[str, str] = {name.upper(): name for name in LIMITS} | {
    "DB_PATH": "opencode",
    "db_path": "opencode",
}
"""The names that older setups of this router have for keys, and ours."""


class _LimitsBase(Table):
    @model_validator(mode="before")
    @classmethod
    def _in_lower_case(cls, values: Any) -> Any:
        return one_spelling(values) if isinstance(values, Mapping) else values

    def given(self) -> dict[str, Any]:
        """Only those that the config sets."""
        return self.model_dump(exclude_unset=True)


def one_spelling(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same table with our names for those of older setups. Raises :class:`ValueError` where both stand there."""
    renamed: dict[Any, Any] = {}
    for key, value in values.items():
        own = SPELLINGS.get(key, key)
        if own in renamed:
            raise ValueError(f"`{own}` is given twice, in two spellings; keep one of them")
        renamed[own] = value
    return renamed


def _limit(name: str, default: Any, kind: Any) -> tuple[Any, Any]:
    if kind is int:
        return Annotated[
            int, BeforeValidator(not_a_switch), Field(ge=0 if name in MAY_BE_ZERO else 1, le=MOST)
        ], default
    if kind is float:
        return Annotated[float, BeforeValidator(not_a_switch), Field(gt=0, le=MOST, allow_inf_nan=False)], default
    seconds = Annotated[float, BeforeValidator(not_a_switch), Field(ge=0, le=MOST, allow_inf_nan=False)]
    return Annotated[tuple[seconds, ...], Field(min_length=1)], default


if TYPE_CHECKING:

    class LimitKeys(_LimitsBase):
        """Every field of :class:`fsm.constants.Limits`, in lower or upper case."""
else:
    # Made from the core's own list, so that a new constant is a key of the config at once.
    LimitKeys = create_model(
        "LimitKeys",
        __base__=_LimitsBase,
        __module__=__name__,
        **{name: _limit(name, getattr(Limits(), name), kind) for name, kind in LIMITS.items()},
    )


# -- words ---------------------------------------------------------------------------------------


def _words(value: object) -> Words:
    if isinstance(value, Words):
        return value
    if not isinstance(value, Mapping):
        raise ValueError('expected a table such as { stop = ["wait"] }')
    try:
        return WORDS.extended(value)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("words: ").rstrip(".")) from None


ExtraWords = Annotated[Words, PlainValidator(_words), PlainSerializer(structs.asdict)]
"""Words of a language that people may use beside ours."""

# -- an agent ------------------------------------------------------------------------------------


class GroupConfig(Table):
    """One room. ``allow``: whose messages are answered, by real JID or occupant id; ``others``: whether the
    rest is context; ``nicks``: whether a bare nick, which anybody can take, counts in ``allow``."""

    allow: NameSet = frozenset()
    others: Literal["context", "nothing"] = "context"
    nicks: bool = False


class XmppConfig(Table):
    """How an agent reaches its XMPP server, where DNS and the defaults do not do. Seconds for ``answer_missed``: how
    old what was said in a room while the link was down may be and still be answered. See
    :class:`channels.xmpp.XmppAccount`."""

    host: str = ""
    port: Annotated[int, BeforeValidator(not_a_switch), Field(ge=1, le=65535)] | None = None
    direct_tls: bool = False
    ca_file: FilePath | None = None
    plaintext_loopback: bool = False
    resource: Name = "session-router"
    history: Annotated[int, BeforeValidator(not_a_switch), Field(ge=0, le=1000)] = 20
    answer_missed: Annotated[float, BeforeValidator(not_a_switch), Field(ge=0, le=MOST, allow_inf_nan=False)] = 600.0

    @field_validator("ca_file")
    @classmethod
    def _beside_the_config(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        return absolute(file, info) if file else None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if bool(self.host) != bool(self.port):
            raise ValueError("host and port go together; give both or neither")
        return self


class AgentConfig(Table):
    """One ``[agents.NAME]``. Beside its fields it takes every key of :class:`LimitKeys` at its own level."""

    name: str = ""
    """Only where no table's key names it, as in a scenario."""
    nick: str = ""
    aliases: Names = ()
    language: Language | None = None
    user_label: Name = "用户"
    agent_label: str = ""
    instructions: str = ""
    default_session: Name | None = None
    auto: bool = True
    make_sessions: bool = True
    allow: NameSet = frozenset()
    groups: dict[Name, GroupConfig] = {}
    bots: NameSet = frozenset()
    permissions: dict[Name, NameSet] = {}
    visible: dict[Name, NameSet] = {}
    words: ExtraWords = Field(default=WORDS, repr=False)
    limits: LimitKeys = LimitKeys()
    model: ModelSettings | None = None
    jid: str = ""
    password: SecretStr | None = None
    password_env: str = ""
    password_file: FilePath | None = None
    rooms: Names = ()
    """Rooms to join; those of ``groups`` are joined as well."""
    xmpp: XmppConfig = XmppConfig()
    http_port: Annotated[int, BeforeValidator(not_a_switch), Field(ge=1, le=65535)] | None = None
    http_token_env: str = ""
    http_token_file: FilePath | None = None
    """Without either, a token is made up at the first start and kept in ``data_dir``."""

    @model_validator(mode="before")
    @classmethod
    def _gather_limits(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        here = {key: value for key, value in values.items() if SPELLINGS.get(key, key) in LIMITS}
        if not here:
            return values
        table = values.get("limits", {})
        if isinstance(table, LimitKeys):
            table = table.given()
        if not isinstance(table, Mapping):
            return values
        if twice := {SPELLINGS.get(key, key) for key in here} & {SPELLINGS.get(key, key) for key in table}:
            raise ValueError(f"`{min(twice)}` is given twice, here and under limits; keep one of them")
        return {key: value for key, value in values.items() if key not in here} | {"limits": {**table, **here}}

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if problem := bad_name(name):
            raise ValueError(problem)
        return name

    @field_validator("jid")
    @classmethod
    def _is_an_address(cls, jid: str) -> str:
        if jid and not re.fullmatch(r"[^@/\s]+@[^@/\s]+", jid):
            raise ValueError("expected an address such as mohe@example.org, with no resource behind it")
        return jid.lower()

    @field_validator("rooms", "groups")
    @classmethod
    def _are_rooms(cls, rooms: Any) -> Any:
        for room in rooms:
            if room.startswith("xmpp:"):
                raise ValueError("write rooms without `xmpp:` before them, such as team@muc.example.org")
        return rooms

    @field_validator("permissions")
    @classmethod
    def _are_commands(cls, permissions: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        # A name that narrows nothing would leave open what was to be closed.
        known: Collection[str] | None = (info.context or {}).get("permissions")
        for name in permissions:
            if known is not None and name not in known:
                raise ValueError(f"there is no command `{name}`; {did_you_mean(name, known)}")
        return permissions

    @field_validator("password_env", "http_token_env")
    @classmethod
    def _is_a_variable(cls, name: str, info: ValidationInfo) -> str:
        # Capitals only: a password put here by mistake seldom looks so.
        if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            kind = "password" if info.field_name == "password_env" else "token"
            raise ValueError(f"expected the name of an environment variable in capitals, not a {kind}")
        return name

    @field_validator("password_file", "http_token_file")
    @classmethod
    def _beside_the_config(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        return absolute(file, info) if file else None

    @field_validator("model")
    @classmethod
    def _rooted(cls, model: ModelSettings | None, info: ValidationInfo) -> ModelSettings | None:
        return model and with_absolute_paths(model, info)

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if sum((self.password is not None, bool(self.password_env), self.password_file is not None)) > 1:
            raise ValueError("give one of password, password_env and password_file")
        if self.http_token_env and self.http_token_file:
            raise ValueError("give one of http_token_env and http_token_file")
        return self

    @property
    def all_rooms(self) -> tuple[str, ...]:
        """Every room that the agent is to join, each once."""
        return tuple(dict.fromkeys((*self.rooms, *self.groups)))

    def to_agent(self, name: str = "") -> Agent:
        """The agent as the core sees it."""
        return Agent(
            name=name or self.name or DEFAULT_AGENT,
            nick=self.nick,
            aliases=self.aliases,
            language=self.language or "zh",
            user_label=self.user_label,
            agent_label=self.agent_label,
            instructions=self.instructions,
            default_session=self.default_session,
            auto=self.auto,
            make_sessions=self.make_sessions,
            allow=self.allow,
            groups={
                room: Group(allow=group.allow, others=group.others, nicks=group.nicks)
                for room, group in self.groups.items()
            },
            bots=self.bots,
            permissions=dict(self.permissions),
            visible=dict(self.visible),
            words=self.words,
            limits=Limits(**self.limits.given()),
        )

    def secret(self, environ: Mapping[str, str] = os.environ) -> SecretStr | None:
        """The password, from wherever the config says; None where it says nothing.

        Raises :class:`ConfigError` where the variable is not set or the file cannot be used.
        """
        return secret_of("password", self.password_env, self.password_file, environ) or self.password

    def http_token(self, environ: Mapping[str, str] = os.environ) -> SecretStr | None:
        """The token of the HTTP port that the config gives; None where one is to be made up.

        Raises :class:`ConfigError` where the variable is not set or the file cannot be used.
        """
        return secret_of("http_token", self.http_token_env, self.http_token_file, environ)


def secret_of(key: str, variable: str, file: Path | None, environ: Mapping[str, str]) -> SecretStr | None:
    """The secret in an environment variable or a file (one line); None where neither is named. ``key`` is what the
    config calls it. Raises :class:`ConfigError`."""
    if variable:
        if not (value := environ.get(variable)):
            raise _wrong(f"{key}_env", f"the environment variable {variable} is not set; set it")
        return SecretStr(value)
    if file:
        try:
            value = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise _wrong(f"{key}_file", f"{file} cannot be read ({reason}); correct it") from None
        if not value or "\n" in value:
            what = {"password": "password", "key": "key"}.get(key, "token")
            raise _wrong(f"{key}_file", f"{file} has to hold one line, the {what}")
        return SecretStr(value)
    return None


def _wrong(key: str, text: str) -> ConfigError:
    return ConfigError([Problem((key,), text)])


def bad_name(name: str) -> str:
    # It becomes a folder, and part of keys that are divided by colons.
    if name and (not re.fullmatch(r"[^\s:/\\.][^\s:/\\]{0,63}", name) or not name.isprintable()):
        return "an agent's name is one word of at most 64 characters, without `:` or `/`, and no dot first"
    return ""


def with_absolute_paths(model: ModelSettings, info: ValidationInfo) -> ModelSettings:
    changed = {name: absolute(str(path), info) for name in ("api_key_file", "gguf") if (path := getattr(model, name))}
    fallbacks = tuple(with_absolute_paths(each, info) for each in model.fallbacks)
    return model.model_copy(update={**changed, "fallbacks": fallbacks})
