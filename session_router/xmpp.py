"""XMPP for an agent of the config: its account, its channel, and a second connection beside the running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from session_router.agent_config import AgentConfig
from session_router.config_errors import ConfigError, Problem

if TYPE_CHECKING:
    from channels.xmpp import Connection, Timing, XmppAccount, XmppChannel
    from fsm.ports import Clock
    from session_router.channel_makers import ChannelState, Made, Making

KIND = "xmpp"


def account_of(settings: AgentConfig, environ: Mapping[str, str], *, resource: str = "") -> XmppAccount:
    """The account of an agent; ``resource`` for a connection beside the usual one, which then asks for no history, and
    has a priority below zero: a direct message goes to the usual one, or waits for it.

    Raises ConfigError, also where the password is not to be had.
    """
    from channels.xmpp import XmppAccount

    secret = settings.secret(environ)
    if secret is None:
        raise _wrong(settings, "password_env", f"{settings.jid} has no password; name a variable as password_env, or a "
                     "file as password_file")  # fmt: skip
    xmpp = settings.xmpp
    try:
        return XmppAccount(
            jid=settings.jid,
            password=secret.get_secret_value,
            nick=settings.nick or settings.name,
            rooms=settings.all_rooms,
            host=xmpp.host,
            port=xmpp.port or 0,
            plaintext_loopback=xmpp.plaintext_loopback,
            resource=resource or xmpp.resource,
            direct_tls=xmpp.direct_tls,
            ca_file=xmpp.ca_file,
            history=0 if resource else xmpp.history,
            answer_missed=xmpp.answer_missed,
            priority=-1 if resource else 0,
        )
    except ValueError as error:
        key, _, text = str(error).partition(": ")
        raise _wrong(settings, key if text else "xmpp", text or key) from None


def _wrong(settings: AgentConfig, key: str, text: str) -> ConfigError:
    return ConfigError([Problem(("agents", settings.name, key), text)])


def make(making: Making, timing: Timing | None = None) -> Made | None:
    """The channel of an agent that has a jid, with other waits than the usual ones if given. Raises ConfigError."""
    settings = making.settings
    if not settings.jid:
        return None
    from channels.xmpp import XmppChannel
    from session_router.channel_makers import Made

    account = replace(account_of(settings, making.environ), places=making.folder / f"xmpp-{settings.name}.json")
    if timing is not None:
        account = replace(account, timing=timing)

    def report(now: Connection) -> None:
        making.report(state_of(now))

    channel = XmppChannel(account, making.receive, clock=making.clock, on_state=report)
    rooms = settings.all_rooms
    label = f"xmpp {settings.jid}" + (f" in {', '.join(rooms)}" if rooms else "")
    # Who may be answered is the engine's to know: another allow list keeps the connection.
    identity = settings.jid, settings.secret(making.environ), account.nick, frozenset(rooms), settings.xmpp
    return Made(KIND, channel, label, identity, rooms, warnings_of(settings))


def state_of(now: Connection) -> ChannelState:
    """Up is in every room: one that does not let us in is as little noticed by the people in it as a lost link."""
    from channels.xmpp import Standing, State
    from session_router.channel_makers import ChannelState

    out = [room.address for room in now.rooms if room.standing in (Standing.OUT, Standing.GONE)]
    if now.state is State.JOINED and out:
        return ChannelState(f"out of {', '.join(out)}", False, now.link, stuck=True)
    return ChannelState(now.state.value, now.state is State.JOINED, now.link, stuck=now.state is State.REFUSED)


def warnings_of(settings: AgentConfig) -> tuple[str, ...]:
    """Who may be answered that should not, or is not although it looks so."""
    found = []
    if not settings.allow:
        found.append("its allow list is empty, so nobody is answered in a direct chat")
    for room in settings.all_rooms:
        group = settings.groups.get(room)
        if group is None or not group.allow - {"*"}:
            found.append(f"nobody is answered in {room}: its allow list is empty")
        elif group.nicks:
            found.append(f"nicks are trusted in {room}, and anybody can take an allowed nick")
    return tuple(found)


@asynccontextmanager
async def second_connection(
    settings: AgentConfig, environ: Mapping[str, str], clock: Clock, resource: str, within: float
) -> AsyncIterator[XmppChannel]:
    """A connection beside the one that may be running, given ``within`` seconds to get into its rooms.

    It is handed over in whatever state it has reached by then. Raises ConfigError, or XmppMissing without the library.
    """
    from channels.xmpp import State, XmppChannel

    async def ignore(message: object) -> None:
        """What is said meanwhile is for the running one."""

    channel = XmppChannel(account_of(settings, environ, resource=resource), ignore, clock=clock)
    try:
        await channel.start()
        try:
            async with asyncio.timeout(within):
                await channel.reached(State.JOINED, State.REFUSED, State.BACKING_OFF)
        except TimeoutError:
            pass
        yield channel
    except ValueError as error:
        raise _wrong(settings, "jid", str(error)) from None
    finally:
        await channel.close(drain=False)
