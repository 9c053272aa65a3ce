"""The fault run is only worth something if it sees what goes wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("slixmpp")

from benchmarks.faults import MESSAGES, Outcome, answers, in_turn, judge
from tests.support.xmpp_servers import HOST


def judged(seen: list[int], kept: list[int], written: int = 6) -> Outcome:
    outcome = Outcome("server", written=written)
    judge(outcome, seen, kept)
    return outcome


def test_what_neither_the_people_nor_the_archive_have_is_lost() -> None:
    assert judged([1, 2, 5], [1, 2, 3]).lost == [4, 6]
    assert judged([1, 2, 5], [1, 2, 3]).not_archived == [4, 5, 6]


def test_a_number_twice_in_either_place_was_answered_twice() -> None:
    assert judged([1, 2, 2], [1, 2]).twice == [2]
    assert judged([1, 2], [1, 1, 2]).twice == [1]


def test_order_is_that_of_each_person_and_not_of_both_together() -> None:
    assert judged([2, 1, 4, 3, 6, 5], []).early == []
    assert judged([1, 5, 3, 2, 4, 6], []).early == [5]


def test_only_what_the_bot_itself_said_is_an_answer() -> None:
    assert answers([(f"bot@{HOST}", "heard 7"), (f"bob@{HOST}", "heard 8"), (f"bot@{HOST}", "heard of 9")]) == [7]


def test_thirty_faults_of_every_kind_are_planned() -> None:
    order = in_turn()

    assert len(order) == 30
    assert {name for name, _ in order[-2:]} == {"room destroyed", "bot restarted"}


@pytest.mark.parametrize(
    "spoilt",
    [{"lost": [1]}, {"twice": [1]}, {"early": [1]}, {"rejoined": 29}, {"written": 199}, {"problems": ["anything"]}],
    ids=str,
)
def test_one_thing_wrong_spoils_the_run(spoilt: dict[str, object]) -> None:
    whole: dict[str, object] = {"written": MESSAGES, "rejoined": 30, "wanted": 30}

    assert Outcome("server", **whole).ok  # type: ignore[arg-type]
    assert not Outcome("server", **{**whole, **spoilt}).ok  # type: ignore[arg-type]
