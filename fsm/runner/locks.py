"""Which turn has which session. Two conversations on one session take turns, in order of asking."""

from __future__ import annotations

from fsm.conversation import Key

Waiter = tuple[Key, str]
"""(conversation, turn id)"""


class SessionLocks:
    """First come, first served; the head of each line has the session."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Waiter]] = {}

    def claim(self, session: str, waiter: Waiter) -> bool:
        """Stand in line; True if the session is free and now this turn's."""
        line = self._lines.setdefault(session, [])
        if waiter not in line:
            line.append(waiter)
        return line[0] == waiter

    def release(self, session: str, waiter: Waiter) -> Waiter | None:
        """Leave the line, from the head or from within; the one whose turn it is now, if that is new."""
        line = self._lines.get(session)
        if line is None or waiter not in line:
            return None
        had_it = line[0] == waiter
        line.remove(waiter)
        if not line:
            del self._lines[session]
            return None
        return line[0] if had_it else None

    def drop(self, agent: str) -> list[Waiter]:
        """Take every turn of an agent out of the lines; those whose turn it is now."""
        next_ones = []
        for session, line in list(self._lines.items()):
            head = line[0]
            left = [waiter for waiter in line if waiter[0].agent != agent]
            if not left:
                del self._lines[session]
                continue
            self._lines[session] = left
            if left[0] != head:
                next_ones.append(left[0])
        return next_ones
