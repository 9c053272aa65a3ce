"""The conversation, whole: this table decides what the bot does next, and everything else is drawn,
tested and explained from it.

How to read it. Five columns: in which state, on which event, where the conversation goes, what it
does, and only when. Rows for one state and event are tried downward and the first whose guard holds
is taken; the last of them has no guard. Rows that name several states stand first. Silence is
written (``ignore``), never implied.

``REST`` is idle, or silenced while a mute is ahead. ``AS_FROM_REST`` and ``AS_FROM_IDLE`` do what
the row says, move there, and let the same event be answered again by the rows of that state.

A new state fails on the next line and so sends you here. A new event must be answered by every
state, or the import of ``machine.py`` fails and says which row is missing.
"""

from __future__ import annotations

from fsm.conversation import State
from fsm.events import (
    ANSWERS,
    Arrived,
    BackoffOver,
    CancelSaid,
    CommandsDone,
    DeliveryFailed,
    EngineCommandGiven,
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
    TextArrived,
    TurnExpired,
    TurnResumed,
    UnmuteAsked,
)
from fsm.guards import (
    chose_silence,
    expired_while_down,
    has_a_retry_left,
    has_commands,
    has_no_session,
    has_one_match,
    has_something_to_show,
    is_late,
    is_muted_and_not_owed,
    is_of_another_list,
    is_of_another_silence,
    is_off_the_list,
    list_is_over,
    loops_are_used_up,
    may_be_asked_again,
    may_be_resumed,
    may_be_sent_again,
    mute_lasts_longer,
    opened_a_selection,
    owes_what_it_did_not_say,
    queue_has_room,
    reply_is_owed,
    said_nothing,
    session_still_exists,
)
from fsm.reactions import (
    answer_at_once,
    apologise,
    ask_again,
    ask_once_more,
    ask_with_the_results,
    back_off,
    begin_turn,
    bind_the_chosen,
    bind_the_one,
    cancel_the_selection,
    drop_the_ask,
    drop_the_list,
    end_mute,
    end_quietly,
    end_silence,
    fail_quietly,
    give_up_delivery,
    give_up_resuming,
    give_up_the_turn,
    go_on,
    ignore,
    mute,
    note_while_muted,
    open_the_selection,
    put_the_ask,
    queue,
    refuse,
    reply,
    resume,
    run_commands,
    say_it_is_gone,
    say_list_is_gone,
    say_no_session,
    say_nothing_matches,
    say_nothing_to_undo,
    say_the_range,
    send_again,
    send_fallback,
    show_the_list,
    stay_silent,
    stop_at_the_cap,
    stop_the_turn,
    tell_the_outcome,
    unmute,
    wait_for_the_mute,
    wake,
)
from fsm.rows import Go, on

IDLE, AWAITING, LOOPING, SILENCED = State
SAME, REST, AS_FROM_REST, AS_FROM_IDLE = Go

ANY = (IDLE, AWAITING, LOOPING, SILENCED)
NOT_LOOPING = (IDLE, AWAITING, SILENCED)
NOT_AWAITING = (IDLE, LOOPING, SILENCED)
NOT_IDLE = (AWAITING, LOOPING, SILENCED)

# The annotations let mypy compare each row's events with what its reaction and guard accept.
TEXT: tuple[type[TextArrived | NumberGiven | CancelSaid], ...] = (TextArrived, NumberGiven, CancelSaid)
"""Outside a selection a number is words like any other."""
ASKED: tuple[type[SwitchAsked | ListAsked], ...] = (SwitchAsked, ListAsked)
QUEUED: tuple[type[Arrived], ...] = (*TEXT, *ASKED)
NOT_MUTES: tuple[type[Arrived], ...] = (*QUEUED, StopSaid)
MESSAGE: tuple[type[Arrived | MuteAsked | UnmuteAsked], ...] = (*NOT_MUTES, MuteAsked, UnmuteAsked)
REPLACING: tuple[type[SwitchAsked | ListAsked | MuteAsked], ...] = (*ASKED, MuteAsked)
LEAVING: tuple[type[CancelSaid | StopSaid], ...] = (CancelSaid, StopSaid)
NOTHING_TO_UNDO: tuple[type[UnmuteAsked | StopSaid], ...] = (UnmuteAsked, StopSaid)

# fmt: off
TABLE = (
    # in state     on event            goes to       does                   only when
    on(ANY,        EngineCommandGiven, SAME,         answer_at_once),
    on(ANY,        PermissionAnswered, SAME,         tell_the_outcome),
    on(ANY,        DeliveryFailed,     SAME,         send_again,            may_be_sent_again),
    on(ANY,        DeliveryFailed,     SAME,         give_up_delivery),
    on(NOT_LOOPING, ANSWERS,           SAME,         ignore),
    on(LOOPING,    ANSWERS,            SAME,         ignore,                is_late),
    on(NOT_AWAITING, SelectionExpired, SAME,         ignore),
    on(AWAITING,   SelectionExpired,   SAME,         ignore,                is_of_another_list),
    on(IDLE,       SilenceExpired,     SAME,         ignore),
    on(NOT_IDLE,   SilenceExpired,     SAME,         ignore,                is_of_another_silence),

    on(IDLE,       SwitchAsked,        REST,         bind_the_one,          has_one_match),
    on(IDLE,       ASKED,              AWAITING,     show_the_list,         has_something_to_show),
    on(IDLE,       ASKED,              REST,         say_nothing_matches),
    on(IDLE,       MuteAsked,          SILENCED,     mute),
    on(IDLE,       NOTHING_TO_UNDO,    REST,         say_nothing_to_undo),
    on(IDLE,       TEXT,               REST,         say_no_session,        has_no_session),
    on(IDLE,       TEXT,               LOOPING,      begin_turn),

    on(AWAITING,   MESSAGE,            AS_FROM_REST, say_list_is_gone,      list_is_over),
    on(AWAITING,   NumberGiven,        AWAITING,     say_the_range,         is_off_the_list),
    on(AWAITING,   NumberGiven,        REST,         bind_the_chosen,       session_still_exists),
    on(AWAITING,   NumberGiven,        REST,         say_it_is_gone),
    on(AWAITING,   LEAVING,            REST,         cancel_the_selection),
    on(AWAITING,   REPLACING,          AS_FROM_IDLE, drop_the_list),
    on(AWAITING,   UnmuteAsked,        AWAITING,     unmute),
    on(AWAITING,   TextArrived,        AS_FROM_REST, drop_the_list),
    on(AWAITING,   SelectionExpired,   REST,         drop_the_list,         expired_while_down),
    on(AWAITING,   SelectionExpired,   REST,         say_list_is_gone),
    on(AWAITING,   SilenceExpired,     AWAITING,     end_mute),

    on(LOOPING,    SessionFree,        LOOPING,      go_on),
    on(LOOPING,    ModelReplied,       SILENCED,     stay_silent,           chose_silence),
    on(LOOPING,    ModelReplied,       LOOPING,      ask_once_more,         may_be_asked_again),
    on(LOOPING,    ModelReplied,       REST,         send_fallback,         owes_what_it_did_not_say),
    on(LOOPING,    ModelReplied,       REST,         end_quietly,           said_nothing),
    on(LOOPING,    ModelReplied,       LOOPING,      run_commands,          has_commands),
    on(LOOPING,    ModelReplied,       REST,         reply),
    on(LOOPING,    CommandsDone,       AWAITING,     open_the_selection,    opened_a_selection),
    on(LOOPING,    CommandsDone,       REST,         stop_at_the_cap,       loops_are_used_up),
    on(LOOPING,    CommandsDone,       LOOPING,      ask_with_the_results),
    on(LOOPING,    ModelFailed,        LOOPING,      back_off,              has_a_retry_left),
    on(LOOPING,    ModelFailed,        REST,         apologise,             reply_is_owed),
    on(LOOPING,    ModelFailed,        REST,         fail_quietly),
    on(LOOPING,    PermissionAsked,    LOOPING,      put_the_ask),
    on(LOOPING,    PermissionLapsed,   LOOPING,      drop_the_ask),
    on(LOOPING,    BackoffOver,        LOOPING,      ask_again),
    on(LOOPING,    TurnExpired,        REST,         give_up_the_turn),
    on(LOOPING,    TurnResumed,        LOOPING,      resume,                may_be_resumed),
    on(LOOPING,    TurnResumed,        REST,         give_up_resuming),
    on(LOOPING,    StopSaid,           REST,         stop_the_turn),
    on(LOOPING,    MuteAsked,          LOOPING,      mute),
    on(LOOPING,    UnmuteAsked,        LOOPING,      unmute),
    on(LOOPING,    SilenceExpired,     LOOPING,      end_mute),
    on(LOOPING,    QUEUED,             LOOPING,      queue,                 queue_has_room),
    on(LOOPING,    QUEUED,             LOOPING,      refuse),

    on(SILENCED,   UnmuteAsked,        IDLE,         unmute),
    on(SILENCED,   MuteAsked,          SILENCED,     mute),
    on(SILENCED,   NOT_MUTES,          SILENCED,     note_while_muted,      is_muted_and_not_owed),
    on(SILENCED,   NOT_MUTES,          AS_FROM_IDLE, wake),
    on(SILENCED,   SilenceExpired,     SILENCED,     wait_for_the_mute,     mute_lasts_longer),
    on(SILENCED,   SilenceExpired,     IDLE,         end_silence),
)
# fmt: on
