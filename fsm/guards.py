"""When a row applies. Each guard reads as a question about the conversation and the event."""

from __future__ import annotations

from fsm.constants import Limits
from fsm.conversation import Conversation
from fsm.events import (
    Arrived,
    CommandsDone,
    DeliveryFailed,
    Event,
    ListAsked,
    ModelFailed,
    ModelReplied,
    MuteAsked,
    NumberGiven,
    SelectionExpired,
    SilenceExpired,
    SwitchAsked,
    TurnEvent,
    TurnResumed,
    UnmuteAsked,
)
from fsm.language.reply import ReadingKind

# Looked up once: Python 3.11 takes as long to find a member of an Enum as all the rest of a guard takes.
_SILENT, _COMMANDS = ReadingKind.SILENT, ReadingKind.COMMANDS
_NOTHING = (ReadingKind.SILENT, ReadingKind.EMPTY)


def is_muted(now: Conversation, at: float) -> bool:
    """Whether a mute is ahead at ``at``; at its very end it is over."""
    return now.muted_until is not None and now.muted_until > at


# -- late or not ---------------------------------------------------------------------------------


def is_late(now: Conversation, event: TurnEvent, limits: Limits) -> bool:
    """Belongs to another turn, another call of this one, or a deadline that was moved."""
    return now.turn is None or not event.is_of(now.turn)


def is_of_another_list(now: Conversation, event: SelectionExpired, limits: Limits) -> bool:
    return now.shown is None or event.number != now.shown.number


def is_of_another_silence(now: Conversation, event: SilenceExpired, limits: Limits) -> bool:
    return event.due != now.silence_due


# -- messages ------------------------------------------------------------------------------------


def has_one_match(now: Conversation, event: SwitchAsked, limits: Limits) -> bool:
    return bool(event.words) and len(event.matches) == 1


def has_something_to_show(now: Conversation, event: SwitchAsked | ListAsked, limits: Limits) -> bool:
    return bool(event.matches) and not (isinstance(event, SwitchAsked) and not event.words)


def has_no_session(now: Conversation, event: Arrived, limits: Limits) -> bool:
    return event.binding is None


def list_is_over(now: Conversation, event: Arrived | MuteAsked | UnmuteAsked, limits: Limits) -> bool:
    """Judged from the stored instants, so the order of timer and message in one tick does not matter.
    A list from the future (the wall clock went back while the process was down) is over too."""
    shown = now.shown
    return shown is None or event.at >= shown.deadline or event.at < shown.started


def is_off_the_list(now: Conversation, event: NumberGiven, limits: Limits) -> bool:
    return now.shown is None or not 1 <= event.number <= len(now.shown.ids)


def session_still_exists(now: Conversation, event: NumberGiven, limits: Limits) -> bool:
    return event.session is not None


def queue_has_room(now: Conversation, event: Arrived, limits: Limits) -> bool:
    return len(now.queue) < limits.queue_limit


def is_muted_and_not_owed(now: Conversation, event: Arrived, limits: Limits) -> bool:
    return is_muted(now, event.at) and not event.message.owed


# -- what the model said -------------------------------------------------------------------------


def _owed(now: Conversation) -> bool:
    return now.turn is not None and now.turn.message.owed


def chose_silence(now: Conversation, event: ModelReplied, limits: Limits) -> bool:
    return event.reading.kind is _SILENT and not _owed(now)


def said_nothing(now: Conversation, event: ModelReplied, limits: Limits) -> bool:
    return event.reading.kind in _NOTHING


def owes_what_it_did_not_say(now: Conversation, event: ModelReplied, limits: Limits) -> bool:
    return said_nothing(now, event, limits) and _owed(now)


def may_be_asked_again(now: Conversation, event: ModelReplied, limits: Limits) -> bool:
    turn = now.turn
    return owes_what_it_did_not_say(now, event, limits) and turn is not None and not turn.asked_again


def has_commands(now: Conversation, event: ModelReplied, limits: Limits) -> bool:
    return event.reading.kind is _COMMANDS


# -- the course of a turn ------------------------------------------------------------------------


def opened_a_selection(now: Conversation, event: CommandsDone, limits: Limits) -> bool:
    return event.opens is not None


def loops_are_used_up(now: Conversation, event: CommandsDone, limits: Limits) -> bool:
    return now.turn is not None and now.turn.loops >= limits.max_loops


def has_a_retry_left(now: Conversation, event: ModelFailed, limits: Limits) -> bool:
    return event.retryable and now.turn is not None and now.turn.retries < limits.model_retries


def reply_is_owed(now: Conversation, event: Event, limits: Limits) -> bool:
    return _owed(now)


def may_be_resumed(now: Conversation, event: TurnResumed, limits: Limits) -> bool:
    return now.turn is not None and (event.parked or now.turn.cuts < limits.max_resumes)


# -- time and delivery ---------------------------------------------------------------------------


def expired_while_down(now: Conversation, event: SelectionExpired, limits: Limits) -> bool:
    return event.while_down


def mute_lasts_longer(now: Conversation, event: SilenceExpired, limits: Limits) -> bool:
    return now.muted_until is not None and now.muted_until > event.due


def may_be_sent_again(now: Conversation, event: DeliveryFailed, limits: Limits) -> bool:
    return not event.final and (event.record or event.tries < limits.delivery_tries)
