"""Commands that the model can write: functions with typed arguments, a permission and a docstring.

    commands = Registry()

    @commands.command()
    async def weather(ctx: CommandContext, city: str, days: int = 1) -> str:
        '''The weather of a city for some days.'''

The model writes ``##weather:Berlin:3##``. An unknown name, a bad argument and an exception each
become a result that the model reads; none ends the turn.
"""

from __future__ import annotations

import enum
import inspect
import logging
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from fsm.agent import Agent
from fsm.conversation import Bound, Command, Conversation, Key, Message
from fsm.events import Choice, Opening, Result
from fsm.foreign import is_theirs
from fsm.language.inert import make_inert, spellings
from fsm.language.texts import say
from fsm.sessions import Sessions

log = logging.getLogger("session_router.commands")

RESULT_CHARS = 16_000
"""Characters of one command's result that the model reads."""
ROUND_CHARS = 32_000
"""Characters of all results of one reply together."""
NAME_CHARS = 64
"""Characters of a name that is no command's, as it is said back."""

# Beside names of commands, what the model is told once in a reply; neither could be a name.
_COMMANDS = "all commands"
_LEFT_OUT = "left out"


@dataclass(slots=True)
class CommandContext:
    """What a command may look at, and what it may change. One serves all commands of a reply, in order.

    ``bound`` is the session of the running turn; ``place`` names the command that runs
    among all of the turn. ``choice``, ``opens``, ``listed`` and ``mute``
    (seconds) are the changes; a command sets them and the machine applies them. ``spent`` are the
    characters of the results so far, ``helped`` what the model has been told the use of.
    """

    key: Key
    message: Message
    agent: Agent
    sessions: Sessions
    now: Conversation
    bound: Bound
    at: float
    lang: str
    registry: Registry
    choice: Choice | None = None
    opens: Opening | None = None
    listed: tuple[str, ...] | None = None
    mute: float | None = None
    place: str = ""
    taken_in: set[str] = field(default_factory=set)
    spent: int = 0
    helped: set[str] = field(default_factory=set)

    @property
    def person(self) -> str:
        return self.key.sender

    def foreign(self, text: str) -> str:
        """Text from people, titles or databases, made harmless for the model; commands in it are
        remembered and not run when the model repeats them."""
        self.taken_in |= spellings(text)
        return make_inert(text)


class CommandError(Exception):
    """Raised by a command whose caller erred; its text is what the model reads."""


Handler = Callable[..., Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Registered:
    """A command as it stands in the registry."""

    name: str
    handler: Handler
    permission: str
    parameters: tuple[inspect.Parameter, ...]
    help: Mapping[str, str]

    @property
    def usage(self) -> str:
        """``weather:CITY:DAYS`` with optional ones in brackets."""
        text = self.name
        for parameter in self.parameters:
            name = ":" + _shown(parameter)
            text += name if parameter.default is inspect.Parameter.empty else f"[{name}]"
        return text


class Registry:
    """The commands of one engine, by name."""

    def __init__(self) -> None:
        self._commands: dict[str, Registered] = {}

    @property
    def names(self) -> typing.KeysView[str]:
        return self._commands.keys()

    @property
    def permissions(self) -> frozenset[str]:
        """The names by which a config narrows them."""
        return frozenset(command.permission for command in self._commands.values())

    def copy(self) -> Registry:
        """A registry of its own with the same commands, to add to."""
        other = Registry()
        other._commands.update(self._commands)
        return other

    def command(
        self, name: str | None = None, *, permission: str | None = None, zh: str = ""
    ) -> Callable[[Handler], Handler]:
        """Register a coroutine function ``(ctx, arguments…) -> str``.

        ``permission`` is the name that a config's ``permissions`` narrows, the command's own by
        default; ``zh`` the help in Chinese, the docstring's first line by default.

        Raises:
            ValueError: the name is taken or not a word, or an argument has no usable type.
        """

        def register(handler: Handler) -> Handler:
            called = str(name or getattr(handler, "__name__", ""))
            if not called.isidentifier() or not called.isascii():
                raise ValueError(f"a command needs an ASCII name without spaces, not {called!r}")
            if called in self._commands:
                raise ValueError(f"there is already a command named {called!r}")
            hints = typing.get_type_hints(handler)
            parameters = tuple(
                p.replace(annotation=hints.get(p.name, str))
                for p in list(inspect.signature(handler).parameters.values())[1:]
            )
            for parameter in parameters:
                if not _convertible(parameter.annotation):
                    raise ValueError(f"{called}: no text can become {parameter.name}: {parameter.annotation!r}")
            english = (inspect.getdoc(handler) or called).splitlines()[0]
            self._commands[called] = Registered(
                called, handler, permission or called, parameters, {"en": english, "zh": zh or english}
            )
            return handler

        return register

    def help(self, agent: Agent, person: str, channel: str, lang: str) -> str:
        """One line a command, those that this sender may use here."""
        return "\n".join(
            f"- {c.usage} — {c.help['zh' if lang == 'zh' else 'en']}"
            for c in self._commands.values()
            if agent.may_use(c.permission, person, channel)
        )

    async def run(self, command: Command, ctx: CommandContext) -> Result:
        """Run one command; a result too long for the model is cut, and says so. Never raises but
        where the task is cancelled or Ctrl-C ends the process."""
        result = await self._run(command, ctx)
        text = _fitting(result.text, command.name, ctx)
        ctx.spent += len(text)
        return Result(result.command, text, result.ok)

    async def _run(self, command: Command, ctx: CommandContext) -> Result:
        registered = self._commands.get(command.name) if command.known else None
        if registered is None:
            text = say(ctx.lang, "unknown_command", name=command.name[:NAME_CHARS])
            if _first_time(_COMMANDS, ctx):
                text += say(ctx.lang, "commands_are", commands=self._listed(ctx))
            return Result(command, text, ok=False)
        if not ctx.agent.may_use(registered.permission, ctx.person, ctx.key.channel):
            return Result(command, say(ctx.lang, "not_permitted", name=command.name), ok=False)
        try:
            arguments = _convert(registered, command.argument, ctx.lang)
            return Result(command, f"[{command.name}] {await registered.handler(ctx, *arguments)}")
        except CommandError as error:
            text = say(ctx.lang, "bad_argument", name=command.name, problem=str(error))
            if _first_time(command.name, ctx):
                text += say(ctx.lang, "usage", usage=registered.usage)
            return Result(command, text, ok=False)
        except BaseException as error:
            # An argument parser in a command raises SystemExit; that must not end everybody's process.
            if not (is_theirs(error) or isinstance(error, (SystemExit, GeneratorExit))):
                raise
            log.exception("command %s failed", command.name)
            return Result(command, say(ctx.lang, "command_failed", name=command.name), ok=False)

    def _listed(self, ctx: CommandContext) -> str:
        return self.help(ctx.agent, ctx.person, ctx.key.channel, ctx.lang)


def _first_time(name: str, ctx: CommandContext) -> bool:
    """Whether this reply's results have not yet told the use of that command; from now on they have."""
    new = name not in ctx.helped
    ctx.helped.add(name)
    return new


def _fitting(text: str, name: str, ctx: CommandContext) -> str:
    """As much of a result as there is room for, and a note of what was cut."""
    room = min(RESULT_CHARS, ROUND_CHARS - ctx.spent)
    if len(text) <= room:
        return text
    if room <= 0:
        key = "result_left_out" if _first_time(_LEFT_OUT, ctx) else "left_out_too"
        return say(ctx.lang, key, name=name[:NAME_CHARS], limit=ROUND_CHARS)
    return text[:room] + "\n" + say(ctx.lang, "result_cut", shown=room, chars=len(text))


# -- arguments -----------------------------------------------------------------------------------


def _shown(parameter: inspect.Parameter) -> str:
    """An argument's name as it is written for people; the underscore of ``duration_`` keeps Python's names apart."""
    return parameter.name.rstrip("_").upper()


def _convertible(wanted: Any) -> bool:
    if get_origin(wanted) in (typing.Union, types.UnionType):
        return all(part is type(None) or _convertible(part) for part in get_args(wanted))
    if get_origin(wanted) is typing.Literal:
        return True
    return wanted in (str, int, float, bool) or (isinstance(wanted, type) and issubclass(wanted, enum.Enum))


def _convert(command: Registered, argument: str | None, lang: str) -> list[Any]:
    """The argument text as the handler's types; the last one takes the rest, colons included."""
    parameters = command.parameters
    if argument is not None and argument.strip() and not parameters:
        raise CommandError(say(lang, "takes_no_argument"))
    pieces = (argument or "").split(":", max(len(parameters) - 1, 0)) if parameters else []
    values: list[Any] = []
    for index, parameter in enumerate(parameters):
        text = pieces[index].strip() if index < len(pieces) else ""
        if not text:
            if parameter.default is inspect.Parameter.empty:
                raise CommandError(say(lang, "argument_missing", argument=_shown(parameter)))
            values.append(parameter.default)
            continue
        try:
            values.append(_value(text, parameter.annotation))
        except ValueError:
            raise CommandError(
                say(lang, "argument_wrong", argument=_shown(parameter), expected=_expected(parameter.annotation))
            ) from None
    return values


def _value(text: str, wanted: Any) -> Any:
    if get_origin(wanted) in (typing.Union, types.UnionType):
        return _value(text, next(part for part in get_args(wanted) if part is not type(None)))
    if get_origin(wanted) is typing.Literal:
        for choice in get_args(wanted):
            if str(choice).casefold() == text.casefold():
                return choice
        raise ValueError(text)
    if wanted is bool:
        if text.casefold() not in _BOOLEANS:
            raise ValueError(text)
        return _BOOLEANS[text.casefold()]
    if wanted in (int, float) and not text.isascii():
        raise ValueError(text)  # int() takes digits of every script; a command takes ours
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return next(
            (m for m in wanted if text.casefold() in (m.name.casefold(), str(m.value).casefold())), None
        ) or wanted(text)
    return wanted(text)


_BOOLEANS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def _expected(wanted: Any) -> str:
    if get_origin(wanted) in (typing.Union, types.UnionType):
        return _expected(next(part for part in get_args(wanted) if part is not type(None)))
    if get_origin(wanted) is typing.Literal:
        return " / ".join(str(choice) for choice in get_args(wanted))
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return " / ".join(str(member.value) for member in wanted)
    return {int: "a whole number", float: "a number", bool: "yes or no"}.get(wanted, "text")
