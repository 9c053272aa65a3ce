"""Reading what was missed from an archive (XEP-0313), page by page."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement

from channels.xmpp.account import bare
from channels.xmpp.stanzas import MAM, RSM, Archived, read_archived

PAGE = 100
MOST_PAGES = 50
"""More than this was said while nobody was here: the rest is left to whoever scrolls back."""



class QueryFailed(Exception):
    """A query got an error, or no answer (``condition`` is then empty)."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text or condition or "no answer")
        self.condition = condition


Query = Callable[[str, Element], Awaitable[Element]]
"""Sends a query to an address (empty: our own account) and returns the answer; raises :class:`QueryFailed`."""


class Archive:
    """``me`` is our bare address. Results arrive as messages, so :meth:`take` must see every one of them."""

    def __init__(self, me: str, query: Query) -> None:
        self._me, self._query = me, query
        self._open: dict[str, tuple[str, list[tuple[Element, Archived]]]] = {}

    def take(self, xml: Element) -> bool:
        """Whether the message is a result; one that was not asked for, or comes from elsewhere, is dropped."""
        if xml.find(f"{MAM}result") is None:
            return False
        found = read_archived(xml)
        if found is not None:
            query, message, archived = found
            by, results = self._open.get(query, ("", []))
            if by and (xml.get("from") or self._me).lower() == by:
                results.append((message, archived))
        return True

    async def after(self, of: str, last: str, since: float) -> list[tuple[Element, Archived]]:
        """Everything behind the message with id ``last`` (empty: since that instant), oldest first.

        Raises :class:`QueryFailed`.
        """
        found: list[tuple[Element, Archived]] = []
        for _ in range(MOST_PAGES):
            page, last, complete = await self._page(of, after=last, since=0.0 if last else since)
            found += page
            if complete or not page or not last:
                break
        return found

    async def newest(self, of: str, count: int) -> list[tuple[Element, Archived]]:
        """The newest ``count`` messages, oldest first. Raises :class:`QueryFailed`."""
        page, _, _ = await self._page(of, newest=count)
        return page

    async def _page(
        self, of: str, *, after: str = "", since: float = 0.0, newest: int = 0
    ) -> tuple[list[tuple[Element, Archived]], str, bool]:
        name = uuid.uuid4().hex
        query = Element(f"{MAM}query", {"queryid": name})
        if since:
            form = SubElement(query, "{jabber:x:data}x", {"type": "submit"})
            for var, value, kind in (("FORM_TYPE", "urn:xmpp:mam:2", "hidden"), ("start", stamp(since), "")):
                field = SubElement(form, "{jabber:x:data}field", {"var": var} | ({"type": kind} if kind else {}))
                SubElement(field, "{jabber:x:data}value").text = value
        rsm = SubElement(query, f"{RSM}set")
        SubElement(rsm, f"{RSM}max").text = str(newest or PAGE)
        if newest:
            SubElement(rsm, f"{RSM}before")
        elif after:
            SubElement(rsm, f"{RSM}after").text = after
        results: list[tuple[Element, Archived]] = []
        self._open[name] = bare(of) or self._me, results
        try:
            answer = await self._query(of, query)
        finally:
            del self._open[name]
        fin = answer.find(f"{MAM}fin")
        if fin is None:
            return results, "", True
        return results, fin.findtext(f"{RSM}set/{RSM}last") or "", fin.get("complete") in ("true", "1")


def stamp(at: float) -> str:
    """An instant (unix seconds) as XEP-0082 writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
