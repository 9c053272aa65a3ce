"""The scenarios together take every row of the table, and play the same way every time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fsm.table import TABLE
from session_router.scenario.coverage import Coverage, report, rows_taken
from session_router.scenario.files import Scenario, read
from session_router.scenario.play import Run, play

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.scenario.yaml"))
SCENARIOS = [scenario for file in FILES for scenario in read(file)]


def play_in_random_order() -> dict[tuple[str, str], Run]:
    shuffled: list[Scenario] = random.sample(SCENARIOS, len(SCENARIOS))
    return {(scenario.file, scenario.name): play(scenario) for scenario in shuffled}


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    return play_in_random_order()


def test_no_two_scenarios_of_a_file_have_one_name() -> None:
    names = [(scenario.file, scenario.name) for scenario in SCENARIOS]

    assert sorted(set(names)) == sorted(names)


def test_every_row_of_the_table_is_taken_by_some_scenario(runs: dict[tuple[str, str], Run]) -> None:
    coverage = rows_taken(runs.values())

    assert coverage.missing == (), report(coverage)
    assert coverage.percent == 100.0
    assert list(coverage.taken) == [row.name for row in TABLE]


def test_TMR_02_played_twice_in_random_order_the_scenarios_give_the_same_results(
    runs: dict[tuple[str, str], Run],
) -> None:
    again = play_in_random_order()

    assert again.keys() == runs.keys()
    for name, run in runs.items():
        assert [step.as_json() for step in again[name].steps] == [step.as_json() for step in run.steps], name


# -- the report itself ----------------------------------------------------------------------------


def test_rows_that_no_run_took_are_missing_in_table_order() -> None:
    one = Run(SCENARIOS[0])
    one.rows.update({TABLE[0].name: 2, TABLE[2].name: 1})
    other = Run(SCENARIOS[0])
    other.rows.update({TABLE[2].name: 4})

    coverage = rows_taken([one, other])

    assert coverage.taken[TABLE[0].name] == 2
    assert coverage.taken[TABLE[2].name] == 5
    assert coverage.missing == tuple(row.name for n, row in enumerate(TABLE) if n not in (0, 2))


def test_the_report_has_a_line_a_row_and_names_what_is_missing_again() -> None:
    text = report(Coverage({"idle: A -> a": 12, "idle: B -> b": 0, "any: C -> c": 3}, ("idle: B -> b",)))

    assert text == (
        "12  idle: A -> a\n"
        " -  idle: B -> b\n"
        " 3  any: C -> c\n"
        "\n"
        "2 of 3 rows taken (66.6 %)\n"
        "\n"
        "Never taken:\n"
        "  idle: B -> b"
    )


def test_a_report_with_nothing_missing_ends_with_the_percentage() -> None:
    assert report(Coverage({"idle: A -> a": 1}, ())).endswith("1 of 1 rows taken (100 %)")
