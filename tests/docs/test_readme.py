"""The code blocks of the READMEs run, so that they cannot drift."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from session_router.scenario.files import read_text
from session_router.scenario.play import play

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name: str, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall((ROOT / name).read_text(encoding="utf-8")) if kind == language]


@pytest.mark.parametrize("readme", READMES)
def test_the_scenarios_hold(readme: str) -> None:
    found = blocks(readme, "yaml")
    assert found
    for text in found:
        for scenario in read_text(text, readme):
            assert play(scenario).failed == []


@pytest.mark.parametrize("readme", READMES)
def test_the_python_runs(readme: str, tmp_path: Path) -> None:
    found = blocks(readme, "python")
    assert len(found) == 3
    for number, code in enumerate(found):
        story = "def test_" in code
        file = tmp_path / (f"test_readme_{number}.py" if story else f"block_{number}.py")
        file.write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), str(file)] if story else [
            sys.executable,
            str(file),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_both_readmes_show_the_same_code() -> None:
    for language in ("sh", "yaml", "python"):
        assert [textwrap.dedent(b) for b in blocks(READMES[0], language)] == blocks(READMES[1], language)


@pytest.mark.parametrize("readme", READMES)
def test_every_link_leads_somewhere(readme: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / readme).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
