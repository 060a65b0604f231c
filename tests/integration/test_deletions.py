"""Rows that delete their key, against a real database without Spark: the last row of a key decides, and that is verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.connectors.postgres.deletions import DeletionUnclear, DeletionWithoutKey, without_deleted
from exactlyonce_spark.connectors.postgres.table import TargetUnfit, read_table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.target import Moved, Staged
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of

Row = tuple[int | None, str | None, bool | None]


class Scenario:
    """A table that is upserted, with rows that delete."""

    def __init__(self, server: Postgres, name: str, table: str = "") -> None:
        self.server, self.name = server, name
        server.create_database(name)
        server.execute(f"create table customers (id bigint primary key, name text, visits int default 0) {table}", name)
        self.ledger = PostgresLedger(address_of(server, name), limits=QUICK)
        self.ledger.prepare()
        self.sink = PostgresSink.model_validate(
            {"secretRef": {"name": "warehouse"}, "table": "customers", "write": "Upsert", "keys": ["id"]}
        )
        plan = TargetPlan(
            "shop/orders", Epoch(1), "exactlyonce", "public", "customers", ("id", "name"), self.sink, deletes=True
        )
        self.target = PostgresTarget(self.ledger, plan)
        self.target.create_staging()

    def write(self, *rows: Row) -> int:
        with self.ledger.transaction() as transaction:
            return self.target.write(transaction, arrow(rows))

    def found(self) -> list[tuple[object, ...]]:
        return self.server.execute("select id, name from customers order by id", self.name)

    def visits(self) -> list[tuple[object, ...]]:
        return self.server.execute("select id, visits from customers order by id", self.name)


@pytest.fixture
def scenario(postgres_18: Postgres, name: str) -> Scenario:
    return Scenario(postgres_18, name)


def arrow(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    columns = list(zip(*rows, strict=True))
    arrays: list[pa.Array[Any]] = [
        pa.array(columns[0], pa.int64()),
        pa.array(columns[1], pa.string()),
        pa.array(columns[2], pa.bool_()),
    ]
    return [pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "deleted"])]


def test_the_last_row_of_each_key_decides_whether_it_is_deleted(scenario: Scenario) -> None:
    scenario.write((1, "x", False), (2, "y", False), (1, None, True), (3, "z", False), (9, None, True))
    assert scenario.found() == [(2, "y"), (3, "z")]
    scenario.write((1, "again", False), (2, None, True), (2, "back", False), (3, None, True))
    assert scenario.found() == [(1, "again"), (2, "back")]


def test_rows_that_are_deleted_count_as_written_and_keys_that_are_not_there_do_not(scenario: Scenario) -> None:
    assert scenario.write((1, "x", False), (2, "y", False), (9, None, True)) == 2
    assert scenario.write((1, None, True), (1, None, True), (9, None, True)) == 1
    assert scenario.write((2, None, True), (2, "back", False), (3, "z", False)) == 3


def test_a_key_that_is_deleted_and_written_again_ends_as_in_two_batches(scenario: Scenario) -> None:
    """What the query does not yield is then the default, wherever the border between two batches falls."""
    scenario.write((1, "x", False), (2, "y", False))
    scenario.server.execute("update customers set visits = 7", scenario.name)
    scenario.write((1, None, True), (1, "again", False), (2, "also", False))
    assert scenario.visits() == [(1, 0), (2, 7)]


def test_a_row_that_does_not_say_whether_it_deletes_fails_and_nothing_is_written(scenario: Scenario) -> None:
    scenario.write((1, "x", False))
    with pytest.raises(DeletionUnclear, match="1 rows have no value in _deleted"):
        scenario.write((1, "y", None), (2, "z", False))
    assert scenario.found() == [(1, "x")]


def test_a_deletion_leaves_rows_of_inheriting_tables_alone_as_an_upsert_does(scenario: Scenario) -> None:
    scenario.server.execute("create table former () inherits (customers)", scenario.name)
    scenario.server.execute("insert into former (id, name) values (1, 'before')", scenario.name)
    scenario.write((1, "x", False))
    assert scenario.write((1, None, True)) == 1
    assert scenario.found() == [(1, "before")]


def test_rows_are_deleted_from_the_leaves_of_a_partitioned_table(postgres_18: Postgres, name: str) -> None:
    scenario = Scenario(postgres_18, name, "partition by hash (id)")
    for part in (0, 1):
        of = f"for values with (modulus 2, remainder {part})"
        scenario.server.execute(f"create table customers_{part} partition of customers {of}", name)
    scenario.write(*((number, "x", False) for number in range(8)))
    assert scenario.write(*((number, None, True) for number in range(6))) == 6
    assert scenario.found() == [(6, "x"), (7, "x")]


def test_staged_rows_of_two_tasks_are_ordered_as_their_tags_are(scenario: Scenario) -> None:
    scenario.write((1, "x", False), (2, "y", False))
    batch = BatchNumber(4)
    staged = [
        Staged(7, scenario.target.stage(batch, 7, arrow([(1, None, True), (2, None, True)]))),
        Staged(5, scenario.target.stage(batch, 5, arrow([(2, "later", False)]))),
    ]
    with scenario.ledger.transaction() as transaction:
        assert scenario.target.move_staged(transaction, batch, staged) == Moved(3, 3)
    assert scenario.found() == [(2, "later")]


def test_a_deletion_that_names_no_row_fails_and_nothing_is_written(scenario: Scenario) -> None:
    scenario.write((1, "x", False))
    with pytest.raises(DeletionWithoutKey, match="in the transform, take the keys from _key"):
        scenario.write((2, "y", False), (None, None, True))
    assert scenario.found() == [(1, "x")]


def test_a_row_that_a_trigger_keeps_from_deletion_fails_its_batch(scenario: Scenario) -> None:
    scenario.write((1, "x", False))
    scenario.server.execute(
        "create function keep() returns trigger language plpgsql as 'begin return null; end'; "
        "create trigger keep before delete on customers for each row execute function keep()",
        scenario.name,
    )
    with pytest.raises(TargetUnfit, match="kept 1 rows that were to be deleted"):
        scenario.write((2, "y", False), (1, None, True))
    assert scenario.found() == [(1, "x")]


@pytest.mark.parametrize(
    ("types", "said"),
    [([], "the query does not yield _deleted"), (["string"], "as string"), (["boolean"] * 2, "boolean, boolean")],
)
def test_a_query_has_to_say_once_which_rows_delete(scenario: Scenario, types: list[str], said: str) -> None:
    columns = [YieldedColumn("id", "bigint"), *(YieldedColumn("_deleted", kind) for kind in types)]
    with pytest.raises(TargetUnfit, match=said):
        without_deleted(columns, read_table(scenario.ledger, scenario.sink))


def test_a_table_with_a_column_of_that_name_is_refused(scenario: Scenario) -> None:
    columns = [YieldedColumn("id", "bigint"), YieldedColumn("_deleted", "boolean")]
    assert without_deleted(columns, read_table(scenario.ledger, scenario.sink)) == columns[:1]
    scenario.server.execute("alter table customers add column _deleted boolean", scenario.name)
    with pytest.raises(TargetUnfit, match="has a column _deleted"):
        without_deleted(columns, read_table(scenario.ledger, scenario.sink))
