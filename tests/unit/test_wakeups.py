"""Wake-ups: no stream has two passes at once, none is forgotten, and one that may not run holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from exactlyonce.control.wakeups import Key, WakeUps

ORDERS, RETURNS, CLICKS = Key("shop", "orders"), Key("shop", "returns"), Key("web", "clicks")


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(scene: Callable[[WakeUps, Clock], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def play() -> None:
        clock = Clock()
        await scene(WakeUps(clock, **options), clock)

    asyncio.run(play())


async def due(wakeups: WakeUps) -> Key | None:
    """What a worker gets now; None when it would have to wait."""
    try:
        return (await asyncio.wait_for(wakeups.next(), 0.01)).key
    except TimeoutError:
        return None


def test_many_wake_ups_before_a_pass_are_one() -> None:
    async def scene(wakeups: WakeUps, _: Clock) -> None:
        for _again in range(5):
            wakeups.wake(ORDERS)
        assert await due(wakeups) == ORDERS
        assert await due(wakeups) is None

    run(scene)


def test_a_wake_up_during_a_pass_leads_to_another_pass_after_it() -> None:
    async def scene(wakeups: WakeUps, _: Clock) -> None:
        wakeups.wake(ORDERS)
        assert await due(wakeups) == ORDERS
        wakeups.wake(ORDERS)
        assert await due(wakeups) is None, "it has a pass under way"
        wakeups.done(ORDERS)
        assert await due(wakeups) == ORDERS

    run(scene)


def test_an_earlier_moment_wins_over_a_later_one() -> None:
    async def scene(wakeups: WakeUps, clock: Clock) -> None:
        wakeups.wake(ORDERS, 60)
        wakeups.wake(ORDERS, 5)
        wakeups.wake(ORDERS, 600)
        assert await due(wakeups) is None
        clock.now += 5
        assert await due(wakeups) == ORDERS
        wakeups.done(ORDERS)
        clock.now += 1000
        assert await due(wakeups) is None, "one pass was all that was asked for"

    run(scene)


def test_what_has_changed_goes_before_what_is_only_tried_again_but_not_for_ever() -> None:
    async def scene(wakeups: WakeUps, clock: Clock) -> None:
        wakeups.wake(RETURNS)
        clock.now += 20
        wakeups.wake(CLICKS)
        clock.now += 20
        wakeups.wake(ORDERS, head_start_seconds=30)
        taken = [await asyncio.wait_for(wakeups.next(), 1) for _ in range(3)]
        assert [due.key for due in taken] == [RETURNS, ORDERS, CLICKS]
        assert [due.late_seconds for due in taken] == [40, 0, 20]

    run(scene)


def test_a_worker_that_waits_is_woken() -> None:
    async def scene(wakeups: WakeUps, _: Clock) -> None:
        waiting = asyncio.create_task(wakeups.next())
        await asyncio.sleep(0)
        wakeups.wake(CLICKS)
        assert (await asyncio.wait_for(waiting, 5)).key == CLICKS

    run(scene)


def test_a_stream_that_may_not_run_is_asked_about_again_and_takes_no_turn_of_the_others() -> None:
    held = {ORDERS}

    async def scene(wakeups: WakeUps, clock: Clock) -> None:
        for key in (ORDERS, RETURNS, CLICKS):
            wakeups.wake(key)
        assert [await due(wakeups) for _ in range(3)] == [RETURNS, CLICKS, None]
        assert wakeups.waiting == 1
        held.clear()
        clock.now += 1
        assert await due(wakeups) == ORDERS
        assert await due(wakeups) is None

    run(scene, may_run=lambda key, in_hand: key not in held)


def test_who_is_asked_knows_the_passes_in_hand() -> None:
    async def scene(wakeups: WakeUps, clock: Clock) -> None:
        for key in (ORDERS, RETURNS):
            wakeups.wake(key)
        assert [await due(wakeups) for _ in range(2)] == [ORDERS, None]
        wakeups.done(ORDERS)
        clock.now += 1
        assert await due(wakeups) == RETURNS

    run(scene, may_run=lambda key, in_hand: not list(in_hand))


def test_workers_that_wait_get_one_stream_each() -> None:
    async def scene(wakeups: WakeUps, _: Clock) -> None:
        waiting = [asyncio.create_task(wakeups.next()) for _ in range(3)]
        await asyncio.sleep(0)
        for key in (ORDERS, RETURNS, CLICKS):
            wakeups.wake(key)
        taken = [entry.key for entry in await asyncio.wait_for(asyncio.gather(*waiting), 5)]
        assert sorted(taken) == sorted([ORDERS, RETURNS, CLICKS])

    run(scene)


def test_a_stream_that_is_forgotten_is_not_due() -> None:
    async def scene(wakeups: WakeUps, _: Clock) -> None:
        wakeups.wake(ORDERS)
        wakeups.forget(ORDERS)
        assert await due(wakeups) is None

    run(scene)
