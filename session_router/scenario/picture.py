"""A played scenario as a sequence diagram: people, engine and model, in the order of what happened."""

from __future__ import annotations

from collections.abc import Iterator

from session_router.diagrams.sequence import Arrow, Note, sequence
from session_router.scenario.play import Run, StepReport, tidy

ENGINE = "engine"
MODEL = "model"


def picture(run: Run) -> str:
    """The run as Mermaid text."""
    return sequence(_steps(run), title=run.scenario.name)


def _steps(run: Run) -> Iterator[Arrow | Note]:
    t, state, calls, commands = 0.0, None, 0, 0
    for step in run.steps:
        if step.t > t:
            yield Note(ENGINE, f"t = {tidy(step.t)} s")
        if not step.said and step.verb not in ("wait", "at"):
            yield Note(ENGINE, step.verb)
        for inbound in step.said:
            yield Arrow(f"{inbound.channel}/{inbound.sender}", ENGINE, inbound.text)
        for _ in range(step.model_calls - calls):
            yield Arrow(ENGINE, MODEL, "asks")
        for name, argument in step.commands[commands:]:
            yield Note(ENGINE, f"{name}: {argument}" if argument else name)
        yield from _sent(step)
        if step.state is not None and step.state != state:
            yield Note(ENGINE, step.state)
        t, state, calls, commands = step.t, step.state, step.model_calls, len(step.commands)


def _sent(step: StepReport) -> Iterator[Arrow]:
    for sent in step.sent:
        yield Arrow(ENGINE, sent.address, sent.text, "answers")
