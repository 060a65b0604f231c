"""The views `control` and `failure`, read by the SQL that docs/failed-ranges.md prints."""

from __future__ import annotations

import re

import pytest

from exactlyonce.ledger.fence import fence
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from scripts.generated import ROOT
from testbed.postgres import Postgres
from tests.ledgers import IDS, P0, P1, STREAM, ledger_on, started

SHARD = Partition("clicks", "shardId-000000000007")
FAR = 49590338271490256608559692538361571095921575989136588898 << 32
PRINTED = re.findall(r"```sql\n(.+?)```", (ROOT / "docs" / "failed-ranges.md").read_text(), re.DOTALL)


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def batch(number: int, status: BatchStatus, ranges: dict[Partition, tuple[int, int]]) -> BatchRow:
    return BatchRow(
        BatchNumber(number), Epoch(1), status, Ranges({key: OffsetRange(*pair) for key, pair in ranges.items()})
    )


def failure(number: int, key: Partition, start: int, end: int, status: FailureStatus) -> FailureRow:
    return FailureRow(BatchNumber(number), key, start, end, status, "broker:9092", f"batch {number} fails")


@pytest.fixture
def database(server: Postgres, name: str) -> str:
    """A stream with a batch of each kind, and ranges of topics and of a shard."""
    ledger = ledger_on(server, name)
    permit = started(ledger)
    rows = [
        batch(1, BatchStatus.LANDED, {P0: (0, 5), P1: (0, 7)}),
        batch(2, BatchStatus.QUARANTINED, {P0: (5, 9), P1: (7, 8)}),
        batch(3, BatchStatus.LOST, {SHARD: (FAR, FAR + 5)}),
        batch(4, BatchStatus.SUPERSEDED, {P0: (9, 20)}),
        batch(5, BatchStatus.FAILED, {P0: (9, 12)}),
        batch(6, BatchStatus.IN_PROGRESS, {P0: (12, 14)}),
        batch(7, BatchStatus.DECIDED, {P0: (14, 15)}),
    ]
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
        transaction.advance_positions(STREAM, Ranges({SHARD: OffsetRange(0, FAR)}), IDS)
        for row in rows:
            transaction.write_batch(STREAM, row)
        transaction.write_failures(
            STREAM,
            (
                failure(2, P0, 5, 9, FailureStatus.QUARANTINED),
                failure(2, P1, 7, 8, FailureStatus.QUARANTINED),
                failure(3, SHARD, FAR, FAR + 5, FailureStatus.LOST),
                failure(4, P0, 9, 20, FailureStatus.SUPERSEDED),
                failure(5, P0, 9, 12, FailureStatus.OPEN),
            ),
        )
    ledger.close()
    return name


def test_the_sql_of_the_page_shows_what_failed_with_its_batch(server: Postgres, database: str) -> None:
    given_up, by_partition, unfinished = PRINTED
    assert [row[:-1] for row in server.execute(given_up, database)] == [
        ("shop/orders/2", "orders", 0, 5, 9, "Quarantined", "batch 2 fails"),
        ("shop/orders/2", "orders", 1, 7, 8, "Quarantined", "batch 2 fails"),
        ("shop/orders/3", "shardId-000000000007", None, FAR, FAR + 5, "Lost", "batch 3 fails"),
    ]
    created = "select created_at from exactlyonce.batches where batch in (2, 3) order by batch"
    two, three = (moment for (moment,) in server.execute(created, database))
    assert [row[-1] for row in server.execute(given_up, database)] == [two, two, three]
    assert server.execute(by_partition, database) == [("orders", "orders", 0, 4), ("orders", "orders", 1, 1)]
    assert [row[:-1] for row in server.execute(unfinished, database)] == [
        ("shop/orders/2", {"orders": {"0": 5, "1": 7}}, {"orders": {"0": 9, "1": 8}}, "failed"),
        ("shop/orders/3", {"clicks": {SHARD.key: FAR}}, {"clicks": {SHARD.key: FAR + 5}}, "failed"),
        ("shop/orders/4", {"orders": {"0": 9}}, {"orders": {"0": 20}}, "failed"),
        ("shop/orders/5", {"orders": {"0": 9}}, {"orders": {"0": 12}}, "failed"),
        ("shop/orders/6", {"orders": {"0": 12}}, {"orders": {"0": 14}}, "in progress"),
        ("shop/orders/7", {"orders": {"0": 14}}, {"orders": {"0": 15}}, "in progress"),
    ]


def test_the_views_have_exactly_the_columns_that_are_promised(server: Postgres, database: str) -> None:
    columns = (
        "select attname from pg_attribute where attrelid = 'exactlyonce.{}'::regclass and attnum > 0 order by attnum"
    )
    assert [name for (name,) in server.execute(columns.format("control"), database)] == [
        "id", "start", "end", "status", "created"
    ]  # fmt: skip
    assert [name for (name,) in server.execute(columns.format("failure"), database)] == [
        "id", "source", "topic_or_shard", "partition", "from", "until", "brokers", "error", "status"
    ]  # fmt: skip
    of_landed = "select start, \"end\", status from exactlyonce.control where id = 'shop/orders/1'"
    assert server.execute(of_landed, database) == [
        ({"orders": {"0": 0, "1": 0}}, {"orders": {"0": 5, "1": 7}}, "succeeded")
    ]
    of_shard = "select source, topic_or_shard, partition from exactlyonce.failure where id = 'shop/orders/3'"
    assert server.execute(of_shard, database) == [("clicks", SHARD.key, None)]
    seed = "select status from exactlyonce.control where id = 'shop/orders/0'"
    assert server.execute(seed, database) == [("succeeded",)]
