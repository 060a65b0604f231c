"""Upsert and Merge: every key takes effect, or the table rightly stays as it is; what a trigger swallows is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.postgres.table import TargetUnfit
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.target import Staged
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on

BATCH = BatchNumber(1)
TAGS = itertools.count(1)
COLUMNS = ("id", "v", "n", "note")
Row = tuple[int, int | None, int | None, str | None]

PLAIN = "drop table target; create table target (id bigint primary key, v bigint, n bigint, note text)"
PARTITIONED = (
    "drop table target; create table target (id bigint primary key, v bigint, n bigint, note text) partition by range (id); "
    "create table low partition of target for values from (0) to (3); "
    "create table high partition of target for values from (3) to (100)"
)


def merging(**columns: str) -> list[dict[str, str]]:
    """Return how columns are merged, as a resource says it."""
    return [{"column": column, "combine": combine} for column, combine in columns.items()]


UPSERT: dict[str, Any] = {"write": "Upsert", "keys": ["id"]}
BY_VERSION: dict[str, Any] = {**UPSERT, "version": "v"}
MERGE: dict[str, Any] = {"write": "Merge", "keys": ["id"], "merge": merging(v="Max", n="Sum", note="Last")}
SINKS: dict[str, dict[str, Any]] = {"Upsert": UPSERT, "Upsert with a version": BY_VERSION, "Merge": MERGE}

SWALLOWS = """
create function swallow() returns trigger language plpgsql as
    $$ begin if new.id % 2 = 0 then return null; end if; return new; end $$;
create trigger swallow before {event} on target for each row execute function swallow()
"""
WRITES_ITSELF_AND_SWALLOWS = """
create function swallow() returns trigger language plpgsql as
    $$ begin if pg_trigger_depth() > 1 then return new; end if; update target set n = 0 where id = new.id; return null; end $$;
create trigger swallow before insert on target for each row when (new.id = 2) execute function swallow()
"""
NO_REDUNDANT_UPDATES = (
    "create trigger zz_suppress before update on target "
    "for each row execute function suppress_redundant_updates_trigger()"
)
CHANGES_VALUES = """
create function change() returns trigger language plpgsql as $$ begin new.note := upper(new.note); return new; end $$;
create trigger change before insert or update on target for each row execute function change()
"""

Write = Callable[[PostgresLedger, PostgresTarget, Sequence[Row]], int]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    types = [pa.int64(), pa.int64(), pa.int64(), pa.string()]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def directly(ledger: PostgresLedger, target: PostgresTarget, rows: Sequence[Row]) -> int:
    """As the driver writes a small batch, and a task its partition."""
    with ledger.transaction() as transaction:
        return target.write(transaction, [batch_of(rows)])


def staged(ledger: PostgresLedger, target: PostgresTarget, rows: Sequence[Row]) -> int:
    """As two tasks stage a batch and the driver moves it."""
    halves = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
    parts = [Staged(tag, target.stage(BATCH, tag, [batch_of(half)])) for tag, half in zip(TAGS, halves, strict=False)]
    with ledger.transaction() as transaction:
        moved = target.move_staged(transaction, BATCH, parts)
    target.clear_staging(BATCH)
    assert moved.found == len(rows)
    return moved.written


@dataclass(frozen=True)
class Place:
    """A table of one shape in a database of its own, and who writes to it."""

    server: Postgres
    name: str
    ledger: PostgresLedger

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self.server.execute(statement, self.name)

    def rows(self) -> list[tuple[object, ...]]:
        return self.sql("select id, v, n, note from target order by id")

    def target(self, sink: Mapping[str, Any], columns: tuple[str, ...] = COLUMNS) -> PostgresTarget:
        parsed = PostgresSink.model_validate({"secretRef": {"name": "warehouse"}, "table": "target", **sink})
        plan = TargetPlan(STREAM, Epoch(1), "exactlyonce", "public", "target", columns, parsed)
        made = PostgresTarget(self.ledger, plan)
        made.create_staging()
        return made


@pytest.fixture(params=[PLAIN, PARTITIONED], ids=["plain", "partitioned"])
def place(request: pytest.FixtureRequest, postgres_18: Postgres, name: str) -> Place:
    ledger = ledger_on(postgres_18, name)
    postgres_18.execute(request.param, name)
    return Place(postgres_18, name, ledger)


def told(caught: pytest.ExceptionInfo[TargetUnfit]) -> str:
    return str(caught.value).split(" keys;")[0]


@pytest.mark.parametrize("write", [directly, staged])
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("event", ["insert", "update", "insert or update"])
def test_keys_that_a_trigger_swallows_are_told_and_nothing_is_written(
    place: Place, write: Write, sink: str, event: str
) -> None:
    """Half of the keys are new and half are there: a trigger may swallow the one, the other or both."""
    target = place.target(SINKS[sink])
    there: list[Row] = [(1, 1, 1, "a"), (2, 1, 1, "a")]
    assert write(place.ledger, target, there) == 2
    before = place.rows()
    place.sql(SWALLOWS.format(event=event))
    batch: list[Row] = [(1, 2, 2, "b"), (2, 2, 2, "b"), (3, 2, 2, "b"), (4, 2, 2, "b")]
    swallowed = {"insert": 2, "update": 1, "insert or update": 2}[event]
    with pytest.raises(TargetUnfit) as caught:
        write(place.ledger, target, batch)
    assert told(caught) == f"The table public.target left out {swallowed} of 4"
    assert "select tgrelid::regclass, tgname from pg_trigger" in str(caught.value)
    assert place.rows() == before
    place.sql("drop trigger swallow on target")
    assert write(place.ledger, target, batch) == 4


@pytest.mark.parametrize("write", [directly, staged])
def test_a_trigger_that_swallows_a_row_and_changes_another_way_is_told(place: Place, write: Write) -> None:
    target = place.target(UPSERT)
    write(place.ledger, target, [(1, 1, 1, "a"), (2, 1, 1, "a")])
    place.sql(WRITES_ITSELF_AND_SWALLOWS)
    with pytest.raises(TargetUnfit) as caught:
        write(place.ledger, target, [(1, 2, 2, "b"), (2, 2, 2, "b")])
    assert told(caught) == "The table public.target left out 1 of 2"
    assert place.rows() == [(1, 1, 1, "a"), (2, 1, 1, "a")]


@pytest.mark.parametrize("write", [directly, staged])
def test_rows_with_a_greater_version_stay_and_are_not_counted_as_written(place: Place, write: Write) -> None:
    target = place.target(BY_VERSION)
    write(place.ledger, target, [(1, 5, 1, "kept"), (2, 5, 1, "replaced"), (3, None, 1, "replaced"), (4, 5, 1, "kept")])
    batch: list[Row] = [
        (1, 4, 9, "too old"), (2, 5, 2, "as new"), (3, 1, 2, "with a version"), (4, None, 9, "without a version"),
        (9, 1, 2, "new"), (9, None, 9, "older in the batch"),
    ]  # fmt: skip
    assert write(place.ledger, target, batch) == 3
    assert place.rows() == [
        (1, 5, 1, "kept"), (2, 5, 2, "as new"), (3, 1, 2, "with a version"), (4, 5, 1, "kept"), (9, 1, 2, "new"),
    ]  # fmt: skip


@pytest.mark.parametrize("write", [directly, staged])
def test_a_swallowed_key_is_told_from_those_with_a_greater_version_beside_it(place: Place, write: Write) -> None:
    target = place.target(BY_VERSION)
    write(place.ledger, target, [(1, 5, 1, "kept"), (2, 5, 1, "there"), (3, 5, 1, "there")])
    place.sql(SWALLOWS.format(event="update"))
    with pytest.raises(TargetUnfit) as caught:
        write(place.ledger, target, [(1, 4, 9, "too old"), (2, 6, 2, "swallowed"), (3, 6, 2, "taken")])
    assert told(caught) == "The table public.target left out 1 of 3"


@pytest.mark.parametrize("write", [directly, staged])
@pytest.mark.parametrize(
    ("sink", "same"),
    [
        ("Upsert", [(1, 1, 5, "a"), (2, None, None, None)]),
        ("Upsert with a version", [(1, 1, 5, "a"), (2, None, None, None)]),
        ("Merge", [(1, 0, 0, "a"), (2, None, None, None)]),
    ],
)
def test_what_suppress_redundant_updates_trigger_leaves_as_it_is_counts_as_held(
    place: Place, write: Write, sink: str, same: list[Row]
) -> None:
    target = place.target(SINKS[sink])
    place.sql(NO_REDUNDANT_UPDATES)
    there: list[Row] = [(1, 1, 5, "a"), (2, None, None, None)]
    assert write(place.ledger, target, there) == 2
    assert write(place.ledger, target, same) == 0
    assert place.rows() == there
    assert write(place.ledger, target, [*same, (3, 1, 1, "new")]) == 1
    changed: list[Row] = [(1, 7, 1, "b"), (2, None, None, None)]
    assert write(place.ledger, target, changed) == 1
    assert place.rows()[0] == ((1, 7, 6, "b") if sink == "Merge" else changed[0])


@pytest.mark.parametrize("write", [directly, staged])
@pytest.mark.parametrize("sink", SINKS)
def test_a_trigger_may_change_the_values_of_rows_that_take_effect(place: Place, write: Write, sink: str) -> None:
    target = place.target(SINKS[sink])
    place.sql(CHANGES_VALUES)
    for version in (1, 2):
        assert write(place.ledger, target, [(1, version, 1, "a"), (2, version, 1, "b"), (2, version, 1, "b")]) == 2
    assert [row[3] for row in place.rows()] == ["A", "B"]


@pytest.mark.parametrize("write", [directly, staged])
def test_keys_without_other_columns_are_there_once_and_a_swallowed_one_is_told(place: Place, write: Write) -> None:
    target = place.target(UPSERT, columns=("id",))

    def ids(*numbers: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})

    def put(*numbers: int) -> int:
        with place.ledger.transaction() as transaction:
            return target.write(transaction, [ids(*numbers)])

    assert put(1, 2, 2) == 2
    assert put(1, 2, 3) == 1
    place.sql(SWALLOWS.format(event="insert"))
    assert put(1, 2, 5) == 1
    with pytest.raises(TargetUnfit) as caught:
        put(1, 2, 4)
    assert told(caught) == "The table public.target left out 1 of 3"


def test_a_type_without_equality_is_compared_by_its_bytes(postgres_18: Postgres, name: str) -> None:
    place = Place(postgres_18, name, ledger_on(postgres_18, name))
    place.sql(PLAIN.replace("note text", "note json"))
    place.sql(NO_REDUNDANT_UPDATES)
    for sink in (
        UPSERT,
        {
            **MERGE,
            "merge": [
                {"column": "v", "combine": "Max"},
                {"column": "n", "combine": "First"},
                {"column": "note", "combine": "Last"},
            ],
        },
    ):
        target = place.target(sink)
        directly(place.ledger, target, [(1, 1, 1, '{"a": 1}')])
        assert directly(place.ledger, target, [(1, 1, 1, '{"a": 1}')]) == 0
        assert directly(place.ledger, target, [(1, 1, 1, '{"a": 2}')]) == 1


def test_a_row_of_an_inheritor_is_no_row_of_the_table(postgres_18: Postgres, name: str) -> None:
    place = Place(postgres_18, name, ledger_on(postgres_18, name))
    place.sql(PLAIN)
    place.sql("create table child () inherits (target); insert into child values (2, 9, 9, 'of the child')")
    target = place.target(BY_VERSION)
    place.sql(SWALLOWS.format(event="insert"))
    with pytest.raises(TargetUnfit) as caught:
        directly(place.ledger, target, [(1, 1, 1, "a"), (2, 1, 1, "swallowed")])
    assert told(caught) == "The table public.target left out 1 of 2"


def test_odd_names_are_quoted_in_what_is_asked_about_left_out_keys(postgres_18: Postgres, name: str) -> None:
    place = Place(postgres_18, name, ledger_on(postgres_18, name))
    place.sql('create schema "%s o""dd"; create table "%s o""dd"."100%" ("k%s" bigint primary key, "v""%" bigint)')
    sink = PostgresSink.model_validate(
        {"secretRef": {"name": "w"}, "table": '"%s o""dd"."100%"', "write": "Upsert", "keys": ["k%s"], "version": 'v"%'}
    )
    plan = TargetPlan(STREAM, Epoch(1), "exactlyonce", '%s o"dd', "100%", ("k%s", 'v"%'), sink)
    target = PostgresTarget(place.ledger, plan)
    target.create_staging()

    def put(version: int) -> int:
        with place.ledger.transaction() as transaction:
            return target.write(transaction, [pa.RecordBatch.from_pydict({"k": [1, 2], "v": [version, version]})])

    assert [put(version) for version in (2, 1, 3)] == [2, 0, 2]
