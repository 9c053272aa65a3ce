"""``run``, ``send`` and ``doctor`` on a real XMPP server."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_llm import Answer
from tests.support.running import GatedLLM, World, call, free_port
from tests.support.xmpp_people import person, said
from tests.support.xmpp_servers import HOST, Prosody, Server, running

pytest.importorskip("slixmpp")
pytest.importorskip("pydantic_ai")

ROOM = f"team@rooms.{HOST}"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for each test: what a server holds for a bot that was killed, it hands to the next of that name."""
    with running(Prosody, tmp_path_factory.mktemp("prosody")) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, server: Server) -> Iterator[World]:
    with GatedLLM() as llm:
        made = World(tmp_path, llm)
        made.env["BOT_PASSWORD"] = "pw-bot"
        yield made
        made.close()


def bot(port: int, more: str = "") -> str:
    return (
        f"[agents.bot]\njid = 'bot@{HOST}'\npassword_env = 'BOT_PASSWORD'\nnick = 'xiaomo'\nallow = ['alice@{HOST}']\n"
        f"{more}[agents.bot.xmpp]\nhost = '127.0.0.1'\nport = {port}\nplaintext_loopback = true\n"
        f"[agents.bot.groups.'{ROOM}']\nallow = ['alice@{HOST}']\n"
    )


async def test_a_bot_answers_directly_and_in_its_room_and_the_command_line_speaks_for_it(
    world: World, server: Server
) -> None:
    world.config(bot(server.port, f"http_port = {free_port()}\nhttp_token_env = 'BOT_TOKEN'\n"))
    async with person(server, "alice") as alice:
        await alice.joins(ROOM, "alice")
        run = world.start()
        await asyncio.to_thread(run.says, "xmpp of bot: joined")

        alice.says(f"bot@{HOST}", "hello there", id="d1")
        await alice.hears("Hello from the fake.")
        alice.says(ROOM, "xiaomo: hello", kind="groupchat", id="g1")
        answer = await alice.heard.until(lambda m: m.get("from") == f"{ROOM}/xiaomo" and said(m))
        assert answer.findtext("{jabber:client}body") == "Hello from the fake."

        (session,) = {journal.stem for journal in (world.folder / "data" / "sessions").glob("*.jsonl")}
        through_the_engine = await asyncio.to_thread(world.cli, "send", "开工了", session)
        assert through_the_engine.returncode == 0, through_the_engine.stderr
        assert (await alice.hears("开工了")).get("from") == f"{ROOM}/xiaomo"

        run.tell(signal.SIGTERM)
        assert await asyncio.to_thread(run.ends) == 0
        alone = await asyncio.to_thread(world.cli, "send", "收工了", session)
        assert alone.returncode == 0, alone.stderr
        assert (await alice.hears("收工了")).get("from") == f"{ROOM}/xiaomo"
    assert "pw-bot" not in run.raw
    assert "hello there" not in run.raw
    kept = [text for (text,) in world.store("SELECT text FROM lines WHERE id LIKE 'cli:%' ORDER BY at")]
    assert kept == ["[YOU] 开工了", "[YOU] 收工了"]
    assert session in world.cli("active").stdout


async def test_what_is_written_directly_to_a_killed_bot_is_answered_once_it_runs_again(
    world: World, server: Server
) -> None:
    world.config(bot(server.port))
    world.llm.answers[0] = Answer("An answer.")
    async with person(server, "alice") as alice:
        run = world.start()
        await asyncio.to_thread(run.says, "xmpp of bot: joined")
        alice.says(f"bot@{HOST}", "before", id="before")
        await alice.hears("An answer.")

        run.tell(signal.SIGKILL)
        await asyncio.to_thread(run.ends)
        alice.says(f"bot@{HOST}", "between", id="between")
        await alice.settled()
        again = world.start()
        await asyncio.to_thread(again.says, "replied")

        alice.says(f"bot@{HOST}", "after", id="after")
        await asyncio.to_thread(again.says, "replied", 2)
    assert [text for (text,) in world.store("SELECT text FROM inbox ORDER BY rowid")] == ["before", "between", "after"]


async def test_a_bot_that_was_put_out_of_its_room_is_not_up_and_goes_in_again_when_told_to(
    world: World, server: Server
) -> None:
    world.config(bot(server.port, f"http_port = {(port := free_port())}\nhttp_token_env = 'BOT_TOKEN'\n"))
    async with person(server, "bob") as bob:  # whoever makes the room is its owner
        await bob.joins(room := f"put-out@rooms.{HOST}", "bob")
        file = world.folder / "session-router.toml"
        file.write_text(file.read_text().replace(ROOM, room))
        run = world.start()
        await asyncio.to_thread(run.says, "xmpp of bot: joined")

        async def up() -> str:
            text = (await asyncio.to_thread(call, port, "GET", "/metrics"))[1]
            return next(line[-3:] for line in text.splitlines() if line.startswith("session_router_channel_up{"))

        assert await up() == "1.0"
        await bob.admin(room, "nick='xiaomo' role='none'")
        await asyncio.to_thread(run.says, f"xmpp of bot: out of {room}")
        assert await up() == "0.0"

        run.tell(signal.SIGHUP)
        await asyncio.to_thread(run.says, "xmpp of bot: joined", 2)
        assert await up() == "1.0"


async def test_doctor_logs_in_and_enters_the_rooms(world: World, server: Server) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(ROOM, "alice")
        world.config(bot(server.port))
        well = await asyncio.to_thread(world.cli, "doctor", "--json")
        world.env["BOT_PASSWORD"] = "pw-of-somebody-else"
        wrong = await asyncio.to_thread(world.cli, "doctor", "--json")
        world.config(bot(free_port()))
        nobody = await asyncio.to_thread(world.cli, "doctor", "--json")

    def about(what: str, text: str) -> list[tuple[str, str]]:
        return [(f["level"], f["detail"]) for f in json.loads(text) if f["what"].startswith(what)]

    assert about("login of bot", well.stdout) == [("ok", f"bot@{HOST} logged in"), ("ok", "entered")]
    assert well.returncode == 0
    ((level, said),) = about("login of bot", wrong.stdout)
    assert (level, "could not log in" in said) == ("problem", True)
    assert "pw-of-somebody-else" not in wrong.stdout
    ((level, said),) = about("login of bot", nobody.stdout)
    assert (level, wrong.returncode, nobody.returncode) == ("problem", 1, 1)
