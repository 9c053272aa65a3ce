"""Plays a scenario again and again, each time with the process dying at another moment.

``crash_everywhere`` finds the moments in a plain run: right before and right after every time that
the engine touched the world. ``verdict`` says what a crash may not change: who hears what, which
commands run, what becomes of every message. When things happen it may change, so both runs are
compared after everything that was pending at the end of the story is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from fsm.commands.registry import Registry
from session_router.scenario.files import Scenario
from session_router.scenario.play import Player, Run

Crashed = tuple[str, str, int, Run]
"""(``model``, ``command``, ``send`` or ``commit``; ``before`` or ``after``; which one, from 1; the run)"""


def play_plain(scenario: Scenario, commands: Registry | None = None) -> Run:
    """The run to compare with: no crash, and played until nothing is due any more."""
    return _play(scenario, commands, None)


def crash_everywhere(scenario: Scenario, commands: Registry | None = None) -> Iterator[Crashed]:
    """A run for every moment at which the engine touches the world in a plain run, with a crash there.

    The model repeats its scripted answer to a call that is made again. ``scenario`` names no crash
    of its own.
    """
    for (kind, when), many in sorted(play_plain(scenario, commands).touches.items()):
        for which in range(1, many + 1):
            yield kind, when, which, _play(scenario, commands, (kind, when, which))


def verdict(plain: Run, crashed: Run) -> list[str]:
    """What a crash changed that it may not have, a line each; empty where nothing.

    A command that was cut off does not run again, so one whose outcome leads the conversation
    elsewhere (it opens a list, say) may rightly make another run of it.
    """
    found: list[str] = []
    before, after = (Counter((sent.address, sent.text) for sent in run.sent) for run in (plain, crashed))
    found += [f"not sent to {where}: {text}" for where, text in (before - after).elements()]
    found += [f"sent to {where} over and above: {text}" for where, text in (after - before).elements()]
    once = Counter(plain.ran)
    found += [f"ran again: {name}:{argument or ''}" for name, argument in (Counter(crashed.ran) - once).elements()]
    for (key, message), was in plain.dispositions.items():
        if (now := crashed.dispositions.get((key, message))) != was:
            found.append(f"message {message} of {key.channel}/{key.sender} ended as {now}, not {was}")
    for key, state in plain.states.items():
        if (now := crashed.states.get(key)) != state:
            found.append(f"{key.channel}/{key.sender} ended {now}, not {state}")
    found += [line for step in crashed.steps for line in step.failed if line.startswith("the model was asked more")]
    return found


def _play(scenario: Scenario, commands: Registry | None, crash_at: tuple[str, str, int] | None) -> Run:
    return asyncio.run(Player(scenario, commands, crash_at).run(to_the_end=True))
