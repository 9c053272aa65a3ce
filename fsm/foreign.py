"""Sources, channels, bridges and commands are other people's code: whatever it raises must not end what called it."""

from __future__ import annotations

import asyncio


def is_theirs(error: BaseException) -> bool:
    """Whether that is a failure of the code that was called, to be told and lived with. False where our own task was
    cancelled or the process is to end: that has to be passed on.

    A library that cancels or closes itself raises what looks like the one and is the other.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    if isinstance(error, GeneratorExit):  # ours comes when everything is taken down, and no loop runs any more
        return _loop_runs()
    return not isinstance(error, (KeyboardInterrupt, SystemExit))


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
