"""pytest plugin: the ``bot`` fixture for stories, and scenario files collected as tests.

Files named ``*.scenario.yaml`` are collected wherever pytest looks; each scenario in one is a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from session_router.scenario.files import Scenario
    from session_router.scenario.story import Bot

SUFFIXES = (".scenario.yaml", ".scenario.yml")


@pytest.fixture
def bot() -> Iterator[Bot]:
    """A bot on a frozen clock: the real engine, a scripted model, nothing that sleeps."""
    from session_router.scenario.story import Bot

    made = Bot()
    try:
        yield made
    finally:
        made.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    if file_path.name.endswith(SUFFIXES):
        file: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
        return file
    return None


class ScenarioFile(pytest.File):
    """A file of scenarios."""

    def collect(self) -> Iterable[ScenarioItem]:
        from session_router.scenario.files import ScenarioError, read

        try:
            scenarios = read(self.path)
        except ScenarioError as error:
            raise self.CollectError(str(error)) from error
        for scenario in scenarios:
            yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """One scenario."""

    def __init__(self, *, scenario: Scenario, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.scenario = scenario

    def runtest(self) -> None:
        from session_router.scenario.play import play

        if failed := play(self.scenario).failed:
            raise ScenarioFailed("\n".join(failed))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, ScenarioFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        line = self.scenario.lines[0] - 1 if self.scenario.lines else 0
        return self.path, line, f"scenario: {self.scenario.name}"


class ScenarioFailed(Exception):
    """Expectations that did not hold, a line each."""
