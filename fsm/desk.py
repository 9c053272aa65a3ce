"""What one agent needs to take part: it hears messages, asks the model and runs commands.

Everything here is about *one* agent and touches the world only through ports. It knows no mailbox,
no transaction and no timer: those belong to the runner (``runner.py`` is the embedded one), and
another runner carries the same desk and the same step.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, cast

from msgspec.structs import asdict, replace

from fsm.admission import Gatekeeper
from fsm.agent import Agent, in_room
from fsm.binding import Binding, resolve
from fsm.commands.builtin import BUILTIN
from fsm.commands.engine import ENGINE_COMMANDS, Asked
from fsm.commands.registry import CommandContext, Registry
from fsm.conversation import Bound, Command, Conversation, Key, Message, Phase, State, Turn
from fsm.events import (
    CancelSaid,
    Choice,
    CommandsDone,
    EngineCommandGiven,
    Event,
    ListAsked,
    ModelFailed,
    ModelReplied,
    MuteAsked,
    NumberGiven,
    Opening,
    PermissionAsked,
    PermissionLapsed,
    Result,
    StopSaid,
    SwitchAsked,
    TextArrived,
    UnmuteAsked,
)
from fsm.foreign import is_theirs
from fsm.guards import is_muted
from fsm.language.inert import clean_nick, make_inert, quote_lines
from fsm.language.markers import StreamGate
from fsm.language.prompt import base_prompt, system_text, with_exchange
from fsm.language.recognise import Kind, Recognised, recognise
from fsm.language.redact import redact
from fsm.language.reply import read_reply
from fsm.language.texts import LANGUAGES, say
from fsm.language.titles import one_line, show_title
from fsm.ports import (
    ChatMessage,
    Inbound,
    Line,
    ModelError,
    PermissionAsk,
    Reply,
    RunsOn,
    SessionInfo,
    SourceError,
    Talks,
    is_a,
)
from fsm.sessions import Listing, Sessions
from fsm.values import Value

log = logging.getLogger("session_router.turn")


ASK_CHARS = 1_000
"""Characters of what an agent wants leave for, as a person gets to read it: nobody is to allow what he has not seen."""

# Found once: in Python 3.11 the way to a member of an Enum is a long one.
_TEXT, _LOOPING = Kind.TEXT, State.COMMAND_LOOPING

current_call: ContextVar[str] = ContextVar("current_call", default="")
"""The name of the model call being made (``turn/number``), the same when a crash lets it be made
again: an idempotency key for a gateway that takes one."""


class Bridge(Protocol):
    """How a turn reaches a model: the whole prompt in, the reply out (text, or text with usage).

    It may also have ``stream(messages, *, session_id)``, giving pieces of text and a last
    :class:`Reply`, and ``close()``.
    """

    async def chat(self, messages: Sequence[ChatMessage], *, session_id: str) -> str | Reply | None: ...


class Asking(Value):
    """The outcome of a model call: the event for the machine, and the raw reply for the record."""

    event: ModelReplied | ModelFailed
    raw: str | None = None
    reply: Reply | None = None


class Desk:
    """One agent at work."""

    def __init__(self, agent: Agent, sessions: Sessions, bridge: Bridge, commands: Registry | None = None) -> None:
        self.agent = agent
        self.sessions = sessions
        self.bridge = bridge
        self.commands = commands or BUILTIN
        self.gatekeeper = Gatekeeper(agent)
        self._labels = (agent.user_label, agent.label)
        self._prompts: dict[str, tuple[ChatMessage, ...]] = {}
        self._talking: dict[str, Talks] = {}
        """Who runs a turn, by its id: that one has to be told what is allowed, also when others are configured."""
        self._systems: dict[tuple[str, str], str] = {}

    def take_over(self, other: Desk) -> None:
        """Go on where another desk of the same agent stands: the prompts of running turns stay as they are, and
        the door remembers whom it has let in."""
        self._prompts, self._talking = other._prompts, other._talking
        self.gatekeeper.recent, self.gatekeeper.room = other.gatekeeper.recent, other.gatekeeper.room
        self.gatekeeper.in_a_row, self.gatekeeper.told = other.gatekeeper.in_a_row, other.gatekeeper.told

    # -- hearing ---------------------------------------------------------------------------------

    def tag(self, inbound: Inbound) -> str:
        """The source tag that stands before a message in every prompt and context."""
        if in_room(inbound.channel):
            return f"[群聊] {clean_nick(inbound.nick or inbound.sender)}:"
        return f"[{inbound.channel}]"

    def message(self, key: Key, inbound: Inbound, now: Conversation, at: float, *, waited: bool = False) -> Message:
        """An admitted message as the machine sees it, judged against the conversation of now."""
        room = in_room(inbound.channel)
        owed = self.gatekeeper.is_owed(inbound) if room else not is_muted(now, at)
        tag = self.tag(inbound)
        return Message(
            ref=f"{key.agent}/{inbound.channel}/{inbound.id}",
            id=inbound.id,
            channel=inbound.channel,
            to=inbound.reply_to,
            text=inbound.text,
            prompt=make_inert(f"{tag} {quote_lines(inbound.text, self._labels)}"),
            tag=tag,
            owed=owed,
            lang=now.lang or language_of(inbound.text, self.agent.language),
            waited=waited,
            in_room=room,
        )

    def binding(
        self, key: Key, now: Conversation, at: float, *, message: Message | None = None
    ) -> Coroutine[Any, Any, Binding]:
        """The session that a text would talk to now; ``message`` lets one be made for it."""
        lang = message.lang if message else now.lang or self.agent.language
        return resolve(self.agent, key, now, self.sessions, at=at, lang=lang, message=message)

    async def hear(self, key: Key, inbound: Inbound, now: Conversation, at: float, *, waited: bool = False) -> Event:
        """What a message is in the state of now, with everything looked up that the step needs."""
        message = self.message(key, inbound, now, at, waited=waited)
        said = recognise(inbound.text, now.state, self.agent.words)
        looping = now.state is _LOOPING
        if said.kind is _TEXT and not looping:  # as most are
            bound = await self.binding(key, now, at, message=message)
            return TextArrived(at, message=message, binding=bound.bound, problem=bound.problem)
        if said.problem:
            return EngineCommandGiven(at, name=said.problem, answer=say(message.lang, said.problem), message=message)
        match said.kind:
            case Kind.MUTE:
                seconds = said.seconds if said.seconds is not None else self.agent.limits.default_mute
                return MuteAsked(at, seconds=seconds, message=message)
            case Kind.UNMUTE:
                return UnmuteAsked(at, message=message)
            case Kind.ENGINE_COMMAND:
                return await self._engine_command(key, message, said.command, said.argument, now, at)
            case _ if looping:
                return _while_busy(said, message, at)
            case Kind.SWITCH | Kind.LIST:
                listing = await self.sessions.search(
                    self.agent, key.sender, said.words, narrow=said.only_if_matches
                )
                if said.words or said.kind is Kind.LIST:
                    matches = listing.sessions
                else:
                    matches = ()
                if not (said.only_if_matches and not matches):
                    here = await self.binding(key, now, at)
                    problem = _unread(said, listing, matches, message.lang)
                    if said.kind is Kind.SWITCH:
                        return SwitchAsked(
                            at, message=message, binding=here.bound, words=said.words, matches=matches, problem=problem
                        )
                    return ListAsked(
                        at, message=message, binding=here.bound, words=said.words, matches=matches, problem=problem
                    )
        bound = await self.binding(key, now, at, message=message)
        match said.kind:
            case Kind.NUMBER:
                assert said.number is not None
                session = await self._under_the_number(said.number, now)
                return NumberGiven(
                    at, message=message, binding=bound.bound, problem=bound.problem, number=said.number, session=session
                )
            case Kind.CANCEL:
                return CancelSaid(at, message=message, binding=bound.bound, problem=bound.problem)
            case Kind.STOP:
                return StopSaid(at, message=message, binding=bound.bound, problem=bound.problem)
            case _:
                return TextArrived(at, message=message, binding=bound.bound, problem=bound.problem)

    async def _under_the_number(self, number: int, now: Conversation) -> SessionInfo | None:
        if now.shown is None or not 1 <= number <= len(now.shown.ids):
            return None
        try:
            return await self.sessions.find(now.shown.ids[number - 1])
        except SourceError:
            return None

    async def _engine_command(
        self, key: Key, message: Message, name: str, argument: str, now: Conversation, at: float
    ) -> Event:
        if not self.agent.may_use(name, key.sender, key.channel):
            return EngineCommandGiven(
                at, name=name, answer=say(message.lang, "not_permitted", name=name), message=message
            )

        async def binding() -> Binding:
            return await self.binding(key, now, at)

        asked = Asked(self.agent, key, now, self.sessions, binding, argument, message.id, message.ref, at, message.lang)
        answer = await ENGINE_COMMANDS[name](asked)
        return EngineCommandGiven(
            at, name=name, answer=answer.text, message=message, choice=answer.choice, lang=answer.lang,
            allow=answer.allow, number=answer.number,
        )  # fmt: skip

    # -- asking the model ------------------------------------------------------------------------

    async def ask(
        self,
        key: Key,
        turn: Turn,
        now: Callable[[], float],
        show: Callable[[str], None] | None = None,
        asked: Callable[[PermissionAsked | PermissionLapsed], None] | None = None,
    ) -> Asking:
        """Make one call of a turn. ``show`` is told the text so far, as soon and as far as it may be seen;
        ``asked`` what the session's agent wants leave for, and no more, where it runs the turn itself.

        The call is (``turn.id``, ``turn.call``): whoever repeats it after a crash repeats the same one.
        """
        current_call.set(f"{turn.id}/{turn.call}")
        if (agent := self.sessions.agent_of(turn.bound)) is not None:
            return await self._talk(agent, key, turn, now, show, asked)
        try:
            base = await self._base(key, turn)
        except SourceError as error:
            log.warning("the context of %s cannot be read: %s", turn.bound.session, error)
            kind = "vanished" if error.kind == "missing" else "source"
            retryable = error.kind == "locked"
            return Asking(ModelFailed(now(), turn=turn.id, call=turn.call, kind=kind, retryable=retryable))
        return await self._asking(turn, now, self._call(with_exchange(base, turn.exchange), turn.bound.session, show))

    async def _talk(
        self,
        agent: Talks,
        key: Key,
        turn: Turn,
        now: Callable[[], float],
        show: Callable[[str], None] | None,
        asked: Callable[[PermissionAsked | PermissionLapsed], None] | None,
    ) -> Asking:
        """The session's own agent runs the call; it has the context already, so it gets only what is new."""
        text = turn.exchange[-1].text if turn.exchange else turn.message.prompt
        self._talking[turn.id] = agent
        gate = StreamGate(self.commands.names)

        def piece(so_far: str) -> None:
            if show is not None and (shown := gate.feed(so_far)) is not None:
                show(shown)

        def leave(ask: PermissionAsk) -> None:
            if asked is None:
                return
            if ask.over:
                asked(PermissionLapsed(now(), turn=turn.id, call=turn.call, ask=ask.id))
            else:
                asked(PermissionAsked(now(), turn=turn.id, call=turn.call, ask=ask.id, what=_what(ask)))

        asking = await self._asking(
            turn,
            now,
            agent.talk(
                turn.bound.session, text, system=self._system(key), call_id=_call_id(turn),
                show=piece if show is not None else None, ask=leave,
            ),
        )  # fmt: skip
        event = asking.event
        if not isinstance(event, ModelFailed):
            return asking
        if event.kind == "not_found" and await self._is_gone(turn.bound):
            return replace(asking, event=replace(event, kind="vanished"))
        if event.kind == "connection" and await self.sessions.away(turn.bound):
            return replace(asking, event=replace(event, kind="away"))
        return asking

    async def _is_gone(self, bound: Bound) -> bool:
        try:
            return await self.sessions.find(bound.session, bound.source) is None
        except SourceError:
            return False

    async def answer_ask(self, turn: Turn, ask: str, allow: bool) -> Literal["done", "gone", "failed"]:
        """Tell the session's agent whether it may, and say what came of it as :class:`PermissionAnswered` does."""
        agent = self._talking.get(turn.id) or self.sessions.agent_of(turn.bound)
        if agent is None:
            return "gone"
        try:
            return "done" if await agent.answer(ask, allow) else "gone"
        except BaseException as error:  # an agent's source may be other people's code
            if not is_theirs(error):
                raise
            log.error("turn %s: the agent did not confirm an answer: %s: %s", turn.id, type(error).__name__,
                      redact(str(error)))
            return "failed"

    async def abandon(self, turn: Turn) -> None:
        """Tell the session's agent that nobody waits for the turn's call any more."""
        agent = self.sessions.agent_of(turn.bound)
        if agent is None or not is_a(type(agent), RunsOn):
            return
        try:
            await cast(RunsOn, agent).abandon(turn.bound.session, _call_id(turn))
        except BaseException as error:
            if not is_theirs(error):
                raise
            log.warning("turn %s is over, and the agent of %s may go on with it: %s", turn.id, turn.bound.session,
                        redact(str(error)))

    async def _asking(self, turn: Turn, now: Callable[[], float], call: Awaitable[str | Reply | None]) -> Asking:
        """Await a call and make an event of whatever comes of it."""
        try:
            got = await call
        except ModelError as error:
            log.error("model call %s/%s failed: %s", turn.id, turn.call, redact(str(error)))
            return Asking(ModelFailed(now(), turn=turn.id, call=turn.call, kind=error.kind, retryable=error.retryable))
        except Exception as error:  # a bridge is other people's code: whatever it raises is a failed call
            log.error("model call %s/%s failed: %s: %s", turn.id, turn.call, type(error).__name__, redact(str(error)))
            return Asking(ModelFailed(now(), turn=turn.id, call=turn.call))
        if not (got is None or isinstance(got, (str, Reply))):
            log.error("model call %s/%s: the bridge gave %s, not a text", turn.id, turn.call, type(got).__name__)
            return Asking(ModelFailed(now(), turn=turn.id, call=turn.call, kind="bad_reply", retryable=False))
        reply = got if isinstance(got, Reply) else Reply(got or "")
        reading = read_reply(reply.text, known=self.commands.names, taken_in=turn.taken_in)
        event = ModelReplied(
            now(), turn=turn.id, call=turn.call, reading=reading, input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )  # fmt: skip
        return Asking(event, reply.text, reply)

    def forget(self, turn: str) -> None:
        """The turn is over: its prompt is needed no more."""
        self._prompts.pop(turn, None)
        self._talking.pop(turn, None)

    async def _call(
        self, messages: list[ChatMessage], session: str, show: Callable[[str], None] | None
    ) -> str | Reply | None:
        stream = getattr(self.bridge, "stream", None) if show is not None else None
        if stream is None or show is None:
            return await self.bridge.chat(messages, session_id=session)
        gate, whole = StreamGate(self.commands.names), Reply("")
        async for piece in stream(messages, session_id=session):
            if isinstance(piece, Reply):
                whole = piece
            elif (text := gate.feed(piece)) is not None:
                show(text)
        return whole

    async def _base(self, key: Key, turn: Turn) -> tuple[ChatMessage, ...]:
        base = self._prompts.get(turn.id)
        if base is None:
            limit = self.agent.limits.recent_msg_limit
            bound = turn.bound
            context = await self.sessions.context(bound.session, limit, agent=self.agent.name, source=bound.source)
            context = [line for line in context if line.id != turn.message.ref]
            if away := await self.sessions.away(bound):
                context.append(Line("assistant", say(self.agent.language, "away", problem=away), turn.started))
            base = base_prompt(self.agent, self._system(key), context, turn.message.prompt)
            self._prompts[turn.id] = base
        return base

    def _system(self, key: Key) -> str:
        """Cached by what it depends on, so it is the same bytes for the same sender every time."""
        who = (key.channel, key.sender) if self.agent.permissions else (key.channel if in_room(key.channel) else "", "")
        text = self._systems.get(who)
        if text is None:
            lang = "zh" if self.agent.language == "zh" else "en"
            text = system_text(
                self.agent, self.commands.help(self.agent, key.sender, key.channel, lang), room=in_room(key.channel)
            )
            self._systems[who] = text
        return text

    # -- running commands ------------------------------------------------------------------------

    def command_context(self, key: Key, turn: Turn, now: Conversation, at: float) -> CommandContext:
        """One for all commands of a reply: a later one sees what an earlier one changed."""
        return CommandContext(
            key=key, message=turn.message, agent=self.agent, sessions=self.sessions, now=now, bound=turn.bound,
            at=at, lang=turn.message.lang, registry=self.commands,
        )  # fmt: skip

    async def run(self, command: Command, ctx: CommandContext) -> Result:
        """Run one command; its changes are in ``ctx``."""
        return await self.commands.run(command, ctx)


def _what(ask: PermissionAsk) -> str:
    """What leave is asked for, on one line and inert; of a very long one both ends and how much is between them."""
    text = " ".join([ask.what, ask.detail or ", ".join(ask.patterns)])
    shown = one_line(" ⏎ ".join(text.splitlines()))
    if len(shown) > ASK_CHARS:
        ends = ASK_CHARS // 2
        shown = f"{shown[:ends]} [… +{len(shown) - 2 * ends} …] {shown[-ends:]}"
    return make_inert(shown)


def _call_id(turn: Turn) -> str:
    """The call under which the session's agent knows what it does for the turn now. One that failed and is made again
    is the same to it: it may have the text already."""
    return f"{turn.id}/{turn.call - turn.retries + (turn.phase is Phase.BACKOFF)}"


def _while_busy(said: Recognised, message: Message, at: float) -> Event:
    """What comes in while a turn runs stops it or waits for its end. Nothing is looked up for that, so no source
    that hangs can hold it up."""
    match said.kind:
        case Kind.STOP:
            return StopSaid(at, message=message)
        case Kind.SWITCH:
            return SwitchAsked(at, message=message, words=said.words)
        case Kind.LIST:
            return ListAsked(at, message=message, words=said.words)
        case _:
            return TextArrived(at, message=message)


def _unread(said: Recognised, listing: Listing, matches: Sequence[SessionInfo], lang: str) -> str:
    """What to say of sources that could not be read: below the list where there is one, else instead of the usual
    answer, which would sound as if everything had been looked at."""
    lines = [str(problem) for problem in listing.problems]
    if not lines or not (said.words or said.kind is Kind.LIST):
        return ""
    if not matches and said.words:
        lines.insert(0, say(lang, "nothing_matches", words=show_title(said.words)))
    return "\n".join(lines)


def commands_done(turn: Turn, results: Sequence[Result], ctx: CommandContext, at: float) -> CommandsDone:
    """The commands of a reply, as the event that the machine waits for."""
    return CommandsDone(
        at, turn=turn.id, call=turn.call, results=tuple(results), opens=ctx.opens, choice=ctx.choice, listed=ctx.listed,
        mute=ctx.mute, taken_in=frozenset(ctx.taken_in),
    )  # fmt: skip


# -- the record of a command: what a restart needs so that none runs twice -------------------------


def dump_outcome(result: Result, ctx: CommandContext) -> str:
    """A finished command with everything that the commands of its reply changed so far, as JSON."""
    return json.dumps(
        {
            "text": result.text,
            "ok": result.ok,
            "choice": None if ctx.choice is None else {"bound": ctx.choice.bound and asdict(ctx.choice.bound)},
            "opens": None if ctx.opens is None else [asdict(session) for session in ctx.opens.sessions],
            "listed": ctx.listed,
            "mute": ctx.mute,
            "taken_in": sorted(ctx.taken_in),
            "helped": sorted(ctx.helped),
        },
        ensure_ascii=False,
    )


def load_outcome(data: str, command: Command, ctx: CommandContext) -> Result:
    """Take up a recorded command: its result, and its changes into ``ctx``."""
    record = json.loads(data)
    if record["choice"] is not None:
        bound = record["choice"]["bound"]
        ctx.choice = Choice(Bound(**bound) if bound else None)
    if record["opens"] is not None:
        ctx.opens = Opening(tuple(SessionInfo(**session) for session in record["opens"]))
    if record["listed"] is not None:
        ctx.listed = tuple(record["listed"])
    ctx.mute = record["mute"] if record["mute"] is not None else ctx.mute
    ctx.taken_in |= set(record["taken_in"])
    ctx.helped |= set(record.get("helped", ()))
    ctx.spent += len(record["text"])
    return Result(command, record["text"], record["ok"])


_CHINESE = re.compile("[\u4e00-\u9fff]")
_LATIN = re.compile("[A-Za-z]")


def language_of(text: str, default: str) -> str:
    """The language to answer in: Chinese where there is a Chinese character, English where there are
    words but none, the agent's own where there is neither. Slash commands are the same in every
    language, so ``/sessions`` tells nothing about who wrote it."""
    if not text.isascii() and _CHINESE.search(text):
        return "zh"
    if not text.lstrip().startswith("/") and _LATIN.search(text):
        return "en"
    return default if default in LANGUAGES else "en"
