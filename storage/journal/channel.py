"""Journals as a channel: records of turns go out as every text that the engine owes."""

from __future__ import annotations

import json
import logging

from fsm.ports import DeliveryError, Journals, Outgoing, SourceError

log = logging.getLogger("session_router.turn")

FINAL = frozenset({"missing", "foreign", "empty"})
"""Kinds of :class:`SourceError` that no other try can change: the session is gone, or another program's."""


class JournalChannel:
    """:class:`fsm.ports.Channel` of the name ``journal``, whose addresses are sessions. A record that goes out again
    under the same name is written once. Why a session takes no records is logged as an error, once."""

    def __init__(self, source: Journals) -> None:
        self._source = source
        self._said: dict[str, str] = {}

    async def send(self, outgoing: Outgoing) -> None:
        """Raises :class:`DeliveryError`, final where the record can never be written."""
        try:
            held = json.loads(outgoing.text)
            await self._source.take_record(outgoing.to, turn=str(held["turn"]), event=str(held["event"]),
                                           data=held["data"], at=float(held["at"]))
        except SourceError as error:
            final = error.kind in FINAL
            self._say(outgoing.to, f"What is said in the session {outgoing.to} is not recorded there"
                      f"{'' if final else ' yet; it is kept, and recorded as soon as that can be'}. {error}")
            raise DeliveryError(str(error), final=final) from error
        except (ValueError, TypeError, KeyError) as error:
            raise DeliveryError(f"no record of a turn: {error}", final=True) from error
        self._said.pop(outgoing.to, None)

    def _say(self, session: str, problem: str) -> None:
        if self._said.get(session) != problem:
            self._said[session] = problem
            log.error("%s", problem)
