"""The work of running turns: model calls, commands, and who has which session.

Each piece of work is a task of its own; its outcome goes back into the conversation's mailbox as an
event that names the turn, so that a late one is known as such.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVarTuple, cast

from fsm.conversation import Key, Turn
from fsm.desk import commands_done, dump_outcome, load_outcome
from fsm.effects import AnswerAsk, RunCommands
from fsm.events import CommandsDone, Event, ModelFailed, PermissionAnswered, Result, SessionFree
from fsm.foreign import is_theirs
from fsm.language.redact import redact
from fsm.language.texts import say
from fsm.owed import JOURNAL
from fsm.ports import Change, Channel, ShowsDrafts, ShowsTyping, StepRecord, StoreError, is_a
from fsm.runner.locks import SessionLocks
from fsm.runner.tasks import Job

if TYPE_CHECKING:
    from fsm.runner.engine import Engine

log = logging.getLogger("session_router.engine")

Arguments = TypeVarTuple("Arguments")

Post = Callable[[Key, Event, tuple[StepRecord, ...]], None]

_json = json.JSONEncoder(ensure_ascii=False).encode


class Turns:
    """The turns that run in one engine. ``post`` puts an event, with what is to be recorded of it, into a
    conversation's mailbox."""

    def __init__(self, engine: Engine, post: Post) -> None:
        self._engine = engine
        self._post = post
        self._jobs: dict[str, list[Job]] = {}
        self._locks = SessionLocks()

    # -- sessions --------------------------------------------------------------------------------

    def claim(self, key: Key, turn: Turn) -> bool:
        """Stand in line for the turn's session; True if it is free and now the turn's."""
        return self._locks.claim(turn.bound.session, (key, turn.id))

    def release(self, key: Key, turn: Turn) -> None:
        """Leave the line; whoever is next hears of it."""
        if (waiter := self._locks.release(turn.bound.session, (key, turn.id))) is not None:
            self._free(*waiter)

    def _free(self, key: Key, turn: str) -> None:
        self._post(key, SessionFree(self._engine.clock.now(), turn=turn), ())

    # -- their work ------------------------------------------------------------------------------

    def run(
        self, turn: Turn, work: Callable[[*Arguments], Coroutine[Any, Any, Job | None]], *arguments: *Arguments
    ) -> None:
        """Let ``work`` run as long as the turn does."""
        self._jobs.setdefault(turn.id, []).append(self._engine.tasks.spawn(work, *arguments))

    def end(self, key: Key, turn: Turn) -> None:
        """Cancel what still runs for the turn, clear its typing indicator and free its session."""
        self._engine.tasks.cancel(self._jobs.pop(turn.id, ()))
        self._engine.desks[key.agent].forget(turn.id)
        self._typing(self._channel(key, turn), turn, False)
        self.release(key, turn)

    def is_busy(self, agent: str) -> bool:
        """Whether anything runs for a turn of that agent."""
        return any(
            turn.startswith(f"{agent}/") and not all(job.ended for job in jobs) for turn, jobs in self._jobs.items()
        )

    def drop(self, agent: str) -> list[Job]:
        """Let go of an agent's turns; their work, to be cancelled."""
        jobs: list[Job] = []
        for turn in [turn for turn in self._jobs if turn.startswith(f"{agent}/")]:
            jobs += self._jobs.pop(turn)  # off the list first, or their end would count as a failed call
        return jobs

    def drop_sessions(self, agent: str) -> None:
        """Give back the sessions that an agent's turns had; whoever is next hears of it."""
        for waiter in self._locks.drop(agent):
            self._free(*waiter)

    # -- the work itself -------------------------------------------------------------------------

    async def answer_ask(self, key: Key, effect: AnswerAsk) -> Job | None:
        """Pay ``AnswerAsk``. It goes on where the turn ends meanwhile: a person waits to hear what came of it."""
        outcome = await self._engine.desks[key.agent].answer_ask(effect.turn, effect.ask.id, effect.allow)
        answered = PermissionAnswered(
            self._engine.clock.now(), turn=effect.turn.id, ask=effect.ask, allow=effect.allow, outcome=outcome,
            message=effect.message,
        )  # fmt: skip
        return self._engine.tasks.last(self._post, key, answered, ())

    async def ask(self, key: Key, turn: Turn) -> Job | None:
        """Pay ``AskModel``: the answer goes back into the mailbox with its record. Working through that mailbox is
        given back, where nobody is at it."""
        engine = self._engine
        desk, now = engine.desks[key.agent], engine.clock.now
        channel = self._channel(key, turn)
        self._typing(channel, turn, True)
        if turn.bound.kept == "journal":  # the model reads there what the turn before has said
            await engine.delivery.written(JOURNAL, turn.bound.session)
        if engine.touch is not None:
            engine.touch("model", "before")
        show = self._drafts(channel, turn) if channel is not None else None
        begun = now()
        try:
            asking = await desk.ask(key, turn, now, show, lambda asked: self._post(key, asked, ()))
        except BaseException as error:
            self._failed(key, turn, error)
            if is_theirs(error):
                return None
            raise
        if engine.touch is not None:
            engine.touch("model", "after")
        if engine.observer is not None:
            failure = asking.event.kind if isinstance(asking.event, ModelFailed) else ""
            engine.observer.model_called(key.agent, now() - begun, asking.reply, failure)
        steps: tuple[StepRecord, ...] = ()
        if asking.reply is not None:
            reply = asking.reply
            # An encoder is made anew for each dictionary, and takes ten times as long as the text in it.
            tokens = f'"input": {reply.input_tokens}, "output": {reply.output_tokens}'
            data = f'{{"text": {_json(asking.raw)}, {tokens}}}'
            steps = (StepRecord(turn.id, turn.call, 0, "model", data, asking.event.at),)
            engine.counts["model_calls"] += 1
        return engine.tasks.last(self._post, key, asking.event, steps)

    def _drafts(self, channel: Channel, turn: Turn) -> Callable[[str], None] | None:
        if not is_a(type(channel), ShowsDrafts):
            return None
        drafts = cast(ShowsDrafts, channel)

        def show(text: str) -> None:
            self._engine.tasks.spawn(drafts.draft, turn.message.to, text)

        return show

    def _channel(self, key: Key, turn: Turn) -> Channel | None:
        return self._engine.delivery.channel(key.agent, turn.message.channel) if turn.message.to else None

    def _typing(self, channel: Channel | None, turn: Turn, on: bool) -> None:
        if channel is not None and is_a(type(channel), ShowsTyping):
            self._engine.tasks.spawn(cast(ShowsTyping, channel).typing, turn.message.to, on)

    def _failed(self, key: Key, turn: Turn, error: BaseException) -> None:
        """The work of a turn ended without an outcome. Whoever ends a turn takes it off the list first; anything
        else, somebody's own cancelling for one, is a failed call, or the turn would wait for its whole time."""
        engine = self._engine
        if not engine.open or (isinstance(error, GeneratorExit) and not is_theirs(error)):
            return
        current = asyncio.current_task()
        if not any(job.task is current for job in self._jobs.get(turn.id, ())):
            return
        cancelled, stored = isinstance(error, asyncio.CancelledError), isinstance(error, StoreError)
        what = "was cancelled from outside" if cancelled else f"failed: {type(error).__name__}: {redact(str(error))}"
        log.error("model call %s/%s %s", turn.id, turn.call, what)
        kind = "cancelled" if cancelled else "source" if stored else "error"
        self._post(key, ModelFailed(engine.clock.now(), turn=turn.id, call=turn.call, kind=kind, retryable=stored), ())

    async def run_commands(self, key: Key, effect: RunCommands) -> Job | None:
        """Pay ``RunCommands``: each is recorded before it starts and when it has finished, so that one
        which a crash cut off is known as such and never runs twice. Gives back what :meth:`ask` does."""
        try:
            done = await self._run_commands(key, effect)
        except BaseException as error:
            self._failed(key, effect.turn, error)
            if is_theirs(error):
                return None
            raise
        return self._engine.tasks.last(self._post, key, done, ())

    async def _run_commands(self, key: Key, effect: RunCommands) -> CommandsDone:
        desk, turn = self._engine.desks[key.agent], effect.turn
        now = await self._engine.conversation(key)
        ctx = desk.command_context(key, turn, now, self._engine.clock.now())
        steps = await self._engine.until_stored(lambda: self._engine.store.steps(turn.id))
        recorded = {(step.index, step.kind): step.data for step in steps if step.call == turn.call}
        results: list[Result] = []
        for index, command in enumerate(effect.commands):
            if (data := recorded.get((index, "finished"))) is not None:
                results.append(load_outcome(data, command, ctx))
                continue
            if (index, "started") in recorded:
                text = f"[{command.name}] " + say(turn.message.lang, "unknown_outcome")
                results.append(Result(command, text, ok=False))
                ctx.listed = ()  # it may have made a list that nobody saw: a number means nothing until the next
                continue

            async def record(kind: str, data: str, index: int = index) -> None:
                step = StepRecord(turn.id, turn.call, index, kind, data, self._engine.clock.now())
                await self._engine.until_stored(lambda: self._engine.commit(Change(key, steps=(step,))))

            await record("started", _json([command.name, command.argument]))
            ctx.place = f"{turn.call}.{index}"
            self._engine.touched("command", "before")
            result = await self._within(desk.run(command, ctx), desk.agent.limits.command_timeout)
            if isinstance(result, str):
                seconds = f"{desk.agent.limits.command_timeout:g}"
                text = say(turn.message.lang, result, name=command.name, seconds=seconds)
                result = Result(command, text, ok=False)
            self._engine.touched("command", "after")
            await record("finished", dump_outcome(result, ctx))
            if command.known:
                self._engine.counts["commands"] += 1
                if self._engine.observer is not None:
                    self._engine.observer.counted(key.agent, "command", 1)
            results.append(result)
        return commands_done(turn, results, ctx, self._engine.clock.now())

    async def _within(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result | str:
        """The outcome of ``work``, or the text to say instead when it takes longer than that on the engine's clock."""
        task = asyncio.current_task()
        assert task is not None
        late = False

        async def watch() -> None:
            nonlocal late
            await self._engine.clock.sleep_until(self._engine.clock.now() + seconds)
            late = True
            task.cancel()

        watchdog = self._engine.tasks.spawn(watch)
        try:
            return await work
        except asyncio.CancelledError:
            if late and task.cancelling() == 1:
                return "command_timed_out"
            raise
        finally:
            self._engine.tasks.cancel([watchdog])
            if late:  # also where the command took no notice: nothing that comes after it was meant
                task.uncancel()
