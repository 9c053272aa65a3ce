"""Thirty faults while two people talk to a bot in a room: nothing lost, nothing answered twice, nothing out of order.

``python -m benchmarks.faults [prosody|ejabberd] [--save NAME]``: a whole ``run`` from a config, on a server of its
own on loopback, behind a proxy that breaks. Two people write 200 numbered messages, and the model says each number
back. Exit code 1 where a number is missing, is there twice or too early, or the bot is not where it may be.

The people are as patient as good clients: a message that the room has not shown is written again, unless its archive
has it. What counts in the end is what they saw, and what the room's archive holds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # started as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import machine
from channels.xmpp import Connection, Standing, State, Timing, XmppAccount, XmppChannel
from channels.xmpp.archive import Archive
from fsm.conversation import Key
from fsm.ports import DeliveryError, Inbound, Outgoing
from session_router import xmpp
from session_router.channel_makers import MAKERS
from session_router.clock import SystemClock
from session_router.config import load
from session_router.run import Service
from tests.support.fake_llm import Answer, FakeLLM
from tests.support.tcp_proxy import Proxy, proxy
from tests.support.xmpp_people import person
from tests.support.xmpp_servers import HOST, Ejabberd, Prosody, Server, running

RESULTS = Path(__file__).parent / "results"
SERVERS: Mapping[str, type[Server]] = {"prosody": Prosody, "ejabberd": Ejabberd}
MESSAGES, LIMIT = 200, 350.0
"""How many are written, and the seconds that all of it may take."""
ROOM, OTHER = f"team@rooms.{HOST}", f"other@rooms.{HOST}"
NICK = "mohe"
PEOPLE = ("alice", "bob")
TIMING = Timing(
    connect=5.0, join=5.0, confirm=4.0, receipt=0.5, answer=2.0, ping=3.0, base=0.1, cap=1.0, stable=5.0
)  # fmt: skip
"""Seconds as short as a server on this machine allows, so that thirty faults take minutes."""


class EchoModel(FakeLLM):
    """Says the number of the last message."""

    def answer_to(self, request: dict[str, Any]) -> Answer:
        numbers = re.findall(r"number (\d+)", str(request["messages"][-1]["content"]))
        return Answer(f"__REPLY__ heard {numbers[-1]}" if numbers else "__SILENT__")


class Writer:
    """Somebody who writes numbers into the room, and keeps what he sees there."""

    def __init__(self, server: Server, name: str) -> None:
        self.name, self.seen = name, list[Inbound]()
        account = XmppAccount(
            f"{name}@{HOST}", lambda: f"pw-{name}", nick=name, rooms=(ROOM,), host="127.0.0.1", port=server.port,
            plaintext_loopback=True, resource="desk", history=0, timing=TIMING,
        )  # fmt: skip
        self.channel = XmppChannel(account, self._see, clock=SystemClock())

    async def _see(self, message: Inbound) -> None:
        self.seen.append(message)

    async def says(self, number: int) -> None:
        """Return once the room has it."""
        outgoing = Outgoing(
            f"{self.name}-{number}", Key(self.name, f"xmpp:{ROOM}", ROOM), f"xmpp:{ROOM}", ROOM, f"number {number}"
        )
        while True:
            with suppress(DeliveryError):
                await self.channel.send(outgoing)
                return
            await asyncio.sleep(0.1)


@dataclass(slots=True)
class Stage:
    """Everything that takes part. ``service`` is the bot of the moment."""

    server: Server
    wire: Proxy
    folder: Path
    model: EchoModel
    writers: list[Writer]
    service: Service | None = None
    run: asyncio.Task[None] | None = None
    written: int = 0
    rejoined: int = 0
    problems: list[str] = field(default_factory=list)

    # -- the bot ---------------------------------------------------------------------------------

    def config(self) -> Path:
        groups = "".join(f"[agents.bot.groups.'{room}']\nallow = ['alice@{HOST}', 'bob@{HOST}']\n" for room in (
            ROOM, OTHER
        ))  # fmt: skip
        file = self.folder / "session-router.toml"
        file.write_text(
            "language = 'en'\ndata_dir = 'data'\n[sources]\nopencode = false\nhermes = false\n"
            # Whoever was away reads many at once, and says so many things in a minute.
            "[limits]\nrate_limit = 0\nqueue_limit = 200\n"
            f"[model]\nbase_url = '{self.model.url}'\nmodel = 'fake-1'\n"
            f"[agents.bot]\njid = 'bot@{HOST}'\npassword_env = 'BOT_PASSWORD'\nnick = '{NICK}'\n"
            f"allow = ['alice@{HOST}']\n[agents.bot.xmpp]\nhost = '127.0.0.1'\nport = {self.wire.port}\n"
            f"plaintext_loopback = true\n{groups}",
            encoding="utf-8",
        )
        return file

    def start_bot(self) -> None:
        environ = {"HOME": str(self.folder), "BOT_PASSWORD": "pw-bot"}
        file = self.config()
        self.service = Service(lambda: load(file, environ), environ=environ)
        self.run = asyncio.create_task(self.service.run())

    async def stop_bot(self) -> None:
        if self.service is not None and self.run is not None:
            self.service.signals.put_nowait("stop")
            await self.run
        self.service = self.run = None

    @property
    def bot(self) -> Connection | None:
        made = self.service.served["bot"].made if self.service and "bot" in self.service.served else {}
        channel = made["xmpp"].channel if "xmpp" in made else None
        return channel.connection if isinstance(channel, XmppChannel) else None

    def stands(self, room: str) -> Standing | None:
        now = self.bot
        found = now.room(room) if now is not None else None
        return found.standing if found is not None else None

    async def sees(self, what: str, holds: Callable[[], bool], within: float = 30.0) -> None:
        """Wait until it holds, or write down that it did not."""
        until = time.monotonic() + within
        while not holds():
            if time.monotonic() > until:
                self.problems.append(f"not within {within:g} seconds: {what}")
                return
            if self.run is not None and self.run.done():
                self.problems.append(f"the bot ended: {self.run.exception()}")
                return
            await asyncio.sleep(0.02)

    async def is_back(self, rooms: Sequence[str] = (ROOM,), link: int | None = None) -> None:
        """The bot is in these rooms again, on a later link than ``link`` where one is named."""

        def holds() -> bool:
            now = self.bot
            if now is None or now.state not in (State.JOINING, State.JOINED) or (link is not None and now.link <= link):
                return False
            return all(self.stands(room) is Standing.IN for room in rooms)

        before = len(self.problems)
        await self.sees(f"the bot is back in {', '.join(rooms)}", holds)
        self.rejoined += len(self.problems) == before

    @property
    def link(self) -> int:
        return self.bot.link if self.bot is not None else 0

    # -- the people ------------------------------------------------------------------------------

    async def flow(self, many: int, without_the_bot: bool) -> None:
        """The next numbers, each person writing in his own order; some once the bot has been put out."""
        if without_the_bot:
            await self.sees("the bot is out", lambda: self.stands(ROOM) is Standing.OUT)
        numbers = range(self.written + 1, min(self.written + many, MESSAGES) + 1)
        self.written += len(numbers)

        async def his(writer: Writer, mine: Sequence[int]) -> None:
            for number in mine:
                await writer.says(number)
                await asyncio.sleep(0.05)

        await asyncio.gather(*(his(w, [n for n in numbers if whose(n) == i]) for i, w in enumerate(self.writers)))

    @property
    def heard(self) -> list[int]:
        """The numbers that the bot has said, as the first of the people saw them."""
        return answers([(m.real_jid, m.text) for m in self.writers[0].seen])

    async def all_is_said(self) -> None:
        """Every number written so far has its answer: what is under way when a person puts the bot out is his doing."""
        await self.sees(
            f"an answer to each of {self.written}", lambda: set(self.heard) >= set(range(1, self.written + 1)), 60
        )

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[Any]:
        async with person(self.server, "alice") as alice:
            await alice.joins(ROOM, "owner")
            yield alice


def whose(number: int) -> int:
    """Which of the people writes it."""
    return (number - 1) % len(PEOPLE)


def answers(said: Sequence[tuple[str, str]]) -> list[int]:
    found = [re.fullmatch(r"heard (\d+)", text) for jid, text in said if jid == f"bot@{HOST}"]
    return [int(match[1]) for match in found if match]


# -- the faults ----------------------------------------------------------------------------------

Fault = Callable[[Stage], Awaitable[None]]


async def cut(stage: Stage) -> None:
    """The wire breaks."""
    before = stage.link
    stage.wire.cut()
    await stage.is_back(link=before)


async def outage(stage: Stage) -> None:
    """The wire breaks, and for a while nobody answers."""
    before = stage.link
    stage.wire.refusing = True
    stage.wire.cut()
    await asyncio.sleep(1.0)
    stage.wire.refusing = False
    await stage.is_back(link=before)


async def blackhole(stage: Stage) -> None:
    """The wire stays, and swallows everything."""
    before = stage.link
    stage.wire.swallowing = True
    await stage.sees("the bot notices a dead link", lambda: stage.link > before)
    stage.wire.cut()
    stage.wire.swallowing = False
    await stage.is_back(link=before)


async def kill(stage: Stage) -> None:
    """The server is killed, and started again."""
    before = stage.link
    stage.server.kill()
    await asyncio.to_thread(stage.server.start)
    await stage.is_back(link=before)


async def restart(stage: Stage) -> None:
    """The server is told to stop, and started again."""
    before = stage.link
    await asyncio.to_thread(stage.server.stop)
    await asyncio.to_thread(stage.server.start)
    await stage.is_back(link=before)


async def taken_nick(stage: Stage) -> None:
    """Somebody else has the bot's nick when it comes back."""
    before = stage.link
    stage.wire.refusing = True
    await asyncio.to_thread(stage.server.stop)
    await asyncio.to_thread(stage.server.start)
    async with person(stage.server, "mallory") as mallory:
        await mallory.joins(ROOM, NICK)
        stage.wire.refusing = False
        await stage.sees("the bot is refused its nick", lambda: stage.link > before and stage.stands(ROOM) in (
            Standing.WANTED,
        ))  # fmt: skip
        await asyncio.sleep(0.5)
        if stage.stands(ROOM) is Standing.IN:
            stage.problems.append("the bot was let in under a nick that somebody else had")
    await stage.is_back(link=before)


async def put_out(stage: Stage, item: str, again: str = "") -> None:
    """A person puts the bot out; it stays out, and comes with its next session once it may."""
    before = stage.link
    async with stage.owner() as owner:
        await owner.admin(ROOM, item)
        await stage.sees("the bot is out", lambda: stage.stands(ROOM) is Standing.OUT)
        await asyncio.sleep(1.0)
        if stage.stands(ROOM) is not Standing.OUT:
            stage.problems.append("the bot came back by itself after it was put out")
        if again:
            await owner.admin(ROOM, again)
    # A session that cannot be resumed: the server, too, forgets the old one.
    await asyncio.to_thread(stage.server.stop)
    await asyncio.to_thread(stage.server.start)
    await stage.is_back(link=before)


async def kick(stage: Stage) -> None:
    """A moderator shows the bot the door."""
    await put_out(stage, f"nick='{NICK}' role='none'")


async def ban(stage: Stage) -> None:
    """An owner bans the bot, and takes it back later."""
    jid = f"jid='bot@{HOST}'"
    await put_out(stage, f"{jid} affiliation='outcast'", f"{jid} affiliation='none'")


async def destroyed(stage: Stage) -> None:
    """Another room of the bot is destroyed: it goes on in the one, and does not make the other anew."""
    async with stage.owner() as owner:
        await owner.destroys(OTHER)
        await stage.sees("the other room is gone", lambda: stage.stands(OTHER) is Standing.GONE)
        before = stage.link
        stage.wire.cut()
        await stage.is_back(link=before)
        if stage.stands(OTHER) is not Standing.GONE:
            stage.problems.append("the bot went back to a room that was destroyed")


async def bot_restarted(stage: Stage) -> None:
    """The bot itself is told to stop, in the middle of it, and started again."""
    await stage.stop_bot()
    stage.start_bot()
    await stage.is_back()


PLAN: tuple[tuple[str, Fault, int], ...] = (
    ("wire cut", cut, 6), ("wire down for 1 s", outage, 3), ("wire swallows", blackhole, 4),
    ("server killed", kill, 4), ("server stopped", restart, 4), ("nick taken", taken_nick, 2),
    ("kicked", kick, 2), ("banned", ban, 3), ("room destroyed", destroyed, 1), ("bot restarted", bot_restarted, 1),
)  # fmt: skip
BY_A_PERSON = (kick, ban)
"""An answer that is under way then is refused for good, so the people wait until none is, and go on without the bot."""


def in_turn() -> list[tuple[str, Fault]]:
    """Every fault as often as planned, one kind after the other; the last two kinds come last."""
    left = {name: many for name, _, many in PLAN[:-2]}
    order = []
    while any(left.values()):
        for name, fault, _ in PLAN[:-2]:
            if left[name]:
                left[name] -= 1
                order.append((name, fault))
    return [*order, *((name, fault) for name, fault, _ in PLAN[-2:])]


# -- the run -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """``lost``, ``twice`` and ``early`` are numbers; ``kinds`` is what each fault of a kind took, in seconds."""

    server: str
    written: int = 0
    lost: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    not_archived: list[int] = field(default_factory=list)
    rejoined: int = 0
    wanted: int = 0
    links: int = 0
    seconds: float = 0.0
    kinds: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        whole = self.written == MESSAGES and self.rejoined == self.wanted
        return whole and not (self.lost or self.twice or self.early or self.problems)


async def archived(stage: Stage) -> list[tuple[str, str]]:
    """(real address, text) of everything in the room's archive, in order."""
    async with person(stage.server, "alice") as alice:
        await alice.joins(ROOM, "owner")

        async def query(to: str, payload: Any) -> Any:
            iq = alice.client.make_iq(itype="set", ito=to)
            iq.xml.append(payload)
            return (await iq.send(timeout=20)).xml

        archive = Archive(f"alice@{HOST}", query)
        from slixmpp.xmlstream.handler import Callback
        from slixmpp.xmlstream.matcher import MatchXPath

        matcher = MatchXPath("{jabber:client}message")
        alice.client.register_handler(Callback("archive", matcher, lambda stanza: archive.take(stanza.xml)))
        found = await archive.after(ROOM, "", 1.0)
    return [
        (f"bot@{HOST}" if m.get("from") == f"{ROOM}/{NICK}" else "", m.findtext("{jabber:client}body") or "")
        for m, _ in found
    ]


def early(numbers: Sequence[int]) -> list[int]:
    """Those that come before a smaller one of the same person."""
    found = []
    for writer in range(len(PEOPLE)):
        his = [n for n in numbers if whose(n) == writer]
        found += [a for a, b in itertools.pairwise(his) if b < a]
    return found


def judge(outcome: Outcome, seen: Sequence[int], kept: Sequence[int]) -> None:
    everything = set(range(1, outcome.written + 1))
    outcome.lost = sorted(everything - set(seen) - set(kept))
    outcome.twice = sorted({n for list_ in (seen, kept) for n, many in Counter(list_).items() if many > 1})
    outcome.early = sorted({*early(seen), *early(kept)})
    outcome.not_archived = sorted(everything - set(kept))


async def perform(kind: type[Server], server: Server, folder: Path, only: int | None = None) -> Outcome:
    outcome = Outcome(kind.program)
    MAKERS[xmpp.KIND] = partial(xmpp.make, timing=TIMING)
    begun = time.monotonic()
    with EchoModel() as model:
        async with proxy(server.port) as wire:
            stage = Stage(server, wire, folder, model, [Writer(server, name) for name in PEOPLE])
            try:
                async with asyncio.timeout(LIMIT) as limit:
                    await faults(stage, outcome, in_turn()[:only])
                    await stage.all_is_said()
                    kept = answers(await archived(stage))
                    judge(outcome, stage.heard, kept)
            except TimeoutError as error:
                over = f"it took more than {LIMIT:g} seconds"
                stage.problems.append(over if limit.expired() else f"somebody waited in vain: {error}")
                judge(outcome, stage.heard, ())
            finally:
                outcome.links, outcome.rejoined = wire.accepted, stage.rejoined
                await stage.stop_bot()
                for writer in stage.writers:
                    await writer.channel.close(drain=False)
    outcome.seconds = time.monotonic() - begun
    outcome.problems = stage.problems
    return outcome


async def faults(stage: Stage, outcome: Outcome, order: Sequence[tuple[str, Fault]]) -> None:
    async with person(stage.server, "alice") as alice:
        for room in (ROOM, OTHER):
            await alice.joins(room, "owner")
            await alice.configures(room, persistentroom="1", whois="anyone", moderatedroom="0")
        for writer in stage.writers:
            await writer.channel.start()
            await writer.channel.reached(State.JOINED)
        stage.start_bot()
        await stage.is_back((ROOM, OTHER))
        stage.rejoined = 0
    # Some servers write a new room to disk only when they are stopped.
    await restart(stage)
    stage.rejoined = 0
    outcome.wanted = len(order)
    for number, (name, fault) in enumerate(order):
        if fault in BY_A_PERSON:
            await stage.all_is_said()
        many = MESSAGES * (number + 1) // len(order) - stage.written
        before = len(stage.problems)
        begun = time.monotonic()
        flow = asyncio.create_task(stage.flow(many, fault in BY_A_PERSON))
        if fault not in BY_A_PERSON:
            await asyncio.sleep(0.1)  # in the middle of it
        try:
            await fault(stage)
            await flow
        finally:
            flow.cancel()
        took = time.monotonic() - begun
        outcome.kinds.setdefault(name, []).append(took)
        outcome.written = stage.written
        stage.problems[before:] = [f"{number + 1}. {name}: {problem}" for problem in stage.problems[before:]]
        print(f"  {number + 1:2}. {name:20}{took:6.1f} s  {stage.written:4} written", file=sys.stderr, flush=True)


# -- what is shown -------------------------------------------------------------------------------


def table(outcome: Outcome) -> list[tuple[str, str, str]]:
    def named(numbers: Sequence[int]) -> str:
        return f"{len(numbers)}" + (f" ({', '.join(map(str, numbers[:10]))})" if numbers else "")

    return [
        ("messages written", f"{outcome.written}", f"{MESSAGES}"),
        ("faults", f"{sum(map(len, outcome.kinds.values()))}", "30"),
        ("lost", named(outcome.lost), "0"),
        ("answered twice", named(outcome.twice), "0"),
        ("out of order", named(outcome.early), "0"),
        ("back in the room", f"{outcome.rejoined} of {outcome.wanted}", "each time"),
        ("other things wrong", f"{len(outcome.problems)}", "0"),
        ("answers missing in the archive", named(outcome.not_archived), ""),
        ("connections made by the bot", f"{outcome.links}", ""),
        ("time", f"{outcome.seconds:.0f} s", "<= 360 s"),
    ]


def report(outcomes: Sequence[Outcome]) -> str:
    lines = ["# Thirty faults while 200 messages flow", "", "Written by `python -m benchmarks.faults --save NAME`.", ""]
    facts = machine.describe() | {"slixmpp": version("slixmpp")}
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    names = [outcome.server for outcome in outcomes]
    lines += ["", f"| what | {' | '.join(names)} | limit |", "|---|" + "---|" * (len(names) + 1)]
    for cells in zip(*map(table, outcomes), strict=True):
        lines.append(f"| {cells[0][0]} | {' | '.join(cell[1] for cell in cells)} | {cells[0][2] or '-'} |")
    lines += ["", "Seconds until the bot was back and everything of that round was written, at most:", ""]
    lines += [f"| fault | times | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for name, _, many in PLAN:
        took = [f"{max(outcome.kinds[name]):.1f}" if name in outcome.kinds else "-" for outcome in outcomes]
        lines.append(f"| {name} | {many} | {' | '.join(took)} |")
    lines += ["", "ejabberd 23.01 may lose a room's whole archive when it is killed; what people saw counts then."]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where everything holds on every server, 1 where something does not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("server", nargs="*", choices=[*SERVERS, []], help="both by default")
    parser.add_argument("--first", type=int, metavar="N", help="only so many faults, to see that it runs")
    parser.add_argument("--save", metavar="NAME", help="also write results/NAME.md")
    parser.add_argument("--log", metavar="FILE", help="where the bot's log goes; without it nowhere")
    asked = parser.parse_args(arguments)
    logging.basicConfig(
        **({"filename": asked.log} if asked.log else {"handlers": [logging.NullHandler()]}), level=logging.INFO,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
    )  # fmt: skip
    outcomes = []
    for name in asked.server or SERVERS:
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            here, data = Path(folder) / "server", Path(folder) / "bot"
            here.mkdir()
            data.mkdir()
            with running(SERVERS[name], here) as server:
                outcomes.append(asyncio.run(perform(SERVERS[name], server, data, asked.first)))
    for outcome in outcomes:
        print(f"\n{outcome.server}")
        for what, seen, limit in table(outcome):
            print(f"  {what:32}{seen:34}{limit}".rstrip())
        for problem in outcome.problems:
            print(f"  WRONG: {problem}")
    if asked.save:
        (RESULTS / f"{asked.save}.md").write_text(report(outcomes), encoding="utf-8")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
