"""``replay`` and ``export``."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from fsm.conversation import Key
from fsm.ports import Inbound
from session_router.cli import program
from session_router.config import agent_from_mapping
from session_router.scenario.clock import SteppedClock
from session_router.scenario.export import NothingToExport, export, masked
from session_router.scenario.files import MINIMAL, read, read_text
from session_router.scenario.format import START
from session_router.scenario.play import play
from session_router.scenario.script import Answer as ScriptedAnswer
from session_router.scenario.stage import Stage
from tests.cli.conftest import Home
from tests.support.fake_llm import Answer, FakeLLM

GOOD = """
scenario: a greeting
model: ["hello"]
steps:
  - message: {channel: console, sender: u1, text: hi, id: m1}
    expect: {disposition: replied, sent: ["hello"]}
  - wait: 2.5
"""
BAD = GOOD.replace('sent: ["hello"]', 'state: silenced, sent: ["goodbye"]').replace("a greeting", "a farewell")


def replay(*words: object) -> Result:
    return CliRunner().invoke(program, ["replay", *map(str, words)], env={"LC_ALL": "C"})


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.scenario.yaml"
    file.write_text(GOOD, encoding="utf-8")
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.scenario.yaml"
    file.write_text(BAD, encoding="utf-8")
    return file


def test_a_scenario_that_holds_is_one_line_and_exit_0(good: Path) -> None:
    done = replay(good)

    assert done.exit_code == 0
    assert done.stdout == "✓ a greeting (2 steps, 2.5 s)\n"


def test_one_that_fails_is_exit_1_with_file_line_and_what_differs(bad: Path) -> None:
    done = replay(bad)

    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "✗ a farewell (2 steps, 2.5 s)",
        f"  {bad}:5: sent",
        '    expected  ["goodbye"]',
        '    got       ["hello"]',
        f"  {bad}:5: state",
        '    expected  "silenced"',
        '    got       "idle"',
    ]


def test_a_wrong_file_is_exit_2_and_nothing_is_played(good: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.scenario.yaml"
    wrong.write_text("scenario: x\nsteps:\n  - mesage: {}\n", encoding="utf-8")

    done = replay(good, wrong)

    assert done.exit_code == 2
    assert done.stdout == ""
    assert f"{wrong}:3:" in done.stderr
    assert "did you mean `message`?" in done.stderr
    assert replay(tmp_path / "nosuch.yaml").exit_code == 2


def test_a_folder_means_its_scenarios_and_a_fail_among_them_counts(good: Path, bad: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("no scenario")

    done = replay(tmp_path)

    assert done.exit_code == 1
    assert "2 scenarios, 1 failed" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert replay(empty).exit_code == 2


def test_json_is_an_object_a_step_and_nothing_else(good: Path, bad: Path) -> None:
    done = replay(good, bad, "--json")

    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert done.stderr == ""
    assert [step["step"] for step in steps] == [1, 2, 1, 2]
    assert steps[0]["sent"] == [{"to": "console/u1", "text": "hello"}]
    assert [bool(step["failed"]) for step in steps] == [False, False, True, False]
    assert replay(good, "--json", "--coverage").exit_code == 2


def test_a_run_can_be_drawn_and_its_rows_counted(good: Path) -> None:
    done = replay(good, "--diagram", "--coverage")

    assert "sequenceDiagram" in done.stdout
    assert "console/u1" in done.stdout
    assert "rows taken" in done.stdout
    assert "✓ a greeting" in done.stderr


ORDER = """
scenario: order
sessions: [{id: ses_a, title: A, active: -60}]
model: ["##list_sessions##", {text: one, takes: 10}, two]
steps:
  - messages:
      - {channel: tg, sender: u1, text: a}
      - {channel: tg, sender: u1, text: b}
  - message: {channel: tg, sender: u2, text: /sessions}
  - wait: 600
"""


def test_a_diagram_shows_what_happened_in_the_order_in_which_it_did(tmp_path: Path) -> None:
    file = tmp_path / "order.scenario.yaml"
    file.write_text(ORDER, encoding="utf-8")

    lines = replay(file, "--diagram").stdout.splitlines()

    names = {line.split()[1]: line.split(" as ")[1] for line in lines if "participant" in line}
    assert names == {"p1": "tg/u1", "p2": "engine", "p3": "model", "p4": "tg/u2"}
    shown = [line.strip().partition("<br/>")[0] for line in lines[lines.index("sequenceDiagram") + 5 :]]
    assert shown == [
        "p1->>p2: a", "p1->>p2: b", "p2->>p3: asks", "Note over p2: list#95;sessions", "p2->>p3: asks",
        "Note over p2: t = 10 s", "p2-->>p1: one", "p2->>p3: asks", "p2-->>p1: two", "Note over p2: idle",
        "p4->>p2: /sessions", "p2-->>p4: 会话（最近活动的在前）：", "Note over p2: awaiting#95;selection",
        "Note over p2: t = 130 s", "p2-->>p4: 列表已过期，选择已取消。", "Note over p2: t = 610 s",
        "Note over p2: idle", "",
    ]  # fmt: skip


def test_several_diagrams_are_markdown_each_with_a_heading_and_a_fence(good: Path, bad: Path) -> None:
    alone, both = replay(good, "--diagram").stdout, replay(good, bad, "--diagram").stdout

    assert "```" not in alone
    assert [line for line in both.splitlines() if line.startswith(("## ", "```"))] == [
        "## a greeting", "```mermaid", "```", "## a farewell", "```mermaid", "```",
    ]  # fmt: skip
    assert f"```mermaid\n{alone.rstrip()}\n```" in both


def test_crash_everywhere_runs_it_once_for_every_moment(good: Path) -> None:
    done = replay(good, "--crash-everywhere")

    assert done.exit_code == 0
    head, crashes = done.stdout.splitlines()
    assert head == "✓ a greeting (2 steps, 2.5 s)"
    assert crashes.endswith(" crashes, 0 failed")
    assert int(crashes.split()[1]) >= 8


# -- export ----------------------------------------------------------------------------------------


@pytest.fixture
def talked(home: Home, llm: FakeLLM) -> Home:
    llm.answers = deque([
        Answer("There are 2 bugs in 词法分析."), Answer("##list_sessions:parser##"), Answer("__REPLY__ One session."),
        Answer(status=401),
    ])  # fmt: skip
    said = "/sessions\n10\nWhat is wrong?\nWhich sessions?\nFails\n/mute 5m\nquiet now\n/unmute\n切换到 parser\n"
    assert home.run("chat", input=said).returncode == 0
    return home


DISPOSITIONS = ["replied", "replied", "replied", "replied", "failed", "replied", "muted", "replied", "replied"]


@pytest.mark.parametrize("mask", [False, True], ids=["as it was", "masked"])
def test_a_real_conversation_becomes_a_scenario_that_plays_as_it_went(talked: Home, mask: bool) -> None:
    file = talked.folder / "real.scenario.yaml"

    done = talked.run("export", "console", "hmo", "--output", str(file), *(["--mask"] if mask else []))

    assert done.returncode == 0
    assert done.stderr == ""
    (scenario,) = read(file)
    assert [step.expect.disposition for step in scenario.steps if step.expect] == DISPOSITIONS
    run = play(scenario)
    assert run.failed == []
    assert run.steps[-1].model_calls == 4
    assert ("list_sessions", "xxxxxx" if mask else "parser") in run.steps[-1].commands
    assert replay(file).exit_code == 0


def test_masked_texts_keep_their_shape_and_what_acts(talked: Home) -> None:
    text = talked.run("export", "console", "hmo", "--mask").stdout
    whole = yaml.safe_load(text)

    said = [step["message"]["text"] for step in whole["steps"] if "message" in step]
    assert said == [
        "/sessions", "10", "Xxxx xx xxxxx?", "Xxxxx xxxxxxxx?", "Xxxxx", "/mute 5m", "xxxxx xxx", "/unmute",
        "切换到 xxxxxx",
    ]  # fmt: skip
    answers = [answer["text"] for answer in whole["model"] if "text" in answer]
    assert answers == ["Xxxxx xxx 2 xxxx xx 字字字字.", "##list_sessions:xxxxxx##", "__REPLY__ Xxx xxxxxxx."]
    for word in ("bugs", "wrong", "词法", "Refactor", "quiet"):
        assert word not in text


def test_the_waits_between_messages_are_those_of_the_record(talked: Home) -> None:
    whole = yaml.safe_load(talked.run("export", "console", "hmo").stdout)
    waits = [step["at"] for step in whole["steps"] if "at" in step]

    assert len(waits) == len(DISPOSITIONS) - 1
    assert waits == sorted(waits)
    took = sum(answer.get("takes", 0) for answer in whole["model"])
    assert 0 < took <= waits[-1]


def test_a_message_that_was_stopped_by_the_next_one_plays_so(tmp_path: Path) -> None:
    async def record() -> str:
        stage = Stage(agent_from_mapping({"name": "mohe"}, MINIMAL), SteppedClock(START))
        stage.model.answers = [ScriptedAnswer(hang=True), ScriptedAnswer("done", takes=2)]
        await stage.open()
        key = Key("mohe", "console", "hmo")
        for name, text in (("m1", "think hard"), ("m2", "/stop"), ("m3", "and now"), ("m4", "/status")):
            delivered = stage.deliver(Inbound("console", "hmo", text, name, stage.clock.now(), "hmo"))
            await stage.advance(stage.clock.now() + 1)
        await stage.finish([delivered])
        await stage.advance(stage.clock.now() + 5)
        text = await export(key, stage.engine.store, stage.desk.sessions, agent=stage.agent)
        await stage.close()
        return text

    file = tmp_path / "stopped.scenario.yaml"
    file.write_text(asyncio.run(record()), encoding="utf-8")
    (scenario,) = read(file)

    run = play(scenario)

    assert run.failed == []
    assert [step.wait_reply and (step.message is None or step.message.wait_reply) for step in scenario.steps] == [
        False, True, True, True, False, True, True, True,
    ]  # fmt: skip
    stopped, status, done = [sent.text for step in run.steps for sent in step.sent]
    assert (stopped, done) == ("已停止。", "done")
    assert status.startswith("状态：command_looping")


async def exported(*said: tuple[float, str], answers: int = 0) -> str:
    """The file of a conversation in which these texts came at these seconds."""
    stage = Stage(agent_from_mapping({"name": "mohe"}, MINIMAL), SteppedClock(START))
    stage.model.answers = [ScriptedAnswer("1e3")] * answers
    await stage.open()
    try:
        for number, (at, text) in enumerate(said):
            delivered = stage.deliver(Inbound("console", "hmo", text, f"m{number}", START + at, "hmo"))
            await stage.finish([delivered])
        key = Key("mohe", "console", "hmo")
        return await export(key, stage.engine.store, stage.desk.sessions, agent=stage.agent)
    finally:
        await stage.close()


ODD = ("1e3", "010", "12:30", "2026-02-30", "yes", "null", "~", "<<", "=", "+5", ".5", "0x1f", "a\u0007b", "- a", "#")


def test_a_text_that_looks_like_a_number_or_a_date_comes_back_as_it_was() -> None:
    text = asyncio.run(exported(*((n, odd) for n, odd in enumerate(ODD)), answers=len(ODD)))

    (scenario,) = read_text(text)

    assert tuple(said.text for step in scenario.steps for said in step.said) == ODD
    assert {answer.text for answer in scenario.answers} == {"1e3"}
    assert play(scenario).failed == []


def test_where_the_clock_was_set_back_the_scenario_goes_on_from_where_it_was() -> None:
    (scenario,) = read_text(asyncio.run(exported((0, "/status"), (60, "/status"), (30, "/status"), (40, "/status"))))

    assert [step.at for step in scenario.steps if step.at is not None] == [60]
    assert len(scenario.steps) == 5


def test_a_conversation_without_an_end_yet_is_no_scenario() -> None:
    with pytest.raises(NothingToExport, match="No message of console hmo has come to its end yet; try again"):
        asyncio.run(exported())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Hello, World 42!", "Xxxxx, Xxxxx 42!"), ("你好 wörld", "字字 xxxxx"), ("かな 한글", "字字 字字"),
        ("a_b/c.py:17", "x_x/x.xx:17"), ("", ""), ("🚀 ok", "x xx"),
    ],
)  # fmt: skip
def test_masking_keeps_length_numbers_and_punctuation(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert len(masked(text)) == len(text)
