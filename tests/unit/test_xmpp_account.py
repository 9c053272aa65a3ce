"""An account that cannot work is refused with what to do, and XMPP costs nothing where it is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from channels.xmpp import XmppAccount, XmppChannel, XmppMissing
from channels.xmpp.channel import sendable, wire_bytes
from fsm.ports import Inbound
from session_router.agent_config import AgentConfig
from session_router.channel_makers import Making
from session_router.clock import SystemClock
from session_router.xmpp import account_of, make


def account(**settings: Any) -> XmppAccount:
    return XmppAccount(**{"jid": "bot@example.org", "password": lambda: "secret", **settings})


@pytest.mark.parametrize(
    ("settings", "mend"),
    [
        ({"jid": "bot"}, "jid: expected an address such as bot@example.org, not 'bot'"),
        ({"jid": "bot@example.org/home"}, "jid: expected an address"),
        ({"nick": "b", "rooms": ("team",)}, "rooms: expected addresses such as team@muc.example.org, not 'team'"),
        ({"nick": "b", "rooms": ("a@m.org", "A@m.org")}, "rooms: one of them stands there twice"),
        ({"rooms": ("a@m.org",)}, "nick: rooms need one"),
        ({"host": "localhost"}, "host and port go together"),
        ({"host": "xmpp.example.org", "port": 5222, "plaintext_loopback": True}, "xmpp.example.org is not: give host"),
        ({"host": "10.0.0.1", "port": 5222, "plaintext_loopback": True}, "10.0.0.1 is not: give host 127.0.0.1"),
        ({"host": "127.0.0.1.example.org", "port": 1, "plaintext_loopback": True}, "is not: give host 127.0.0.1"),
        ({"plaintext_loopback": True}, "a looked-up host is not"),
        ({"priority": -129}, "priority: expected a number from -128 to 127"),
        ({"body_bytes": 10}, "body_bytes: give at least 64"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_their_mend(settings: dict[str, Any], mend: str) -> None:
    with pytest.raises(ValueError, match=mend.replace(".", r"\.")):
        account(**settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_may_be_spoken_to_in_plaintext(host: str) -> None:
    assert account(host=host, port=5222, plaintext_loopback=True).plaintext_loopback


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(account())
    assert "lambda" not in repr(account())


async def receive(message: Inbound) -> None: ...


async def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "slixmpp" or name == "channels.xmpp.wire"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "slixmpp", None)

    with pytest.raises(XmppMissing, match=r'pip install "\.\[xmpp\]"'):
        await XmppChannel(account(), receive, clock=SystemClock()).start()


async def test_an_address_that_xmpp_does_not_allow_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="make no address of XMPP"):
        await XmppChannel(account(nick="bell\x07", rooms=("a@m.org",)), receive, clock=SystemClock()).start()


def test_the_library_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, channels.xmpp, session_router.diagrams; sys.exit('slixmpp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_xml_cannot_hold_is_replaced() -> None:
    assert sendable("a\r\nb\rc\td\x00\x1b\ud800\uffff😀é") == "a\nb\nc\td\ufffd\ufffd\ufffd\ufffd😀é"


def test_the_size_of_a_text_is_what_it_takes_on_the_wire() -> None:
    assert [wire_bytes(text) for text in ("ab", "字", "<&>")] == [2, 3, 4 + 5 + 4]


def test_a_connection_beside_the_bots_own_takes_no_direct_messages_and_no_history() -> None:
    settings = AgentConfig(name="bot", jid="bot@example.org", password=SecretStr("secret"))

    usual, beside = account_of(settings, {}), account_of(settings, {}, resource="send-1")

    assert (usual.priority, usual.resource, usual.history) == (0, "session-router", 20)
    assert (beside.priority, beside.resource, beside.history) == (-1, "send-1", 0)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"allow": ["bob@x.org"], "aliases": ["mo"], "language": "en"}, True),
        ({"groups": {"b@m.org": {"allow": ["*"], "nicks": True}, "a@m.org": {"others": "nothing"}}}, True),
        ({"groups": {"a@m.org": {}}}, False),
        ({"nick": "neu"}, False),
        ({"password": SecretStr("another")}, False),
        ({"jid": "other@example.org"}, False),
        ({"xmpp": {"host": "127.0.0.1", "port": 5222}}, False),
    ],
    ids=["who and how", "who in which room", "rooms", "nick", "password", "address", "host"],
)
def test_only_what_the_connection_itself_needs_makes_it_another_one(other: dict[str, Any], same: bool) -> None:
    usual = {"name": "bot", "jid": "bot@example.org", "password": SecretStr("secret"), "nick": "mo", "groups": {
        "a@m.org": {"allow": ["alice@x.org"]}, "b@m.org": {}}}  # fmt: skip

    async def receive(message: Inbound) -> None: ...

    def identity(settings: dict[str, Any]) -> object:
        made = make(Making(AgentConfig(**settings), {}, Path(), receive, SystemClock(), lambda state: None))
        assert made is not None
        return made.identity

    assert (identity({**usual, **other}) == identity(usual)) is same
