"""What no entry of a scenario file shows alone: whether its steps, one after the other, can happen as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsm.agent import Agent
from session_router.scenario.format import JOURNAL, LONGEST, File, SessionChange, SessionEntry, Step
from session_router.scenario.plain_yaml import Path

MADE = re.compile(r"ses_[a-z2-7]{12}")
"""The form of the ids that the engine gives to sessions it makes (``fsm.sessions.session_id_for``). Whether there is
one of those, only the run can tell."""


def nonsense(file: File, agent: Agent) -> Iterator[tuple[Path, str]]:
    """Everything that contradicts what stands before it: where, and what is wrong with it."""
    world = _World(agent)
    for number, entry in enumerate(file.sessions or ()):
        yield from world.add(("sessions", number), entry)
    for number, answer in enumerate(file.model):
        yield from world.passes(("model", number), answer.takes * answer.times)
    for number, step in enumerate(file.steps):
        yield from world.step(("steps", number), step)


class _World:
    """What there is at some point of a file: ``sources`` of the sessions by id, the ids of the ``messages`` so far. The
    clock then stands at ``now`` or later, in seconds from the start."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.sources: dict[str, str] = {}
        self.messages: set[str] = set()
        self.now = 0.0
        self.together = 0.0

    def step(self, path: Path, step: Step) -> Iterator[tuple[Path, str]]:
        for entry in step.said:
            if entry.id is not None:
                self.messages.add(entry.id)
        match step.verb:
            case "wait":
                self.now += step.wait or 0.0
                yield from self.passes((*path, "wait"), step.wait or 0.0)
            case "at":
                yield from self._at((*path, "at"), step.at or 0.0)
            case "wall_jump":
                yield from self.passes((*path, "wall_jump"), abs(step.wall_jump or 0.0))
            case "model":
                for number, answer in enumerate(step.model or ()):
                    yield from self.passes((*path, "model", number), answer.takes * answer.times)
            case "sessions":
                assert step.sessions is not None
                yield from self._change((*path, "sessions"), step.sessions)
            case "cli":
                yield from self._cli((*path, "cli"), step)
        if step.expect is not None and isinstance(step.expect.dispositions, dict):
            for name in step.expect.dispositions:
                if name not in self.messages:
                    yield (*path, "expect", "dispositions", name), f"no message so far has the id {name}"

    def passes(self, path: Path, seconds: float) -> Iterator[tuple[Path, str]]:
        """Time passes, or an answer may let it."""
        self.together += seconds
        if self.together > LONGEST:
            yield path, "up to here more than a hundred years may pass; make it less"

    def _at(self, path: Path, at: float) -> Iterator[tuple[Path, str]]:
        if at < self.now:
            yield path, f"{at:g} is past, the clock stands at {self.now:g} at least; time does not run backwards"
        else:
            yield from self.passes(path, at - self.now)
        self.now = max(self.now, at)

    def add(self, path: Path, entry: SessionEntry) -> Iterator[tuple[Path, str]]:
        if entry.id in self.sources:
            yield (*path, "id"), f"there is a session {entry.id} already; give this one another id, or update it"
        self.sources[entry.id] = entry.source

    def _change(self, path: Path, change: SessionChange) -> Iterator[tuple[Path, str]]:
        for number, entry in enumerate(change.add):
            yield from self.add((*path, "add", number), entry)
        for number, update in enumerate(change.update):
            at: Path = (*path, "update", number)
            yield from self._known((*at, "id"), update.id)
            if self.sources.get(update.id) == JOURNAL:
                for key in sorted(update.model_fields_set - {"id", "title", "active"}):
                    yield (*at, key), f"of a session of ours only `title` and `active` can be updated, not `{key}`"
        for number, gone in enumerate(change.remove):
            yield from self._known((*path, "remove", number), gone)
            self.sources.pop(gone, None)

    def _cli(self, path: Path, step: Step) -> Iterator[tuple[Path, str]]:
        assert step.cli is not None
        text, session, agent = step.cli.text, step.cli.session, step.cli.agent
        if agent not in (None, self.agent.name):
            yield path, f"there is no agent {agent}; the one of this scenario is {self.agent.name}"
        if not self.agent.groups:
            yield path, f"{self.agent.name} is in no group to say it in; give it one: agent: {{groups: {{ROOM: {{}}}}}}"
        if session is not None:
            yield from self._known(path, session)
        elif text.strip() in self.sources:
            yield path, f"{text} is a session; the text to send is missing: [send, TEXT, {text}]"

    def _known(self, path: Path, session: str) -> Iterator[tuple[Path, str]]:
        if session not in self.sources and not MADE.fullmatch(session):
            there = ", ".join(self.sources) or "none"
            yield path, f"there is no session {session} here; there are: {there}"
