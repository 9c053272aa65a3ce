"""A channel for tests: one TCP connection on loopback, a JSON object a line in both directions.

    python -m tests.support.line_channel run --config bots.toml

is ``session-router`` with this channel beside the real ones. An agent has it where ``LINE_PORT_NAME`` names the port
of a :class:`LineServer`, which the test holds.
"""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fsm.ports import DeliveryError, Inbound, Outgoing
from session_router.channel_makers import MAKERS, ChannelState, Made, Making

KIND = "line"


class LineChannel:
    """What stands in the engine's process."""

    def __init__(self, port: int, making: Making) -> None:
        self._port, self._making = port, making
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._making.report(ChannelState("joined", True, 1))
        self._spawn(self._read(reader))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            self._spawn(self._take(json.loads(line)))

    async def _take(self, said: dict[str, str]) -> None:
        room = said.get("room", "")
        await self._making.receive(Inbound(
            channel=f"{KIND}:{room}" if room else KIND, sender=said["sender"], text=said["text"], id=said["id"],
            at=self._making.clock.now(), reply_to=room or said["sender"], nick=said["sender"].partition("@")[0],
            real_jid=said["sender"],
        ))  # fmt: skip
        self._write({"taken": said["id"]})

    def _write(self, value: dict[str, str]) -> None:
        if self._writer is None or self._writer.is_closing():
            raise DeliveryError("the line is closed")
        self._writer.write(json.dumps(value).encode() + b"\n")

    async def send(self, outgoing: Outgoing) -> None:
        self._write({"to": outgoing.to, "text": outgoing.text, "id": outgoing.id})

    async def close(self, drain: bool = True) -> None:
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def make(making: Making) -> Made | None:
    name = making.settings.name
    if not (port := making.environ.get(f"LINE_PORT_{name.upper()}")):
        return None
    return Made(KIND, LineChannel(int(port), making), f"line {port}", port, making.settings.all_rooms)


class LineServer:
    """The other end, in the test's process."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._heard: queue.Queue[dict[str, str]] = queue.Queue()
        self._connected = threading.Event()
        self._link: socket.socket | None = None
        self._said = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._link = link
            self._connected.set()
            with suppress(OSError), link, link.makefile("rb") as lines:
                for line in lines:
                    self._heard.put(json.loads(line))
            self._connected.clear()

    def says(self, sender: str, text: str, *, id: str = "", room: str = "") -> str:
        """Write a message as that person; its id."""
        assert self._connected.wait(20), "nobody came"
        self._said += 1
        id = id or f"m{self._said}"
        assert self._link is not None
        self._link.sendall(json.dumps({"sender": sender, "text": text, "id": id, "room": room}).encode() + b"\n")
        return id

    def until(self, wanted: Callable[[dict[str, str]], bool], within: float = 20.0) -> dict[str, str]:
        """The next line that is wanted; the ones before it are passed over."""
        while True:
            found = self._heard.get(timeout=within)
            if wanted(found):
                return found

    def taken(self, id: str) -> None:
        self.until(lambda line: line.get("taken") == id)

    def hears(self, to: str = "") -> str:
        """The next text (to that address)."""
        return self.until(lambda line: "text" in line and to in ("", line["to"]))["text"]

    def rest(self) -> list[str]:
        """The texts that have come and nobody asked for yet."""
        left = []
        while True:
            try:
                left.append(self._heard.get_nowait())
            except queue.Empty:
                return [line["text"] for line in left if "text" in line]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._link is not None:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)


if __name__ == "__main__":
    from session_router.cli import main

    MAKERS[KIND] = make
    sys.exit(main())
