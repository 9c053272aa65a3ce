"""What the check of a config reports: well, doubtful or broken, each with its mend."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_router.config import ConfigError, load
from session_router.doctor import YEAR_2024, Finding, Level, examine, refused, worst
from storage.journal import JournalSource
from storage.schema import VERSION
from storage.sqlite import SqliteStore
from tests.support.fake_llm import KEY, Answer, FakeLLM

FIXTURES = Path(__file__).parents[1] / "fixtures" / "opencode"
NOBODY = "http://127.0.0.1:9/v1"
"""The discard port: nothing listens there."""


class Check:
    """One check of a config written for it, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder / "home"), "LANG": "C", "OPENAI_API_KEY": KEY}
        self.wall = YEAR_2024 + 1
        self.ticks = [1.0, 2.0]
        self.call = False

    async def __call__(self, text: str = "language = 'en'") -> list[Finding]:
        file = self.folder / "session-router.toml"
        file.write_text(text)
        config = load(environ=self.environ, folder=self.folder)
        ticks = iter(self.ticks)
        return await examine(
            config, self.environ, call=self.call, wall=lambda: self.wall, monotonic=lambda: next(ticks)
        )

    async def about(self, what: str, text: str = "language = 'en'") -> list[Finding]:
        return [finding for finding in await self(text) if finding.what.startswith(what)]

    async def one(self, what: str, text: str = "language = 'en'") -> Finding:
        (finding,) = await self.about(what, text)
        return finding


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(tmp_path)


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        yield llm


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


async def test_a_fresh_machine_with_a_key_has_no_problem_and_nothing_is_made(check: Check) -> None:
    findings = await check()
    assert worst(findings) == "warning"
    assert [f.what for f in findings if f.level == "warning"] == ["sessions of OpenCode"]
    assert [path.name for path in check.folder.iterdir()] == ["session-router.toml"]


async def test_whatever_is_not_well_has_a_mend(check: Check) -> None:
    check.wall = 0
    findings = await check(
        "[agents.a]\njid = 'a@x'\n[agents.a.groups.'r@m.x']\n[model]\nprovider = 'embedded'\n"
        "gguf = 'gone.gguf'\n[sources]\nopencode = 'gone.db'\nhermes = 'h.db'\n[store]\npath = '/'\n"
    )
    assert len([f for f in findings if f.level != "ok"]) >= 6
    assert all(f.mend for f in findings if f.level != "ok")
    assert not any(f.mend for f in findings if f.level == "ok")


def test_a_config_that_is_refused_is_reported_problem_by_problem(check: Check) -> None:
    (check.folder / "session-router.toml").write_text("langauge = 1\n[store]\npaht = 2\n")
    with pytest.raises(ConfigError) as caught:
        load(environ=check.environ, folder=check.folder)
    findings = refused(caught.value)
    assert levels(findings) == ["problem", "problem"]
    assert any("did you mean `language`" in finding.detail for finding in findings)


@pytest.mark.parametrize("text", ["", "# to be filled in\n"])
async def test_a_config_in_which_nothing_stands_is_a_warning(check: Check, text: str) -> None:
    finding = await check.one("config", text)

    assert finding.level == "warning"
    assert "so the defaults" in finding.detail
    assert finding.mend


def test_the_worst_level_is_what_counts() -> None:
    ok, warning, problem = (Finding(level, "x", "y") for level in ("ok", "warning", "problem"))
    assert worst([]) == "ok"
    assert worst([ok, warning]) == "warning"
    assert worst([problem, warning, ok]) == "problem"


async def test_a_password_in_a_file_that_others_may_read_is_a_warning(check: Check) -> None:
    text = "[agents.a]\npassword = 'p'\n"
    (check.folder / "session-router.toml").touch(mode=0o644)
    assert levels(await check.about("config", text)) == ["ok", "warning"]
    (check.folder / "session-router.toml").chmod(0o600)
    assert levels(await check.about("config", text)) == ["ok"]


# -- clock ---------------------------------------------------------------------------------------


async def test_a_clock_before_2024_is_a_problem_and_2024_is_not(check: Check) -> None:
    check.wall = YEAR_2024 - 1
    assert (await check.one("clock")).level == "problem"
    check.wall = YEAR_2024
    assert (await check.one("clock")).level == "ok"


async def test_a_monotonic_clock_that_runs_back_is_a_problem(check: Check) -> None:
    check.ticks = [2.0, 1.0]
    assert (await check.one("clock")).level == "problem"


# -- store ---------------------------------------------------------------------------------------


async def test_a_store_is_looked_at_without_a_trace(check: Check) -> None:
    path = check.folder / "engine.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    before = sorted(p.name for p in check.folder.iterdir())
    bytes_before = path.read_bytes()
    finding = await check.one("store", f"[store]\npath = '{path}'")
    assert finding.level == "ok"
    assert f"schema {VERSION}, 0 conversations" in finding.detail
    assert sorted(p.name for p in check.folder.iterdir()) == sorted([*before, "session-router.toml"])
    assert path.read_bytes() == bytes_before


async def test_a_store_that_an_engine_has_open_can_be_checked(check: Check) -> None:
    store = SqliteStore(check.folder / "engine.db")
    await store.open()
    try:
        assert (await check.one("store", f"[store]\npath = '{store.path}'")).level == "ok"
    finally:
        await store.close()


async def test_a_store_of_a_newer_version_is_a_problem(check: Check) -> None:
    path = check.folder / "engine.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    finding = await check.one("store", f"[store]\npath = '{path}'")
    assert finding.level == "problem"
    assert "newer version" in finding.detail
    assert "Upgrade" in finding.mend


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text.db", "not an SQLite database"),
        ("folder", "is a folder"),
        ("text.db/engine.db", "text.db is a file"),
        ("other.db", "database of another program"),
    ],
)
async def test_a_path_that_can_be_no_store_is_a_problem(check: Check, name: str, said: str) -> None:
    (check.folder / "text.db").write_text("nothing of ours")
    (check.folder / "folder").mkdir()
    connection = sqlite3.connect(check.folder / "other.db")
    connection.execute("CREATE TABLE things (a)")
    connection.close()
    finding = await check.one("store", f"[store]\npath = '{check.folder / name}'")
    assert finding.level == "problem"
    assert said in finding.detail


async def test_a_damaged_store_is_a_problem(check: Check) -> None:
    path = check.folder / "engine.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)
    finding = await check.one("store", f"[store]\npath = '{path}'")
    assert (finding.level, "damaged" in finding.detail) == ("problem", True)


# -- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fixture", "generation"), [("fixture.db", "v1"), ("fixture_v2_synthetic.db", "v2")])
async def test_the_schema_generation_of_opencode_is_named(check: Check, fixture: str, generation: str) -> None:
    shutil.copy(FIXTURES / fixture, check.folder / "oc.db")
    finding = await check.one("sessions of OpenCode", "[sources]\nopencode = 'oc.db'")
    assert finding.level == "ok"
    assert generation in finding.detail.split("schema ")[1]
    assert "session" in finding.detail


async def test_an_opencode_that_was_named_has_to_be_there(check: Check) -> None:
    assert (await check.one("sessions of OpenCode", "[sources]\nopencode = 'gone.db'")).level == "problem"
    assert (await check.one("sessions of OpenCode", "")).level == "warning"
    assert (await check.one("sessions of OpenCode", "[sources]\nopencode = false")).level == "ok"


async def test_a_database_of_somebody_else_is_no_session_source(check: Check) -> None:
    connection = sqlite3.connect(check.folder / "other.db")
    connection.execute("CREATE TABLE things (a)")
    connection.close()
    finding = await check.one("sessions of OpenCode", "[sources]\nopencode = 'other.db'")
    assert finding.level == "problem"


async def test_hermes_is_mentioned_only_where_it_is_wanted_or_there(check: Check) -> None:
    assert await check.about("sessions of Hermes") == []
    assert levels(await check.about("sessions of Hermes", "[sources]\nhermes = 'h.db'")) == ["problem"]
    assert await check.about("sessions of Hermes", "[sources]\nhermes = false") == []


async def test_hermes_own_file_is_told_with_its_schema(check: Check) -> None:
    shutil.copy(FIXTURES.parent / "hermes" / "state.db", check.folder / "state.db")
    (finding,) = await check.about("sessions of Hermes", "[sources]\nhermes = 'state.db'")
    assert finding.level == "ok"
    assert re.search(r"state\.db: schema \d+, \d+ sessions", finding.detail)


async def test_our_own_sessions_are_counted_and_their_folder_is_not_made(check: Check) -> None:
    text = "data_dir = 'data'\n"
    assert "will be made with the first session" in (await check.one("sessions of our own", text)).detail
    assert not (check.folder / "data").exists()
    await JournalSource(check.folder / "data" / "sessions").create("t", session_id="ses_a", at=0.0)
    assert (await check.one("sessions of our own", text)).detail.endswith("sessions: 1 session")
    assert (await check.one("sessions of our own", "[sources]\njournal = false")).detail == "switched off in the config"
    assert levels(await check.about("sessions of our own", "[sources]\njournal = 'session-router.toml'")) == ["problem"]


async def test_a_session_of_our_own_that_cannot_be_read_is_a_problem_beside_the_others(check: Check) -> None:
    await JournalSource(check.folder / "s").create("T", session_id="ses_a", at=1.0)
    (check.folder / "s" / "ses_b.jsonl").write_text('{"v":99,"turn":1,"event":"turn_start"}\n')

    problem, ok = await check.about("sessions of our own", "[sources]\njournal = 's'")
    assert (problem.level, ok.level) == ("problem", "ok")
    assert "ses_b.jsonl: this record has version 99" in problem.detail
    assert ok.detail.endswith("1 session")


@pytest.mark.parametrize(
    ("table", "what", "secret"),
    [("opencode_server", "server of OpenCode", "password_env"), ("hermes_gateway", "gateway of Hermes", "key_env")],
)
async def test_a_server_that_is_not_there_is_a_warning_and_its_missing_secret_a_problem(
    check: Check, table: str, what: str, secret: str
) -> None:
    text = f"[sources]\nhermes = 'h.db'\n[sources.{table}]\nurl = 'http://127.0.0.1:9'\n{secret} = 'THE_SECRET'\n"
    missing = await check.one(what, text)
    assert (missing.level, missing.mend) == ("problem", f"Correct sources.{table}.{secret} in the config.")
    check.environ["THE_SECRET"] = "s3cret-word"
    away = await check.one(what, text)
    assert (away.level, "does not answer" in away.detail) == ("warning", True)
    assert "s3cret-word" not in away.detail


# -- model ---------------------------------------------------------------------------------------


async def test_each_model_is_looked_at_once_and_not_asked(check: Check, llm: FakeLLM) -> None:
    findings = await check.about(
        "model",
        f"[model]\nbase_url = '{llm.url}'\nmodel = 'mine'\n[agents.a]\n[agents.b]\n"
        "[agents.c.model]\nprovider = 'openai'\n",
    )
    assert [f.what for f in findings] == ["model of a, b", "model of c"]
    assert levels(findings) == ["ok", "ok"]
    assert "mine" in findings[0].detail
    assert not any("messages" in request for request in llm.requests)
    assert KEY not in str(findings)


async def test_the_model_answers_when_it_is_called(check: Check, llm: FakeLLM) -> None:
    check.call = True
    finding = await check.one("model", f"[model]\nbase_url = '{llm.url}'\nmodel = 'mine'\n")
    assert (finding.level, finding.detail.endswith("it answered")) == ("ok", True)
    assert len(llm.requests) == 1


async def test_a_model_that_refuses_is_a_problem_without_the_key_in_it(check: Check) -> None:
    check.call = True
    with FakeLLM([Answer(status=401, error=f"Incorrect API key provided: {KEY}")]) as llm:
        finding = await check.one(
            "model",
            f"[model]\nprovider = 'openai'\nbase_url = '{llm.url}'\nmodel = 'm'\napi_key_env = 'OPENAI_API_KEY'\n",
        )
    assert finding.level == "problem"
    assert "it failed" in finding.detail
    assert KEY not in str(finding)


async def test_a_model_that_is_not_there_is_a_problem(check: Check) -> None:
    finding = await check.one("model", f"[model]\nbase_url = '{NOBODY}'\n")
    assert finding.level == "problem"
    assert NOBODY in finding.detail


# -- agents --------------------------------------------------------------------------------------


async def test_an_agent_of_the_terminal_alone_needs_no_allowlist(check: Check) -> None:
    assert await check.about("agent", "[agents.a]\n") == []


async def test_an_account_without_a_password_is_a_problem(check: Check) -> None:
    account = "[agents.a]\njid = 'a@x.org'\nallow = '*'\n"
    assert levels(await check.about("agent", account)) == ["problem"]
    (unset,) = await check.about("agent", account + "password_env = 'P'\n")
    assert (unset.level, "environment variable P is not set" in unset.detail) == ("problem", True)
    check.environ["P"] = "secret-word"
    assert await check.about("agent", account + "password_env = 'P'\n") == []


async def test_a_password_file_that_others_may_read_is_a_warning(check: Check) -> None:
    file = check.folder / "pw"
    file.write_text("secret-word")
    file.chmod(0o640)
    account = "[agents.a]\njid = 'a@x.org'\nallow = '*'\npassword_file = 'pw'\n"
    findings = await check.about("agent", account)
    assert any("chmod 600" in f.mend for f in findings)
    file.chmod(0o600)
    assert not any("chmod 600" in f.mend for f in await check.about("agent", account))


async def test_an_allowlist_that_admits_nobody_is_a_warning(check: Check) -> None:
    findings = await check.about("agent", "[agents.a]\njid = 'a@x.org'\npassword = 'p'\nrooms = ['r@m.x']\n")
    doubts = [f for f in findings if "nobody is answered" in f.detail]
    assert [(f.level, f.what) for f in doubts] == [("warning", "agent a"), ("warning", "agent a in r@m.x")]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("allow = ['hmo@x.org']", None),
        ("allow = ['b9d2f3a85c0e4c6f9d1a']", None),
        ("allow = ['*']", "`*` does not count in a room"),
        ("", "nobody is answered there"),
        ("allow = ['hmo', 'xxm']", "hmo, xxm: neither an address nor an occupant id"),
        ("allow = ['hmo']\nnicks = true", "anybody can take a nick"),
    ],
)
async def test_a_rooms_allowlist_is_read_as_the_engine_reads_it(check: Check, group: str, said: str | None) -> None:
    findings = await check.about("agent a in r@m.x", f"[agents.a.groups.'r@m.x']\n{group}\n")
    if said is None:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.level == "warning"
        assert said in finding.detail


async def test_the_report_speaks_chinese_where_the_environment_does(check: Check) -> None:
    check.environ["LANG"] = "zh_CN.UTF-8"

    found = {finding.what: finding for finding in await check("[agents.mohe]\njid = 'mohe@example.org'\n")}

    assert {"配置", "时钟", "存储", "本程序的会话", "mohe 的模型", "agent mohe"} <= found.keys()
    assert found["时钟"].detail == "已校准，正常向前"
    assert "因为设置了 OPENAI_API_KEY；没有去问它" in found["mohe 的模型"].detail
    assert found["agent mohe"].mend.startswith("在 allow 里列出地址")
