"""Runs a scenario step by step and holds its expectations against what happened."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fsm.agent import in_room
from fsm.commands.registry import Registry
from fsm.conversation import Key
from fsm.ports import Inbound, Line, SessionRouterError
from session_router.scenario.clock import SteppedClock
from session_router.scenario.files import Scenario, read_answers
from session_router.scenario.format import (
    JOURNAL,
    Expect,
    MessageEntry,
    SessionChange,
    SessionEntry,
    SessionFacts,
    SessionUpdate,
    Step,
)
from session_router.scenario.script import Happened, ScriptedSession, ScriptedSource, Sent
from session_router.scenario.stage import Delivered, Stage

ROUNDING = 0.01
"""Seconds by which `at` may be past: recorded times are rounded, and their sum may be late by a hair."""


@dataclass(slots=True)
class StepReport:
    """What a step did, and which of its expectations failed. ``happened`` is all of it in order."""

    number: int
    line: int
    verb: str
    t: float
    state: str | None
    bound: str | None
    binding: str | None
    loops: int
    sent: list[Sent]
    disposition: str | None
    queued: int
    model_calls: int
    commands: list[tuple[str, str | None]]
    deadline: float | None
    failed: list[str] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints for the step."""
        return {
            "step": self.number,
            "t": tidy(self.t),
            "state": self.state,
            "bound": self.bound,
            "binding": self.binding,
            "loops": self.loops,
            "sent": [{"to": sent.address, "text": sent.text} for sent in self.sent],
            "disposition": self.disposition,
            "queued": self.queued,
            "model_calls": self.model_calls,
            "commands": [list(command) for command in self.commands],
            "deadline": None if self.deadline is None else tidy(self.deadline),
            "failed": self.failed,
        }


@dataclass(slots=True)
class Run:
    """A scenario that was played. How it ended: every text that was ``sent``, every command that ``ran``, and the
    disposition of each message (by conversation and id) and state of each conversation."""

    scenario: Scenario
    steps: list[StepReport] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    touches: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: list[Sent] = field(default_factory=list)
    ran: list[tuple[str, str | None]] = field(default_factory=list)
    dispositions: dict[tuple[Key, str], str | None] = field(default_factory=dict)
    states: dict[Key, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """Every expectation that did not hold, with file and line."""
        return [f"{self.scenario.file}:{step.line}: {text}" for step in self.steps for text in step.failed]


def tidy(seconds: float) -> float | int:
    """Seconds without the dust of float sums: to the microsecond."""
    rounded = round(seconds, 6)
    return int(rounded) if rounded.is_integer() else rounded


def play(scenario: Scenario, *, commands: Registry | None = None, crash_at: tuple[str, str, int] | None = None) -> Run:
    """Run ``scenario`` on a stage of its own. ``crash_at`` (kind, before or after, which one from 1)
    adds a crash that the file does not name."""
    return asyncio.run(Player(scenario, commands, crash_at).run())


class Player:
    """One run of one scenario."""

    def __init__(
        self, scenario: Scenario, commands: Registry | None = None, crash_at: tuple[str, str, int] | None = None
    ) -> None:
        self.scenario = scenario
        self.stage = Stage(scenario.agent, SteppedClock(scenario.start), commands=commands)
        self.stage.model.answers = list(scenario.answers)
        if crash_at is not None:
            self.stage.crash(crash_at[0], crash_at[1], crash_at[2])
        self._last: Delivered | None = None
        self._messages = 0
        self._ours: set[str] = set()
        self._refused: list[str] = []

    async def run(self, *, to_the_end: bool = False) -> Run:
        """Play all steps; with ``to_the_end`` also what the last of them left open, until nothing is due any more. The
        conversations' states are those in which the messages had their dispositions."""
        stage, run = self.stage, Run(self.scenario)
        for entry in self.scenario.sessions or ():
            self._put(entry)
        await stage.open()
        try:
            for number, (step, line) in enumerate(zip(self.scenario.steps, self.scenario.lines, strict=True), start=1):
                run.steps.append(await self._step(number, line, step))
            if run.steps and stage.armed is not None:
                kind, when = stage.armed[0], stage.armed[1]
                run.steps[-1].failed.append(f"crash_at {{{when}: {kind}}} never struck")
            if to_the_end:
                await stage.finish(stage.delivered)
            for one in stage.delivered:
                run.states[one.key] = (await stage.conversation(one.key)).state.value
            if to_the_end:
                await stage.run_out()
            for one in stage.delivered:
                run.dispositions.setdefault((one.key, one.inbound.id), await self._disposition(one))
            run.sent, run.ran = list(stage.channel.sent), list(stage.commands.ran)
        finally:
            await stage.close()
        run.rows, run.touches = stage.rows, stage.touches
        return run

    async def _step(self, number: int, line: int, step: Step) -> StepReport:
        stage = self.stage
        sent_before, happened_before = len(stage.channel.sent), len(stage.happened)
        journal_before = self._journal_lengths()
        delivered = await self._do(step)
        sent = stage.channel.sent[sent_before:]
        key = self._of(step.expect)
        report = StepReport(
            number=number,
            line=line,
            verb=step.verb,
            t=stage.elapsed(),
            state=None,
            bound=None,
            binding=None,
            loops=0,
            sent=sent,
            disposition=await self._disposition(self._last),
            queued=0,
            model_calls=stage.model.calls,
            commands=list(stage.commands.ran),
            deadline=None,
            happened=stage.happened[happened_before:],
        )
        if key is not None:
            now = await stage.conversation(key)
            report.state, report.queued = now.state.value, len(now.queue)
            report.bound, report.binding = await stage.bound(key)
            report.loops, report.deadline = stage.loops(key), await stage.deadline(key)
        report.failed += [
            f"the model was asked more often than the scenario has answers: {m}" for m in stage.model.missing
        ]
        stage.model.missing.clear()
        report.failed += self._refused
        self._refused.clear()
        if step.expect is not None:
            journal = self._journal_since(journal_before, report.bound)
            report.failed += await self._differences(step.expect, report, delivered, journal)
        return report

    # -- the verbs -------------------------------------------------------------------------------

    async def _do(self, step: Step) -> list[Delivered]:
        stage = self.stage
        match step.verb:
            case "message" | "messages":
                delivered = []
                for entry in step.said:
                    delivered.append(self._deliver(entry))
                    await stage.taken_in(delivered[-1])
                if step.wait_reply and all(entry.wait_reply for entry in step.said):
                    await stage.finish(delivered)
                else:
                    await stage.settle()
                return delivered
            case "wait":
                await stage.advance(stage.clock.now() + (step.wait or 0.0))
            case "at":
                ahead = (step.at or 0.0) - stage.elapsed()
                if ahead < -ROUNDING:
                    self._refused.append(f"at: {step.at:g} is past, it is {tidy(stage.elapsed())} s already")
                await stage.advance(stage.clock.now() + max(ahead, 0.0))
            case "wall_jump":
                stage.clock.jump(step.wall_jump or 0.0)
                await stage.settle()
            case "restart":
                await stage.restart()
                await stage.settle()
            case "crash_at":
                assert step.crash_at is not None
                when = "before" if step.crash_at.before else "after"
                stage.crash(step.crash_at.before or step.crash_at.after or "", when)
            case "sessions":
                assert step.sessions is not None
                self._change_sessions(step.sessions)
            case "cli":
                assert step.cli is not None
                try:
                    await stage.send_from_cli(step.cli.text, step.cli.session)
                except SessionRouterError as error:
                    self._refused.append(f"cli: {error}")
                await stage.settle()
            case "fail_send":
                stage.channel.failing += step.fail_send or 0
            case "late_timers":
                stage.late = stage.engine.timers.late = step.late_timers or 0.0
            case "model":
                stage.model.answers += read_answers(step.model or [])
        return []

    def _deliver(self, entry: MessageEntry) -> Delivered:
        self._messages += 1
        stage = self.stage
        room = in_room(entry.channel)
        inbound = Inbound(
            channel=entry.channel,
            sender=entry.sender,
            text=entry.text,
            id=entry.id or f"auto-{self._messages}",
            at=stage.clock.now(),
            reply_to=stage.route_of(entry.channel, entry.sender),
            nick=entry.nick or (entry.sender.partition("@")[0] if room else ""),
            real_jid=entry.real_jid or "",
            mentioned=entry.mentioned,
            own=entry.own,
            delayed=entry.delayed,
            edited=entry.edited,
            bot=entry.bot,
        )
        self._last = stage.deliver(inbound)
        return self._last

    # -- sessions --------------------------------------------------------------------------------

    def _put(self, entry: SessionEntry) -> None:
        source = self.stage.talking.name if entry.talks else entry.source
        session = self._session(entry, source)
        if source == JOURNAL:
            self.stage.write_journal(session)
            self._ours.add(entry.id)  # what the file put there is no event of a step
        else:
            holder = self.stage.talking if entry.talks else self.stage.source
            holder.sessions[entry.id] = session

    def _session(self, entry: SessionFacts, source: str) -> ScriptedSession:
        start = self.stage.start_at
        if entry.messages is None:
            active = entry.active if entry.active is not None else 0.0
            lines: tuple[Line, ...] = (
                Line("user", f"关于{entry.title or entry.id}", start + active - 1),
                Line("assistant", "好的。", start + active),
            )
        else:
            lines = tuple(Line(m.role, m.text, start + m.at) for m in entry.messages)
            active = entry.active if entry.active is not None else max((m.at for m in entry.messages), default=0.0)
        return ScriptedSession(entry.id, entry.title, start + active, lines, entry.parent, entry.archived, source)

    def _change_sessions(self, change: SessionChange) -> None:
        for entry in change.add:
            self._put(entry)
        for update in change.update:
            if not self._update(update):
                self._refused.append(f"sessions: there is no session {update.id} to update")
        for session_id in change.remove:
            holder = self._holder(session_id)
            if holder is not None:
                del holder.sessions[session_id]
            elif not self.stage.remove_journal(session_id):
                self._refused.append(f"sessions: there is no session {session_id} to remove")

    def _holder(self, session_id: str) -> ScriptedSource | None:
        return next((one for one in (self.stage.source, self.stage.talking) if session_id in one.sessions), None)

    def _update(self, entry: SessionUpdate) -> bool:
        """Change what is given of a session; False where there is none of that id."""
        given = entry.model_fields_set
        if (holder := self._holder(entry.id)) is None:
            return self.stage.change_journal(
                entry.id, title=entry.title if "title" in given else None,
                active=None if entry.active is None else self.stage.start_at + entry.active,
            )  # fmt: skip
        new = self._session(entry, holder.name)
        named = {name: "lines" if name == "messages" else name for name in given}
        holder.change(entry.id, **{name: getattr(new, name) for name in named.values()})
        return True

    # -- expectations ----------------------------------------------------------------------------

    def _of(self, expect: Expect | None) -> Key | None:
        if expect is not None and expect.of is not None:
            return Key(self.scenario.agent.name, expect.of.channel, expect.of.sender)
        return self._last.key if self._last is not None else None

    async def _disposition(self, delivered: Delivered | None) -> str | None:
        if delivered is None:
            return None
        found = await self.stage.disposition(delivered)
        return found.value if found is not None else None

    def _journal_lengths(self) -> dict[str, int]:
        noticed = {where for seen in self.stage._seen.values() for where, _ in seen.journal}
        sessions = noticed | self._ours | {entry.id for entry in self.scenario.sessions or ()}
        return {session: len(self.stage.journal(session)) for session in sessions}

    def _journal_since(self, before: dict[str, int], session: str | None) -> list[str]:
        return self.stage.journal(session)[before.get(session or "", 0) :]

    async def _differences(
        self, expect: Expect, report: StepReport, delivered: Sequence[Delivered], journal: list[str]
    ) -> list[str]:
        found: list[str] = []
        texts = [sent.text for sent in report.sent]
        prompt = "\n".join(m["content"] for m in self.stage.model.prompts[-1]) if self.stage.model.prompts else ""
        in_order = [await self._disposition(d) for d in delivered]
        named = {d.inbound.id: await self._disposition(d) for d in self.stage.delivered}

        def same(name: str, wanted: object, got: object) -> None:
            if wanted != got:
                found.append(f"{name}: expected {_show(wanted)}, got {_show(got)}")

        def has(name: str, wanted: list[str] | str | None, whole: str, *, lacks: bool = False) -> None:
            for part in [wanted] if isinstance(wanted, str) else wanted or []:
                if (part in whole) == lacks:
                    word = "expected to lack" if lacks else "expected to have"
                    found.append(f"{name}: {word} {_show(part)}, got {_show(whole)}")

        for name in expect.model_fields_set:
            match name:
                case "state" | "bound" | "binding" | "loops" | "disposition" | "queued" | "model_calls":
                    same(name, getattr(expect, name), getattr(report, name))
                case "sent":
                    same(name, expect.sent, texts)
                case "sent_count":
                    same(name, expect.sent_count, len(texts))
                case "sent_has":
                    has(name, expect.sent_has, "\n".join(texts))
                case "sent_lacks":
                    has(name, expect.sent_lacks, "\n".join(texts), lacks=True)
                case "sent_to":
                    wanted = [expect.sent_to] if isinstance(expect.sent_to, str) else expect.sent_to or []
                    got = [sent.address for sent in report.sent]
                    if isinstance(expect.sent_to, list) and len(wanted) != len(got):
                        same(name, wanted, got)
                    elif not got or not all(
                        where in _addresses(sent) for sent, where in zip(report.sent, wanted * len(got), strict=False)
                    ):
                        same(name, expect.sent_to, got)
                case "dispositions" if isinstance(expect.dispositions, dict):
                    same(name, expect.dispositions, {message: named.get(message) for message in expect.dispositions})
                case "dispositions":
                    same(name, expect.dispositions, in_order)
                case "commands":
                    same(name, expect.commands, [list(command) for command in report.commands])
                case "prompt_has":
                    has(name, expect.prompt_has, prompt)
                case "prompt_lacks":
                    has(name, expect.prompt_lacks, prompt, lacks=True)
                case "journal":
                    same(name, expect.journal, len(journal) if isinstance(expect.journal, int) else journal)
                case "deadline":
                    got_deadline = None if report.deadline is None else tidy(report.deadline)
                    same(name, None if expect.deadline is None else tidy(expect.deadline), got_deadline)
                case "of":
                    pass
        return sorted(found)


def _addresses(sent: Sent) -> set[str]:
    """All the ways to name where a text went: the whole address, the channel, the route."""
    return {sent.address, sent.channel, sent.to, f"{sent.channel}:{sent.to}"}


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 600 else text[:597] + "…"
