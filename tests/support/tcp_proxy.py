"""A wire that can be cut: a TCP proxy on this machine that breaks, refuses or swallows on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    def __init__(self, target: int) -> None:
        self.target, self.port, self.accepted = target, 0, 0
        self.refusing = self.swallowing = False
        self.sent = bytearray()
        """What the clients have said."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Break every connection without a goodbye."""
        for writer in self._writers:
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there}
        for source, sink, said in ((reader, there, self.sent), (back, writer, bytearray())):
            task = asyncio.ensure_future(self._pump(source, sink, said))
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, said: bytearray) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                said += data
                if not self.swallowing:
                    sink.write(data)
                    await sink.drain()
        sink.close()

    async def close(self) -> None:
        self.cut()
        for task in list(self._pumps):
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


@asynccontextmanager
async def proxy(target: int) -> AsyncIterator[Proxy]:
    made = Proxy(target)
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close()
