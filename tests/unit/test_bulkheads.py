"""One slow store delays its own streams only, whatever else its streams share with others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from exactlyonce.control.bulkheads import Bulkheads, Store
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import StoreBusy
from tests.unit.moved_clock import Clock

ORDERS, RETURNS, CLICKS, VISITS = (
    Key("shop", "orders"),
    Key("shop", "returns"),
    Key("web", "clicks"),
    Key("web", "visits"),
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bulkheads(clock: Clock) -> Bulkheads:
    """Orders and returns land in warehouse 1, clicks and visits in warehouse 2; all read one Kafka."""
    made = Bulkheads(4, clock)
    for key, warehouse in ((ORDERS, "one"), (RETURNS, "one"), (CLICKS, "two"), (VISITS, "two")):
        made.belongs(key, "kafka", f"warehouse {warehouse}")
    return made


@contextmanager
def hanging(store: Store, calls: int) -> Iterator[None]:
    with ExitStack() as held:
        for _ in range(calls):
            held.enter_context(store.entered())
        yield


def test_streams_of_a_store_that_hangs_are_held_back_and_others_with_the_same_kafka_are_not(
    bulkheads: Bulkheads, clock: Clock
) -> None:
    with hanging(bulkheads.store("warehouse one"), 2):
        clock.now += 4
        assert [bulkheads.may_run(key, ()) for key in (ORDERS, RETURNS, CLICKS)] == [False, False, True]
    assert bulkheads.may_run(ORDERS, ())


def test_a_store_whose_places_are_taken_for_a_moment_holds_nobody_back(bulkheads: Bulkheads, clock: Clock) -> None:
    with hanging(bulkheads.store("kafka"), 2):
        clock.now += 1
        assert bulkheads.may_run(CLICKS, ())


def test_a_call_gives_up_where_those_who_have_the_places_do_not_return(clock: Clock) -> None:
    store = Store("warehouse", 1, clock)
    with hanging(store, 1):
        clock.now += 4
        with pytest.raises(StoreBusy, match="warehouse does not answer 1 passes that ask it"), store.entered():
            pass
    with store.entered():
        pass


def test_a_call_that_waits_gives_up_when_it_is_seen_that_they_do_not_return(clock: Clock) -> None:
    store = Store("warehouse", 1, clock)
    told: list[Exception] = []

    def call() -> None:
        try:
            with store.entered():
                pass
        except StoreBusy as problem:
            told.append(problem)

    waiting = threading.Thread(target=call)
    with hanging(store, 1):
        waiting.start()
        clock.now += 4
        waiting.join(30)
    assert len(told) == 1


def test_a_call_gets_the_place_that_comes_free_while_it_waits(clock: Clock) -> None:
    store = Store("warehouse", 1, clock)
    entered = threading.Event()

    def call() -> None:
        with store.entered():
            entered.set()

    waiting = threading.Thread(target=call)
    with hanging(store, 1):
        waiting.start()
    assert entered.wait(30)
    waiting.join(30)


def test_streams_of_all_slow_stores_together_have_half_of_the_workers(bulkheads: Bulkheads, clock: Clock) -> None:
    with hanging(bulkheads.store("warehouse one"), 1), hanging(bulkheads.store("warehouse two"), 1):
        clock.now += 4
        assert bulkheads.may_run(ORDERS, [CLICKS])
        assert not bulkheads.may_run(ORDERS, [CLICKS, RETURNS])
        bulkheads.belongs(Key("other", "stream"), "another kafka", "another warehouse")
        assert bulkheads.may_run(Key("other", "stream"), [CLICKS, RETURNS])


def test_a_store_that_was_slow_is_trusted_again_after_a_while(bulkheads: Bulkheads, clock: Clock) -> None:
    with hanging(bulkheads.store("warehouse one"), 1):
        clock.now += 10
    assert not bulkheads.may_run(ORDERS, [RETURNS, RETURNS])
    clock.now += 60
    assert bulkheads.may_run(ORDERS, [RETURNS, RETURNS])


def test_a_stream_of_which_nothing_is_known_may_run(bulkheads: Bulkheads, clock: Clock) -> None:
    with hanging(bulkheads.store("kafka"), 2):
        clock.now += 10
        assert bulkheads.may_run(Key("shop", "new"), [ORDERS, RETURNS])
        bulkheads.forget(ORDERS)
        assert bulkheads.may_run(ORDERS, ())


def test_stores_that_no_stream_has_any_more_are_dropped(clock: Clock) -> None:
    made = Bulkheads(4, clock)
    for number in range(1000):
        made.belongs(ORDERS, f"warehouse {number}")
    assert len(made._stores) < 100


def test_a_store_that_is_asked_at_this_moment_is_not_dropped_and_keeps_its_places(clock: Clock) -> None:
    made = Bulkheads(4, clock)
    with hanging(made.store("of no stream"), 2):
        for number in range(1000):
            made.belongs(ORDERS, f"warehouse {number}")
        clock.now += 4
        with pytest.raises(StoreBusy), made.store("of no stream").entered():
            pass


def test_whatever_streams_of_all_namespaces_show_takes_half_of_the_workers_and_one_namespace_half_of_these(
    clock: Clock,
) -> None:
    made = Bulkheads(8, clock)
    with ExitStack() as held:
        for namespace in ("shop", "shop", "web", "web"):
            held.enter_context(made.shown(namespace).entered())
        clock.now += 4
        for namespace in ("shop", "other"):
            with pytest.raises(StoreBusy), made.shown(namespace).entered():
                pass
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(made.shown("shop").entered())
        clock.now += 4
        with pytest.raises(StoreBusy), made.shown("shop").entered():
            pass
        with made.shown("other").entered():
            pass
