"""Journals as a channel: records of turns go out as every text that the engine owes."""

from __future__ import annotations

import json
import logging

from fsm.ports import DeliveryError, Journals, Outgoing, SourceError

log = logging.getLogger(__name__)

FINAL = frozenset({"missing", "foreign", "empty"})
"""Kinds of :class:`SourceError` that no other try can change: the session is gone, or another program's."""


class JournalChannel:
    """:class:`fsm.ports.Channel` of the name ``journal``, whose addresses are sessions. A record that goes out again
    under the same name is written once."""

    def __init__(self, source: Journals) -> None:
        self._source = source

    async def send(self, outgoing: Outgoing) -> None:
        """Raises :class:`DeliveryError`, final where the record can never be written."""
        try:
            held = json.loads(outgoing.text)
            await self._source.take_record(outgoing.to, turn=str(held["turn"]), event=str(held["event"]),
                                           data=held["data"], at=float(held["at"]))
        except SourceError as error:
            log.warning("a record of a turn was not written: %s", error)
            raise DeliveryError(str(error), final=error.kind in FINAL) from error
        except (ValueError, TypeError, KeyError) as error:
            raise DeliveryError(f"no record of a turn: {error}", final=True) from error
