"""Piped input as lines."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from channels import console


def lines_through_a_pipe(data: bytes) -> list[bytes]:
    out, into = os.pipe()

    def write() -> None:
        with os.fdopen(into, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=write)
    writer.start()

    async def read() -> list[bytes]:
        return [line async for line in console.lines_of(out)]

    try:
        return asyncio.run(read())
    finally:
        writer.join()
        os.close(out)


@pytest.mark.parametrize("chunk", [1, 2, 7, 65_536])
@pytest.mark.parametrize(("data", "lines"), [
    (b"", []),
    (b"one", [b"one"]),
    (b"one\n", [b"one"]),
    (b"one\r\n\r\n\ntwo\rthree\n\xe5\xa5\xbd\r", [b"one", b"", b"", b"two\rthree", "好".encode()]),
    (b"\n\n", [b"", b""]),
])
def test_lines_are_the_same_however_they_come(
    monkeypatch: pytest.MonkeyPatch, chunk: int, data: bytes, lines: list[bytes]
) -> None:
    monkeypatch.setattr(console, "CHUNK", chunk)
    assert lines_through_a_pipe(data) == lines


def test_every_byte_of_a_long_line_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    class Chunk(bytes):
        def split(self, *given: object) -> list[bytes]:  # type: ignore[override]
            looked_at.append(len(self))
            return bytes(self).split(b"\n")

    chunks = [Chunk(b"x" * 100)] * 1_000 + [Chunk(b"y\nz"), Chunk(b"")]

    async def read(fd: int) -> bytes:
        return chunks.pop(0)

    monkeypatch.setattr(console, "_read", read)
    assert asyncio.run(_all()) == [b"x" * 100_000 + b"y", b"z"]
    assert sum(looked_at) == 100_003


async def _all() -> list[bytes]:
    return [line async for line in console.lines_of(0)]
