"""What a config may say, where it comes from, and how a wrong one is refused."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fsm.agent import Agent, Group
from fsm.commands.builtin import BUILTIN
from fsm.commands.engine import ENGINE_COMMANDS
from fsm.commands.registry import CommandContext
from fsm.constants import Limits
from fsm.ports import SessionRouterError
from session_router.agent_config import LIMITS
from session_router.config import AgentConfig, Config, ConfigError, agent_from_mapping, describe, load
from session_router.sample_config import sample, uncommented

SECRET = "kX9-not-for-anybody"


class Desk:
    """A folder to start in, a home, and what stands in the config there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "session-router.toml"
        self.environ = {"HOME": str(folder / "home"), "LANG": "en_US.UTF-8"}

    def load(self, text: str | None = None, **environ: str) -> Config:
        if text is not None:
            self.file.write_text(text, encoding="utf-8")
        return load(environ={**self.environ, **environ}, folder=self.folder)

    def refuses(self, text: str, **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(text, **environ)
        return caught.value


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# -- where it comes from -------------------------------------------------------------------------


def test_without_a_file_there_is_one_agent_named_assistant(desk: Desk) -> None:
    config = desk.load()
    assert config.file is None
    assert list(config.agents) == ["assistant"]
    agent = config.agent()
    assert (agent.jid, agent.all_rooms, agent.language) == ("", (), "en")
    assert config.store.path == desk.folder / "home/.local/share/session-router/engine.db"
    assert config.sources.opencode == desk.folder / "home/.local/share/opencode/opencode.db"


def test_the_file_is_looked_for_in_four_places_and_the_first_counts(desk: Desk) -> None:
    def named(where: Path, name: str) -> Path:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(f"[agents.{name}]\n")
        return where

    named(desk.folder / "xdg/session-router/config.toml", "from_xdg")
    environ = {"XDG_CONFIG_HOME": str(desk.folder / "xdg")}
    assert list(desk.load(**environ).agents) == ["from_xdg"]
    named(desk.file, "from_here")
    assert list(desk.load(**environ).agents) == ["from_here"]
    environ["SESSION_ROUTER_CONFIG"] = str(named(desk.folder / "b.toml", "from_variable"))
    assert list(desk.load(**environ).agents) == ["from_variable"]
    asked = named(desk.folder / "a.toml", "from_option")
    config = load("a.toml", {**desk.environ, **environ}, folder=desk.folder)
    assert (list(config.agents), config.file) == (["from_option"], asked)


@pytest.mark.parametrize("by", ["--config", "SESSION_ROUTER_CONFIG"])
def test_a_file_that_was_named_and_is_not_there_is_an_error(desk: Desk, by: str) -> None:
    desk.file.write_text("")  # must not be taken instead
    missing = str(desk.folder / "gone.toml")
    asked = missing if by == "--config" else None
    environ = desk.environ if asked else {**desk.environ, by: missing}
    with pytest.raises(ConfigError, match="is not there") as caught:
        load(asked, environ, folder=desk.folder)
    assert by in str(caught.value)
    assert missing in str(caught.value)


@pytest.mark.parametrize("name", ["session-router.toml", "xdg/session-router/config.toml"])
def test_a_folder_in_the_place_of_the_file_is_said_and_not_passed_over(desk: Desk, name: str) -> None:
    users = desk.folder / "xdg/session-router/config.toml"
    users.parent.mkdir(parents=True)
    if name == desk.file.name:
        users.write_text("")  # must not be taken instead
    (desk.folder / name).mkdir()
    with pytest.raises(ConfigError, match="is a folder: rename or remove it, or name another") as caught:
        desk.load(XDG_CONFIG_HOME=str(desk.folder / "xdg"))
    assert str(desk.folder / name) in str(caught.value)


def test_what_is_no_toml_is_refused_with_file_and_line(desk: Desk) -> None:
    error = desk.refuses('language = "zh"\nagents = = 2\n')
    assert str(desk.file) in str(error)
    assert "line 2" in str(error)


def test_a_file_with_a_byte_order_mark_loads(desk: Desk) -> None:
    assert desk.load('\ufefflanguage = "zh"').language == "zh"


def test_a_file_in_another_encoding_is_refused_in_words(desk: Desk) -> None:
    desk.file.write_bytes("[agents.a]\nnick = '墨河'".encode("gbk"))
    with pytest.raises(ConfigError, match="save it as UTF-8"):
        desk.load()


@pytest.mark.parametrize(("environ", "language"), [
    ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_GB.UTF-8"}, "en"),
    ({"LANG": "C"}, "en"), ({"LANG": "de_DE.UTF-8"}, "en"), ({"LANG": ""}, "en"),
])  # fmt: skip
def test_the_language_is_that_of_the_system_unless_the_config_says(
    desk: Desk, environ: dict[str, str], language: str
) -> None:
    assert desk.load(**environ).agent().to_agent("a").language == language
    other = "en" if language == "zh" else "zh"
    assert desk.load(f'language = "{other}"', **environ).agent().language == other


def test_the_environment_wins_over_the_file_key_by_key(desk: Desk) -> None:
    config = desk.load(
        '[store]\nsynchronous = "FULL"\npath = "x.db"\n'
        '[agents.Mohe]\nnick = "mo"\nTURN_TIMEOUT = 60\n[agents.Mohe.model]\nprovider = "openai"\n'
        "[agents.second]\n",
        SESSION_ROUTER_STORE__SYNCHRONOUS="normal",
        SESSION_ROUTER_AGENTS__MOHE__TURN_TIMEOUT="30",
        SESSION_ROUTER_AGENTS__MOHE__ALIASES="小小莫, momo",
        SESSION_ROUTER_AGENTS__MOHE__ALLOW='["a@x", "b@x"]',
        SESSION_ROUTER_AGENTS__MOHE__MODEL__MODEL="other",
        SESSION_ROUTER_LIMITS__RATE_LIMIT="0",
    )
    assert list(config.agents) == ["Mohe", "second"]
    mohe = config.agent()
    assert (config.store.synchronous, config.store.path.name) == ("NORMAL", "x.db")
    assert (mohe.nick, mohe.aliases, mohe.allow) == ("mo", ("小小莫", "momo"), {"a@x", "b@x"})
    assert mohe.model is not None
    assert (mohe.model.provider, mohe.model.model) == ("openai", "other")
    limits = mohe.to_agent().limits
    assert (limits.turn_timeout, limits.rate_limit) == (30, 0)


def test_an_agent_can_come_from_the_environment_alone(desk: Desk) -> None:
    assert desk.load(SESSION_ROUTER_AGENTS__MOHE__NICK="12").agent("mohe").nick == "12"


def test_variables_that_are_no_keys_are_left_alone(desk: Desk) -> None:
    config = desk.load(SESSION_ROUTER_MODEL="some-model", SESSION_ROUTER_MOHE_PASSWORD=SECRET, SESSION_ROUTER_CONFIG="")
    assert config.model is None


def test_relative_paths_begin_at_the_config_file_and_the_store_in_the_data_folder(desk: Desk) -> None:
    (desk.folder / "sub").mkdir()
    (desk.folder / "sub/c.toml").write_text(
        'data_dir = "data"\n[store]\npath = "s.db"\n[sources]\nopencode = "~/oc.db"\nhermes = "h.db"\n'
        '[agents.a]\npassword_file = "pw"\n[model]\nprovider = "openai"\napi_key_file = "key"\n'
    )
    config = load("sub/c.toml", desk.environ, folder=desk.folder)
    sub = desk.folder / "sub"
    assert config.folder == sub / "data"
    assert config.store.path == sub / "data/s.db"
    assert (config.sources.opencode, config.sources.hermes) == (desk.folder / "home/oc.db", sub / "h.db")
    agent = config.agent()
    assert agent.password_file == sub / "pw"
    assert agent.model is not None
    assert agent.model.api_key_file == sub / "key"


def test_a_source_can_be_switched_off_and_named_as_in_older_setups(desk: Desk) -> None:
    assert desk.load("[sources]\nopencode = false\nhermes = true\n").sources.opencode is None
    assert desk.load('[sources]\nDB_PATH = "/x/oc.db"\n').sources.opencode == Path("/x/oc.db")
    assert desk.load("", SESSION_ROUTER_SOURCES__OPENCODE="false").sources.opencode is None
    given = desk.load("", OPENCODE_DB="other.db", XDG_DATA_HOME="/data").sources.opencode
    assert given == Path("/data/opencode/other.db")


# -- agents --------------------------------------------------------------------------------------


def test_every_field_of_an_agent_and_every_constant_is_a_key(desk: Desk) -> None:
    assert {f.name for f in fields(Agent)} <= set(AgentConfig.model_fields)
    assert set(LIMITS) == {f.name for f in fields(Limits)}
    text = "[agents.a]\n" + "".join(
        f"{name} = {list(value) if isinstance(value, tuple) else value + 1}\n"
        for name, value in ((f.name, getattr(Limits(), f.name)) for f in fields(Limits))
    )
    limits = desk.load(text).agent().to_agent().limits
    assert all(getattr(limits, f.name) != f.default for f in fields(Limits) if not isinstance(f.default, tuple))


def test_an_agent_says_everything_about_itself_in_one_table(desk: Desk) -> None:
    agent = desk.load("""
        [agents.mohe]
        jid = "Mohe@yoin.fun"
        nick = "mohe"
        aliases = ["小小莫", "@mohe"]
        default_session = "xmpp-mohe-v2"
        auto = false
        make_sessions = false
        agent_label = "莫"
        user_label = "人"
        instructions = "短。"
        allow = "*"
        bots = ["zhiwei@yoin.fun"]
        rooms = ["other@muc.x"]
        http_port = 5804
        permissions = { mute = ["hmo@yoin.fun"] }
        visible = { "xxm@yoin.fun" = "opencode" }
        words = { stop = "等等", units = { moment = 60 } }
        [agents.mohe.groups."core@muc.x"]
        allow = ["hmo@yoin.fun"]
        others = "nothing"
        nicks = true
    """)
    config = agent.agent("mohe")
    assert (config.jid, config.http_port, config.all_rooms) == ("mohe@yoin.fun", 5804, ("other@muc.x", "core@muc.x"))
    core = config.to_agent("mohe")
    assert core.words.stop[-1] == "等等"
    assert ("moment", 60) in core.words.units
    assert core == Agent(
        name="mohe", nick="mohe", aliases=("小小莫", "@mohe"), language="en", user_label="人", agent_label="莫",
        instructions="短。", default_session="xmpp-mohe-v2", auto=False, make_sessions=False,
        allow=frozenset({"*"}), bots=frozenset({"zhiwei@yoin.fun"}),
        groups={"core@muc.x": Group(frozenset({"hmo@yoin.fun"}), "nothing", True)},
        permissions={"mute": frozenset({"hmo@yoin.fun"})}, visible={"xxm@yoin.fun": frozenset({"opencode"})},
        words=core.words)  # fmt: skip


def test_the_other_agents_are_bots_to_each_of_them(desk: Desk) -> None:
    config = desk.load("""
        [agents.mohe]
        jid = "mohe@yoin.fun"
        bots = ["helper@bots.example"]
        [agents.zhiwei]
        jid = "zhiwei@yoin.fun"
        [agents.local]
    """)

    assert {name: set(agent.to_agent().bots) for name, agent in config.agents.items()} == {
        "mohe": {"helper@bots.example", "zhiwei@yoin.fun"},
        "zhiwei": {"mohe@yoin.fun"},
        "local": {"mohe@yoin.fun", "zhiwei@yoin.fun"},
    }


def test_what_stands_at_the_top_holds_for_agents_that_do_not_say_otherwise(desk: Desk) -> None:
    config = desk.load("""
        language = "zh"
        [limits]
        TURN_TIMEOUT = 60
        queue_limit = 3
        [words]
        stop = ["hold on"]
        [model]
        provider = "openai"
        [agents.plain]
        [agents.own]
        language = "en"
        turn_timeout = 90
        words = { stop = ["whoa"] }
        model = { provider = "deepseek" }
    """)
    plain, own = (config.agent(name) for name in ("plain", "own"))
    assert (plain.language, own.language) == ("zh", "en")
    assert plain.model is not None
    assert own.model is not None
    assert (plain.model.provider, own.model.provider) == ("openai", "deepseek")
    assert [each.to_agent().limits.turn_timeout for each in (plain, own)] == [60, 90]
    assert [each.to_agent().limits.queue_limit for each in (plain, own)] == [3, 3]
    assert plain.words.stop[-1:] == ("hold on",)
    assert own.words.stop[-2:] == ("hold on", "whoa")
    assert own.words.stop[:-2] == plain.words.stop[:-1]


def test_an_agent_that_is_not_there_is_refused_with_the_nearest_name(desk: Desk) -> None:
    config = desk.load("[agents.mohe]\n[agents.zhiwei]\n")
    with pytest.raises(ConfigError, match="did you mean `zhiwei`"):
        config.agent("ziwei")
    with pytest.raises(ConfigError, match="known here: mohe, zhiwei"):
        config.agent("q")


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "key", "said"), [
    ("[agents.a]\nturn_timout = 1", "agents.a.turn_timout",
     "unknown key `turn_timout`; did you mean `turn_timeout`?"),
    ("[agents.a]\nTURN_TIMOUT = 1", "agents.a.TURN_TIMOUT", "did you mean `turn_timeout`?"),
    ("[agents.a]\nalow = []", "agents.a.alow", "did you mean `allow`?"),
    ('[agents.a.groups."r@m.x"]\nother = "context"', 'agents.a.groups."r@m.x".other', "did you mean `others`?"),
    ("[agents.a.model]\nprovidr = 1", "agents.a.model.providr", "did you mean `provider`?"),
    ("[[model.fallbacks]]\nprovidr = 1", "model.fallbacks[0].providr", "did you mean `provider`?"),
    ("[limits]\nmax_loop = 1", "limits.max_loop", "did you mean `max_loops`?"),
    ("[store]\npaht = 1", "store.paht", "did you mean `path`?"),
    ("[sources]\nopencod = 1", "sources.opencod", "did you mean `opencode`?"),
    ("[words]\nstpo = 1", "words", "did you mean 'stop'?"),
    ("agent = 1", "agent", "did you mean `agents`?"),
    ("turn_timeout = 1", "turn_timeout", "write it under [limits]"),
        ("nick = 'mo'", "nick", "write it in the table of one agent"),
    ("[store]\nzzz = 1", "store.zzz", "known here: mirror, path, synchronous"),
], ids=lambda value: value if "." in value and " " not in value else "")  # fmt: skip
def test_an_unknown_key_is_refused_with_the_nearest_right_one(desk: Desk, text: str, key: str, said: str) -> None:
    error = desk.refuses(text)
    assert isinstance(error, SessionRouterError)
    assert len(error.problems) == 1
    assert error.key == key
    assert said in error.text
    assert str(error) == f"{desk.file}: {key}: {error.text}"


@pytest.mark.parametrize(("text", "key", "said"), [
    ("[agents.a]\nturn_timeout = 0", "agents.a.turn_timeout", "expected a number greater than 0"),
    ("[agents.a]\nTURN_TIMEOUT = true", "agents.a.TURN_TIMEOUT", "expected a number, not true or false"),
    ("[agents.a.limits]\nTURN_TIMEOUT = -1", "agents.a.limits.TURN_TIMEOUT", "greater than 0"),
    ("[limits]\nturn_timeout = nan", "limits.turn_timeout", "expected a"),
    ("[limits]\nturn_timeout = inf", "limits.turn_timeout", "expected a"),
    ("[limits]\nmax_loops = 2.5", "limits.max_loops", "expected a whole number"),
    ("[limits]\nmax_loops = 0", "limits.max_loops", "at least 1"),
    ("[limits]\nqueue_limit = -1", "limits.queue_limit", "at least 0"),
    ("[limits]\nmodel_backoff = []", "limits.model_backoff", "not nothing"),
    ("[limits]\nmodel_backoff = [1, 'x']", "limits.model_backoff[1]", "expected a number, not text"),
    ("[agents.a]\nturn_timeout = 1\nTURN_TIMEOUT = 2", "agents.a", "`turn_timeout` is given twice"),
    ("[agents.a]\nturn_timeout = 1\nlimits = { TURN_TIMEOUT = 2 }", "agents.a", "`turn_timeout` is given twice"),
    ("[agents.a]\nauto = 'perhaps'", "agents.a.auto", "expected true or false, not text"),
    ("[agents.a]\nnick = 3", "agents.a.nick", "expected text, not a number"),
    ("[agents.a]\nallow = [3]", "agents.a.allow[0]", "expected text, not a number"),
    ("[agents.a]\nallow = ['']", "agents.a.allow[0]", "expected something here"),
    ("[agents.a]\ngroups = []", "agents.a.groups", "expected a table, not a list"),
    ("[agents.a]\njid = 'mohe'", "agents.a.jid", "such as mohe@example.org"),
    ("[agents.a]\nhttp_port = 70000", "agents.a.http_port", "at most 65535"),
    ("[agents.a.groups.'xmpp:r@m.x']", "agents.a.groups", "without `xmpp:`"),
    ("[agents.a]\nlanguage = 'fr'", "agents.a.language", "expected 'zh' or 'en'"),
    ("[agents.a]\nname = 'b'", "agents", "leave `name` out of it"),
    ("[agents.'a:b']", "agents", "one word"),
    ("[agents.'']", "agents", "needs a name"),
    ("agents = 3", "agents", "expected a table, not a number"),
    ("[agents.a]\nhttp_port = 1\n[agents.b]\nhttp_port = 1", "agents", "a and b have the same http_port"),
    ("[agents.a]\njid = 'M@x'\n[agents.b]\njid = 'm@x'", "agents", "a and b have the same jid"),
    ("[store]\nsynchronous = 'HALF'", "store.synchronous", "expected 'FULL', 'NORMAL' or 'OFF'"),
    ("[sources]\nDB_PATH = 3", "sources.DB_PATH", "expected the path of a file"),
    ("words = 3", "words", "expected a table"),
    ("[words]\nstop = ['']", "words", "every phrase must be text"),
], ids=lambda value: value if "." in value and " " not in value else "")  # fmt: skip
def test_a_wrong_value_is_refused_with_the_key_and_what_was_expected(
    desk: Desk, text: str, key: str, said: str
) -> None:
    error = desk.refuses(text)
    assert (error.key, len(error.problems)) == (key, 1)
    assert said in error.text
    assert str(desk.file) in str(error)


def test_all_that_is_wrong_is_said_at_once(desk: Desk) -> None:
    error = desk.refuses("langauge = 1\n[store]\npath = 3\n[agents.a]\nnick = 3\n")
    assert {problem.key for problem in error.problems} == {"langauge", "store.path", "agents.a.nick"}
    assert len(str(error).splitlines()) == 3


@pytest.mark.parametrize(("name", "value", "key", "said"), [
    ("SESSION_ROUTER_AGENTS__A__TURN_TIMEOUT", "soon", "agents.a.turn_timeout", "expected a number, not text"),
    ("SESSION_ROUTER_AGENTS__A__TURN_TIMOUT", "3", "agents.a.turn_timout", "did you mean `turn_timeout`?"),
    ("SESSION_ROUTER_STORE", "x.db", "store", "expected a table, not text"),
    ("SESSION_ROUTER_AGENTS__A__GROUPS", '{"r@m.x": {"nicks": "no idea"}}', 'agents.a.groups."r@m.x".nicks',
     "expected true or false"),
    ("SESSION_ROUTER_LANGAUGE", "zh", "", "did you mean `language`?"),
    ("SESSION_ROUTER_STOER__PATH", "x", "", "did you mean `store`?"),
])  # fmt: skip
def test_what_the_environment_says_wrong_is_blamed_on_the_variable(
    desk: Desk, name: str, value: str, key: str, said: str
) -> None:
    error = desk.refuses("[agents.a]\nturn_timeout = 3\n", **{name: value})
    assert error.key == key
    assert said in error.text
    assert str(error).startswith(f"environment variable {name}: ")
    assert str(desk.file) not in str(error)


# -- secrets -------------------------------------------------------------------------------------


def test_a_password_comes_from_the_config_a_variable_or_a_file(desk: Desk) -> None:
    (desk.folder / "pw").write_text(SECRET + "\n")
    for text, environ in (
        (f"password = '{SECRET}'", {}),
        ("password_env = 'MOHE_PASSWORD'", {"MOHE_PASSWORD": SECRET}),
        ("password_file = 'pw'", {}),
        ("", {"SESSION_ROUTER_AGENTS__A__PASSWORD": SECRET}),
    ):
        found = desk.load(f"[agents.a]\n{text}", **environ).agent("a").secret(environ)
        assert found is not None
        assert found.get_secret_value() == SECRET
    assert desk.load("[agents.a]").agent("a").secret({}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("password_env = 'NOT_SET'", "NOT_SET is not set"),
        ("password_file = 'gone'", "cannot be read"),
        ("password_file = '.'", "cannot be read"),
        ("password_file = 'two'", "has to hold one line"),
    ],
)
def test_a_password_that_cannot_be_had_is_an_error_with_its_key(desk: Desk, text: str, said: str) -> None:
    (desk.folder / "two").write_text(f"{SECRET}\nand more\n")
    agent = desk.load(f"[agents.a]\n{text}").agent()
    with pytest.raises(ConfigError, match=said) as caught:
        agent.secret({})
    assert caught.value.key == text.split(" ")[0]
    assert SECRET not in str(caught.value)


def test_a_secret_is_never_shown(desk: Desk) -> None:
    config = desk.load(
        f"[agents.a]\npassword = '{SECRET}'\n[agents.b.model]\nbase_url = 'https://h.example/v1?api_key={SECRET}'\n"
    )
    described = json.dumps(describe(config))
    assert SECRET not in described
    assert "[hidden]" in described
    for shown in (
        str(config.agent("a")),
        repr(config.agent("a")),
        config.agent("a").model_dump_json(),
        str(config.agent("a").model_dump()),
    ):
        assert SECRET not in shown


@pytest.mark.parametrize("text", [
    f"[agents.a]\nhttp_port = '{SECRET}'", f"[agents.a]\nauto = '{SECRET}'", f"[agents.a]\nlanguage = '{SECRET}'",
    f"[agents.a]\njid = '{SECRET}'", f"[agents.a]\npassword_env = '{SECRET}'", f"[agents]\na = '{SECRET}'",
    f"[agents.a]\npassword = ['{SECRET}']", f"[agents.a]\npasword = '{SECRET}'", f"[store]\nsynchronous = '{SECRET}'",
    f"[agents.a]\npassword = '{SECRET}'\npassword_env = 'X'", f"[agents.a]\npassword = '{SECRET}'\nnick = 3",
    f"[model]\nprovider = 'openai'\napi_key_env = '{SECRET}'", f"[model]\napi_key = '{SECRET}'",
    f"[model]\nbase_url = 'https://me:{SECRET}@host/v1'", f"[agents.a]\npassword = '{SECRET}' x",
])  # fmt: skip
def test_a_secret_in_the_wrong_place_does_not_come_back_in_the_error(desk: Desk, text: str) -> None:
    error = desk.refuses(text)
    assert SECRET not in str(error)
    assert SECRET not in repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


def test_the_description_is_plain_json_with_every_agent_whole(desk: Desk) -> None:
    described = describe(
        desk.load("[limits]\nTURN_TIMEOUT = 60\n[words]\nstop = 'whoa'\n[agents.a]\nallow = ['b', 'a']")
    )
    assert json.loads(json.dumps(described)) == described
    agent: dict[str, Any] = described["agents"]["a"]
    assert (agent["turn_timeout"], agent["max_loops"], agent["allow"]) == (60, 10, ["a", "b"])
    assert agent["words"] == {"stop": ["whoa"]}
    assert agent["password"] is None
    assert described["file"] == str(desk.file)


# -- a mapping of one agent ----------------------------------------------------------------------


def test_a_mapping_is_laid_over_the_agent_below_it() -> None:
    base = {"name": "bot", "allow": ["*"], "rate_limit": 0, "model_retries": 0, "TURN_TIMEOUT": 5}
    agent = agent_from_mapping(
        {
            "name": "xxm",
            "aliases": ["小小莫"],
            "RATE_LIMIT": 7,
            "turn_timeout": 60,
            "groups": {"team@muc.example": {"allow": ["hmo@example.org"]}},
        },
        base,
    )
    assert (agent.name, agent.label, agent.language, agent.allow) == ("xxm", "小小莫", "zh", {"*"})
    assert (agent.limits.rate_limit, agent.limits.model_retries, agent.limits.turn_timeout) == (7, 0, 60)
    assert agent.groups == {"team@muc.example": Group(frozenset({"hmo@example.org"}))}
    assert agent_from_mapping({}, base).name == "bot"
    assert agent_from_mapping({}).name == "assistant"
    assert agent_from_mapping({"limits": {"RATE_LIMIT": 7}}, base).limits.rate_limit == 7


def test_a_mapping_may_hold_every_key_of_the_real_config(tmp_path: Path) -> None:
    tables = tomllib.loads(uncommented(sample("en")))["agents"]
    for name, keys in tables.items():
        assert agent_from_mapping({"name": name, **keys}).name == name


@pytest.mark.parametrize(
    ("mapping", "path", "said"),
    [
        ({"turn_timout": 1}, ("turn_timout",), "did you mean `turn_timeout`?"),
        ({"TURN_TIMEOUT": "soon"}, ("TURN_TIMEOUT",), "expected a number, not text"),
        (
            {"groups": {"team@muc.example": {"nicks": "perhaps"}}},
            ("groups", "team@muc.example", "nicks"),
            "true or false",
        ),
        ({"allow": [None]}, ("allow", 0), "expected text, not nothing"),
        ({"groups": None}, ("groups",), "expected a table, not nothing"),
        ({True: "on"}, (True,), "expected a key that is text"),
        ({"name": "a b"}, ("name",), "one word"),
    ],
)
def test_a_wrong_key_of_a_mapping_says_where_it_stands(
    mapping: dict[Any, Any], path: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        agent_from_mapping(mapping, {"allow": ["*"]})
    assert caught.value.path == path
    assert said in caught.value.text


def test_a_mapping_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a table"):
        agent_from_mapping(["a"])  # type: ignore[arg-type]


# -- the sample ----------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_sample_loads_and_changes_nothing_but_the_language(desk: Desk, language: str) -> None:
    config = desk.load(sample(language))
    assert config.language == language
    assert list(config.agents) == ["assistant"]
    assert config.agent().to_agent() == desk.load(f'language = "{language}"').agent().to_agent()


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_sample_loads_with_all_its_examples_in_force(desk: Desk, language: str) -> None:
    config = desk.load(uncommented(sample(language)))
    agents = [config.agent(name) for name in ("mohe", "zhiwei", "xiaoguo")]
    assert [(agent.jid, agent.nick, agent.default_session, agent.http_port) for agent in agents] == [
        ("mohe@yoin.fun", "mohe", "xmpp-mohe-v2", 5804),
        ("zhiwei@yoin.fun", "zhiwei", "xmpp-zhiwei", 5805),
        ("xiaoguo@yoin.fun", "xiaoguo", "xmpp-xiaoguo", 5806),
    ]
    urls = [agent.model.base_url for agent in agents if agent.model]
    assert urls == [f"http://127.0.0.1:{port}/v1" for port in (8642, 8643, 8645)]


def test_the_constants_shown_in_the_sample_are_the_defaults(desk: Desk) -> None:
    config = desk.load(uncommented(sample("en")))
    assert config.limits.given()
    assert Limits(**config.limits.given()) == Limits()
    assert config.store == desk.load("").store


def test_no_line_of_the_sample_is_wider_than_a_screen_allows() -> None:
    assert all(len(line) <= 110 for language in ("zh", "en") for line in sample(language).splitlines())


# -- servers that are talked to --------------------------------------------------------------------


def test_our_own_sessions_are_in_the_data_folder_unless_another_is_named(desk: Desk) -> None:
    assert desk.load('data_dir = "d"\n').sources.journal == desk.folder / "d" / "sessions"
    assert desk.load('data_dir = "d"\n[sources]\njournal = "mine"\n').sources.journal == desk.folder / "mine"
    assert desk.load("[sources]\njournal = false\n").sources.journal is None


def test_a_server_is_a_table_whose_secret_is_named_or_written_and_never_shown(desk: Desk) -> None:
    written = desk.load(
        '[sources.opencode_server]\nurl = "http://127.0.0.1:4096/"\npassword = "s3cret-word"\n'
        'model = "openrouter/qwen/qwen3"\ndirectory = "work"\n'
    )
    server = written.sources.opencode_server
    assert server is not None
    assert (server.url, server.model_pair) == ("http://127.0.0.1:4096", ("openrouter", "qwen/qwen3"))
    assert (server.secret({}), server.directory) == ("s3cret-word", desk.folder / "work")
    assert "s3cret-word" not in json.dumps(describe(written))
    named = desk.load("", SESSION_ROUTER_SOURCES__HERMES_GATEWAY__URL="http://127.0.0.1:8642",
                      SESSION_ROUTER_SOURCES__HERMES_GATEWAY__KEY_ENV="THE_KEY")  # fmt: skip
    gateway = named.sources.hermes_gateway
    assert gateway is not None
    assert gateway.secret({"THE_KEY": "k"}) == "k"
    with pytest.raises(ConfigError) as caught:
        gateway.secret({})
    assert caught.value.key == "sources.hermes_gateway.key_env"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[sources.opencode_server]\n", "opencode_server.url", "has to be there"),
        ('[sources.opencode_server]\nurl = "http://me:pw@host"', "opencode_server.url", "without a user name"),
        ('[sources.opencode_server]\nurl = "http://h"\nmodel = "gpt"', "opencode_server.model", "provider/model"),
        ('[sources.opencode_server]\nurl = "http://h"\npassword_env = "hunter2"', "opencode_server.password_env",
         "name of an environment variable"),
        ('[sources.opencode_server]\nurl = "http://h"\npasword = "x"', "opencode_server.pasword",
         "did you mean `password`?"),
        ('[sources.hermes_gateway]\nurl = "http://h"', "hermes_gateway", "give one of key, key_env and key_file"),
        ('[sources]\nhermes = false\n[sources.hermes_gateway]\nurl = "http://h"\nkey = "k"', "", "state.db"),
        ('[sources]\ntitles = "mine"', "titles", "expected 'model' or 'first_message'"),
    ],
)  # fmt: skip
def test_a_wrong_server_table_is_told_with_its_key(desk: Desk, text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        desk.load(text)
    assert (caught.value.key, words in caught.value.text) == (f"sources.{key}".rstrip("."), True)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("written", "said"), [
    ("", "not empty text"), ("  ", "not empty text"), ("a\\u0000b", "control characters"),
    ("a\\nb", "control characters"), ("~nobody", "your own home only"), ("~nobody/x", "your own home only"),
])  # fmt: skip
@pytest.mark.parametrize("key", ["data_dir", "store.path", "sources.opencode", "agents.a.password_file"])
def test_a_path_that_can_be_none_is_said_with_its_key(tmp_path: Path, key: str, written: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'{key} = "{written}"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, {"HOME": str(tmp_path)})
    assert caught.value.key == key
    if key != "sources.opencode" or written.strip():
        assert said in caught.value.text


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_a_data_folder_that_is_a_file_is_said(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    file = tmp_path / "config.toml"
    file.write_text(f'data_dir = "file{below}"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"data_dir: .*file is a file; name a folder"):
        load(file, {"HOME": str(tmp_path)})


def test_a_home_of_ones_own_and_a_folder_that_is_named_like_one_are_taken(tmp_path: Path) -> None:
    for written, found in (("~", tmp_path), ("~/x", tmp_path / "x"), ("./~nobody", tmp_path / "~nobody")):
        file = tmp_path / "config.toml"
        file.write_text(f'data_dir = "{written}"\n', encoding="utf-8")
        assert load(file, {"HOME": str(tmp_path)}).folder == found


def _permissions(folder: Path, *names: str, **others: Any) -> None:
    file = folder / "config.toml"
    lines = "\n".join(f'{name} = ["hmo@example.org"]' for name in names)
    file.write_text(f"[agents.a.permissions]\n{lines}\n", encoding="utf-8")
    load(file, {"HOME": str(folder)}, **others)


def test_a_permission_that_narrows_nothing_is_refused_with_the_name_it_may_mean(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _permissions(tmp_path, "mute", "swich_session")
    assert caught.value.key == "agents.a.permissions"
    assert caught.value.text == "there is no command `swich_session`; did you mean `switch_session`?"
    with pytest.raises(ConfigError, match="there is no command `frobnicate`; known here: allow, auto"):
        _permissions(tmp_path, "frobnicate")


def test_every_command_of_the_model_and_of_people_can_be_narrowed_and_ones_own_too(tmp_path: Path) -> None:
    _permissions(tmp_path, *(BUILTIN.names | ENGINE_COMMANDS.keys()))
    commands = BUILTIN.copy()

    @commands.command(permission="outdoors")
    async def weather(ctx: CommandContext) -> str:
        """The weather."""
        return "fine"

    _permissions(tmp_path, "outdoors", commands=commands)
    with pytest.raises(ConfigError, match="`weather`"):
        _permissions(tmp_path, "weather", commands=commands)
