"""What can happen to a conversation: facts, in the past tense, each with the instant it happened at.

Messages come recognised and with what the step needs looked up. Everything that answers the
machine (model, commands, timers) names the turn, list or deadline that it belongs to, so an answer
that comes late is told from one that is awaited.
"""

from __future__ import annotations

from typing import Literal

from fsm.conversation import Ask, Bound, Command, Message, Turn
from fsm.language.reply import Reading
from fsm.ports import SessionInfo
from fsm.values import Value


class Event(Value):
    """``at`` in unix seconds on the engine's clock."""

    at: float


# -- messages ------------------------------------------------------------------------------------


class Arrived(Event, kw_only=True):
    """A message. ``binding`` is the session that a text would talk to now, None where there is none
    and ``problem`` says why in the sender's language."""

    message: Message
    binding: Bound | None = None
    problem: str = ""


class TextArrived(Arrived, kw_only=True):
    """Something for the model."""


class SwitchAsked(Arrived, kw_only=True):
    """``matches`` are the sessions that ``words`` may mean, best first."""

    words: str
    matches: tuple[SessionInfo, ...] = ()


class ListAsked(Arrived, kw_only=True):
    """``matches`` are the sessions to list, most recently active first."""

    words: str = ""
    matches: tuple[SessionInfo, ...] = ()


class NumberGiven(Arrived, kw_only=True):
    """``session`` is what stands under the number on the list, None where it is gone by now."""

    number: int
    session: SessionInfo | None = None


class CancelSaid(Arrived, kw_only=True):
    """The list is not wanted any more."""


class StopSaid(Arrived, kw_only=True):
    """Whatever runs should stop."""


class MuteAsked(Event, kw_only=True):
    """Be quiet for ``seconds``. ``message`` is None where it was said in another conversation of the
    same room: that one acknowledges."""

    seconds: float
    message: Message | None = None
    binding: Bound | None = None
    problem: str = ""


class UnmuteAsked(Event, kw_only=True):
    """Speak again. ``message`` as in :class:`MuteAsked`."""

    message: Message | None = None
    binding: Bound | None = None
    problem: str = ""


class Choice(Value):
    """A new choice of session: ``bound`` from now on, or automatic binding again where None."""

    bound: Bound | None


class EngineCommandGiven(Event, kw_only=True):
    """A command to the engine itself, its ``answer`` looked up. ``message`` is None where an
    operator rebinds the conversation from outside: nobody is answered then. ``allow`` answers what the
    running turn's agent asked leave for: the request of that ``number``, where one is named."""

    name: str
    answer: str = ""
    message: Message | None = None
    choice: Choice | None = None
    lang: str | None = None
    allow: bool | None = None
    number: int | None = None


class PermissionAnswered(Event, kw_only=True):
    """The agent was told, ``allow`` or not, what a person answered to ``ask`` of the turn of that id. The person hears
    of it in answer to ``message``, also where that turn is over by now.

    ``outcome``: ``done``; ``gone`` where the agent did not wait for it any more, so that nothing was done with it;
    ``failed`` where the agent did not say that it has heard it, and may wait still.
    """

    turn: str
    ask: Ask
    allow: bool
    outcome: Literal["done", "gone", "failed"]
    message: Message | None = None


# -- answers to a turn ---------------------------------------------------------------------------


class TurnEvent(Event, kw_only=True):
    """Belongs to the turn of that id."""

    turn: str

    def is_of(self, turn: Turn) -> bool:
        """Whether it belongs to ``turn`` as that stands now."""
        return self.turn == turn.id


class CallEvent(TurnEvent, kw_only=True):
    """Belongs to the call of that number."""

    call: int

    def is_of(self, turn: Turn) -> bool:
        return self.turn == turn.id and self.call == turn.call


class SessionFree(TurnEvent, kw_only=True):
    """No other turn runs on the session, and this one has it now."""


class ModelReplied(CallEvent, kw_only=True):
    """The model's answer to call ``call``, read, and the tokens that it took."""

    reading: Reading
    input_tokens: int = 0
    output_tokens: int = 0


class ModelFailed(CallEvent, kw_only=True):
    """Call ``call`` failed for a reason that is in the log; ``retryable`` if asking again can help."""

    kind: str = "error"
    retryable: bool = True


class BackoffOver(CallEvent, kw_only=True):
    """The wait after the failure of call ``call`` is over."""


class PermissionAsked(CallEvent, kw_only=True):
    """The agent that runs call ``call`` wants leave. ``ask`` names the request, ``what`` says in a line
    what it is for, inert."""

    ask: str
    what: str


class PermissionLapsed(CallEvent, kw_only=True):
    """The agent that runs call ``call`` waits no more for an answer to ``ask``: the time for one is up, or somebody
    answered elsewhere."""

    ask: str


class Result(Value):
    """What a command gave: ``text`` for the model (foreign parts inert), ``ok`` False for an error."""

    command: Command
    text: str
    ok: bool = True


class Opening(Value):
    """A selection that commands opened: these sessions, in this order."""

    sessions: tuple[SessionInfo, ...]


class CommandsDone(CallEvent, kw_only=True):
    """The commands of call ``call`` are through, in order.

    ``choice``, ``opens``, ``listed`` (ids of the last list made) and ``mute`` (seconds) are what they
    changed, None for nothing; ``taken_in`` the command spellings that their results brought in.
    """

    results: tuple[Result, ...]
    opens: Opening | None = None
    choice: Choice | None = None
    listed: tuple[str, ...] | None = None
    mute: float | None = None
    taken_in: frozenset[str] = frozenset()


class TurnExpired(TurnEvent, kw_only=True):
    """The turn's time is up; ``due`` is the deadline that has come."""

    due: float

    def is_of(self, turn: Turn) -> bool:
        return self.turn == turn.id and self.due == turn.deadline


class TurnResumed(TurnEvent, kw_only=True):
    """The process has started again and finds the turn cut off; ``parked`` where it was not cut off but left,
    by a process that was told to stop."""

    parked: bool = False


# -- time and delivery ---------------------------------------------------------------------------


class SelectionExpired(Event, kw_only=True):
    """The time of list ``number`` is up; ``while_down`` if the process started only after that."""

    number: int
    while_down: bool = False


class SilenceExpired(Event, kw_only=True):
    """The silence that was to end at ``due`` ends."""

    due: float


class DeliveryFailed(Event, kw_only=True):
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
    SessionFree, ModelReplied, ModelFailed, PermissionAsked, PermissionLapsed, BackoffOver, CommandsDone, TurnExpired,
    TurnResumed,
)  # fmt: skip
TIMERS: tuple[type[Event], ...] = (SelectionExpired, SilenceExpired)
EVENTS: tuple[type[Event], ...] = (*MESSAGES, EngineCommandGiven, PermissionAnswered, *ANSWERS, *TIMERS, DeliveryFailed)
