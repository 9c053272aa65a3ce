"""The page on scenarios: every block runs, and nothing that a scenario or a story can say is left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from session_router.cli import program
from session_router.scenario.files import Scenario, read_text
from session_router.scenario.format import VERBS, AnswerEntry, Expect, MessageEntry, SessionEntry
from session_router.scenario.play import play
from session_router.scenario.story import Bot, Person

ROOT = Path(__file__).parents[2]
PAGES = ("docs/scenarios.md", "docs/scenarios.zh.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_KEYS = ("scenario", "start", "agent", "sessions", "model", "steps")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page(name)) if kind == language]


def shown_scenarios() -> list[Scenario]:
    return [scenario for text in blocks(PAGES[0], "yaml") for scenario in read_text(text, PAGES[0])]


@pytest.mark.parametrize("scenario", shown_scenarios(), ids=lambda scenario: scenario.name)
def test_the_scenarios_hold(scenario: Scenario) -> None:
    assert play(scenario).failed == []


def test_the_stories_pass(tmp_path: Path) -> None:
    found = blocks(PAGES[0], "python")
    assert found
    for number, code in enumerate(found):
        (tmp_path / f"test_story_{number}.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_line_is_one() -> None:
    lines = [line for text in blocks(PAGES[0], "sh") for line in text.splitlines()]
    assert lines
    for line in lines:
        name, verb, *words = line.split()
        assert name == "session-router"
        assert isinstance(program, click.Group)
        program.commands[verb].make_context(verb, words)


def test_the_json_is_that_of_the_second_step_of_the_first_scenario() -> None:
    (shown,) = blocks(PAGES[0], "json")
    assert json.loads(shown) == play(shown_scenarios()[0]).steps[1].as_json()


def test_every_verb_and_every_expectation_is_shown_at_work() -> None:
    steps = [step for scenario in shown_scenarios() for step in scenario.steps]

    assert {step.verb for step in steps} == set(VERBS)
    assert {name for step in steps if step.expect for name in step.expect.model_fields_set} == set(Expect.model_fields)


@pytest.mark.parametrize("name", PAGES)
def test_every_key_and_every_method_is_named(name: str) -> None:
    prose = BLOCK.sub("", page(name))
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    models = (SessionEntry, MessageEntry, AnswerEntry, Expect)
    keys = {*FILE_KEYS, *VERBS}.union(*(model.model_fields for model in models))
    public = {word for kind in (Bot, Person) for word in vars(kind) if not word.startswith("_")} | {"people"}

    assert keys - named == set()
    assert public - named == set()


def test_both_pages_show_the_same_blocks() -> None:
    assert BLOCK.findall(page(PAGES[0])) == BLOCK.findall(page(PAGES[1]))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", page(name)):
        assert ((ROOT / name).parent / target).exists(), target
