"""The tasks of an engine: one does a whole chain of work, and is counted until its end, whichever way it ends."""

from __future__ import annotations

import asyncio

import pytest

from fsm.runner.tasks import Job, Tasks, stopped


async def _until_none_runs(tasks: Tasks) -> None:
    while tasks:
        await tasks.changes()


async def test_a_task_goes_on_with_the_one_thing_that_it_has_started_last() -> None:
    tasks, at_it = Tasks(), list[object]()

    async def second() -> None:
        at_it.append(asyncio.current_task())

    def start_second() -> None:
        tasks.spawn(second)

    async def first() -> Job | None:
        at_it.append(asyncio.current_task())
        return tasks.last(start_second)

    tasks.spawn(first)
    await _until_none_runs(tasks)

    assert len(at_it) == 2
    assert at_it[0] is at_it[1]


async def test_of_several_things_started_last_each_has_a_task_of_its_own() -> None:
    tasks, at_it = Tasks(), set[object]()

    async def one() -> None:
        at_it.add(asyncio.current_task())

    async def first() -> Job | None:
        at_it.add(asyncio.current_task())

        def start_both() -> None:
            tasks.spawn(one)
            tasks.spawn(one)

        return tasks.last(start_both)

    tasks.spawn(first)
    await _until_none_runs(tasks)

    assert len(at_it) == 3


async def test_work_that_has_ended_cannot_be_cancelled_with_what_its_task_does_now() -> None:
    tasks, gate, done = Tasks(), asyncio.Event(), list[str]()

    async def second() -> None:
        await gate.wait()
        done.append("second")

    def start_second() -> None:
        tasks.spawn(second)

    async def first() -> Job | None:
        done.append("first")
        return tasks.last(start_second)

    job = tasks.spawn(first)
    await asyncio.sleep(0)
    assert job.ended

    cancelled = tasks.cancel([job])
    gate.set()
    await _until_none_runs(tasks)

    assert cancelled == []
    assert done == ["first", "second"]


async def test_cancelling_that_work_has_got_over_is_not_meant_for_what_follows() -> None:
    tasks, done = Tasks(), list[str]()

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    def start_second() -> None:
        tasks.spawn(second)

    async def stubborn() -> Job | None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append("first")
        return tasks.last(start_second)

    job = tasks.spawn(stubborn)
    await asyncio.sleep(0)
    (task,) = tasks.cancel([job])
    await _until_none_runs(tasks)

    assert done == ["first", "second"]
    assert not task.cancelled()


async def test_a_task_that_is_cancelled_before_it_begins_is_counted_off_too() -> None:
    tasks = Tasks()

    async def never() -> None:
        raise AssertionError("it was cancelled before it began")

    job = tasks.spawn(never)
    assert job.task in tasks
    await stopped(tasks.cancel_all())

    assert len(tasks) == 0


async def test_work_that_fails_is_logged_and_its_task_counted_off(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def fails() -> None:
        raise ValueError("what nobody foresaw")

    tasks.spawn(fails)
    await _until_none_runs(tasks)

    assert "a task failed: what nobody foresaw" in caplog.text
