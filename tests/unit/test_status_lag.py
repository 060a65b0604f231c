"""The lag that a status shows, and when it is written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.status import Progress, StreamStatus
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.observer import Observer, progress_with_lag
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import SourceUnreachable
from exactlyonce.monitor.snapshot import Snapshot, after_source_problem
from exactlyonce.reconcile.progress import RateLimit
from tests.unit.monitored_stores import (
    NOON,
    ORDERS,
    Brokers,
    Database,
    fleet,
    series_of,
    status,
    target,
)


def snapshot_of(brokers: Brokers, database: Database) -> Snapshot:
    monitor = fleet(brokers, database, "orders")
    asyncio.run(monitor.round())
    found = monitor.snapshot(ORDERS)
    assert found is not None
    return found


def test_a_status_shows_what_was_measured() -> None:
    found = snapshot_of(Brokers({"orders": 9}), Database({"shop/orders": 4}))
    shown = progress_with_lag(Progress(batch=4), found, NOON)
    assert (shown.batch, shown.lag_records, shown.lag_seconds, shown.lag_problem) == (4, 5, 60, None)
    assert shown.oldest_record_at == NOON - timedelta(seconds=60)
    caught_up = progress_with_lag(shown, snapshot_of(Brokers({"orders": 4}), Database({"shop/orders": 4})), NOON)
    assert (caught_up.lag_records, caught_up.lag_seconds, caught_up.oldest_record_at) == (0, 0, None)


def test_a_status_says_why_the_lag_is_not_known_and_keeps_what_another_operator_measured() -> None:
    before = Progress(batch=4, lag_records=5, lag_seconds=60, oldest_record_at=NOON)
    silent = after_source_problem(Snapshot(remembered_timestamp=NOON.timestamp()), "Kafka does not answer.")
    shown = progress_with_lag(before, silent, NOON + timedelta(hours=1))
    assert shown == before.model_copy(update={"lag_problem": "Kafka does not answer."})


def test_a_status_says_that_a_transaction_holds_records_back_once_it_has_been_open_for_a_minute() -> None:
    found = snapshot_of(Brokers({"orders": 9}), Database({"shop/orders": 4}))
    held = {key: replace(lag, bounds=replace(lag.bounds, held_back=5)) for key, lag in found.partitions.items()}
    snapshot = replace(found, partitions=held)
    shown = progress_with_lag(Progress(batch=4), snapshot, NOON)
    assert (shown.lag_records, shown.held_back_records, shown.held_back_since) == (5, 5, NOON - timedelta(seconds=60))
    soon = progress_with_lag(Progress(batch=4), snapshot, NOON - timedelta(seconds=1))
    assert (soon.lag_records, soon.held_back_records, soon.held_back_since) == (5, None, None)
    (told,) = [it for it in conditions_of(StreamStatus(progress=shown), 1, NOON) if it.type == "HeldBack"]
    assert (told.status, told.reason) == ("True", "OpenTransaction")
    assert told.message.startswith("5 records are held back by a transaction that has been open since 20")
    assert not [it for it in conditions_of(StreamStatus(progress=soon), 1, NOON) if it.type == "HeldBack"]


def test_a_status_is_not_written_for_an_age_that_is_nearly_the_same() -> None:
    found = snapshot_of(Brokers({"orders": 9}), Database({"shop/orders": 4}))
    shown = progress_with_lag(None, found, NOON)
    assert progress_with_lag(shown, found, NOON + timedelta(seconds=5)) == shown
    assert progress_with_lag(shown, found, NOON + timedelta(seconds=30)).lag_seconds == 90


def test_a_status_gets_another_lag_at_most_every_ten_seconds() -> None:
    brokers, database, now = Brokers({"orders": 9}), Database({"shop/orders": 4}), [0.0]
    monitor = fleet(brokers, database, "orders")
    observer = Observer(monitor, OperatorMetrics(CollectorRegistry()), lambda: NOON, RateLimit(lambda: now[0]))
    key = Key(*ORDERS)
    assert observer.with_lag(key, status()) == status(), "nothing was measured yet"
    asyncio.run(monitor.round())
    first = observer.with_lag(key, status())
    assert first.progress is not None
    assert first.progress.lag_records == 5
    assert observer.with_lag(key, first) is first, "nothing has changed"
    brokers.latest["orders"] = 30
    asyncio.run(monitor.round())
    assert observer.with_lag(key, first) is first, "it is too early"
    now[0] = 10.0
    second = observer.with_lag(key, first)
    assert second.progress is not None
    assert second.progress.lag_records == 26


@pytest.mark.parametrize("order", [("seen", "watch"), ("watch", "seen")])
def test_an_operator_that_takes_over_goes_on_with_the_age_that_the_status_shows(order: tuple[str, str]) -> None:
    brokers = Brokers({"orders": 9}, problem=SourceUnreachable("Kafka does not answer."))
    monitor = fleet(brokers, Database({"shop/orders": 4}))
    observer = Observer(monitor, OperatorMetrics(CollectorRegistry()))
    left = status(progress=Progress(oldest_record_at=NOON - timedelta(hours=2)))
    for step in order:
        observer.seen(Key(*ORDERS), left, has_driver=False) if step == "seen" else observer.watch(target("orders"))
    asyncio.run(monitor.round())
    found = series_of(monitor)["exactlyonce_stream_oldest_not_landed_timestamp_seconds"]
    assert found == {"shop/orders": (NOON - timedelta(hours=2)).timestamp()}
