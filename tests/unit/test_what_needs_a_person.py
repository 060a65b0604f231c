"""What alerts are told of states that need a person: conditions, missing secrets, streams that never landed, shards."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.status import ConditionStatus, Phase, Progress, StreamStatus
from exactlyonce.control.cluster import ClusterRefused, ClusterUnreachable
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.observer import Observer
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import ExactlyOnceError, LedgerUnreachable, SecretMissing, SecretRefused
from exactlyonce.launch.port import Gone, Running
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Monitor
from tests.resource_documents import changed
from tests.unit.monitored_stores import NOON, Brokers, Database, fleet
from tests.unit.resource_in_memory import KEY, OneDriver, ServerInMemory, resource
from tests.unit.test_stream_passes import passes, running

ORDERS = Key("shop", "orders")
CREATED = datetime(2026, 2, 1, tzinfo=UTC)


def samples(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, str], float]]:
    """What a scrape gets of one series."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [(dict(it.labels), it.value) for family in families for it in family.samples if it.name == name]


def scraped(monitor: Monitor, name: str) -> list[tuple[dict[str, str], float]]:
    """What a scrape gets of one series of streams, without their namespace and name, which are checked."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(monitor, lambda: True, NOON.timestamp))
    found = samples(registry, f"exactlyonce_stream_{name}")
    assert all((labels.pop("namespace"), labels.pop("stream")) == ORDERS for labels, _ in found)
    return found


def value(monitor: Monitor, name: str) -> float | None:
    """The one value of a series of the stream; None where there is none."""
    found = scraped(monitor, name)
    return found[0][1] if found else None


def observed(monitor: Monitor, status: StreamStatus, **facts: Any) -> None:
    """End a pass over the stream."""
    Observer(monitor, OperatorMetrics(CollectorRegistry())).seen(ORDERS, status, has_driver=True, **facts)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("problem", [None, "spec.delivery: write ExactlyOnce."])
def test_each_condition_is_one_series_with_the_status_that_it_has(phase: Phase, problem: str | None) -> None:
    status, monitor = StreamStatus(phase=phase, spec_problem=problem), Monitor()
    observed(monitor, status)
    expected = [({"type": it.type, "status": str(it.status)}, 1.0) for it in conditions_of(status, 3, NOON)]
    assert scraped(monitor, "condition") == expected
    stalled = ({"type": "Stalled", "status": "True"}, 1.0) in expected
    assert stalled == (problem is not None or phase is Phase.HALTED), "as ExactlyOnceSpecInvalid takes it"


def test_a_condition_that_changes_leaves_no_series_behind() -> None:
    monitor = Monitor()
    for status in (StreamStatus(spec_problem="wrong"), StreamStatus(phase=Phase.RUNNING)):
        observed(monitor, status)
    assert {labels["type"]: labels["status"] for labels, _ in scraped(monitor, "condition")} == {
        "Ready": ConditionStatus.TRUE, "Reconciling": ConditionStatus.FALSE, "Stalled": ConditionStatus.FALSE,
    }  # fmt: skip
    assert len(scraped(monitor, "condition")) == 3


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        (None, 0),
        (SecretMissing("Secret shop/warehouse is not there; create it."), 1),
        (SecretRefused("Secret warehouse may not set options; whoever may write the secret has to remove it."), 1),
        (ClusterRefused("The operator may not use Secret shop/warehouse."), 1),
        (ClusterUnreachable("The API server does not answer."), 0),
        (LedgerUnreachable("The database does not answer."), 0),
    ],
)
def test_a_secret_counts_as_missing_where_it_is_not_there_or_may_not_be_read(
    lacks: ExactlyOnceError | None, expected: int
) -> None:
    monitor = Monitor()
    observed(monitor, StreamStatus(), lacks=lacks)
    assert value(monitor, "secret_missing") == expected


def test_a_pass_over_a_stream_without_its_secret_tells_that_whether_its_driver_runs_or_not() -> None:
    resting = ServerInMemory(changed(resource(), {"status.phase": "Suspended", "spec.suspend": True}))
    for server, driver, only_unmeasured in (
        (running(), OneDriver(Running("it runs")), False),
        (running(), OneDriver(Running("it runs")), True),
        (running(), OneDriver(Gone("its node is lost")), False),
        (resting, None, False),
    ):
        of_operator = passes(server, driver=driver, only_unmeasured=only_unmeasured)
        of_operator.run(KEY)
        assert value(of_operator.observer.monitor, "secret_missing") == 1


def test_a_pass_tells_when_the_resource_was_created() -> None:
    server = running(metadata__creationTimestamp="2026-02-01T00:00:00Z")
    of_operator = passes(server, driver=OneDriver(Running("it runs")))
    of_operator.run(KEY)
    assert value(of_operator.observer.monitor, "created_timestamp_seconds") == CREATED.timestamp()


@pytest.mark.parametrize(("batch", "expected"), [(None, 0), (0, 1), (7, 1)])
def test_the_status_says_whether_a_stream_has_landed_while_the_ledger_has_not_answered(
    batch: int | None, expected: int
) -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({}, problem=LedgerUnreachable("no answer")), "orders")
    observed(monitor, StreamStatus(progress=Progress(batch=batch)))
    assert value(monitor, "has_landed") == expected
    asyncio.run(monitor.round())
    assert value(monitor, "has_landed") == expected


def test_a_ledger_that_has_a_batch_is_believed_before_a_status_that_knows_none() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    observed(monitor, StreamStatus())
    assert value(monitor, "has_landed") == 0
    asyncio.run(monitor.round())
    assert value(monitor, "has_landed") == 1


@pytest.mark.parametrize("leads", [True, False])
def test_every_replica_says_whether_it_leads_its_shard(leads: bool) -> None:
    registry = CollectorRegistry()
    OperatorMetrics(registry).measure(lambda: 0.0, lambda: leads, "ops/first")
    assert samples(registry, "exactlyonce_shard_leader") == [({"lease": "ops/first"}, float(leads))]
    assert samples(registry, "exactlyonce_lease_held") == [({}, float(leads))]
