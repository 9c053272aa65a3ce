"""What can happen to a conversation: facts, in the past tense, each with the instant it happened at.

Messages come recognised and with what the step needs looked up. Everything that answers the
machine (model, commands, timers) names the turn, list or deadline that it belongs to, so an answer
that comes late is told from one that is awaited.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsm.conversation import Bound, Command, Message
from fsm.language.reply import Reading
from fsm.ports import SessionInfo


@dataclass(frozen=True, slots=True)
class Event:
    """``at`` in unix seconds on the engine's clock."""

    at: float


# -- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(Event):
    """A message. ``binding`` is the session that a text would talk to now, None where there is none
    and ``problem`` says why in the sender's language."""

    message: Message
    binding: Bound | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArrived(Arrived):
    """Something for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAsked(Arrived):
    """``matches`` are the sessions that ``words`` may mean, best first."""

    words: str
    matches: tuple[SessionInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAsked(Arrived):
    """``matches`` are the sessions to list, most recently active first."""

    words: str = ""
    matches: tuple[SessionInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberGiven(Arrived):
    """``session`` is what stands under the number on the list, None where it is gone by now."""

    number: int
    session: SessionInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSaid(Arrived):
    """The list is not wanted any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSaid(Arrived):
    """Whatever runs should stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MuteAsked(Event):
    """Be quiet for ``seconds``. ``message`` is None where it was said in another conversation of the
    same room: that one acknowledges."""

    seconds: float
    message: Message | None = None
    binding: Bound | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmuteAsked(Event):
    """Speak again. ``message`` as in :class:`MuteAsked`."""

    message: Message | None = None
    binding: Bound | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A new choice of session: ``bound`` from now on, or automatic binding again where None."""

    bound: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommandGiven(Event):
    """A command to the engine itself, its ``answer`` looked up. ``message`` is None where an
    operator rebinds the conversation from outside: nobody is answered then. ``allow`` answers what the
    running turn's agent asked leave for."""

    name: str
    answer: str = ""
    message: Message | None = None
    choice: Choice | None = None
    lang: str | None = None
    allow: bool | None = None


# -- answers to a turn ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent(Event):
    """Belongs to the turn of that id."""

    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFree(TurnEvent):
    """No other turn runs on the session, and this one has it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(TurnEvent):
    """The model's answer to call ``call``, read, and the tokens that it took."""

    call: int
    reading: Reading
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(TurnEvent):
    """Call ``call`` failed for a reason that is in the log; ``retryable`` if asking again can help."""

    call: int
    kind: str = "error"
    retryable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffOver(TurnEvent):
    """The wait after the failure of call ``call`` is over."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(TurnEvent):
    """The agent that runs call ``call`` wants leave. ``ask`` names the request, ``what`` says in a line
    what it is for, inert."""

    call: int
    ask: str
    what: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a command gave: ``text`` for the model (foreign parts inert), ``ok`` False for an error."""

    command: Command
    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Opening:
    """A selection that commands opened: these sessions, in this order."""

    sessions: tuple[SessionInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsDone(TurnEvent):
    """The commands of call ``call`` are through, in order.

    ``choice``, ``opens``, ``listed`` (ids of the last list made) and ``mute`` (seconds) are what they
    changed, None for nothing; ``taken_in`` the command spellings that their results brought in.
    """

    call: int
    results: tuple[Result, ...]
    opens: Opening | None = None
    choice: Choice | None = None
    listed: tuple[str, ...] | None = None
    mute: float | None = None
    taken_in: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnExpired(TurnEvent):
    """The turn's time is up; ``due`` is the deadline that has come."""

    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResumed(TurnEvent):
    """The process has started again and finds the turn cut off; ``parked`` where it was not cut off but left,
    by a process that was told to stop."""

    parked: bool = False


# -- time and delivery ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionExpired(Event):
    """The time of list ``number`` is up; ``while_down`` if the process started only after that."""

    number: int
    while_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceExpired(Event):
    """The silence that was to end at ``due`` ends."""

    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed(Event):
    """A text could not be delivered for the ``tries``-th time; ``final`` if another try cannot help. ``record``: it is
    one of a turn, which is tried until it is written, since nobody else would remember it."""

    send: str
    message: str
    tries: int
    final: bool = False
    record: bool = False


MESSAGES: tuple[type[Event], ...] = (
    TextArrived, SwitchAsked, ListAsked, NumberGiven, CancelSaid, StopSaid, MuteAsked, UnmuteAsked,
)  # fmt: skip
ANSWERS: tuple[type[TurnEvent], ...] = (
    SessionFree, ModelReplied, ModelFailed, PermissionAsked, BackoffOver, CommandsDone, TurnExpired, TurnResumed,
)  # fmt: skip
TIMERS: tuple[type[Event], ...] = (SelectionExpired, SilenceExpired)
EVENTS: tuple[type[Event], ...] = (*MESSAGES, EngineCommandGiven, *ANSWERS, *TIMERS, DeliveryFailed)
