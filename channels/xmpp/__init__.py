"""XMPP: direct chats (channel ``xmpp``) and rooms (channel ``xmpp:ROOM``), over one connection for each account.

    channel = XmppChannel(XmppAccount(jid, password, nick="bot", rooms=("team@muc.example.org",)), receive, clock=clock)
    await channel.start()

Needs ``pip install ".[xmpp]"`` (slixmpp), which is imported when the channel is started. Read
``connection.py`` first: its table says what is done about every loss and refusal, ``channel.py`` does it.

What is not here: OMEMO. The library for it (slixmpp-omemo with its Oldmemo) is under the AGPL, which would bind
whoever runs this as a service; a room that enforces encryption is out of reach, and an encrypted message is seen
as the fallback text that its sender's client puts beside it.
"""

from channels.xmpp.account import XmppAccount
from channels.xmpp.channel import XmppChannel, XmppMissing
from channels.xmpp.events import (
    Connection,
    Room,
    Standing,
    State,
    Tell,
    Timing,
)

__all__ = ["Connection", "Room", "Standing", "State", "Tell", "Timing", "XmppAccount", "XmppChannel", "XmppMissing"]
