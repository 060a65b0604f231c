"""A failover that loses the latest transactions may lose the staging table of a driver that runs: the next one makes another.

The soak found it (seed 20261129): the stream halted with "Create it, or correct the resource".
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.errors import LedgerRefused
from exactlyonce.launch.last_message import Ending
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, StagingTableLost, TargetPlan
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.target import Staged
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on

ROWS = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})
BATCH = BatchNumber(1)

Use = Callable[[PostgresLedger, PostgresTarget], object]


def stage(ledger: PostgresLedger, target: PostgresTarget) -> None:
    """As a task stages its rows."""
    target.stage(BATCH, 7, [ROWS])


def move(ledger: PostgresLedger, target: PostgresTarget) -> None:
    """As the driver moves what tasks have staged."""
    with ledger.transaction() as transaction:
        target.move_staged(transaction, BATCH, [Staged(7, 3)])


def write(ledger: PostgresLedger, target: PostgresTarget) -> None:
    """As the driver writes a small batch."""
    with ledger.transaction() as transaction:
        target.write(transaction, [ROWS])


@pytest.fixture
def ledger(postgres_18: Postgres, name: str) -> PostgresLedger:
    return ledger_on(postgres_18, name)


def target_of(ledger: PostgresLedger, how: str) -> PostgresTarget:
    sink = {"secretRef": {"name": "warehouse"}, "table": "target", "write": how}
    keyed = {"keys": ["id"]} if how == "Upsert" else {}
    read = PostgresSink.model_validate({**sink, **keyed})
    made = PostgresTarget(ledger, TargetPlan(STREAM, Epoch(1), "exactlyonce", "public", "target", ("id",), read))
    made.create_staging()
    return made


@pytest.mark.parametrize(("how", "use"), [("Append", stage), ("Append", move), ("Upsert", move), ("Upsert", write)])
def test_a_staging_table_that_is_gone_ends_the_driver_and_halts_no_stream(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, how: str, use: Use
) -> None:
    target = target_of(ledger, how)
    (staging,) = [f"{it[0]}" for it in postgres_18.execute(
        "select format('%I.%I', schemaname, tablename) from pg_tables where tablename like 'staging_%'", name
    )]  # fmt: skip
    postgres_18.execute(f"drop table {staging}", name)
    with pytest.raises(StagingTableLost, match="is gone: a failover lost its latest transactions") as caught:
        use(ledger, target)
    assert staging in str(caught.value)
    told = f"exactlyonce_spark.connectors.postgres.target.StagingTableLost: {caught.value}"
    for problem in (caught.value, RuntimeError(told)):
        assert ending_of(problem, in_batch=True)[0] is Ending.UNREACHABLE
    assert postgres_18.execute("select * from target", name) == []


def test_a_target_table_that_is_gone_is_told_as_what_it_is(
    postgres_18: Postgres, name: str, ledger: PostgresLedger
) -> None:
    target = target_of(ledger, "Append")
    stage(ledger, target)
    postgres_18.execute("drop table target", name)
    with pytest.raises(LedgerRefused, match=r"no such thing: relation .*target.* does not exist"):
        move(ledger, target)
