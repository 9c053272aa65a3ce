"""The standard streams of a command: output that cannot be written is an error of its own, wherever that happens, and
a stream that is closed is there all the same."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from session_router.cli.spoken import spoken


class OutputLost(OSError):
    """Standard output cannot be written; ``strerror`` says why."""


class _Output(io.FileIO):
    """A standard stream that says of itself what went wrong. A ``quiet`` one takes everything, and what cannot be
    written is lost: errors that nobody can be told, and what is left over when the interpreter ends."""

    def __init__(self, fd: int, *, quiet: bool, closed: bool) -> None:
        super().__init__(fd, "w", closefd=False)
        self.quiet, self._is_lost = quiet, closed

    def write(self, data: Any, /) -> int:
        try:
            if self._is_lost:
                raise OSError(errno.EBADF, spoken("it is closed", "已关闭"))
            return super().write(data)
        except OSError as error:
            if self.quiet:
                return memoryview(data).nbytes
            if isinstance(error, BrokenPipeError):
                # Whoever reads has seen enough, which is no error; for one with its number click has an end of its own.
                raise BrokenPipeError("nobody reads it any more") from error
            raise OutputLost(error.errno, error.strerror) from error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Have the streams of this process so meanwhile. Those that somebody else has put in their place stay."""
    before = sys.stdin, sys.stdout, sys.stderr
    closed = [fd for fd, stream in enumerate(before) if stream is None]
    for fd in closed:
        _fill(fd)
    ours: list[_Output] = []
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None or (stream is getattr(sys, f"__{name}__") and _is_a_file(stream)):
            raw = _Output(fd, quiet=fd == 2, closed=fd in closed)
            setattr(sys, name, _text(raw, stream))
            ours.append(raw)
    try:
        yield
    finally:
        for raw in ours:
            raw.quiet = True
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def _fill(fd: int) -> None:
    """Or the next file that is opened would get its number, and be written to by whoever writes to that stream."""
    try:
        os.fstat(fd)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null == fd:
            os.set_inheritable(fd, True)
        else:
            os.dup2(null, fd)
            os.close(null)


def _is_a_file(stream: TextIO) -> bool:
    """Not so the console of Windows, which takes other writes."""
    buffer = getattr(stream, "buffer", None)
    return isinstance(getattr(buffer, "raw", buffer), io.FileIO)  # with python -u there is nothing between


def _text(raw: _Output, like: TextIO | None) -> TextIO:
    stream: Any = like  # a title may hold what the terminal's charset has not
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8" if stream is None else stream.encoding, errors="replace",
        newline=None if os.name == "nt" else "\n", line_buffering=stream is not None and stream.line_buffering,
        write_through=stream is not None and stream.write_through,
    )  # fmt: skip
