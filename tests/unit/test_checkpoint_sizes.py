"""How large checkpoints are: how often that is asked, how many at once, and what stays when a store does not answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.checkpoint.store import Size, SizedStore
from exactlyonce.errors import StoreUnreachable
from exactlyonce.monitor.checkpoints import INTERVAL_SECONDS, MOST_OBJECTS
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.targets import StreamKey
from tests.unit.event_loops import until
from tests.unit.monitored_stores import Brokers, Database, series_of, target
from tests.unit.moved_clock import Clock

ORDERS = StreamKey("shop", "orders")
OBJECTS, BYTES = "exactlyonce_checkpoint_objects", "exactlyonce_checkpoint_bytes"


@dataclass
class Location:
    """A checkpoint's location in memory, which counts how often it is measured and which are at the same time."""

    location: str = "s3a://lake/checkpoints/orders"
    parts: tuple[Size, ...] = (Size(1000, 50_000), Size(7, 350))
    problem: Exception | None = None
    held: threading.Event | None = None
    together: threading.Barrier | None = None
    asked: int = 0
    answers: int = 0
    at_once: list[str] = field(default_factory=list)
    found_at_once: list[list[str]] = field(default_factory=list)

    def sizes(self) -> Iterator[Size]:
        self.asked += 1
        self.at_once.append(self.location)
        self.found_at_once.append(list(self.at_once))
        try:
            if self.together is not None:
                self.together.wait(60)
            if self.held is not None:
                assert self.held.wait(60)
            for part in self.parts:
                self.answers += 1
                yield part
            if self.problem is not None:
                raise self.problem
        finally:
            self.at_once.remove(self.location)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def monitor(clock: Clock, told: list[str]) -> Monitor:
    monitor = Monitor(Clients(lambda key: Brokers({}), lambda key: Database({})), on_problem=told.append)
    monitor.checkpoints.clock = clock
    return monitor


def rounds(monitor: Monitor, count: int = 1) -> None:
    for _ in range(count):
        asyncio.run(monitor.round())


def test_all_that_is_below_the_location_counts_however_many_answers_that_takes(monitor: Monitor) -> None:
    monitor.watch(target(), Location())
    rounds(monitor)
    found = series_of(monitor)
    assert (found[OBJECTS], found[BYTES]) == ({"shop/orders": 1007.0}, {"shop/orders": 50_350.0})
    assert OBJECTS not in series_of(monitor, leads=False)


def test_a_location_is_measured_at_most_every_ten_minutes(monitor: Monitor, clock: Clock) -> None:
    store = Location()
    monitor.watch(target(), store)
    rounds(monitor, 5)
    assert store.asked == 1
    clock.now += INTERVAL_SECONDS - 1
    monitor.watch(target(), store)  # a pass that reads the secrets again tells it again
    rounds(monitor)
    assert store.asked == 1
    clock.now += 1
    rounds(monitor)
    assert (store.asked, INTERVAL_SECONDS) == (2, 600)


def test_nothing_is_told_of_a_checkpoint_that_the_operator_does_not_reach(monitor: Monitor) -> None:
    monitor.watch(target(), None)
    rounds(monitor)
    assert not {OBJECTS, BYTES} & series_of(monitor).keys()


def test_its_series_go_with_the_stream(monitor: Monitor) -> None:
    monitor.watch(target(), Location())
    rounds(monitor)
    assert OBJECTS in series_of(monitor)
    monitor.forget(ORDERS)
    assert not {OBJECTS, BYTES} & series_of(monitor).keys()


def test_a_store_that_does_not_answer_tells_nothing_new_and_is_counted(
    monitor: Monitor, clock: Clock, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = Location()
    monitor.watch(target(), store)
    monitor.watch(target("returns"), Location("s3a://lake/checkpoints/returns", problem=StoreUnreachable("denied")))
    rounds(monitor)
    assert series_of(monitor)[OBJECTS] == {"shop/orders": 1007.0}, "half a listing is no size"
    store.parts, store.problem = (Size(5000, 1),), StoreUnreachable("s3a://lake/checkpoints/orders gives no answer.")
    clock.now += INTERVAL_SECONDS
    with caplog.at_level(logging.WARNING, "exactlyonce.monitor"):
        rounds(monitor, 3)
    assert series_of(monitor)[OBJECTS] == {"shop/orders": 1007.0}
    assert told == ["checkpoint"] * 3, "each question once, and none in the rounds between"
    assert "the checkpoint of shop/orders could not be measured: s3a://lake/checkpoints/orders gives no answer." in [
        record.message for record in caplog.records
    ]


def test_a_stream_that_moves_is_measured_where_it_is_now_and_keeps_no_size_of_where_it_was(monitor: Monitor) -> None:
    monitor.watch(target(), Location())
    rounds(monitor)
    moved = Location("s3a://lake/elsewhere/orders", (Size(3, 9),))
    monitor.watch(target(), moved)
    assert OBJECTS not in series_of(monitor)
    rounds(monitor)
    assert series_of(monitor)[OBJECTS] == {"shop/orders": 3.0}


def test_another_login_is_used_the_next_time_and_what_was_known_stays(monitor: Monitor, clock: Clock) -> None:
    before, after = Location(), Location(parts=(Size(9, 9),))
    monitor.watch(target(), before)
    rounds(monitor)
    monitor.watch(target(), after)
    rounds(monitor)
    assert (after.asked, series_of(monitor)[OBJECTS]) == (0, {"shop/orders": 1007.0})
    clock.now += INTERVAL_SECONDS
    rounds(monitor)
    assert (before.asked, series_of(monitor)[OBJECTS]) == (1, {"shop/orders": 9.0})


def test_counting_stops_at_a_million_objects(monitor: Monitor) -> None:
    store = Location(parts=(Size(1000, 10),) * 5000)
    monitor.watch(target(), store)
    rounds(monitor)
    assert (store.answers, series_of(monitor)[OBJECTS]) == (1000, {"shop/orders": float(MOST_OBJECTS)})


def test_a_bucket_is_asked_one_question_at_a_time_and_all_buckets_two(monitor: Monitor) -> None:
    seen: list[list[str]] = []
    made: dict[str, Any] = {"at_once": [], "found_at_once": seen, "together": threading.Barrier(2)}
    for number in range(60):
        location = f"s3a://bucket-{number // 10}/orders-{number}"
        monitor.watch(target(f"orders-{number}"), Location(location, **made))
    rounds(monitor)
    assert len(series_of(monitor)[OBJECTS]) == 60
    assert len(seen) == 60
    for locations in seen:
        assert len({location.split("/")[2] for location in locations}) == len(locations) <= 2


def test_a_bucket_that_hangs_delays_its_own_streams_only_and_is_not_asked_again_meanwhile(
    monitor: Monitor, clock: Clock
) -> None:
    held = threading.Event()
    slow, quick = Location("s3a://slow/a", held=held), Location("s3a://quick/b")
    monitor.watch(target("a"), slow)
    monitor.watch(target("b"), quick)

    async def play() -> None:
        running = asyncio.create_task(monitor.run(0.01, lambda: True))
        for times in range(1, 4):
            await until(lambda times=times: quick.asked >= times)  # type: ignore[misc] # bound now, not later
            clock.now += INTERVAL_SECONDS
        assert slow.asked == 1
        held.set()
        await until(lambda: slow.asked >= 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_buckets_that_do_not_answer_never_take_both_threads(monitor: Monitor, clock: Clock) -> None:
    held = threading.Event()
    silent = [Location(f"s3a://silent-{number}/a", problem=StoreUnreachable("no answer")) for number in range(4)]
    quick = Location("s3a://quick/b")
    for number, store in enumerate(silent):
        monitor.watch(target(f"a-{number}"), store)
    monitor.watch(target("b"), quick)

    async def play() -> None:
        await monitor.round()
        for store in silent:
            store.held = held
        running = asyncio.create_task(monitor.run(0.01, lambda: True))
        for times in range(2, 5):
            clock.now += INTERVAL_SECONDS
            await until(lambda times=times: quick.asked >= times)  # type: ignore[misc] # bound now, not later
        assert sum(store.asked for store in silent) == len(silent) + 1, "one of them is being asked"
        held.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_a_listing_of_a_stream_that_is_gone_ends_with_the_answer_that_it_waits_for(monitor: Monitor) -> None:
    held = threading.Event()
    store = Location(parts=(Size(1000, 1),) * 500, held=held)
    monitor.watch(target(), store)

    async def play() -> None:
        measuring = asyncio.create_task(monitor.round())
        await until(lambda: store.asked == 1)
        monitor.forget(ORDERS)
        held.set()
        await measuring

    asyncio.run(play())
    assert store.answers == 1
    assert OBJECTS not in series_of(monitor)


def test_a_defect_in_a_store_is_counted_and_does_not_end_the_monitor(monitor: Monitor, told: list[str]) -> None:
    monitor.watch(target(), Location(problem=RuntimeError("a defect")))
    rounds(monitor)
    assert told == ["checkpoint"]
    assert isinstance(Location(), SizedStore)
