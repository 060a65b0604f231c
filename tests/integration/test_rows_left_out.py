"""Rows that a table's trigger leaves out would be lost without a word: every way to write them finds out and says so.

Append here; Upsert and Merge in test_keys_left_out.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.postgres.table import TargetUnfit
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.target import Moved, Staged
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on

ROWS = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4, 5]})
BATCH = BatchNumber(1)
LEAVES_OUT = """
create function leave_out() returns trigger language plpgsql as
    $$ begin if new.id % 2 = 0 then return null; end if; return new; end $$;
create trigger leave_out before insert on target for each row execute function leave_out()
"""

Write = Callable[[PostgresLedger, PostgresTarget], int]


def directly(ledger: PostgresLedger, target: PostgresTarget) -> int:
    """As the driver writes a small batch, and a task its partition."""
    with ledger.transaction() as transaction:
        return target.write(transaction, [ROWS])


def staged(ledger: PostgresLedger, target: PostgresTarget) -> int:
    """As tasks stage a batch and the driver moves it."""
    parts = [Staged(7, target.stage(BATCH, 7, [ROWS])), Staged(8, target.stage(BATCH, 8, [ROWS]))]
    with ledger.transaction() as transaction:
        return target.move_staged(transaction, BATCH, parts).written


@pytest.fixture
def ledger(postgres_18: Postgres, name: str) -> PostgresLedger:
    return ledger_on(postgres_18, name)


@pytest.fixture
def target(ledger: PostgresLedger) -> PostgresTarget:
    sink = PostgresSink.model_validate({"secretRef": {"name": "warehouse"}, "table": "target"})
    made = PostgresTarget(ledger, TargetPlan(STREAM, Epoch(1), "exactlyonce", "public", "target", ("id",), sink))
    made.create_staging()
    return made


@pytest.mark.parametrize(("write", "taken", "rows"), [(directly, 3, 5), (staged, 6, 10)])
def test_a_trigger_that_leaves_rows_out_is_told_and_nothing_is_written(
    postgres_18: Postgres,
    name: str,
    ledger: PostgresLedger,
    target: PostgresTarget,
    write: Write,
    taken: int,
    rows: int,
) -> None:
    postgres_18.execute(LEAVES_OUT, name)
    with pytest.raises(TargetUnfit) as caught:
        write(ledger, target)
    assert str(caught.value) == (
        f"The table public.target took {taken} of {rows} rows; nothing was written. A trigger BEFORE INSERT or BEFORE "
        "UPDATE that returns NULL, or a rule, leaves rows out: drop it, and filter in transform.sql instead. To find it: "
        "select tgrelid::regclass, tgname from pg_trigger where tgtype & 2 = 2 and not tgisinternal."
    )
    assert postgres_18.execute("select * from target", name) == []
    postgres_18.execute("drop trigger leave_out on target", name)
    assert write(ledger, target) >= 5


def test_staged_rows_that_are_gone_are_told_from_rows_that_a_trigger_leaves_out(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, target: PostgresTarget
) -> None:
    """An unlogged table is empty after a crash of the server: the batch runs again, and no table is to blame."""
    target.stage(BATCH, 7, [ROWS])
    with ledger.transaction() as transaction:
        assert target.move_staged(transaction, BATCH, [Staged(7, 5), Staged(8, 5)]) == Moved(5, 5)


@pytest.mark.parametrize("write", [directly, staged])
def test_a_table_whose_partitions_take_the_rows_takes_all(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, target: PostgresTarget, write: Write
) -> None:
    postgres_18.execute(
        "drop table target; create table target (id bigint) partition by range (id); "
        "create table low partition of target for values from (0) to (3); "
        "create table high partition of target for values from (3) to (9)",
        name,
    )
    expected = write(ledger, target)
    assert postgres_18.execute("select count(*) from target", name) == [(expected,)]
