"""What each row does: a new conversation and the effects owed. Pure; the row itself moves the state.

A reaction never sets ``state`` (the table does) and never reads a clock (``event.at`` is the time).
"""

from __future__ import annotations

from msgspec.structs import replace

from fsm.constants import Limits
from fsm.conversation import Ask, Bound, Conversation, Message, Phase, Said, Shown, Turn
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
    Arrived,
    BackoffOver,
    CancelSaid,
    CommandsDone,
    DeliveryFailed,
    EngineCommandGiven,
    Event,
    ListAsked,
    ModelFailed,
    ModelReplied,
    MuteAsked,
    NumberGiven,
    PermissionAnswered,
    PermissionAsked,
    PermissionLapsed,
    SelectionExpired,
    SessionFree,
    SilenceExpired,
    StopSaid,
    SwitchAsked,
    TurnExpired,
    TurnResumed,
    UnmuteAsked,
)
from fsm.language.inert import make_inert, spellings
from fsm.language.reply import ReadingKind
from fsm.language.texts import duration, say, session_list
from fsm.language.titles import show_title
from fsm.ports import Line, SessionInfo

# Found once: in Python 3.11 the way to a member of an Enum is a long one.
_MODEL, _REPLIED = Phase.MODEL, Disposition.REPLIED

Outcome = tuple[Conversation, tuple[Effect, ...]]


# -- the small moves that the reactions are made of ------------------------------------------------


def _tell(now: Conversation, message: Message, text: str) -> tuple[Conversation, Send]:
    """A text for the sender. Its id comes from the message and a counter that is stored with the
    conversation, so the same step always gives the same id."""
    now = replace(now, count=now.count + 1)
    return now, Send(f"{message.ref}.{now.count}", message.channel, message.to, text, message.id)


def _answer(now: Conversation, message: Message | None, text: str, reason: str) -> Outcome:
    """The engine's own answer; nothing where nobody here asked (a mute given elsewhere in the room)."""
    if message is None:
        return now, ()
    now, send = _tell(now, message, text)
    return now, (send, Settle(message.id, Disposition.REPLIED, reason))


def _turn(now: Conversation) -> Turn:
    assert now.turn is not None, "only a running turn gets here"
    return now.turn


def _end(
    now: Conversation,
    at: float,
    disposition: Disposition,
    reason: str,
    text: str = "",
    *,
    said: str = "",
    reply: ModelReplied | None = None,
) -> Outcome:
    """The one way out of a turn: the text if there is one, the disposition, the lines for the
    session's context, and whatever still runs is cancelled. ``reply`` is the model's last one, for its tokens."""
    turn = _turn(now)
    effects: list[Effect] = [EndTurn(turn)]
    if turn.bound.kept == "source" and turn.phase in (Phase.MODEL, Phase.BACKOFF) and reply is None:
        effects.append(AbandonCall(turn))
    if text:
        now, send = _tell(now, turn.message, text)
        effects.append(send)
    effects.append(Settle(turn.message.id, disposition, reason))
    effects.extend(_record_end(turn, at, disposition, said, reply))
    return replace(now, turn=None), tuple(effects)


# -- the record of a turn, for the session that it belongs to ---------------------------------------


def _record(turn: Turn, name: str, event: str, at: float, data: dict[str, object]) -> tuple[Effect, ...]:
    """A step for the session's journal, where it has one. The name comes from the turn, so a step that
    is recorded again is known."""
    if turn.bound.kept != "journal":
        return ()
    return (Record(f"{turn.id}!{name}", turn.bound.session, turn.id, event, data, at),)


def _record_end(
    turn: Turn, at: float, disposition: Disposition, said: str, reply: ModelReplied | None
) -> tuple[Effect, ...]:
    """What stays of a turn: in the journal its end, in our store its lines, and nothing where the
    agent itself ran it and keeps them."""
    message = turn.message
    if turn.bound.kept == "source":
        return ()
    if turn.bound.kept == "journal":
        if turn.phase is Phase.SESSION:  # it never had the session, so nothing began there
            return ()
        data: dict[str, object] = {"id": turn.id, "content": said, "disposition": disposition.value}
        return _record(turn, "end", "turn_end", at, data | ({"usage": _usage(turn, reply)} if reply else {}))
    lines = [KeepLine(turn.bound.session, Line("user", message.text, turn.started, message.tag, message.ref))]
    if said:
        line = Line("assistant", said, at, message.tag_of_answer, message.ref + ">")
        lines.append(KeepLine(turn.bound.session, line))
    return tuple(lines)


def _usage(turn: Turn, event: ModelReplied) -> dict[str, object]:
    """The tokens of one model call, named so that nobody counts them twice, and of the one before it that has no
    record of its own."""
    return {
        "id": f"{turn.id}/{event.call}",
        "input_tokens": event.input_tokens + turn.unrecorded[0],
        "output_tokens": event.output_tokens + turn.unrecorded[1],
    }


def _ask(now: Conversation, turn: Turn) -> Outcome:
    """The next call of the turn."""
    turn = replace(_call_over(turn), call=turn.call + 1, phase=_MODEL, retry_at=None)
    return replace(now, turn=turn), (AskModel(turn),)


def _bind(now: Conversation, message: Message, session: SessionInfo) -> Outcome:
    now = replace(now, shown=None, manual=Bound(session.id, "manual", session.title, session.source))
    text = say(message.lang, "bound", title=show_title(session.title), source=session.source)
    return _answer(now, message, text, "why_switched")


def _show(
    now: Conversation,
    message: Message,
    sessions: tuple[SessionInfo, ...],
    current: str | None,
    at: float,
    limits: Limits,
) -> tuple[Conversation, str]:
    """Put a numbered list before the person; the ids are kept as shown, so a number means what it
    meant on the screen even when the sessions have moved since."""
    ids = tuple(s.id for s in sessions[: limits.session_list_limit])
    now = replace(
        now,
        count=now.count + 1,
        listed=ids,
        shown=Shown(
            now.count + 1,
            message.ref,
            ids,
            at,
            at + limits.selection_timeout,
            message.channel,
            message.to,
            message.lang,
        ),
    )
    text = session_list(sessions, lang=message.lang, at=at, current=current, limit=limits.session_list_limit)
    return now, text + "\n" + say(message.lang, "list_foot", seconds=f"{limits.selection_timeout:g}")


def _mute(now: Conversation, at: float, seconds: float, limits: Limits) -> Conversation:
    until = at + min(seconds, limits.longest_mute)
    return replace(now, muted_until=until, silence_due=until, silence_from=at)


def _unmute(now: Conversation) -> Conversation:
    return replace(now, muted_until=None, silence_due=None, silence_from=None)


def _tell_room(message: Message | None, seconds: float | None) -> tuple[Effect, ...]:
    return (TellRoom(message, seconds),) if message is not None and message.in_room else ()


# -- any state -----------------------------------------------------------------------------------


def ignore(now: Conversation, event: Event, limits: Limits) -> Outcome:
    """It comes too late to matter."""
    return now, (Count("stale"),)


def answer_at_once(now: Conversation, event: EngineCommandGiven, limits: Limits) -> Outcome:
    if event.allow is not None and now.turn is not None and now.turn.requests:
        return _answer_ask(now, event, event.allow)
    if event.choice is not None:
        now = replace(now, manual=event.choice.bound)
    if event.lang is not None:
        now = replace(now, lang=event.lang)
    return _answer(now, event.message, event.answer, "why_told")


# -- what an agent wants leave for -----------------------------------------------------------------


def _with(turn: Turn, ask: Ask) -> Turn:
    """The turn with that request in the place of the one of its number."""
    return replace(turn, requests=tuple(ask if ask.number == old.number else old for old in turn.requests))


def _call_over(turn: Turn) -> Turn:
    """The call that made these requests has ended, and with it the waiting for an answer."""
    if not turn.requests:  # as with most
        return turn
    return replace(turn, requests=tuple(replace(ask, state="over") for ask in turn.requests))


def _answer_ask(now: Conversation, event: EngineCommandGiven, allow: bool) -> Outcome:
    """Pass the answer on where it is clear which request it is for: the one of its number, or without a number the only
    one that the person has heard of and had no word about yet. Somebody who answered one may not have seen the next."""
    turn = _turn(now)
    if event.number is not None:
        meant = next((ask for ask in turn.requests if ask.number == event.number), None)
    else:
        meant = turn.requests[0] if len(turn.requests) == 1 else None
    if meant is None or meant.state != "open":
        return _say_what_is_asked(now, event)
    meant = replace(meant, state="answered")
    return replace(now, turn=_with(turn, meant)), (AnswerAsk(turn, meant, allow, event.message),)


def _say_what_is_asked(now: Conversation, event: EngineCommandGiven) -> Outcome:
    """How things stand, request by request. Nobody is told twice that one is over."""
    turn, lang = _turn(now), event.message.lang if event.message else ""
    lines = [say(lang, f"ask_{ask.state}", what=ask.what) for ask in turn.requests if ask.state != "open"]
    rows = [f"{ask.number}. {ask.what}" for ask in turn.requests if ask.state == "open"]
    if rows:
        lines.append(say(lang, "asks", asks="\n".join(rows)))
    now = replace(now, turn=replace(turn, requests=tuple(ask for ask in turn.requests if ask.state != "over")))
    return _answer(now, event.message, "\n".join(lines), "why_told")


def tell_the_outcome(now: Conversation, event: PermissionAnswered, limits: Limits) -> Outcome:
    """What has come of an answer to the agent: only now can the person be told."""
    lang, ask = event.message.lang if event.message else "", event.ask
    text = say(lang, "allowed" if event.allow else "denied", what=ask.what)
    if event.outcome != "done":
        text = say(lang, "ask_over", what=ask.what)
    if now.turn is not None and ask in now.turn.requests and event.outcome == "failed":
        now = replace(now, turn=_with(now.turn, replace(ask, state="open")))
        text = say(lang, "ask_failed", what=ask.what, number=ask.number)
    elif now.turn is not None:
        left = tuple(other for other in now.turn.requests if other.number != ask.number)
        now = replace(now, turn=replace(now.turn, requests=left))
    return _answer(now, event.message, text, "why_told")


def send_again(now: Conversation, event: DeliveryFailed, limits: Limits) -> Outcome:
    waits = limits.delivery_backoff
    pause = waits[min(event.tries, len(waits)) - 1] if waits else 0.0
    return now, (SendAgain(event.send, event.at + pause), Count("record_retried" if event.record else "send_retried"))


def give_up_delivery(now: Conversation, event: DeliveryFailed, limits: Limits) -> Outcome:
    # Why a record was not written is told by whoever was to write it.
    effects: tuple[Effect, ...] = (SendAgain(event.send, None), Count("unrecorded" if event.record else "undelivered"))
    if event.message:
        effects += (Settle(event.message, Disposition.FAILED, "why_undelivered"),)
    return now, effects


# -- idle ----------------------------------------------------------------------------------------


def bind_the_one(now: Conversation, event: SwitchAsked, limits: Limits) -> Outcome:
    return _bind(now, event.message, event.matches[0])


def show_the_list(now: Conversation, event: SwitchAsked | ListAsked, limits: Limits) -> Outcome:
    current = event.binding.session if event.binding else None
    now, text = _show(now, event.message, event.matches, current, event.at, limits)
    return _answer(now, event.message, "\n".join(filter(None, (text, event.problem))), "why_listed")


def say_nothing_matches(now: Conversation, event: SwitchAsked | ListAsked, limits: Limits) -> Outcome:
    lang = event.message.lang
    if event.words:
        text = say(lang, "nothing_matches", words=show_title(event.words))
    else:
        text = say(lang, "which" if isinstance(event, SwitchAsked) else "no_sessions")
    return _answer(now, event.message, event.problem or text, "why_told")


def mute(now: Conversation, event: MuteAsked, limits: Limits) -> Outcome:
    seconds = min(event.seconds, limits.longest_mute)
    now = _mute(now, event.at, seconds, limits)
    lang = event.message.lang if event.message else ""
    now, effects = _answer(now, event.message, say(lang, "muted", minutes=duration(lang, seconds)), "why_told")
    return now, effects + _tell_room(event.message, seconds)


def unmute(now: Conversation, event: UnmuteAsked, limits: Limits) -> Outcome:
    lang = event.message.lang if event.message else ""
    now, effects = _answer(_unmute(now), event.message, say(lang, "unmuted"), "why_told")
    return now, effects + _tell_room(event.message, None)


def say_nothing_to_undo(now: Conversation, event: UnmuteAsked | StopSaid, limits: Limits) -> Outcome:
    key = "nothing_to_stop" if isinstance(event, StopSaid) else "nothing_to_undo"
    message = event.message
    return _answer(now, message, say(message.lang if message else "", key), "why_told")


def say_no_session(now: Conversation, event: Arrived, limits: Limits) -> Outcome:
    return _answer(now, event.message, event.problem or say(event.message.lang, "no_session"), "why_no_session")


def begin_turn(now: Conversation, event: Arrived, limits: Limits) -> Outcome:
    """A turn keeps the session that it starts with, whatever is chosen meanwhile."""
    assert event.binding is not None, "has_no_session stands above this row"
    turn = Turn(
        id=event.message.ref,
        message=event.message,
        bound=event.binding,
        started=event.at,
        taken_in=spellings(event.message.text),
    )
    effects: tuple[Effect, ...] = (WaitForSession(turn),)
    if event.message.waited:
        effects = (Settle(event.message.id, Disposition.RUNNING, "why_running"), *effects)
    return replace(now, turn=turn), effects


def _record_start(turn: Turn, at: float) -> tuple[Effect, ...]:
    message = turn.message
    data: dict[str, object] = {"id": turn.id, "role": "user", "content": message.text, "tag": message.tag}
    return _record(turn, "start", "turn_start", at, data)


# -- awaiting_selection --------------------------------------------------------------------------


def say_list_is_gone(
    now: Conversation, event: Arrived | MuteAsked | UnmuteAsked | SelectionExpired, limits: Limits
) -> Outcome:
    shown = now.shown
    assert shown is not None, "a list is before the person in this state"
    send = Send(f"{shown.ref}.gone{shown.number}", shown.channel, shown.to, say(shown.lang, "list_gone"))
    return replace(now, shown=None), (send,)


def drop_the_list(now: Conversation, event: Event, limits: Limits) -> Outcome:
    return replace(now, shown=None), ()


def say_the_range(now: Conversation, event: NumberGiven, limits: Limits) -> Outcome:
    last = len(now.shown.ids) if now.shown else 0
    return _answer(now, event.message, say(event.message.lang, "out_of_range", last=last), "why_told")


def bind_the_chosen(now: Conversation, event: NumberGiven, limits: Limits) -> Outcome:
    assert event.session is not None, "session_still_exists guards this row"
    return _bind(now, event.message, event.session)


def say_it_is_gone(now: Conversation, event: NumberGiven, limits: Limits) -> Outcome:
    return _answer(replace(now, shown=None), event.message, say(event.message.lang, "session_gone"), "why_told")


def cancel_the_selection(now: Conversation, event: CancelSaid | StopSaid, limits: Limits) -> Outcome:
    return _answer(replace(now, shown=None), event.message, say(event.message.lang, "cancelled"), "why_told")


def end_mute(now: Conversation, event: SilenceExpired, limits: Limits) -> Outcome:
    return _unmute(now), ()


# -- command_looping -----------------------------------------------------------------------------


def go_on(now: Conversation, event: SessionFree, limits: Limits) -> Outcome:
    """The session is ours: start, or go on from the last recorded step after a restart."""
    turn = replace(_turn(now), deadline=event.at + limits.turn_timeout, deadline_from=event.at)
    match turn.phase:
        case Phase.SESSION:
            started = _record_start(turn, event.at)
            now, effects = _ask(now, turn)
            return now, (*started, *effects)
        case Phase.BACKOFF:
            return _ask(now, turn)
        case Phase.MODEL:
            return replace(now, turn=turn), (AskModel(turn),)
        case Phase.COMMANDS:
            return replace(now, turn=turn), (RunCommands(turn, turn.commands),)


def stay_silent(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    now, effects = _end(now, event.at, Disposition.SILENT, "why_silent", reply=event)
    due = event.at + limits.silence_timeout
    return replace(now, silence_due=due, silence_from=event.at), effects


def ask_once_more(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    turn = _turn(now)
    said = (Said("assistant", "__SILENT__"),) if event.reading.kind is ReadingKind.SILENT else ()
    nudge = Said("user", say(turn.message.lang, "ask_again"))
    spent = (event.input_tokens, event.output_tokens)
    turn = replace(turn, asked_again=True, exchange=(*turn.exchange, *said, nudge), unrecorded=spent)
    now, effects = _ask(now, turn)
    return now, (*effects, Count("asked_again"))


def send_fallback(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    text = say(_turn(now).message.lang, "fallback")
    return _end(now, event.at, Disposition.REPLIED, "why_fallback", text, reply=event)


def end_quietly(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    now, effects = _end(now, event.at, Disposition.SILENT, "why_empty", reply=event)
    return now, (*effects, Count("empty_reply"))


def run_commands(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    turn = _turn(now)
    turn = replace(
        _call_over(turn),
        loops=turn.loops + 1,
        phase=Phase.COMMANDS,
        commands=event.reading.commands,
        exchange=(*turn.exchange, Said("assistant", event.reading.said)),
    )
    calls: list[Effect] = []
    for index, command in enumerate(turn.commands):
        data: dict[str, object] = {
            "id": f"{turn.id}/{turn.call}/{index}", "name": command.name, "input": command.argument,
            "usage": _usage(turn, event),
        }  # fmt: skip
        calls.extend(_record(turn, f"{turn.call}.{index}", "tool_call", event.at, data))
    turn = replace(turn, unrecorded=(0, 0))
    return replace(now, turn=turn), (*calls, RunCommands(turn, turn.commands), *_near_misses(event))


def reply(now: Conversation, event: ModelReplied, limits: Limits) -> Outcome:
    reading = event.reading
    now, effects = _end(
        now,
        event.at,
        _REPLIED,
        "why_replied",
        reading.text,
        said=reading.text,
        reply=event,
    )
    return now, effects + _near_misses(event)


def _near_misses(event: ModelReplied) -> tuple[Effect, ...]:
    return (Count("near_miss", event.reading.near_misses),) if event.reading.near_misses else ()


def _apply(now: Conversation, event: CommandsDone, limits: Limits) -> Conversation:
    """What the commands changed, and their results as the next thing that the model reads."""
    turn = _turn(now)
    if event.choice is not None:
        now = replace(now, manual=event.choice.bound)
    if event.listed is not None:
        now = replace(now, listed=event.listed)
    if event.mute is not None:
        now = _mute(now, event.at, event.mute, limits)
    results = "\n\n".join(result.text for result in event.results)
    said = Said("user", say(turn.message.lang, "results") + "\n" + results)
    return replace(
        now,
        turn=replace(turn, commands=(), exchange=(*turn.exchange, said), taken_in=turn.taken_in | event.taken_in),
    )


def _record_results(turn: Turn, event: CommandsDone) -> tuple[Effect, ...]:
    found: list[Effect] = []
    for index, result in enumerate(event.results):
        data: dict[str, object] = {"id": f"{turn.id}/{turn.call}/{index}", "content": result.text, "ok": result.ok}
        found.extend(_record(turn, f"{turn.call}.{index}=", "tool_result", event.at, data))
    return tuple(found)


def _mute_room(now: Conversation, event: CommandsDone) -> tuple[Effect, ...]:
    return _tell_room(_turn(now).message, event.mute) if event.mute is not None else ()


def open_the_selection(now: Conversation, event: CommandsDone, limits: Limits) -> Outcome:
    assert event.opens is not None, "opened_a_selection guards this row"
    done = _record_results(_turn(now), event) + _mute_room(now, event)
    now = _apply(now, event, limits)
    turn = _turn(now)
    current = now.manual.session if now.manual else turn.bound.session
    now, text = _show(now, turn.message, event.opens.sessions, current, event.at, limits)
    now, effects = _end(now, event.at, Disposition.REPLIED, "why_listed", text)
    return now, done + effects


def stop_at_the_cap(now: Conversation, event: CommandsDone, limits: Limits) -> Outcome:
    done = _record_results(_turn(now), event) + _mute_room(now, event)
    now = _apply(now, event, limits)
    last = event.results[-1].text if event.results else ""
    text = make_inert((last + "\n" + say(_turn(now).message.lang, "limit_reached", loops=limits.max_loops)).strip())
    now, effects = _end(now, event.at, Disposition.REPLIED, "why_capped", text, said=text)
    return now, done + effects


def ask_with_the_results(now: Conversation, event: CommandsDone, limits: Limits) -> Outcome:
    done = _record_results(_turn(now), event) + _mute_room(now, event)
    now = _apply(now, event, limits)
    now, effects = _ask(now, _turn(now))
    return now, done + effects


def put_the_ask(now: Conversation, event: PermissionAsked, limits: Limits) -> Outcome:
    """The agent waits for leave: ask the person, whose answer is ``/allow`` or ``/deny``. A call that was made again
    may ask the same once more; that keeps its number."""
    turn = _turn(now)
    number = next((ask.number for ask in turn.requests if ask.id == event.ask), now.asked + 1)
    others = tuple(ask for ask in turn.requests if ask.id != event.ask)
    turn = replace(turn, requests=(*others, Ask(event.ask, number, event.what)))
    now = replace(now, turn=turn, asked=max(now.asked, number))
    text = say(turn.message.lang, "ask", what=event.what, number=number)
    # Where several people are, each has requests and numbers of his own.
    now, send = _tell(now, turn.message, f"{turn.message.nick}: {text}" if turn.message.in_room else text)
    return now, (send,)


def drop_the_ask(now: Conversation, event: PermissionLapsed, limits: Limits) -> Outcome:
    """The agent goes on without an answer: one that is on its way comes too late."""
    turn = _turn(now)
    asks = tuple(replace(ask, state="over") if ask.id == event.ask else ask for ask in turn.requests)
    return replace(now, turn=replace(turn, requests=asks)), ()


def back_off(now: Conversation, event: ModelFailed, limits: Limits) -> Outcome:
    turn = _turn(now)
    waits = limits.model_backoff
    pause = waits[min(turn.retries, len(waits) - 1)] if waits else 0.0
    turn = replace(_call_over(turn), phase=Phase.BACKOFF, retries=turn.retries + 1, retry_at=event.at + pause)
    return replace(now, turn=turn), (Count("model_retried"),)


def ask_again(now: Conversation, event: BackoffOver, limits: Limits) -> Outcome:
    return _ask(now, _turn(now))


def apologise(now: Conversation, event: ModelFailed, limits: Limits) -> Outcome:
    turn = _turn(now)
    key = {
        "source": "context_unreadable", "vanished": "turn_vanished", "away": "turn_away", "aborted": "turn_aborted",
    }.get(event.kind, "model_failed")  # fmt: skip
    text = say(turn.message.lang, key, title=show_title(turn.bound.title or turn.bound.session))
    reason = "why_aborted" if event.kind == "aborted" else "why_model_failed"
    return _end(now, event.at, Disposition.FAILED, reason, text)


def fail_quietly(now: Conversation, event: ModelFailed, limits: Limits) -> Outcome:
    now, effects = _end(now, event.at, Disposition.FAILED, "why_model_failed")
    return now, (*effects, Count("failed_quietly"))


def give_up_the_turn(now: Conversation, event: TurnExpired, limits: Limits) -> Outcome:
    message = _turn(now).message
    text = say(message.lang, "timed_out", seconds=f"{limits.turn_timeout:g}") if message.owed else ""
    return _end(now, event.at, Disposition.FAILED, "why_timed_out", text)


def resume(now: Conversation, event: TurnResumed, limits: Limits) -> Outcome:
    """Waiting for the session does not count, so the new deadline comes with the session."""
    cuts = _turn(now).cuts + (0 if event.parked else 1)
    turn = replace(_call_over(_turn(now)), cuts=cuts, deadline=None, deadline_from=None, retry_at=None)
    return replace(now, turn=turn), (WaitForSession(turn),)


def give_up_resuming(now: Conversation, event: TurnResumed, limits: Limits) -> Outcome:
    message = _turn(now).message
    return _end(now, event.at, Disposition.FAILED, "why_cut_off", say(message.lang, "cut_off"))


def stop_the_turn(now: Conversation, event: StopSaid, limits: Limits) -> Outcome:
    now, ended = _end(now, event.at, Disposition.STOPPED, "why_stopped")
    now, effects = _answer(now, event.message, say(event.message.lang, "stopped"), "why_told")
    return now, ended + effects


def queue(now: Conversation, event: Arrived, limits: Limits) -> Outcome:
    now = replace(now, queue=(*now.queue, event.message.id))
    return now, (Settle(event.message.id, Disposition.QUEUED, "why_queued"),)


def refuse(now: Conversation, event: Arrived, limits: Limits) -> Outcome:
    now, send = _tell(now, event.message, say(event.message.lang, "queue_full", limit=limits.queue_limit))
    return now, (send, Settle(event.message.id, Disposition.REFUSED, "why_queue_full"))


# -- silenced ------------------------------------------------------------------------------------


def note_while_muted(now: Conversation, event: Arrived, limits: Limits) -> Outcome:
    effects: tuple[Effect, ...] = (Settle(event.message.id, Disposition.MUTED, "why_muted"),)
    if event.binding is not None:
        message = event.message
        line = Line("user", message.text, event.at, message.tag, message.ref)
        effects += (KeepLine(event.binding.session, line),)
    return now, effects


def wake(now: Conversation, event: Event, limits: Limits) -> Outcome:
    """A silence that the model chose ends with the next message; a mute stays until its time."""
    if now.muted_until is not None and now.muted_until > event.at:
        return replace(now, silence_due=now.muted_until), ()
    return _unmute(now), ()


def wait_for_the_mute(now: Conversation, event: SilenceExpired, limits: Limits) -> Outcome:
    return replace(now, silence_due=now.muted_until), ()


def end_silence(now: Conversation, event: SilenceExpired, limits: Limits) -> Outcome:
    return _unmute(now), ()
