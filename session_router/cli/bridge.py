"""``send``, ``active`` and ``clear``: speaking in an agent's group from the command line, and where it leads."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import click

from session_router.cli.conventions import (
    FAILED,
    WRONG,
    Command,
    agent_of,
    agent_option,
    config_option,
    json_option,
    load_config,
    print_json,
    progress,
    remark,
    run,
    stop,
)
from session_router.cli.spoken import Both, environ, language, spoken

if TYPE_CHECKING:
    from session_router.cli_bridge import Sent, Speaker
    from session_router.config import AgentConfig, Config

_MARK = "\0"
"""Stands for the dash that a text begins with while the words are parsed; no argument of a process holds one."""


class _Text(click.ParamType[str]):
    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).replace(_MARK, "-", 1) if str(value).startswith(_MARK) else str(value)


class _TakesText(Command):
    """A text may begin with a dash where it cannot be an option: ``-5 度``, ``- one more``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args.index("--") if "--" in args else len(args)
        words = [_MARK + word[1:] if _is_text(word) else word for word in args[:before]] + args[before:]
        try:
            return super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            name = error.option_name
            raise click.UsageError(spoken(
                f"There is no option {name}; a text that begins with a dash goes behind --, such as: "
                f"{ctx.info_name} -- {_shown(name, args)}",
                f"没有选项 {name}；以短横开头的文本请写在 -- 之后，例如：{ctx.info_name} -- {_shown(name, args)}",
            ), ctx) from error  # fmt: skip


def _is_text(word: str) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    names_an_option = word.startswith("--") and not any(c.isspace() for c in word.partition("=")[0])
    return not names_an_option and (word[1:2].isdigit() or any(c.isspace() for c in word))


def _shown(option: str, args: list[str]) -> str:
    return next((word for word in args if word.startswith(option)), option)


@click.command(
    "send", cls=_TakesText,
    says=Both(
        "Say TEXT in the agent's groups, as the agent.\n\nWith SESSION_ID it is also written into that session as "
        "[YOU], and the groups lead there for a while (active_session_ttl in the config, an hour). Without, nothing is "
        "recorded. A running engine posts it where the agent has an http_port; otherwise a second XMPP connection "
        "does.",
        "以 agent 的身份在它的群里说 TEXT。\n\n给出 SESSION_ID 时还会以 [YOU] 写进该会话，并且此后一段时间"
        "（配置里的 active_session_ttl，默认一小时）群聊都通向它；不给则什么也不记录。agent 有 http_port 且引擎在运行时"
        "由引擎发送，否则另开一个 XMPP 连接。",
    ),
    examples=("send hello", "send hello ses_dd36b73a4ffeUI3Vros5ub9e1D --agent mohe", "send -- -rf ses_b"),
)  # fmt: skip
@click.argument("text", metavar="TEXT", type=_Text())
@click.argument("session_id", metavar="[SESSION_ID]", required=False, type=_Text())
@agent_option
@config_option
@json_option
def send(text: str, session_id: str | None, agent_name: str | None, config_file: str | None, as_json: bool) -> None:
    config, settings = _agent(config_file, agent_name)
    if not text.strip():
        stop("The text is empty. Write what is to be said.", "文本是空的。请写上要说的话。", WRONG)
    if session_id is not None and not session_id.strip():
        stop("The session id is empty. Leave it out, or name a session.", "会话 id 是空的。不写，或写上会话。", WRONG)
    with progress("Sending", "正在发送"):
        sent = run(_send(config, settings, text, session_id))
    if as_json:
        from dataclasses import asdict

        print_json(asdict(sent))
    else:
        click.echo(_confirmed(sent, settings.to_agent().limits.active_session_ttl))


def _agent(config_file: str | None, name: str | None) -> tuple[Config, AgentConfig]:
    config = load_config(config_file)
    if name is not None and not name.strip():
        known = ", ".join(config.agents)
        stop(f"--agent needs a name; there are: {known}.", f"--agent 要写名字；有：{known}。", WRONG)
    return config, agent_of(config, name)


def _confirmed(sent: Sent, leads: float) -> str:
    from fsm.language.texts import duration

    rooms = ", ".join(sent.rooms)
    session = f"{sent.title} ({sent.session})" if sent.title else sent.session
    if sent.recorded:
        until = duration(language(), leads)
        return spoken(f"Sent as {sent.agent} in {rooms}; recorded in {session}, where its groups lead for {until}.",
                      f"已以 {sent.agent} 的身份发到 {rooms}；已记入 {session}，{until}内群聊通向它。")  # fmt: skip
    there = session or spoken("the session that was active last", "最近活动的会话")
    return spoken(f"Sent as {sent.agent} in {rooms}; nothing was recorded, its groups lead to {there} as before.",
                  f"已以 {sent.agent} 的身份发到 {rooms}；没有记录，群聊仍通向 {there}。")  # fmt: skip


async def _send(config: Config, settings: AgentConfig, text: str, session_id: str | None) -> Sent:
    from session_router.cli_bridge import SendRefused, Sent
    from session_router.local_calls import call

    if session_id is None:
        await _is_no_session(config, text.strip())
    id = uuid.uuid4().hex
    body = {"text": text, "session_id": session_id, "id": id}
    answer = await call(settings, config.folder, environ(), "POST", "/send", body)
    if answer is not None and answer.status == 200:
        return Sent(**{**answer.body, "rooms": tuple(answer.body["rooms"])})
    if answer is not None:
        raise SendRefused(str(answer.body.get("error", answer.status)), kind=str(answer.body.get("kind", "")))
    return await _send_alone(config, settings, text, session_id, id)


async def _is_no_session(config: Config, text: str) -> None:
    """A session id in the text's place: the text was forgotten."""
    from session_router.reading import reading

    async with reading(config) as (_, sessions):
        if await sessions.find(text) is not None:
            stop(f"{text} is a session; the text to send is missing. Write: send TEXT {text}",
                 f"{text} 是会话 id，缺少要发送的文本。请写：send 文本 {text}", WRONG)  # fmt: skip


async def _send_alone(config: Config, settings: AgentConfig, text: str, session_id: str | None, id: str) -> Sent:
    """Without a running engine: over a connection of our own, made when everything else has been looked at."""
    from channels.xmpp import State, XmppChannel
    from fsm.conversation import Key
    from fsm.ports import DeliveryError, Outgoing
    from session_router import cli_bridge, served
    from session_router.clock import SystemClock
    from session_router.xmpp import KIND, second_connection

    if not settings.jid:
        stop(f"{settings.name} cannot be reached: no engine answers for it, and it has no XMPP account. Give it a jid "
             "in the config, or start `session-router run` with its http_port.",
             f"联系不上 {settings.name}：没有引擎替它应答，它也没有 XMPP 账号。请在配置里给它 jid，"
             "或设好 http_port 后运行 session-router run。")  # fmt: skip
    clock = SystemClock()
    connection: XmppChannel | None = None
    async with AsyncExitStack() as stack:
        speaker = await stack.enter_async_context(_speaker(config, settings))

        async def post(room: str, text: str, id: str) -> None:
            nonlocal connection
            if connection is None:
                connection = await stack.enter_async_context(
                    second_connection(settings, environ(), clock, f"send-{id[-8:]}", served.SEND_TIMEOUT)
                )
            if connection.state is State.REFUSED:
                raise DeliveryError(connection.connection.reason, final=True)
            key = Key(settings.name, cli_bridge.CLI_KEY, cli_bridge.CLI_KEY)
            await served.post_through(connection, Outgoing(id, key, f"{KIND}:{room}", room, text))

        return await cli_bridge.send(text, session_id, speaker, post=post, id=f"cli-{id}", now=clock.now)


@asynccontextmanager
async def _speaker(config: Config, settings: AgentConfig) -> AsyncIterator[Speaker]:
    """The agent with its sessions and an open store, beside an engine that may be running."""
    from fsm.closing import close_all, closings_of
    from fsm.sessions import Sessions
    from session_router.cli_bridge import Speaker
    from session_router.compose import open_store
    from session_router.sources import sources_of

    agent, store = settings.to_agent(), open_store(config)
    await store.open()
    mirror = None
    try:
        if config.store.mirror is not None:
            from storage.hermes import StateMetaMirror

            mirror = StateMetaMirror(config.store.mirror)
        sessions = Sessions(sources_of(config, store, agent.names), store)
        yield Speaker(agent, settings.all_rooms, sessions, mirror, alone=len(config.agents) == 1)
    finally:
        await close_all(closings_of([mirror, store]))


@click.command(
    "active", cls=Command,
    says=Both(
        "Show the session that an agent's groups lead to since it last spoke from the command line.\n\nExit code 1 "
        "when there is none, or its time is over.",
        "显示 agent 上次从命令行发言后，群聊通向的会话。\n\n没有记录或已过时限时退出码为 1。",
    ),
    examples=("active", "active --agent mohe --json"),
)  # fmt: skip
@agent_option
@config_option
@json_option
def active(agent_name: str | None, config_file: str | None, as_json: bool) -> int:
    config, settings = _agent(config_file, agent_name)
    from dataclasses import asdict

    from fsm.language.texts import age
    from session_router import cli_bridge
    from session_router.clock import SystemClock
    from session_router.reading import reading

    async def look() -> cli_bridge.Active | None:
        async with reading(config) as (store, sessions):
            if store is None:
                return None
            speaker = cli_bridge.Speaker(settings.to_agent(), settings.all_rooms, sessions)
            return await cli_bridge.active(speaker, SystemClock().now())

    found = run(look())
    if as_json:
        print_json(None if found is None else {"agent": settings.name, **asdict(found)})
        return 0 if found is not None and found.valid else FAILED
    if found is None:
        stop(f"{settings.name} has no active session. One is recorded by: session-router send TEXT SESSION_ID",
             f"{settings.name} 没有记录活跃会话。记录方法：session-router send TEXT SESSION_ID")  # fmt: skip
    title = f"{found.title} · " if found.title else ""
    click.echo(f"{settings.name}: {title}{found.source or '-'} · {age(language(), found.age)} · {found.session}")
    if not found.valid:
        remark(spoken("It does not count any more: too old, or the session is gone.",
                      "已经失效：太久了，或会话已不在。"))  # fmt: skip
        return FAILED
    return 0


@click.command(
    "clear", cls=Command,
    says=Both(
        "Forget the session that an agent's groups lead to; they follow the most recently active one again.",
        "忘掉 agent 的活跃会话，群聊重新跟随最近活动的会话。",
    ),
    examples=("clear", "clear --agent mohe"),
)  # fmt: skip
@agent_option
@config_option
def clear(agent_name: str | None, config_file: str | None) -> None:
    config, settings = _agent(config_file, agent_name)
    from session_router import cli_bridge

    async def forget() -> bool:
        if not config.store.path.exists():
            return False
        async with _speaker(config, settings) as speaker:
            return await cli_bridge.clear(speaker)

    if run(forget()):
        click.echo(spoken(f"The active session of {settings.name} is forgotten.",
                          f"已忘掉 {settings.name} 的活跃会话。"))  # fmt: skip
    else:
        click.echo(spoken(f"{settings.name} had none.", f"{settings.name} 没有活跃会话。"))
