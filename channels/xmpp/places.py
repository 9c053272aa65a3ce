"""Up to where the archives were read, kept in a file: what is said while nobody runs is then only missed, as with a
lost link, and not history. One that is behind does no harm: what is read twice is told by its id."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger("session_router.xmpp")

DIRECT = ""
"""Stands for the direct chats among the rooms."""

Place = tuple[str, float]
"""Id in the archive of the newest message that is known, and when everything was known (unix seconds)."""


class Places:
    """``file`` None keeps nothing. No errors: without its places a bot takes what it finds for history."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def load(self, now: float, young: float) -> dict[str, Place]:
        """By room, those at most ``young`` seconds old; one from the future is none. That of the direct chats is never
        too old: whoever writes to us alone is owed an answer."""
        if self._file is None or not self._file.exists():
            return {}
        try:
            read = json.loads(self._file.read_text(encoding="utf-8"))
            places = {str(room): (str(last), float(since)) for room, (last, since) in read.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("where rooms and chats were left cannot be read: %s", error)
            return {}
        return {
            room: (last, min(since, now))
            for room, (last, since) in places.items()
            if 0 <= now - since <= young or room == DIRECT
        }

    def save(self, places: Mapping[str, Place]) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside = self._file.with_name(f"{self._file.name}.new")
            beside.write_text(json.dumps(places), encoding="utf-8")
            os.replace(beside, self._file)
        except OSError as error:
            log.warning("where rooms and chats were left cannot be written: %s", error)
