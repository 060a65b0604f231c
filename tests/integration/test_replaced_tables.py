"""outputMode: Complete replaces the rows of its table in the landing transaction: nothing is left, lost, or seen half."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.postgres import replacing
from exactlyonce_spark.connectors.postgres.replacing import ReplacingTarget
from exactlyonce_spark.connectors.postgres.table import TargetUnfit
from exactlyonce_spark.connectors.postgres.target import TargetPlan
from exactlyonce_spark.target import Staged
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on

BATCH = BatchNumber(1)
KEEPS = """
create function keep() returns trigger language plpgsql as $$ begin return null; end $$;
create trigger keep before delete on target for each row when (old.id = 2) execute function keep()
"""

Write = Callable[[PostgresLedger, ReplacingTarget, list[int]], int]


def directly(ledger: PostgresLedger, target: ReplacingTarget, ids: list[int]) -> int:
    """As the driver writes a small batch."""
    with ledger.transaction() as transaction:
        return target.write(transaction, [rows(ids)] if ids else [])


def staged(ledger: PostgresLedger, target: ReplacingTarget, ids: list[int]) -> int:
    """As tasks stage a batch and the driver moves it."""
    parts = [Staged(tag, target.stage(BATCH, tag, [rows(part)])) for tag, part in ((7, ids[::2]), (8, ids[1::2]))]
    with ledger.transaction() as transaction:
        moved = target.move_staged(transaction, BATCH, parts)
    target.clear_staging(BATCH)
    assert moved.found == moved.written
    return moved.written


def rows(ids: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


in_both_ways = pytest.mark.parametrize("write", [directly, staged])


@pytest.fixture
def ledger(postgres_18: Postgres, name: str) -> PostgresLedger:
    return ledger_on(postgres_18, name)


@pytest.fixture
def target(ledger: PostgresLedger) -> ReplacingTarget:
    sink = PostgresSink.model_validate({"secretRef": {"name": "warehouse"}, "table": "target"})
    made = ReplacingTarget(ledger, TargetPlan(STREAM, Epoch(1), "exactlyonce", "public", "target", ("id",), sink))
    made.create_staging()
    return made


@pytest.fixture
def ids(postgres_18: Postgres, name: str) -> Callable[[], list[int]]:
    """Tell which ids are in the table, in order."""
    return lambda: [int(str(row[0])) for row in postgres_18.execute("select id from target order by id", name)]


@in_both_ways
def test_each_result_takes_the_place_of_the_former_one(
    ledger: PostgresLedger, target: ReplacingTarget, ids: Callable[[], list[int]], write: Write
) -> None:
    for result in ([1, 2, 3], [2, 3, 4, 5], [9]):
        assert write(ledger, target, result) == len(result)
        assert ids() == result


@in_both_ways
def test_an_empty_result_empties_the_table(
    ledger: PostgresLedger, target: ReplacingTarget, ids: Callable[[], list[int]], write: Write
) -> None:
    write(ledger, target, [1, 2, 3])
    assert write(ledger, target, []) == 0
    assert ids() == []


@in_both_ways
def test_a_result_that_is_too_large_is_refused_and_the_former_one_stays(
    ledger: PostgresLedger,
    target: ReplacingTarget,
    ids: Callable[[], list[int]],
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replacing, "MOST_ROWS", 3)
    write(ledger, target, [1, 2, 3])
    with pytest.raises(
        TargetUnfit, match=r"The result has 4 rows, .* 3 at most; nothing was written to public\.target"
    ):
        write(ledger, target, [4, 5, 6, 7])
    assert ids() == [1, 2, 3]


@in_both_ways
def test_a_table_that_keeps_a_row_is_refused_and_the_former_result_stays(
    postgres_18: Postgres,
    name: str,
    ledger: PostgresLedger,
    target: ReplacingTarget,
    ids: Callable[[], list[int]],
    write: Write,
) -> None:
    write(ledger, target, [1, 2, 3])
    postgres_18.execute(KEEPS, name)
    with pytest.raises(
        TargetUnfit, match=r"The table public\.target keeps rows that outputMode: Complete has to replace"
    ):
        write(ledger, target, [4])
    assert ids() == [1, 2, 3]


def test_readers_see_the_former_result_until_the_new_one_is_committed(
    ledger: PostgresLedger, target: ReplacingTarget, ids: Callable[[], list[int]]
) -> None:
    directly(ledger, target, [1, 2])
    with ledger.transaction() as transaction:
        target.write(transaction, [rows([3])])
        assert ids() == [1, 2], "and they wait for nothing"
    assert ids() == [3]
