"""The comparisons run and say what they compare. How fast anything is, no test asks: the machine is shared."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.measure import Row

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    "step / raw transitions",
    "step / dict dispatch",
    "engine / group commit",
    "engine / group commit and reads",
    "engine / bare statements",
    "memory / idle conversation",
    "start-up / reading the rows",
    "start-up / fetching the rows",
    "OpenCode context / raw queries",
    "prompt / repeated from the call before",
    "journal / raw line scan",
    "journal / memory, MiB",
]


def row(ratio: float, **how: object) -> Row:
    return Row("a / b", "1 s", "2 s", ratio, 1.0, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", [["-m", "benchmarks"], ["benchmarks/run.py"]])
def test_a_quick_run_prints_every_row_and_what_it_is_compared_with(command: list[str]) -> None:
    done = subprocess.run([sys.executable, *command, "--quick"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    table, explained = lines[: len(ROWS) + 1], lines[len(ROWS) + 2 :]
    assert table[0].split() == ["what", "ours", "peer", "ratio", "limit", "ok"]
    assert [name for line, name in zip(table[1:], ROWS, strict=True) if not line.startswith(name)] == []
    assert [name for line, name in zip(explained, ROWS, strict=True) if not line.startswith(f"{name}: ")] == []


def test_one_comparison_can_be_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--quick", "--only", "prompt"]) == 0
    others = tuple(name for name in ROWS if not name.startswith("prompt"))
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(others)] == []


@pytest.mark.parametrize(("ratio", "code", "said"), [(0.9, 0, "yes"), (1.1, 1, "NO")])
def test_a_ratio_that_is_missed_is_the_exit_code(
    ratio: float, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "COMPARISONS", {"some": lambda *, quick: [row(ratio)]})
    assert run.main([]) == code
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == said


def test_a_limit_can_be_from_below_and_may_be_none() -> None:
    assert not row(0.9, bound="at least").ok
    assert row(1.0, bound="at least").ok
    assert Row("a / b", "1 s", "2 s", 99.0, None).ok


def test_a_saved_result_describes_the_machine_and_not_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "COMPARISONS", {"some": lambda *, quick: [row(0.5, how="Both of them do it.")]})
    run.main(["--save", "here"])
    page = (tmp_path / "here.md").read_text(encoding="utf-8")
    assert "| a / b | 1 s | 2 s | 0.5 | <= 1 | yes |" in page
    assert "- **a / b**: Both of them do it." in page
    assert all(f"- {what}: " in page for what in ("Processor", "Cores", "Memory", "System", "Python", "SQLite"))
    assert platform.node() not in page
    assert str(ROOT) not in page
