"""The real engine on a clock that is moved by hand, with everything around it scripted.

Nothing sleeps: ``settle`` lets the engine work until all that is left waits for time to pass, and
``advance`` moves time from one due moment to the next.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsm.agent import Agent, in_room, room_of
from fsm.commands.builtin import BUILTIN
from fsm.commands.registry import CommandContext, Registry
from fsm.conversation import Command, Conversation, Key, deadlines
from fsm.desk import Desk
from fsm.effects import Disposition
from fsm.events import Result
from fsm.owed import JOURNAL
from fsm.ports import Inbound, Store
from fsm.rows import Row
from fsm.runner import Engine, Receipt
from fsm.sessions import Sessions
from session_router.cli_bridge import Speaker, send
from session_router.scenario.clock import SteppedClock
from session_router.scenario.script import (
    Happened,
    Ran,
    Recorder,
    ScriptedAgent,
    ScriptedModel,
    ScriptedSession,
    ScriptedSource,
    Sent,
    What,
)
from storage.journal import HEADER, JournalChannel, JournalFile, JournalSource, Record, record
from storage.journal.journal import header
from storage.journal.records import iso
from storage.sqlite import SqliteStore


class Crash(BaseException):
    """kill -9, as far as the engine can tell."""


@dataclass(slots=True)
class Delivered:
    """A message that was put in, and how to find out what became of it. ``again``: a crash struck before
    it was acknowledged, so the channel delivered it a second time."""

    key: Key
    inbound: Inbound
    receipt: Receipt

    @property
    def ref(self) -> str:
        return f"{self.key.agent}/{self.inbound.channel}/{self.inbound.id}"

    again: bool = False

    @property
    def is_duplicate(self) -> bool:
        """Whether it was known before. What is delivered again after a crash only repeats itself."""
        return self.receipt.disposition is Disposition.DUPLICATE and not self.again


@dataclass(slots=True)
class _Seen:
    """What the stage has noticed of one conversation's turns."""

    turn: str = ""
    loops: int = 0
    session: str = ""
    journal: list[tuple[str, str]] = field(default_factory=list)


class _Recording(Registry):
    """The commands, and which of them ran."""

    def __init__(self, commands: Registry, happened: Callable[[What], None]) -> None:
        super().__init__()
        self._commands.update(commands.copy()._commands)
        self._happened = happened
        self.ran: list[tuple[str, str | None]] = []

    async def run(self, command: Command, ctx: CommandContext) -> Result:
        if command.known:
            self.ran.append((command.name, command.argument))
            self._happened(Ran(command.name, command.argument))
        return await super().run(command, ctx)


class Stage:
    """One agent, its sessions, its model and the people who talk to it. Sessions that are made here are real journals
    in a folder of the stage's own.

    ``store`` makes the store anew at every start over what the one before left; by default the
    embedded SQLite store on a file of its own.
    """

    def __init__(
        self,
        agent: Agent,
        clock: SteppedClock,
        *,
        commands: Registry | None = None,
        store: Callable[[], Store] | None = None,
    ) -> None:
        self.agent, self.clock = agent, clock
        self.start_at = clock.now()
        self._mono_at_start = clock.mono()
        self.happened: list[Happened] = []
        self.source = ScriptedSource()
        self.model = ScriptedModel(clock, self._note)
        self.talking = ScriptedAgent(self.model, clock)
        self.channel = Recorder(clock.now, self._note)
        self.commands = _Recording(commands or BUILTIN, self._note)
        self.rows: Counter[str] = Counter()
        self.touches: Counter[tuple[str, str]] = Counter()
        self.restarts = 0
        self._folder = tempfile.TemporaryDirectory(prefix="session-router-scenario-")
        path = Path(self._folder.name) / "engine.db"
        self.journals = JournalSource(Path(self._folder.name) / "sessions", durable=False)
        # A killed process loses nothing that the operating system has: no need to wait for the disk.
        self._make_store = store or (lambda: SqliteStore(path, synchronous="OFF"))
        self._seen: dict[Key, _Seen] = {}
        self._pending: list[Delivered] = []
        self._armed: tuple[str, str] | None = None
        self._until = 0
        self._crashed = False
        self.late = 0.0
        self.engine: Engine
        self.desk: Desk

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the engine (again) on whatever the store holds."""
        store = self._make_store()
        self.journals = JournalSource(self.journals.folder, durable=False)
        sources = (self.source, self.talking, self.journals)
        self.desk = Desk(self.agent, Sessions(sources, store, self.journals), self.model, self.commands)
        self.engine = Engine(
            desks={self.agent.name: self.desk},
            store=store,
            clock=self.clock,
            channels={
                (self.agent.name, "*"): self.channel,
                (self.agent.name, JOURNAL): JournalChannel(self.journals),
            },
            seen=self._saw,
            touch=self._touch,
            watch=self._watch,
        )
        self.engine.timers.late = self.late
        self.clock.counts = lambda task: task in self.engine.tasks
        self.clock.on_park = self.engine.wake_waiters
        self._crashed = False
        try:
            await self.engine.start(ticking=False)
        except Crash:
            await self.restart()

    async def restart(self) -> None:
        """Throw everything in memory away, as kill -9 would, and start again on the same store.
        A message that was not yet on disk is delivered again, as every channel does."""
        self.restarts += 1
        self._crashed = True
        await self.engine.close(crashed=True)
        await self.journals.close()
        self.clock.restarted()
        self.model.forget_waiting()
        await self.open()
        for delivered in self._pending:
            if not delivered.receipt.admitted.done() or delivered.receipt.admitted.exception() is not None:
                delivered.receipt = self.engine.submit(self.agent.name, delivered.inbound)
                delivered.again = True

    async def close(self) -> None:
        await self.engine.close()
        await self.journals.close()
        self._folder.cleanup()

    # -- time ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Until nothing runs but what waits for time to pass. A crash that strikes is a restart."""
        while True:
            self.engine.timers.fire_due()
            while not self._crashed and self.engine.running > self.clock.parked:
                await self.engine.changes()
            if self._crashed:
                await self.restart()
                continue
            if self.model.hand_out([delivered.ref for delivered in self._pending]):
                continue
            if self.engine.timers.next_due() > self.clock.now():
                return

    def elapsed(self) -> float:
        """Seconds that have passed since the start, whatever the wall clock showed."""
        return self.clock.mono() - self._mono_at_start

    def next_moment(self) -> float:
        """When something is due next, in seconds of the engine's clock."""
        return min(self.engine.timers.next_due(), self.clock.next_sleeper())

    async def advance(self, to: float) -> None:
        """Let time pass until ``to``, stopping at every due moment on the way."""
        await self.settle()
        while (moment := self.next_moment()) <= to:
            self.clock.move_to(moment)
            await self.settle()
        self.clock.move_to(to)
        await self.settle()

    async def run_out(self) -> None:
        """Let time pass until nothing is due any more: texts on their way have arrived or are given up, deadlines are
        over."""
        await self.settle()
        while (moment := self.next_moment()) < math.inf:
            self.clock.move_to(moment)
            await self.settle()

    async def finish(self, delivered: Sequence[Delivered]) -> list[Delivered]:
        """Let time pass until these have their disposition; the ones that never will come back."""
        while True:
            await self.settle()
            left = [d for d in delivered if not await self._is_done(d)]
            if not left:
                return []
            moment = self.next_moment()
            if math.isinf(moment):
                return left
            self.clock.move_to(moment)

    async def _is_done(self, delivered: Delivered) -> bool:
        done = delivered.receipt.done
        repeated = delivered.again and delivered.receipt.disposition is Disposition.DUPLICATE
        if done.done() and done.exception() is None and not repeated:
            return True
        return (found := await self.disposition(delivered)) is not None and found.final

    # -- the world -------------------------------------------------------------------------------

    def deliver(self, inbound: Inbound) -> Delivered:
        """Put a message in; nothing has happened to it yet."""
        key = Key(self.agent.name, inbound.channel, inbound.sender)
        self._note(inbound)
        delivered = Delivered(key, inbound, self.engine.submit(self.agent.name, inbound))
        self._pending.append(delivered)
        return delivered

    async def taken_in(self, delivered: Delivered) -> None:
        """Until a message is admitted, so that of several in one instant the order in which they stand is the
        order in which they come. No time passes."""
        admitted = delivered.receipt.admitted
        while not admitted.done() and not self._crashed and self.engine.running > self.clock.parked:
            changes = asyncio.ensure_future(self.engine.changes())
            await asyncio.wait((admitted, changes), return_when=asyncio.FIRST_COMPLETED)
            changes.cancel()

    def route_of(self, channel: str, sender: str) -> str:
        return room_of(channel) if in_room(channel) else sender

    async def send_from_cli(self, text: str, session_id: str | None) -> None:
        """What ``session-router send`` leaves behind: the text in the agent's groups, the line in the session and
        the active record. Raises SessionRouterError where the command line refuses, with nothing left behind."""

        async def post(room: str, text: str, id: str) -> None:
            self.channel.arrived(Sent(id, f"xmpp:{room}", room, text, self.clock.now()))

        speaker = Speaker(self.agent, tuple(self.agent.groups), self.desk.sessions)
        id = f"cli-{self.clock.now()}-{len(self.channel.sent)}"
        await send(text, session_id, speaker, post=post, id=id, now=self.clock.now)

    def crash(self, kind: str, when: str, which: int = 1) -> None:
        """Arm a crash right ``before`` or ``after`` the next effect of that kind (the ``which``-th)."""
        self._armed, self._until = (kind, when), which

    @property
    def armed(self) -> tuple[str, str] | None:
        return self._armed

    def write_journal(self, session: ScriptedSession) -> None:
        """Put a session of ours in place, as the journal that it would have left."""
        path = self.journals.path(session.id)
        path.unlink(missing_ok=True)
        begun = min((line.at for line in session.lines), default=session.active)
        records, turn = [header(session.id, at=begun, title=session.title)], 0
        for line in session.lines:
            turn += line.role == "user" or turn == 0
            event = "turn_start" if line.role == "user" else "turn_end"
            records.append(record(turn, event, {"role": line.role, "content": line.text, "tag": line.tag}, line.at))
        if session.active > max((line.at for line in session.lines), default=session.active):
            records.append(Record(0, HEADER, {"title": session.title}, iso(session.active)))
        with JournalFile(path, durable=False) as file:
            file.append(*records)

    def change_journal(self, session_id: str, *, title: str | None, active: float | None) -> bool:
        """Another title, or a later activity (unix seconds), for a session of ours; False where there is none."""
        path = self.journals.path(session_id)
        if not path.exists():
            return False
        data = {} if title is None else {"title": title}
        with JournalFile(path, durable=False) as file:
            file.append(Record(0, HEADER, data, iso(self.clock.now() if active is None else active)))
        return True

    def remove_journal(self, session_id: str) -> bool:
        """Take a session of ours away; False where there is none."""
        path = self.journals.path(session_id)
        there = path.exists()
        path.unlink(missing_ok=True)
        return there

    # -- what there is to see --------------------------------------------------------------------

    @property
    def delivered(self) -> Sequence[Delivered]:
        """Every message that was put in, in order."""
        return tuple(self._pending)

    async def conversation(self, key: Key) -> Conversation:
        return await self.engine.conversation(key)

    async def disposition(self, delivered: Delivered) -> Disposition | None:
        """Where a message stands; None for what is no message to answer. The store knows it best: an
        answer that could not be delivered is told there only. But a duplicate has no row of its own."""
        told = delivered.receipt.disposition
        if delivered.is_duplicate:
            return told
        row = await self.engine.store.message(delivered.key, delivered.inbound.id)
        return Disposition(row.disposition) if row else told

    async def bound(self, key: Key) -> tuple[str | None, str | None]:
        """(session, kind) that a text in this conversation would talk to now."""
        now = await self.conversation(key)
        if now.manual is not None:
            return now.manual.session, "manual"
        binding = await self.desk.binding(key, now, self.clock.now())
        return (binding.bound.session, binding.bound.kind) if binding.bound else (None, None)

    async def deadline(self, key: Key) -> float | None:
        """Seconds until the conversation's next deadline."""
        found = deadlines(await self.conversation(key))
        return found[0].due - self.clock.now() if found else None

    def loops(self, key: Key) -> int:
        """Of the turn that runs, else of the last one."""
        return self._seen[key].loops if key in self._seen else 0

    def journal(self, session: str | None) -> list[str]:
        """The events that turns added to that session, in order: what its journal holds, or for a session of a source
        that keeps its own record what would stand there."""
        if session and (path := self.journals.path(session)).exists():
            return [one.event for one in JournalFile(path).load().records if one.event != HEADER]
        return [event for seen in self._seen.values() for where, event in seen.journal if where == session]

    # -- watching the engine ---------------------------------------------------------------------

    def _note(self, what: What) -> None:
        self.happened.append(Happened(self.elapsed(), what))

    def _saw(self, row: Row) -> None:
        self.rows[row.name] += 1

    def _touch(self, kind: str, when: str) -> None:
        if self._crashed:
            raise Crash
        self.touches[kind, when] += 1
        if self._armed == (kind, when):
            self._until -= 1
            if self._until:
                return
            self._armed = None
            self._crashed = True
            raise Crash

    def _watch(self, key: Key, then: Conversation) -> None:
        seen = self._seen.setdefault(key, _Seen())
        turn = then.turn
        if turn is not None and turn.id != seen.turn:
            seen.turn, seen.loops, seen.session = turn.id, 0, turn.bound.session
            seen.journal.append((seen.session, "turn_start"))
        if turn is not None and turn.loops > seen.loops:
            seen.loops = turn.loops
            seen.journal += [(seen.session, "tool_call") for _ in turn.commands]
        if turn is not None and not turn.commands and seen.loops and len(turn.exchange) % 2 == 0:
            calls = sum(event == "tool_call" for _, event in seen.journal)
            done = sum(event == "tool_result" for _, event in seen.journal)
            seen.journal += [(seen.session, "tool_result")] * (calls - done)
        if turn is None and seen.turn:
            seen.journal.append((seen.session, "turn_end"))
            seen.turn = ""
