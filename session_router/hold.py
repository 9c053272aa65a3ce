"""One process for each part of a store: two would take up each other's turns and answer twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsm.ports import StoreError


@contextmanager
def hold(store: Path, part: str) -> Iterator[None]:
    """Hold a part of a store (the conversations of one agent's channel) while inside. It is given back even when
    the process is killed.

    Raises:
        StoreError: another process has it, or the lock file cannot be made.
    """
    path = store.with_name(f"{store.name}.{part}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"The lock {path} cannot be made ({error.strerror}). Check that this user may write there."
        ) from error
    try:
        if not _lock(descriptor):
            raise StoreError(
                f"Another session-router has these conversations ({part} in {store}). Leave that one first, or give "
                "this one another data_dir in its config."
            )
        yield
    finally:
        os.close(descriptor)


if os.name == "nt":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
