"""Whatever happens, in whatever order: the conversation stays in shape, and no turn is without an end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from fsm.constants import Limits
from fsm.conversation import Ask, Bound, Command, Conversation, Message, Phase, State, Turn
from fsm.effects import AnswerAsk, AskModel, Effect, EndTurn, RunCommands, Send, Settle, WaitForSession
from fsm.events import (
    ANSWERS,
    EVENTS,
    MESSAGES,
    BackoffOver,
    CancelSaid,
    Choice,
    CommandsDone,
    DeliveryFailed,
    EngineCommandGiven,
    Event,
    ListAsked,
    ModelFailed,
    ModelReplied,
    MuteAsked,
    NumberGiven,
    Opening,
    PermissionAnswered,
    PermissionAsked,
    PermissionLapsed,
    Result,
    SelectionExpired,
    SessionFree,
    SilenceExpired,
    StopSaid,
    SwitchAsked,
    TextArrived,
    TurnExpired,
    TurnResumed,
    UnmuteAsked,
)
from fsm.language.reply import Reading, ReadingKind
from fsm.machine import step
from fsm.ports import SessionInfo

LIMITS = Limits(max_loops=3, queue_limit=2, model_retries=1, max_resumes=1, delivery_tries=2)
"""Small, so that a short story comes to the end of each."""

SESSIONS = tuple(SessionInfo(f"ses_{n}", f"session {n}", "opencode", 1.0 * n) for n in range(3))
BOUND = Bound("ses_0", "auto", "session 0", "opencode")
PAUSES = (0.0, 0.0, 0.0, 0.001, 0.5, 1.0, 10.0, 60.0, 119.999, 120.0, 300.0, 600.0, 1800.0, 90_000.0)


class Move(Struct, frozen=True):
    """What happens next, before it is known what it happens to. ``awaited``: it is what the conversation
    waits for, if it waits for anything, and not ``kind``. ``fits``: an answer or a timer carries the
    turn, call, list or deadline of now, and not some other one."""

    kind: type[Event]
    awaited: bool
    pause: float
    fits: bool
    owed: bool
    some: int
    reading: ReadingKind
    flag: bool


MOVES = st.builds(
    Move,
    kind=st.sampled_from(EVENTS),
    # Without it most turns would be stopped before they get anywhere.
    awaited=st.booleans(),
    pause=st.sampled_from(PAUSES),
    fits=st.integers(0, 4).map(bool),
    owed=st.booleans(),
    some=st.integers(0, 3),
    reading=st.sampled_from(ReadingKind),
    flag=st.booleans(),
)


def reading_of(move: Move) -> Reading:
    match move.reading:
        case ReadingKind.COMMANDS:
            return Reading(move.reading, commands=(Command("list_sessions", None),), said="##list_sessions##")
        case ReadingKind.TEXT:
            return Reading(move.reading, "answer", said="answer", near_misses=move.some)
        case _:
            return Reading(move.reading)


@dataclass
class Story:
    """A conversation from its very first moment, with the bookkeeping of whoever runs it."""

    now: Conversation = field(default_factory=Conversation)
    at: float = 1_768_464_000.0
    effects: list[Effect] = field(default_factory=list)
    messages: dict[str, tuple[type[Event], Message, Move]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    final: Counter[str] = field(default_factory=Counter)
    sent: set[str] = field(default_factory=set)

    def play(self, move: Move) -> None:
        """One move, and then whatever stood in the queue as long as no turn runs."""
        if move.awaited and (kind := self.awaited(move)) is not None:
            move = replace(move, kind=kind)
        self.at += move.pause
        self.take(self.event(move), move)
        while self.now.queue and self.now.state is not State.COMMAND_LOOPING:
            first, rest = self.now.queue[0], self.now.queue[1:]
            self.now = replace(self.now, queue=rest)
            kind, message, asked = self.messages[first]
            self.take(self.arrival(kind, replace(message, waited=True), asked), asked)

    def awaited(self, move: Move) -> type[Event] | None:
        if self.now.shown is not None:
            return NumberGiven if move.flag else None
        match self.now.turn and self.now.turn.phase:
            case Phase.SESSION:
                return SessionFree
            case Phase.MODEL:
                return ModelFailed if move.some == 3 else ModelReplied
            case Phase.COMMANDS:
                return CommandsDone
            case Phase.BACKOFF:
                return BackoffOver
        return None

    # -- events out of moves ---------------------------------------------------------------------

    def event(self, move: Move) -> Event:
        if move.kind in MESSAGES:
            number = len(self.messages) + 1
            message = Message(
                ref=f"bot/tg/m{number}", id=f"m{number}", channel="tg", to="u1", text="hello", prompt="[tg] hello",
                tag="[tg]", owed=move.owed, lang="en", in_room=not move.owed,
            )  # fmt: skip
            self.messages[message.id] = (move.kind, message, move)
            return self.arrival(move.kind, message, move)
        return self.fact(move)

    def arrival(self, kind: type[Event], message: Message, move: Move) -> Event:
        binding = BOUND if move.fits else None
        if kind is MuteAsked:
            return MuteAsked(self.at, seconds=60.0 * (1 + move.some), message=self.said_here(message, move))
        if kind is UnmuteAsked:
            return UnmuteAsked(self.at, message=self.said_here(message, move))
        if kind is SwitchAsked:
            words = "session" if move.flag else ""
            return SwitchAsked(self.at, message=message, binding=binding, words=words, matches=SESSIONS[: move.some])
        if kind is ListAsked:
            return ListAsked(self.at, message=message, binding=binding, matches=SESSIONS[: move.some])
        if kind is NumberGiven:
            session = SESSIONS[0] if move.flag else None
            return NumberGiven(self.at, message=message, binding=binding, number=move.some, session=session)
        assert kind in (TextArrived, CancelSaid, StopSaid)
        return kind(self.at, message=message, binding=binding)

    def said_here(self, message: Message, move: Move) -> Message | None:
        """A mute may also have been said in another conversation of the room."""
        if move.flag:
            return message
        self.messages.pop(message.id, None)
        return None

    def fact(self, move: Move) -> Event:
        turn, shown = self.now.turn, self.now.shown
        # What does not fit may be of this very turn all the same: another call, a deadline that was moved.
        of_a_call = move.kind in (
            ModelReplied, ModelFailed, PermissionAsked, PermissionLapsed, BackoffOver, CommandsDone, TurnExpired,
        )  # fmt: skip
        this_one = turn is not None and (move.fits or (of_a_call and move.flag))
        running = turn.id if turn is not None and this_one else "bot/tg/other"
        call = turn.call if turn is not None and move.fits else 99
        if move.kind is SessionFree:
            return SessionFree(self.at, turn=running)
        if move.kind is ModelReplied:
            return ModelReplied(self.at, turn=running, call=call, reading=reading_of(move))
        if move.kind is ModelFailed:
            return ModelFailed(self.at, turn=running, call=call, retryable=move.flag)
        if move.kind is PermissionAsked:
            return PermissionAsked(self.at, turn=running, call=call, ask=f"ask{move.some}", what="bash: ls")
        if move.kind is PermissionLapsed:
            return PermissionLapsed(self.at, turn=running, call=call, ask=f"ask{move.some}")
        if move.kind is PermissionAnswered:
            requests = turn.requests if turn is not None and move.fits else ()
            ask = requests[0] if requests else Ask("ask9", 9, "bash: ls")
            outcome: Literal["done", "gone", "failed"] = "done" if move.flag else "failed" if move.owed else "gone"
            return PermissionAnswered(self.at, turn=running, ask=ask, allow=move.owed, outcome=outcome)
        if move.kind is BackoffOver:
            return BackoffOver(self.at, turn=running, call=call)
        if move.kind is CommandsDone:
            return self.commands_done(running, call, move)
        if move.kind is TurnExpired:
            due = turn.deadline if turn is not None and turn.deadline is not None and move.fits else self.at + 1e6
            return TurnExpired(self.at, turn=running, due=due)
        if move.kind is TurnResumed:
            return TurnResumed(self.at, turn=running)
        if move.kind is SelectionExpired:
            number = shown.number if shown is not None and move.fits else 10_000 + move.some
            return SelectionExpired(self.at, number=number, while_down=move.flag)
        if move.kind is SilenceExpired:
            due = self.now.silence_due if self.now.silence_due is not None and move.fits else self.at + 1e6
            return SilenceExpired(self.at, due=due)
        if move.kind is DeliveryFailed:
            return DeliveryFailed(self.at, send="bot/tg/m1.1", message="m1", tries=1 + move.some, final=move.flag)
        assert move.kind is EngineCommandGiven
        choice = Choice(BOUND if move.fits else None) if move.flag else None
        allow = {0: True, 1: False}.get(move.some)
        number = 1 + move.some if move.owed else None
        return EngineCommandGiven(self.at, name="rebind", choice=choice, allow=allow, number=number)

    def commands_done(self, turn: str, call: int, move: Move) -> CommandsDone:
        return CommandsDone(
            self.at, turn=turn, call=call, results=(Result(Command("list_sessions", None), "[list_sessions] …"),),
            opens=Opening(SESSIONS) if move.some == 1 else None, mute=60.0 if move.some == 2 else None,
            listed=("ses_0",) if move.flag else None,
        )  # fmt: skip

    # -- a step and what must hold after it ------------------------------------------------------

    def take(self, event: Event, move: Move) -> None:
        before = self.now
        self.now, effects = step(before, event, LIMITS)
        self.effects = list(effects)
        if isinstance(event, (*ANSWERS, SelectionExpired, SilenceExpired)) and not move.fits:
            assert self.now is before, "a late event changes nothing"
        if self.now is before:
            assert not any(isinstance(effect, (Send, Settle, EndTurn, AskModel, RunCommands)) for effect in effects
                           if not isinstance(event, DeliveryFailed))  # fmt: skip
        self.check_shape(event)
        self.check_effects(before, event)
        if isinstance(event, SilenceExpired) and before.muted_until is not None and before.muted_until > event.due:
            assert self.now.muted_until == before.muted_until, "a mute stays until its time"

    def check_shape(self, event: Event) -> None:
        now = self.now
        assert now.state in State
        assert (now.state is State.COMMAND_LOOPING) == (now.turn is not None)
        assert (now.state is State.AWAITING_SELECTION) == (now.shown is not None)
        muted = now.muted_until is not None and now.muted_until > event.at
        assert not (now.state is State.IDLE and muted), "idle means not muted"
        assert not (now.state is State.IDLE and now.silence_due is not None), "idle waits for no silence to end"
        if now.state is State.SILENCED or muted:
            assert now.silence_due is not None, "every silence has an end"
        assert len(now.queue) <= LIMITS.queue_limit
        assert len(set(now.queue)) == len(now.queue)
        numbers = [ask.number for ask in now.turn.requests] if now.turn is not None else []
        assert len(set(numbers)) == len(numbers)
        assert max(numbers, default=0) <= now.asked, "no number is given twice"

    def check_effects(self, before: Conversation, event: Event) -> None:
        now = self.now
        if now.turn is not None and (before.turn is None or before.turn.id != now.turn.id):
            assert now.turn.id not in self.begun, "a message has one turn"
            self.begun.add(now.turn.id)
            assert isinstance(self.effects[-1], WaitForSession)
        assert not any(isinstance(effect, WaitForSession) for effect in self.effects[:-1]), "it stands last"
        for effect in self.effects:
            match effect:
                case EndTurn(turn=turn):
                    assert turn.id in self.begun - self.ended, "what ends had begun, and ends once"
                    assert now.turn is None
                    self.ended.add(turn.id)
                case Settle(message=message, disposition=disposition) if disposition.final:
                    if not isinstance(event, DeliveryFailed):
                        self.final[message] += 1
                case AnswerAsk(ask=ask):
                    assert before.turn is not None
                    asked = [one for one in before.turn.requests if one.number == ask.number]
                    assert [one.state for one in asked] == ["open"], "an answer is for one request that waits for it"
                    assert isinstance(event, EngineCommandGiven)
                    assert event.number == ask.number or len(before.turn.requests) == 1
                case Send(id=name):
                    assert name not in self.sent, "every text has an id of its own"
                    self.sent.add(name)
                case _:
                    pass
        if before.turn is not None and now.turn is None:
            assert before.turn.id in self.ended, "a turn that is gone has been ended"
        self.check_dispositions()

    def check_dispositions(self) -> None:
        """Exactly one for every message, but for the one in the turn and those that wait."""
        open_ones = set(self.now.queue)
        if self.now.turn is not None:
            open_ones.add(self.now.turn.message.id)
        for message in self.messages:
            assert self.final[message] == (0 if message in open_ones else 1), message




@settings(max_examples=300, deadline=None)
@given(st.lists(MOVES, min_size=15, max_size=60))
def test_whatever_happens_the_conversation_stays_in_shape(moves: list[Move]) -> None:
    story = Story()
    for move in moves:
        story.play(move)


def free(turn: Turn, story: Story) -> None:
    """A turn that waits for its session gets it."""
    if turn.deadline is None:
        story.take(SessionFree(story.at, turn=turn.id), FITTING)


def expire(story: Story) -> None:
    turn = story.now.turn
    assert turn is not None
    free(turn, story)
    turn = story.now.turn
    assert turn is not None
    assert turn.deadline is not None
    assert math.isfinite(turn.deadline)
    story.at = max(story.at, turn.deadline)
    story.take(TurnExpired(story.at, turn=turn.id, due=turn.deadline), FITTING)


def answer(story: Story) -> None:
    """The model says something plain as soon as it is asked; commands that run come to their end first."""
    turn = story.now.turn
    assert turn is not None
    free(turn, story)
    for _ in range(3):
        turn = story.now.turn
        if turn is None:
            return
        match turn.phase:
            case Phase.SESSION:
                raise AssertionError("it has its session")
            case Phase.BACKOFF:
                story.take(BackoffOver(story.at, turn=turn.id, call=turn.call), FITTING)
            case Phase.COMMANDS:
                story.take(CommandsDone(story.at, turn=turn.id, call=turn.call, results=()), FITTING)
            case Phase.MODEL:
                plain = Reading(ReadingKind.TEXT, "answer", said="answer")
                story.take(ModelReplied(story.at, turn=turn.id, call=turn.call, reading=plain), FITTING)


FITTING = Move(TurnExpired, False, 0.0, True, True, 0, ReadingKind.TEXT, True)
TEXT = Move(TextArrived, False, 0.0, True, True, 0, ReadingKind.TEXT, True)


@settings(max_examples=200, deadline=None)
@given(st.lists(MOVES, min_size=5, max_size=30), st.booleans())
def test_no_turn_is_without_an_end(moves: list[Move], by_time: bool) -> None:
    story = Story()
    for move in moves:
        story.play(move)
    if story.now.turn is None:
        story.play(TEXT)
    running = story.now.turn
    if running is None:
        return  # muted, or answered by the engine itself

    (expire if by_time else answer)(story)

    assert story.now.turn is None
    assert running.id in story.ended
    assert story.final[running.message.id] == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(MOVES, min_size=5, max_size=30))
def test_the_same_moves_tell_the_same_story(moves: list[Move]) -> None:
    one, other = Story(), Story()
    for move in moves:
        one.play(move)
        other.play(move)

        assert one.now == other.now
        assert one.effects == other.effects
