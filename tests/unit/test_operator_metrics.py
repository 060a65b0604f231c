"""What passes tell of themselves, as the operator's metrics count it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from exactlyonce.api.status import DriverStatus, Phase, Progress, StreamStatus, VerdictStatus
from exactlyonce.control.metrics import OperatorMetrics, store_of
from exactlyonce.control.transitions import Happened, happened_between
from exactlyonce.errors import LedgerUnreachable, SourceUnreachable
from exactlyonce.ledger.fence import EpochOvertaken
from tests.unit.monitored_stores import (
    NOON,
    ORDERS,
    status,
)


def verdict(attempt: int, at: datetime = NOON) -> VerdictStatus:
    return VerdictStatus(kind="Resume", message="all agree", attempt=attempt, at=at)


@pytest.mark.parametrize(
    ("before", "after", "happened"),
    [
        (status(1), status(2), Happened(attempt=2)),
        (status(2), status(2, verdict=verdict(2)), Happened(verdict="Resume")),
        (status(2, verdict=verdict(2)), status(2, verdict=verdict(2), message="more"), Happened()),
        (
            status(2, verdict=verdict(2)),
            status(2, verdict=verdict(2, NOON + timedelta(seconds=9))),
            Happened(verdict="Resume"),
        ),
        (
            status(2, driver=DriverStatus(attempt=2)),
            status(2, driver=DriverStatus(attempt=2, ended="OutOfMemory")),
            Happened(ending="OutOfMemory"),
        ),
        (
            status(2, driver=DriverStatus(attempt=2, ended="Lost")),
            status(2, driver=DriverStatus(attempt=2, ended="Lost"), message="more"),
            Happened(),
        ),
        (status(2, phase=Phase.RUNNING), status(2, phase=Phase.HALTED, message="why"), Happened(halt="Refused")),
        (status(2, phase=Phase.LAUNCHING), status(2, phase=Phase.RUNNING), Happened(runs=True)),
        (
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=4)),
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=5, landed_at=NOON)),
            Happened(first_batch_at=NOON),
        ),
        (
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=5)),
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=6, landed_at=NOON)),
            Happened(),
        ),
    ],
)
def test_each_write_of_a_status_is_counted_for_what_it_says(
    before: StreamStatus, after: StreamStatus, happened: Happened
) -> None:
    assert happened_between(before, after) == happened


def values(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_the_seconds_of_a_drivers_start_count_from_the_attempt_and_once() -> None:
    registry, now = CollectorRegistry(), [1000.0]
    counted = OperatorMetrics(registry, lambda: now[0])
    counted.happened(ORDERS, Happened(attempt=3), status(3))
    now[0] = 1002.0
    counted.pod_created(ORDERS, 3)
    counted.pod_created(ORDERS, 3)
    counted.pod_created(ORDERS, 2)
    now[0] = 1012.0
    counted.happened(ORDERS, Happened(runs=True), status(3))
    counted.happened(ORDERS, Happened(first_batch_at=datetime.fromtimestamp(1020, UTC)), status(3))
    sums = {
        until: (
            values(registry, "exactlyonce_driver_start_seconds_sum", until=until),
            values(registry, "exactlyonce_driver_start_seconds_count", until=until),
        )
        for until in ("pod_created", "running", "first_batch")
    }
    assert sums == {"pod_created": (2.0, 1.0), "running": (12.0, 1.0), "first_batch": (20.0, 1.0)}


def test_each_error_is_counted_at_its_store() -> None:
    registry = CollectorRegistry()
    counted = OperatorMetrics(registry)
    for problem in (SourceUnreachable("…"), LedgerUnreachable("…"), LedgerUnreachable("…"), ValueError("no store's")):
        counted.note_problem(problem)
    counted.note_problem(EpochOvertaken("…"))
    assert values(registry, "exactlyonce_store_errors_total", store="source") == 1
    assert values(registry, "exactlyonce_store_errors_total", store="ledger") == 2
    assert values(registry, "exactlyonce_fence_refusals_total", whose="pass") == 1
    assert store_of(ValueError()) is None


def test_a_driver_that_was_fenced_is_a_refusal_of_the_fence() -> None:
    registry = CollectorRegistry()
    OperatorMetrics(registry).happened(ORDERS, Happened(ending="Fenced"), status(3))
    assert values(registry, "exactlyonce_fence_refusals_total", whose="driver") == 1
