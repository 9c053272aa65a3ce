"""What every source of sessions does, whosever sessions they are."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from fsm.ports import SessionSource, SourceError
from storage.hermes import HermesSource
from storage.journal import JournalSource
from storage.opencode import OpenCodeServer, OpenCodeSessions, OpenCodeSource

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOWHERE = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


async def opencode(folder: Path) -> SessionSource:
    return OpenCodeSource(shutil.copy(FIXTURES / "opencode" / "fixture.db", folder))


async def opencode_2(folder: Path) -> SessionSource:
    return OpenCodeSource(shutil.copy(FIXTURES / "opencode" / "fixture_v2_synthetic.db", folder))


async def opencode_without_its_server(folder: Path) -> SessionSource:
    server = OpenCodeServer(NOWHERE, password="x", model=None, start_patience=0.01)
    file = OpenCodeSource(shutil.copy(FIXTURES / "opencode" / "fixture.db", folder))
    return OpenCodeSessions(server, file)


async def hermes(folder: Path) -> SessionSource:
    return HermesSource(shutil.copy(FIXTURES / "hermes" / "state.db", folder))


async def journal(folder: Path) -> SessionSource:
    source = JournalSource(folder / "sessions")
    for number, title in enumerate(("天气机器人", "100% of the Weather", "weather_api")):
        session = f"ses_{number}"
        await source.create(title, session_id=session, at=100.0 + number)
        for turn in range(3):
            for event, said in (("turn_start", f"question {turn}"), ("turn_end", f"answer {turn}")):
                name, role = f"{session}/{turn}", "user" if event == "turn_start" else "assistant"
                data = {"id": name, "role": role, "content": said, "disposition": "replied"}
                await source.take_record(session, turn=name, event=event, data=data, at=200.0 + 10 * turn - number)
    return source


MAKERS: list[Callable[[Path], Awaitable[SessionSource]]] = [
    opencode, opencode_2, opencode_without_its_server, hermes, journal,
]  # fmt: skip


@pytest_asyncio.fixture(params=MAKERS, ids=lambda make: make.__name__)
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionSource]:
    made = await request.param(tmp_path)
    yield made
    if isinstance(made, OpenCodeSessions):
        await made.close()


async def test_the_list_goes_from_the_newest_to_the_oldest_and_names_the_source(source: SessionSource) -> None:
    listed = await source.list()

    assert len(listed) >= 2
    assert [each.active_at for each in listed] == sorted((each.active_at for each in listed), reverse=True)
    assert {each.source for each in listed} == {source.name}
    assert len({each.id for each in listed}) == len(listed)
    assert await source.list(1) == listed[:1]
    assert await source.latest() == listed[0]


async def test_what_is_listed_is_found_and_an_unknown_id_is_nobody(source: SessionSource) -> None:
    for each in await source.list():
        assert await source.find(each.id) == each
    for unknown in ("ses_nobody", "", "../../etc/passwd", "%", "a\0b", "\ud800", "x" * 5000):
        assert await source.find(unknown) is None, repr(unknown[:20])


async def test_a_search_takes_words_as_they_are_whatever_their_case(source: SessionSource) -> None:
    listed = await source.list()
    title = next(each.title for each in listed if any("a" <= c <= "z" for c in each.title))

    assert [each.title for each in await source.search(title.swapcase())] == [title]
    assert await source.search(listed[-1].id) == [listed[-1]]
    for words in ("%", "_", "no such title anywhere"):
        assert list(await source.search(words)) == [each for each in listed if words in each.title]


async def test_a_context_is_the_newest_lines_oldest_first(source: SessionSource) -> None:
    for session in await source.list():
        whole = await source.context(session.id)
        assert whole, session.title
        assert [line.at for line in whole] == sorted(line.at for line in whole)
        assert {line.role for line in whole} <= {"user", "assistant"}
        assert await source.context(session.id, 1) == whole[-1:]


async def test_the_context_of_an_unknown_session_is_an_error_and_no_empty_one(source: SessionSource) -> None:
    with pytest.raises(SourceError, match="ses_nobody") as caught:
        await source.context("ses_nobody")
    assert (caught.value.kind, caught.value.source) == ("missing", source.name)


async def test_many_who_read_at_once_read_the_same(source: SessionSource) -> None:
    first = await source.list()
    assert first

    lists = await asyncio.gather(*(source.list() for _ in range(10)))
    contexts = await asyncio.gather(*(source.context(first[0].id) for _ in range(10)))

    assert all(each == first for each in lists)
    assert all(each == contexts[0] for each in contexts)


async def test_reading_leaves_every_byte_as_it_was(source: SessionSource, tmp_path: Path) -> None:
    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = everything()
    for session in await source.list():
        await source.find(session.id)
        await source.context(session.id)
    await source.search("weather")
    await source.latest()

    assert everything() == before
