"""The process dies at every moment of a scenario in turn, and nobody who talks to the bot can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_router.scenario.crashes import crash_everywhere, play_plain, verdict
from session_router.scenario.files import Scenario, read, read_text

FOLDER = Path(__file__).parent.parent / "scenarios"
CHOSEN = {
    "concurrency": ("list and number together", "whoever comes then is told", "two people"),
    "llm_failure": ("empty text twice", "after 1 s and after 4 s", "raises after a command"),
    "delivery": ("while the first run is busy", "texts for one address", "on its way when", "given up after its end"),
    "groups": ("silence is asked about", "holds for everybody", "a conversation that is busy", "heard of so far"),
    "restart": ("queued messages outlive", "a room mute outlives"),
}
TWO_COMMANDS = """
scenario: "RUN-08 a turn with two commands and an answer, another message behind it"
sessions: [{id: ses_a, title: 天气机器人, active: -60}]
model: ["##list_sessions##\\n##current_session##", "##context:2##", {text: 好, takes: 10}, 又好]
steps:
  - message: {channel: tg, sender: u1, id: m1, text: 看看, wait_reply: false}
  - message: {channel: tg, sender: u1, id: m2, text: 还有}
"""


def _chosen() -> list[Scenario]:
    found = [one for file, names in CHOSEN.items() for one in read(FOLDER / f"{file}.scenario.yaml")
             if any(name in one.name for name in names)]  # fmt: skip
    assert len(found) >= sum(map(len, CHOSEN.values())), "a chosen scenario was renamed"
    return [*found, *read_text(TWO_COMMANDS)]


@pytest.mark.parametrize("scenario", _chosen(), ids=lambda scenario: scenario.name)
def test_a_crash_anywhere_loses_nothing_and_repeats_nothing(scenario: Scenario) -> None:
    plain = play_plain(scenario)
    assert plain.failed == []
    wrong = [
        f"crash {when} {kind} {which}: {line}"
        for kind, when, which, crashed in crash_everywhere(scenario)
        for line in verdict(plain, crashed)
    ]
    assert wrong == []


def test_the_moments_of_a_crash_are_all_that_the_engine_does_to_the_world() -> None:
    (scenario,) = read_text(TWO_COMMANDS)
    moments = {(kind, when): many for (kind, when), many in play_plain(scenario).touches.items()}
    assert {kind for kind, _ in moments} == {"model", "command", "send", "commit"}
    assert moments["model", "before"] == moments["model", "after"] == 4
    assert moments["command", "before"] == moments["command", "after"] == 3
    assert moments["send", "before"] == moments["send", "after"] == 2
    assert len(list(crash_everywhere(scenario))) == sum(moments.values())


def test_runs_are_compared_after_all_that_was_pending_is_over() -> None:
    (scenario,) = read_text("""
scenario: a list is open, and its text has not arrived yet
sessions: [{id: ses_a, title: 天气机器人, active: -60}]
steps:
  - fail_send: 1
  - message: {channel: tg, sender: u1, id: m1, text: /sessions}
    expect: {sent: [], state: awaiting_selection}
""")

    run = play_plain(scenario)

    shown, over = (sent.at - scenario.start for sent in run.sent)
    assert (shown, over) == (1, 120)
    assert list(run.states.values()) == ["awaiting_selection"]


def test_a_delivery_that_is_tried_again_after_a_crash_fails_again_and_counts_once() -> None:
    (scenario,) = read_text("""
scenario: two tries fail
sessions: [{id: ses_a, title: 天气机器人, active: -60}]
model: [好]
steps:
  - fail_send: 2
  - message: {channel: tg, sender: u1, id: m1, text: a}
""")

    crashes = list(crash_everywhere(scenario))

    failing = [run for kind, when, which, run in crashes if (kind, when) == ("send", "before")]
    assert len(failing) == 3
    assert [[sent.text for sent in run.sent] for _, _, _, run in crashes] == [["好"]] * len(crashes)


def test_a_verdict_names_what_a_crash_changed() -> None:
    one, other = read_text(TWO_COMMANDS)[0], read_text(TWO_COMMANDS.replace("又好", "不好"))[0]
    changed = verdict(play_plain(one), play_plain(other))
    assert changed == ["not sent to tg/u1: 又好", "sent to tg/u1 over and above: 不好"]
    fewer = read_text(TWO_COMMANDS.replace("##list_sessions##\\n", ""))[0]
    assert verdict(play_plain(fewer), play_plain(one)) == ["ran again: list_sessions:"]
    assert verdict(play_plain(one), play_plain(fewer)) == []
