"""The engine: one mailbox for each conversation, one transaction for each step, effects outside any lock.

The way of a message: ``receive`` puts it into its conversation's mailbox → it is admitted, durably →
the desk recognises it and looks up what the step needs → ``step`` → state and debts are committed
together → the debts are paid by work that runs beside the mailbox, whose answers come back through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from fsm.admission import Admission, Verdict
from fsm.conversation import Conversation, Key, State, Turn, deadlines
from fsm.desk import Desk
from fsm.effects import (
    AbandonCall,
    AnswerAsk,
    AskModel,
    Count,
    Disposition,
    Effect,
    EndTurn,
    KeepLine,
    Record,
    RunCommands,
    Send,
    SendAgain,
    Settle,
    TellRoom,
    WaitForSession,
)
from fsm.events import (
    Choice,
    DeliveryFailed,
    EngineCommandGiven,
    Event,
    SessionFree,
    StopSaid,
    TurnResumed,
)
from fsm.foreign import is_theirs
from fsm.language.texts import say
from fsm.machine import step
from fsm.owed import JOURNAL
from fsm.ports import (
    Change,
    Channel,
    Clock,
    ConversationUnreadable,
    Inbound,
    InboxRow,
    KeptLine,
    Line,
    Outgoing,
    SessionRouterError,
    StepRecord,
    Store,
    StoreError,
)
from fsm.rows import Row
from fsm.runner.delivery import Delivery
from fsm.runner.expiry import expiry, overdue
from fsm.runner.ledger import NOTHING, outgoing
from fsm.runner.ledger import change as change_of
from fsm.runner.observer import Observer
from fsm.runner.receipt import Receipt
from fsm.runner.rooms import PREFIX, Room, RoomMutes
from fsm.runner.tasks import STOPPING, Job, Tasks, stopped
from fsm.runner.timers import Timer, Timers
from fsm.runner.turns import Turns

log = logging.getLogger("session_router.engine")

LOUD = {"empty_reply": logging.WARNING, "failed_quietly": logging.ERROR, "undelivered": logging.ERROR}
"""Counted things that also go to the log, and how loudly."""

CACHED = 20_000
"""Conversations kept decoded; the others are read again when something happens to them."""

STARTUP_BATCH = 1_000

PARKED = "parked:"
"""Begins the keys under which the store notes that a turn was left by a process that was told to stop."""

# Found once: in Python 3.11 the way to a member of an Enum is a long one.
_ANSWER, _CONTEXT, _DROP = Verdict.ANSWER, Verdict.CONTEXT, Verdict.DROP
_NOT_ANSWERED = (Disposition.SILENT, Disposition.MUTED)

REFUSED_CHARS = 1_000
"""Characters that are kept of a message that is not answered."""

STORE_PAUSES = (1.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between the tries of a fact that the store does not take; the last one stands for all later ones. It is
never given up: a full disk has room again some day, and the turn waits for it."""


class _Arrival(Struct):
    inbound: Inbound
    receipt: Receipt


class _Fact(Struct):
    event: Event
    steps: tuple[StepRecord, ...] = ()


class _Wake(Struct):
    """Look at the conversation: its stored deadlines, its queue."""


_Item = _Arrival | InboxRow | _Fact | _Wake


class _Lane(Struct):
    """A conversation while something happens to it. ``following`` is what its last step owes, where that is for the
    same task to do once the mailbox is empty. ``job`` works on it; the store has failed it ``tries`` times in a row."""

    key: Key
    items: deque[_Item] = field(default_factory=deque)
    conversation: Conversation | None = None
    following: Job | None = None
    job: Job | None = None
    tries: int = 0


Touch = Callable[[str, str], None]
T = TypeVar("T")


class Engine:
    """All conversations of some agents.

    ``desks`` by agent name; ``channels`` by (agent, channel name). ``touch(kind, when)`` is called
    right before and right after the engine touches the world (``model``, ``command``, ``send``,
    ``commit``): scenarios crash there. ``seen`` is told of every row that is taken. Where several
    processes share a store, each takes up only what it ``owns``. ``observer`` counts.
    """

    def __init__(
        self,
        *,
        desks: Mapping[str, Desk],
        store: Store,
        clock: Clock,
        channels: Mapping[tuple[str, str], Channel] | None = None,
        seen: Callable[[Row], None] | None = None,
        touch: Touch | None = None,
        owns: Callable[[Key], bool] = lambda key: True,
        watch: Callable[[Key, Conversation], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.desks = dict(desks)
        self.store = store
        self.clock = clock
        self.channels = dict(channels or {})
        self.counts: Counter[str] = Counter()
        self.touch = touch
        self.observer = observer
        self._seen, self._watch, self._owned = seen, watch, owns
        self._held: frozenset[str] = frozenset()
        self._leaving: set[str] = set()
        self._refused = False
        """The store has refused something since it last took anything."""
        self._lanes: dict[Key, _Lane] = {}
        self._cache: OrderedDict[Key, Conversation] = OrderedDict()
        self._receipts: dict[tuple[Key, str], Receipt] = {}
        self._turns = Turns(self, lambda key, event, steps: self._post(key, _Fact(event, steps)))
        self.tasks = Tasks()
        self._rooms = RoomMutes()
        self.timers = Timers(clock, self._fire)
        self.delivery = Delivery(
            self.channels, tasks=self.tasks, delivered=self._delivered, failed=self._undelivered, touch=self.touch
        )
        self._ticker: asyncio.Task[None] | None = None
        self._marks: list[Outgoing] = []
        self.started_at = 0.0
        self.open = False

    # -- life ------------------------------------------------------------------------------------

    async def start(self, *, ticking: bool = True) -> None:
        """Open the store and take up everything that was left: overdue deadlines first, in batches,
        then cut-off turns, messages admitted but not worked on, and texts not delivered.

        With ``ticking`` False nobody fires timers but whoever calls ``timers.fire_due``.
        """
        await self.store.open()
        self.started_at = self.clock.now()
        self.open = True
        try:
            await self._take_up(frozenset(self.desks))
        except BaseException:
            self.open = False
            self._leaving.update(self.desks)
            await stopped(self.tasks.cancel_all())
            for agent in self.desks:
                self._let_go(agent, "the engine did not start")
            self._leaving.clear()
            await self.store.close()
            raise
        if ticking:
            self._ticker = asyncio.create_task(self.timers.run())

    async def _take_up(self, agents: frozenset[str]) -> None:
        now = self.clock.now()
        rooms = self._rooms.read(await self.store.meta_with_prefix(PREFIX), agents, now)
        untold = [found for room in rooms for found in await self._untold(room)]
        work = await self.store.open_work()
        in_turns = {key for key, _ in work.turns}
        parked = {name for name, _ in await self.store.meta_with_prefix(PARKED)}
        overdue: list[Key] = []

        def is_of_them(key: Key) -> bool:
            return key.agent in agents and self._owns(key)

        for key, conversation in work.turns:
            if is_of_them(key) and conversation.turn is not None and (mark := PARKED + conversation.turn.id) in parked:
                await self.store.set_meta(mark, None)
        for key, due, started in work.overdue:
            if key in in_turns or not is_of_them(key):
                continue
            if due <= now or started > now:
                overdue.append(key)
            else:
                self.timers.add(due, key, "stored", "", started)
        await self._catch_up(overdue)
        for owed in work.sends:
            if is_of_them(owed.key):
                self.delivery.owe(owed)
        known: set[tuple[Key, str]] = set()
        # Whoever had the session when the process died has it again; whoever waited for it still waits.
        for key, conversation in sorted(work.turns, key=lambda found: _standing(found[1])):
            if not is_of_them(key):
                continue
            self._cache[key] = conversation
            known |= {(key, waiting) for waiting in conversation.queue}
            if conversation.turn is not None:
                known.add((key, conversation.turn.message.id))
                left = PARKED + conversation.turn.id in parked
                self._post(key, _Fact(TurnResumed(now, turn=conversation.turn.id, parked=left)))
            self._post(key, _Wake())
        for key, fact in untold:
            if is_of_them(key):
                self._post(key, _Fact(fact))
        for row in work.messages:
            if is_of_them(row.key) and (row.key, row.message.id) not in known:
                self._post(row.key, row)

    async def adopt(self, desks: Mapping[str, Desk], channels: Mapping[tuple[str, str], Channel]) -> None:
        """Serve more agents, and take up what was left of theirs, as a start does."""
        self.desks.update(desks)
        self.channels.update(channels)
        self._held -= desks.keys()
        try:
            await self._take_up(frozenset(desks))
        except BaseException:
            for agent in desks:
                await self.dismiss(agent)
            raise

    def seat(self, desk: Desk) -> None:
        """Put another desk in the place of its agent's: other rules or another model from the next look on.
        What runs goes on, and every conversation stays as it is."""
        desk.take_over(self.desks[desk.agent.name])
        self.desks[desk.agent.name] = desk

    def hold(self, agents: Iterable[str] | None = None) -> None:
        """Begin no further turn for these agents (all by default): what arrives is recorded and acknowledged,
        and worked on by whoever takes it up next."""
        self._held |= self.desks.keys() if agents is None else frozenset(agents)

    async def rest(self, agent: str) -> None:
        """Return once nothing of that agent runs. Call ``hold`` first, or there may be no end to it."""
        while self._is_busy(agent):
            await self.changes()

    def _is_busy(self, agent: str) -> bool:
        in_lanes = any(key.agent == agent for key in self._lanes)
        return in_lanes or self._turns.is_busy(agent) or self.delivery.is_busy(agent)

    async def dismiss(self, agent: str) -> None:
        """Serve an agent no more. Whatever of its is not done stays in the store for whoever serves it next."""
        self.hold([agent])
        self._leaving.add(agent)
        await stopped(self.tasks.cancel(self.delivery.drop(agent) + self._turns.drop(agent)))
        with suppress(TimeoutError):  # nothing in a mailbox takes long, unless the store refuses it or a source hangs
            async with asyncio.timeout(STOPPING):
                while any(key.agent == agent for key in self._lanes):
                    await self.changes()
        left = [lane for key, lane in self._lanes.items() if key.agent == agent]
        await stopped(self.tasks.cancel([lane.job for lane in left if lane.job is not None]))
        await self._park({agent})
        self._let_go(agent, f"the agent {agent} is not served here any more")
        del self.desks[agent]
        for address in [address for address in self.channels if address[0] == agent]:
            del self.channels[address]
        self._leaving.discard(agent)

    def _let_go(self, agent: str, why: str) -> None:
        """Forget everything of an agent whose work has been stopped; the store has it. Whoever waits hears ``why``."""
        self.delivery.drop(agent)
        self._turns.drop(agent)
        for key in [key for key in self._lanes if key.agent == agent]:
            self._abandon(self._lanes[key])
        for key in [key for key in self._cache if key.agent == agent]:
            del self._cache[key]
        self._rooms.drop(agent)
        for waiting in [waiting for waiting in self._receipts if waiting[0].agent == agent]:
            self._receipts.pop(waiting).fail(SessionRouterError(why))
        self._turns.drop_sessions(agent)

    def _owns(self, key: Key) -> bool:
        return key.agent in self.desks and self._owned(key)

    async def _catch_up(self, keys: list[Key]) -> None:
        """Everything that came due while nobody was running, a thousand conversations at a time."""
        for first in range(0, len(keys), STARTUP_BATCH):
            batch = keys[first : first + STARTUP_BATCH]
            loaded = await self.store.load_many(batch)
            changes, paid = [], []
            for key in batch:
                now = loaded.get(key)
                if now is None:
                    continue
                then, effects = now, list[Effect]()
                for event in self._overdue(now):
                    then, owed = step(then, event, self.desks[key.agent].agent.limits, seen=self._seen)
                    effects.extend(owed)
                changes.append(change_of(key, now, then, effects, self.delivery.find))
                paid.append((key, now, then, effects))
            await self.store.commit_many(changes)
            for key, now, then, effects in paid:
                self._pay(key, now, then, effects)
                self._set_timers(key, now)

    async def close(self, *, crashed: bool = False) -> None:
        """Stop at once. Whatever was running is taken up at the next start; with ``crashed`` that start counts it
        as cut off, as after a crash."""
        was_open, self.open = self.open, False
        tasks = self.tasks.cancel_all()
        if self._ticker is not None:
            self._ticker.cancel()
            tasks.append(self._ticker)
        await stopped(tasks)
        if was_open and not crashed:
            self._write_marks()
            await self._park(self.desks.keys())
        for lane in list(self._lanes.values()):  # those whose task had not begun
            self._abandon(lane)
        for receipt in self._receipts.values():
            receipt.fail(SessionRouterError("the engine was closed before the message had its answer"))
        await self.store.close()

    async def _park(self, agents: Collection[str]) -> None:
        """Note of every turn of these agents that it was left and not cut off."""
        try:
            for key, now in (await self.store.open_work()).turns:
                if key.agent in agents and now.turn is not None and self._owned(key):
                    await self.store.set_meta(PARKED + now.turn.id, "")
        except StoreError as error:
            log.warning("running turns will count as cut off: %s", error)

    async def rest_of(self, key: Key) -> None:
        """Return once that conversation has no turn, nothing in its queue, and nothing on its way."""
        while True:
            now = await self.conversation(key)
            if now.turn is None and not now.queue and not self._is_busy(key.agent):
                return
            await self.changes()

    async def drain(self) -> None:
        """Wait until nothing runs. Timers that are not due and texts that wait for a retry stay."""
        while self.tasks:
            await self.changes()

    @property
    def running(self) -> int:
        """Tasks at work just now."""
        return len(self.tasks)

    def changes(self) -> Awaitable[None]:
        """Await it to hear of the next thing that ends after this call."""
        return self.tasks.changes()

    def wake_waiters(self) -> None:
        self.tasks.tell()

    # -- the way in ------------------------------------------------------------------------------

    async def receive(self, agent: str, inbound: Inbound) -> Receipt:
        """Take a message; returns when it is on disk, so that the channel may acknowledge it.

        Raises:
            StoreError: it could not be recorded; the channel must not acknowledge it.
        """
        receipt = self.submit(agent, inbound)
        await receipt.admitted
        return receipt

    def submit(self, agent: str, inbound: Inbound) -> Receipt:
        """As ``receive``, without waiting: messages are taken in the order of these calls."""
        if not self.open:
            raise SessionRouterError("the engine is not running; call start() first")
        if agent not in self.desks or agent in self._leaving:
            raise SessionRouterError(f"the agent {agent} is not served here")
        receipt = Receipt()
        self._post(Key(agent, inbound.channel, inbound.sender), _Arrival(inbound, receipt))
        return receipt

    def rebind(self, key: Key, choice: Choice) -> None:
        """Choose a conversation's session from outside; a running turn keeps the one it has."""
        self._post(key, _Fact(EngineCommandGiven(self.clock.now(), name="rebind", choice=choice)))

    async def conversation(self, key: Key) -> Conversation:
        """As it stands after the last committed step."""
        lane = self._lanes.get(key)
        if lane is not None and lane.conversation is not None:
            return lane.conversation
        if (cached := self._cache.get(key)) is not None:
            return cached
        return await self.store.load(key) or self._fresh(key)

    # -- mailboxes -------------------------------------------------------------------------------

    def _post(self, key: Key, item: _Item) -> None:
        if self._leaving and key.agent in self._leaving:
            return  # whoever serves it next finds what there is in the store
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, conversation=self._cache.get(key))
            lane.items.append(item)
            lane.job = self.tasks.spawn(self._serve, lane)
        else:
            lane.items.append(item)

    async def _serve(self, lane: _Lane) -> Job | None:
        """Work through a mailbox, one item at a time; queued messages go before new ones. What the last step owes is
        given back."""
        while lane.items:
            item = lane.items.popleft()
            try:
                if type(item) is _Arrival:
                    await self._admit(lane, item)
                elif type(item) is _Fact:
                    if lane.conversation is None:
                        await self._load(lane)
                    await self._take(lane, item.event, item.steps)
                elif type(item) is InboxRow:
                    await self._load(lane)
                    if lane.key.agent not in self._held:
                        await self._hear(lane, item.message)
                else:  # a _Wake
                    stored = await self._load(lane)
                    for event in self._overdue(stored):
                        await self._take(lane, event)
                    self._set_timers(lane.key, stored)
                if lane.conversation is not None and lane.conversation.queue:
                    item = _Wake()  # the item itself is done, whatever goes wrong with what waited behind it
                    await self._take_queued(lane)
                if lane.tries:
                    lane.tries = 0
                if self._refused:
                    self._refused = False
                    log.info("steps are stored again")
            except BaseException as error:
                lane.items.appendleft(item)
                if not is_theirs(error):
                    if isinstance(error, asyncio.CancelledError):
                        self._abandon(lane)
                    raise
                try:
                    await self._went_wrong(lane, error)
                except BaseException:  # not once more with what has led here
                    if lane.items and isinstance(first := lane.items.popleft(), _Arrival):
                        first.receipt.fail(SessionRouterError("the message could not be taken in"))
                    self._abandon(lane)
                    raise
        if self._lanes.get(lane.key) is not lane:
            return None  # it was given up meanwhile
        del self._lanes[lane.key]
        if lane.conversation is not None:
            self._cache[lane.key] = lane.conversation
            self._cache.move_to_end(lane.key)
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return lane.following

    async def _went_wrong(self, lane: _Lane, error: BaseException) -> None:
        """The store refused the lane's first item, or a look-up failed in a way nobody foresaw. The conversation stands
        as it was. Where the store refused it is tried again, since a turn waits for it; but of a message that comes
        just now its channel hears. Else a message fails and its sender is told, or where that cannot be recorded it is
        taken up at the next start."""
        self.counts["step_failed"] += 1
        item = lane.items[0]
        refused = isinstance(error, StoreError) and not isinstance(error, ConversationUnreadable)
        if refused:
            self._say_refused(error)
            if not isinstance(item, _Arrival):
                lane.tries += 1
                await self._pause(lane.tries)
                return
        elif isinstance(error, StoreError):
            log.error("A message or a fact cannot be worked on. %s", error)
        else:
            log.error("a step failed and changed nothing: %s: %s", type(error).__name__, error, exc_info=error)
        lane.items.popleft()
        match item:
            case _Arrival():
                if not refused:
                    await self._fail(lane, item.inbound, arrival=item)
                item.receipt.fail(error if isinstance(error, SessionRouterError) else SessionRouterError(str(error)))
            case InboxRow():
                await self._fail(lane, item.message)
            case _:
                pass

    def _say_refused(self, error: BaseException) -> None:
        """Once, however much is tried again: it says in words what is wrong and what mends it."""
        if not self._refused:
            self._refused = True
            log.error("A step was not stored, and changed nothing; whatever waits for it is tried again. %s", error)

    async def _pause(self, tries: int) -> None:
        await self.clock.sleep_until(self.clock.now() + STORE_PAUSES[min(tries, len(STORE_PAUSES)) - 1])

    async def until_stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work`` gives, done again and again as long as the store fails it."""
        tries = 0
        while True:
            try:
                return await work()
            except StoreError as error:
                self._say_refused(error)
                tries += 1
                await self._pause(tries)

    def _abandon(self, lane: _Lane) -> None:
        """Nobody works on that mailbox any more. Whoever waits for a message in it hears of it; as long as the
        conversation is served, the rest is for the next one to work on, beginning with what is stored."""
        why = "what worked on it was cancelled" if self.open else "the engine was closed"
        for item in lane.items:
            if isinstance(item, _Arrival):
                item.receipt.fail(SessionRouterError(f"the message was not taken in: {why}"))
        if self._lanes.get(lane.key) is not lane:
            return  # it was given up before, and another one may be in its place
        del self._lanes[lane.key]
        self._cache.pop(lane.key, None)
        if self.open and lane.key.agent not in self._leaving:
            if lane.following is not None:
                self.tasks.begin(lane.following)
            for item in lane.items:
                if not isinstance(item, _Arrival):
                    self._post(lane.key, item)
            self._post(lane.key, _Wake())

    async def _fail(
        self, lane: _Lane, inbound: Inbound, *, before: Conversation | None = None, arrival: _Arrival | None = None
    ) -> None:
        """An error of ours over a message: its sender hears of it where a reply is owed. ``before`` is the
        conversation as stored, where the message is being taken off its queue; with ``arrival`` it is not
        admitted yet."""
        desk, now = self.desks[lane.key.agent], lane.conversation or Conversation()
        before = before or now
        effects: list[Effect] = [Settle(inbound.id, Disposition.FAILED, "why_internal")]
        if desk.gatekeeper.is_owed(inbound):
            message = desk.message(lane.key, inbound, now, self.clock.now())
            text = say(message.lang, "internal")
            effects.append(Send(f"{message.ref}.failed", inbound.channel, inbound.reply_to, text, inbound.id))
        admitted = inbound if arrival is not None else None
        try:
            new = await self.commit(
                change_of(lane.key, before, now, effects, self.delivery.find, arrival=admitted)
            )
        except StoreError as error:
            log.error("message %s could not be settled: %s", inbound.id, error)
            return
        if arrival is not None and new:
            self._is_in(lane.key, arrival)
        if new:
            self._pay(lane.key, before, now, reversed(effects))

    async def _load(self, lane: _Lane) -> Conversation:
        if lane.conversation is None:
            lane.conversation = await self.store.load(lane.key) or self._fresh(lane.key)
        return lane.conversation

    def _fresh(self, key: Key) -> Conversation:
        return self._rooms.fresh(key, self.clock.now())

    async def _admit(self, lane: _Lane, arrival: _Arrival) -> None:
        """The door: recorded durably, told from a duplicate, and let in or not."""
        desk, key, inbound, receipt = self.desks[lane.key.agent], lane.key, arrival.inbound, arrival.receipt
        look = desk.gatekeeper.look(inbound)
        verdict = look.verdict
        if verdict is _DROP:
            receipt.resolve(None, look.reason)
            return
        if verdict is _CONTEXT and not inbound.edited:
            if kept := await self._as_context(lane, inbound):
                await self.commit(Change(key, lines=kept))
            receipt.resolve(None, look.reason)
            return
        try:
            if verdict is _ANSWER:
                new = await self._let_in(lane, desk, arrival)
            else:
                new = await self._turn_away(lane, arrival, look)
        except BaseException:
            desk.gatekeeper.take_back(inbound, look)
            raise
        if not new:
            desk.gatekeeper.take_back(inbound, look)
            self._settled(key, Settle(inbound.id, Disposition.DUPLICATE, "why_duplicate"), receipt)

    async def _let_in(self, lane: _Lane, desk: Desk, arrival: _Arrival) -> bool:
        """Answer a message; it is admitted by the step that answers it. False for one that came before."""
        key, inbound = lane.key, arrival.inbound
        now = lane.conversation or await self._load(lane)
        held = key.agent in self._held
        event: Event | None = None
        if not held or now.state is State.COMMAND_LOOPING:
            event = await desk.hear(key, inbound, now, self.clock.now())
        if event is None or (held and not isinstance(event, (StopSaid, EngineCommandGiven))):
            # A turn that is let come to its end may still be stopped, or be given what it waits for.
            if new := await self.commit(Change(key, arrival=inbound)):
                self._is_in(key, arrival)
            return new
        return await self._take(lane, event, (), arrival)

    def _is_in(self, key: Key, arrival: _Arrival) -> None:
        self._receipts[key, arrival.inbound.id] = arrival.receipt
        arrival.receipt.admit()

    async def _turn_away(self, lane: _Lane, arrival: _Arrival, look: Admission) -> bool:
        """Record what is not answered, with its reason, and say so where the sender should know. False for
        a message that came before."""
        key, inbound, now = lane.key, arrival.inbound, await self._load(lane)
        desk = self.desks[key.agent]
        disposition = Disposition.DUPLICATE if look.verdict is Verdict.CONTEXT else Disposition.REFUSED
        effects: list[Effect] = [Settle(inbound.id, disposition, look.reason)]
        if look.tell and desk.gatekeeper.is_owed(inbound):
            message, limits = desk.message(key, inbound, now, self.clock.now()), desk.agent.limits
            limit = limits.rate_limit if look.reason == "why_too_many" else limits.message_chars
            text = say(message.lang, look.reason.removeprefix("why_"), chars=len(inbound.text), limit=limit)
            effects.insert(0, Send(f"{message.ref}.refused", inbound.channel, inbound.reply_to, text, inbound.id))
        change = change_of(key, now, now, effects, self.delivery.find)
        kept = await self._as_context(lane, inbound) if look.keep else ()
        # Nobody will answer it: enough to know it by.
        change = replace(change, arrival=_shortened(inbound, REFUSED_CHARS), lines=(*change.lines, *kept))
        if not await self.commit(change):
            return False
        self._is_in(key, arrival)
        self._pay(key, now, now, effects)
        return True

    async def _as_context(self, lane: _Lane, inbound: Inbound) -> tuple[KeptLine, ...]:
        """What is no message to answer may still be something that the model should know."""
        desk, now = self.desks[lane.key.agent], await self._load(lane)
        bound = (await desk.binding(lane.key, now, self.clock.now())).bound
        if bound is None:
            return ()
        ref = f"{lane.key.agent}/{inbound.channel}/{inbound.id}"
        text = _shortened(inbound, desk.agent.limits.message_chars).text
        return (KeptLine(bound.session, Line("user", text, inbound.at, desk.tag(inbound), ref)),)

    async def _hear(self, lane: _Lane, inbound: Inbound, *, waited: bool = False) -> None:
        desk, now = self.desks[lane.key.agent], lane.conversation
        assert now is not None
        event = await desk.hear(lane.key, inbound, now, self.clock.now(), waited=waited)
        await self._take(lane, event)

    async def _take_queued(self, lane: _Lane) -> None:
        """The turn is over and messages wait: the next is read against the state of now."""
        if lane.key.agent in self._held:
            return
        while (now := lane.conversation) is not None and now.queue and now.state is not State.COMMAND_LOOPING:
            first = now.queue[0]
            row = await self.store.message(lane.key, first)
            lane.conversation = replace(now, queue=now.queue[1:])
            if row is None:
                log.error("queued message %s is not in the inbox", first)
                continue
            try:
                await self._hear(lane, row.message, waited=True)
            except StoreError:
                lane.conversation = now  # it waits on
                raise
            except Exception as error:
                log.error("a queued message failed: %s: %s", type(error).__name__, error, exc_info=error)
                await self._fail(lane, row.message, before=now)

    # -- steps -----------------------------------------------------------------------------------

    async def _take(
        self, lane: _Lane, event: Event, steps: tuple[StepRecord, ...] = (), arrival: _Arrival | None = None
    ) -> bool:
        """One step: decide, commit, pay. A session that is free is taken within the same step, and the
        message that it answers admitted with it: one that came before changes nothing, and gives False."""
        key, now = lane.key, lane.conversation
        assert now is not None
        if lane.following is not None:  # something else has come up first
            self.tasks.begin(lane.following)
            lane.following = None
        limits = self.desks[key.agent].agent.limits
        then, effects = step(now, event, limits, seen=self._seen)
        claimed: Turn | None = None
        if effects and type(last := effects[-1]) is WaitForSession:  # which always stands last
            claimed, effects = last.turn, effects[:-1]
            if self._turns.claim(key, claimed):
                then, more = step(then, SessionFree(event.at, turn=claimed.id), limits, seen=self._seen)
                effects += more
        change = change_of(key, now, then, effects, self.delivery.find, steps, arrival.inbound if arrival else None)
        done = False
        try:
            done = change is NOTHING or await self.commit(change)
        finally:
            if not done and claimed is not None:  # also one that has to wait: its place in the line goes with the step
                self._turns.release(key, claimed)
        if not done:
            return False
        lane.conversation = then
        if arrival is not None:
            self._is_in(key, arrival)
        if lane.items or then.queue:
            self._pay(key, now, then, effects)
        else:
            lane.following = self.tasks.last(self._pay, key, now, then, effects)
        return True

    def commit(self, change: Change) -> Awaitable[bool]:
        return self.store.commit(change) if self.touch is None else self._commit(change, self.touch)

    async def _commit(self, change: Change, touch: Touch) -> bool:
        touch("commit", "before")
        done = await self.store.commit(change)
        touch("commit", "after")
        return done

    def touched(self, kind: str, when: str) -> None:
        """Say that the world is about to be touched, or was."""
        if self.touch is not None:
            self.touch(kind, when)

    def _pay(self, key: Key, now: Conversation, then: Conversation, effects: Iterable[Effect]) -> None:
        """The step is on disk: start what it owes, tell whoever waits, set the timers."""
        if then is not now:
            # All of them, not only what is new: a deadline that is stored may have no timer in this process.
            for deadline in deadlines(then):
                self.timers.add(deadline.due, key, deadline.kind, deadline.fence, deadline.started)
            if self._watch is not None:
                self._watch(key, then)
            if self.observer is not None:
                self.observer.moved(key, then)
        for effect in effects:  # what comes most stands first
            if type(effect) is KeepLine:
                pass
            elif type(effect) is Send:
                if (receipt := self._receipts.get((key, effect.message))) is not None:
                    receipt.texts.append(effect.text)
                if effect.to:
                    self.delivery.owe(outgoing(key, effect))
            elif type(effect) is Settle:
                self._settled(key, effect)
            elif type(effect) is AskModel:
                self._turns.run(effect.turn, self._turns.ask, key, effect.turn)
            elif type(effect) is EndTurn:
                self._turns.end(key, effect.turn)
            elif type(effect) is Record:
                self.delivery.owe(outgoing(key, effect))
            elif type(effect) is RunCommands:
                self._turns.run(effect.turn, self._turns.run_commands, key, effect)
            elif type(effect) is AnswerAsk:
                self.tasks.spawn(self._turns.answer_ask, key, effect)
            elif type(effect) is AbandonCall:
                self.tasks.spawn(self.desks[key.agent].abandon, effect.turn)
            elif type(effect) is SendAgain:
                if effect.at is None:
                    self.delivery.give_up(effect.send)
                else:
                    self.timers.add(effect.at, key, "send", effect.send)
            elif type(effect) is TellRoom:
                self._tell_room(key, effect, then)
            elif type(effect) is Count:
                self._count(key, effect)
            elif type(effect) is WaitForSession:
                pass
            else:
                assert_never(effect)

    def _settled(self, key: Key, settled: Settle, receipt: Receipt | None = None) -> None:
        disposition = settled.disposition
        if not disposition.final:
            return
        self.counts[disposition._value_] += 1  # ``value`` is a property in Python
        if self.observer is not None:
            self.observer.settled(key, settled.message, disposition, settled.reason)
        if disposition in _NOT_ANSWERED:
            self.desks[key.agent].gatekeeper.not_answered(key.channel, settled.message)
        receipt = receipt or self._receipts.pop((key, settled.message), None)
        if receipt is not None:
            receipt.resolve(disposition, settled.reason)

    def _count(self, key: Key, effect: Count) -> None:
        self.counts[effect.what] += effect.many
        if self.observer is not None:
            self.observer.counted(key.agent, effect.what, effect.many)
        if (level := LOUD.get(effect.what)) is not None:
            log.log(level, "%s in conversation %s/%s/%s", effect.what, *key)

    def _tell_room(self, key: Key, effect: TellRoom, then: Conversation) -> None:
        """A mute or un-mute given in a group reaches every conversation in it."""
        room = (key.agent, key.channel)
        self._rooms.take(room, then, effect.seconds)

        async def tell() -> None:
            for other, fact in await self.until_stored(lambda: self._untold(room)):
                self._post(other, _Fact(fact))

        self.tasks.spawn(tell)

    async def _untold(self, room: Room) -> list[tuple[Key, Event]]:
        conversations: dict[Key, Conversation | None] = dict(await self.store.conversations(*room))
        for key in (*self._lanes, *self._cache):
            if (key.agent, key.channel) == room:  # somebody who is just being let in is not in the store yet
                conversations[key] = self._cache.get(key) or conversations.get(key)
        return self._rooms.untold(room, conversations, self._lanes.keys(), self.clock.now())

    # -- time and delivery -----------------------------------------------------------------------

    def _fire(self, due: list[Timer]) -> None:
        now = self.clock.now()
        for timer in due:
            if timer.key.agent not in self.desks:
                continue  # it was dismissed; whoever takes it up sets its own
            match timer.what:
                case "send":
                    self.delivery.again(timer.fence)
                case "stored":
                    self._post(timer.key, _Wake())
                case _:
                    while_down = self.started_at > timer.meant
                    fact = expiry(timer.what, timer.fence, timer.meant, now, while_down=while_down)
                    self._post(timer.key, _Fact(fact))

    def _set_timers(self, key: Key, stored: Conversation) -> None:
        """Timers for what lies ahead in a conversation that another process stored. A turn's own deadlines
        are set anew when it is taken up."""
        now = self.clock.now()
        for d in deadlines(stored):
            if d.kind in ("selection", "silence") and d.due > now >= d.started:
                self.timers.add(d.due, key, d.kind, d.fence, d.started)

    def _overdue(self, conversation: Conversation) -> list[Event]:
        return overdue(conversation, self.clock.now(), started_at=self.started_at)

    def _delivered(self, outgoing: Outgoing) -> None:
        """Nobody waits for the mark, so those of one moment are written together: where a crash loses one, its text
        goes out again under the same id."""
        if not self._marks:
            asyncio.get_running_loop().call_soon(self._write_marks)
        self._marks.append(outgoing)

    def _write_marks(self) -> None:
        marks, self._marks = self._marks, []
        if not marks:
            return

        def failed(error: StoreError) -> None:
            self._marks += marks
            self._say_refused(error)
            if self.open:
                self.tasks.spawn(mark_again)

        async def mark_again() -> None:
            await self._pause(1)
            self._write_marks()

        self.touched("commit", "before")
        self.store.commit_soon(Change(marks[0].key, delivered=tuple(mark.id for mark in marks)), failed)
        self.touched("commit", "after")

    def _undelivered(self, outgoing: Outgoing, final: bool) -> None:
        if not self.open:
            return  # it is owed still, and goes out after the next start
        event = DeliveryFailed(
            self.clock.now(), send=outgoing.id, message=outgoing.message, tries=outgoing.tries, final=final,
            record=outgoing.channel == JOURNAL,
        )  # fmt: skip
        self._post(outgoing.key, _Fact(event))


def _shortened(inbound: Inbound, chars: int) -> Inbound:
    return inbound if len(inbound.text) <= chars else replace(inbound, text=inbound.text[:chars] + "…")


def _standing(conversation: Conversation) -> tuple[bool, float]:
    """Orders conversations by who had a session first."""
    turn = conversation.turn
    return (turn is None or turn.deadline_from is None, turn.started if turn is not None else 0.0)
