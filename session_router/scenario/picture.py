"""A played scenario as a sequence diagram: people, engine and model, in the order of what happened."""

from __future__ import annotations

from collections.abc import Iterator

from fsm.ports import Inbound
from session_router.diagrams.sequence import Arrow, Note, sequence
from session_router.scenario.play import Run, tidy
from session_router.scenario.script import Asked, Ran, Sent, What

ENGINE = "engine"
MODEL = "model"


def picture(run: Run) -> str:
    """The run as Mermaid text. Time is noted where it passed."""
    return sequence(_steps(run), title=run.scenario.name)


def _steps(run: Run) -> Iterator[Arrow | Note]:
    t, state = 0.0, None
    for step in run.steps:
        if step.verb not in ("message", "messages", "wait", "at"):
            yield Note(ENGINE, step.verb)
        for happened in step.happened:
            if happened.t > t:
                t = happened.t
                yield Note(ENGINE, f"t = {tidy(t)} s")
            yield _drawn(happened.what)
        if step.t > t:
            t = step.t
            yield Note(ENGINE, f"t = {tidy(t)} s")
        if step.state is not None and step.state != state:
            state = step.state
            yield Note(ENGINE, state)


def _drawn(what: What) -> Arrow | Note:
    match what:
        case Inbound():
            return Arrow(f"{what.channel}/{what.sender}", ENGINE, what.text)
        case Asked():
            return Arrow(ENGINE, MODEL, "asks")
        case Ran(name, argument):
            return Note(ENGINE, f"{name}: {argument}" if argument else name)
        case Sent():
            return Arrow(ENGINE, what.address, what.text, "answers")
