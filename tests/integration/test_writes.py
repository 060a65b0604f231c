"""What a sink's table holds afterwards: Upsert, Merge and batches without rows, by batch and by partition, through kills."""

from __future__ import annotations

import json
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.reconcile.loop import Done
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import in_full, one_or_all
from tests.rig import Rig

pytestmark = pytest.mark.seconds(10)

Record = dict[str, Any]

LARGE, TINY = 2400, 400
"""Records per batch: too many for the driver, which then leaves them to tasks, and few enough for it."""

PARTITIONS = 4


def send_json(rig: Rig, records: Iterable[Mapping[str, object]]) -> None:
    """Produce records to the partitions in turn."""
    rig.send([(place % rig.partitions, json.dumps(record).encode()) for place, record in enumerate(records)])


def in_batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records as batches of LARGE cut them: Spark's limit takes as many of each partition, and they are even."""
    return (records[first : first + LARGE] for first in range(0, len(records), LARGE))


CUSTOMERS = """
create table customers (id bigint primary key, version bigint, name text);
create table writes (id bigint, kind text);
create function note_write() returns trigger language plpgsql as
    $$ begin insert into writes values (new.id, tg_op); return new; end $$;
create trigger note_write after insert or update on customers for each row execute function note_write();
"""


@pytest.mark.parametrize(
    ("commit", "version", "crash", "verdicts"),
    one_or_all(
        [
            # That a batch which has landed writes nothing again is shown by the Merge below, where it would be seen in sums.
            pytest.param(
                "Partition",
                "version",
                *in_full(
                    (
                        "task.committed@1=kill-driver batch.landed@1=kill-driver",
                        ["FirstStart", "FinishBatch", "SkipLanded"],
                    ),
                    otherwise=("task.committed@1=kill-driver", ["FirstStart", "FinishBatch"]),
                ),
                id="Partition with a version",
            ),
            pytest.param(
                "Batch",
                "version",
                "batch.landed@1=kill-driver",
                ["FirstStart", "SkipLanded"],
                id="Batch with a version",
            ),
            pytest.param("Batch", None, None, ["FirstStart"], id="Batch without a version"),
        ]
    ),
)
def test_upsert_keeps_the_right_row_of_each_key(
    rig: Rig, commit: str, version: str | None, crash: str | None, verdicts: list[str]
) -> None:
    """With a version, rows of one key are in all partitions; without one, only a partition's order says what is last."""
    rig.sql(CUSTOMERS)
    rig.overrides |= {
        "spec.source.format": {"schema": "id BIGINT, version BIGINT, name STRING"},
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres": {
            **rig.document()["spec"]["sink"]["postgres"],
            **{"table": "public.customers", "write": "Upsert", "keys": ["id"], "commit": commit},
            **({} if version is None else {"version": version}),
        },
    }
    records = versioned_customers(LARGE + TINY) if version else customers_by_partition(LARGE + TINY)
    send_json(rig, records)
    assert rig.run(crash=crash) == Done(completed=True), rig.story()
    assert rig.verdicts() == verdicts
    kept, writes = upserted(records, by_version=version is not None)
    found = rig.sql("select id, version, name from customers")
    assert {row[0]: row[1:] for row in found} == {key: (row["version"], row["name"]) for key, row in kept.items()}
    if commit == "Batch":
        counted = Counter({(key, kind): count for key, kind, count in rig.sql(
            "select id, kind, count(*) from writes group by id, kind"
        )})  # fmt: skip
        assert counted == writes, "each batch wrote a key once at most, and the replay wrote nothing"
        told = rig.sql("select sum(rows_written) from exactlyonce.batches where status = 'Landed'")
        assert told == [(writes.total(),)], "the ledger counts the rows that took effect"


def versioned_customers(count: int) -> list[Record]:
    """Versions are unique and in no order; key 300 never has one, and 301 loses its in the end."""
    chance = random.Random(7)
    versions = chance.sample(range(count), count)
    records: list[Record] = [
        {"id": chance.randrange(300), "version": versions[number], "name": f"name {number}"} for number in range(count)
    ]
    records[0] = {"id": 300, "version": None, "name": "without a version"}
    records[1] = {"id": 301, "version": 5, "name": "with a version"}
    records[-4] = {"id": 300, "version": None, "name": "without a version, later"}
    records[-3] = {"id": 301, "version": None, "name": "without a version, too late"}
    return records


def customers_by_partition(count: int) -> list[Record]:
    chance = random.Random(8)
    return [
        {"id": PARTITIONS * chance.randrange(75) + number % PARTITIONS, "version": None, "name": f"name {number}"}
        for number in range(count)
    ]


def upserted(records: Sequence[Record], *, by_version: bool) -> tuple[dict[int, Record], Counter[tuple[int, str]]]:
    """What is kept of each key, and how often each key is written."""
    kept: dict[int, Record] = {}
    writes: Counter[tuple[int, str]] = Counter()
    for batch in in_batches(records):
        winners: dict[int, Record] = {}
        for record in batch:
            if record["id"] not in winners or not by_version or rank(record) >= rank(winners[record["id"]]):
                winners[record["id"]] = record
        for key, record in winners.items():
            if key not in kept or not by_version or rank(record) >= rank(kept[key]):
                writes[key, "UPDATE" if key in kept else "INSERT"] += 1
                kept[key] = record
    return kept, writes


def rank(record: Record) -> int:
    return -1 if record["version"] is None else int(record["version"])


COMBINE = {
    "total": "Sum", "orders": "Sum", "least": "Min", "most": "Max", "earliest": "First", "latest": "Last",
}  # fmt: skip


@pytest.mark.parametrize(
    ("commit", "points", "verdicts"),
    one_or_all(
        [
            # A transaction that ends before its commit leaves no row, however it writes: tests/faults/test_crash_points.py.
            pytest.param(
                "Batch",
                *in_full(
                    (("land.before-commit@2", "batch.landed@3"), ["FirstStart", "ReplayBatch", "SkipLanded"]),
                    otherwise=(("batch.landed@3",), ["FirstStart", "SkipLanded"]),
                ),
                id="Batch",
            ),
            pytest.param(
                "Partition",
                ("task.before-commit@1", "task.committed@2", "batch.landed@3"),
                ["FirstStart", "ReplayBatch", "FinishBatch", "SkipLanded"],
                id="Partition",
            ),
        ]
    ),
)
def test_merge_adds_each_record_once_through_kills(
    rig: Rig, commit: str, points: tuple[str, ...], verdicts: list[str]
) -> None:
    """By batch a key is in one partition, so first and last are told; by partition two tasks merge into one row at once."""
    by_batch = commit == "Batch"
    merge = {name: how for name, how in COMBINE.items() if by_batch or how in ("Sum", "Min", "Max")}
    rig.sql(
        "create table totals (customer int primary key, total numeric, orders bigint, least int, most int, "
        "earliest text, latest text)"
    )
    rig.overrides |= {
        "spec.source.format": {
            "schema": "customer INT, total DECIMAL(12,2), orders INT, least INT, most INT"
            + (", earliest STRING, latest STRING" if by_batch else "")
        },
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres": {
            **rig.document()["spec"]["sink"]["postgres"],
            **{
                "table": "public.totals",
                "write": "Merge",
                "keys": ["customer"],
                "merge": as_list(merge),
                "commit": commit,
            },
        },
    }
    records = [order_of(number, by_partition=by_batch) for number in range(3 * LARGE + TINY)]
    send_json(rig, records)
    crash = " ".join(f"{point}=kill-driver" for point in points)
    assert rig.run(crash=crash, seconds=400) == Done(completed=True), rig.story()
    assert rig.verdicts()[2:] == verdicts[2:]
    assert rig.verdicts()[1] in (verdicts[1], "FinishBatch"), "another task may have committed before the kill"
    found = rig.sql(f"select customer, {', '.join(merge)} from totals")
    assert {row[0]: row[1:] for row in found} == merged(records, merge)


def order_of(number: int, *, by_partition: bool) -> Record:
    chance = random.Random(number)
    customer = chance.randrange(50) * PARTITIONS + number % PARTITIONS if by_partition else chance.randrange(200)
    amount = chance.randrange(-1000, 1000)
    return {
        "customer": customer,
        "total": None if number % 7 == 0 else f"{chance.randrange(100_000)}.{number % 100:02d}",
        "orders": 1,
        "least": amount,
        "most": amount,
        "earliest": f"order {number}",
        "latest": f"order {number}",
    }


def as_list(merge: Mapping[str, str]) -> list[dict[str, str]]:
    """Return how columns are merged, as a resource says it."""
    return [{"column": name, "combine": how} for name, how in merge.items()]


def merged(records: Sequence[Record], merge: Mapping[str, str]) -> dict[int, tuple[object, ...]]:
    """What the records of each customer come to, one at a time."""
    combine: dict[str, Callable[[Any, Any], object]] = {
        "Sum": operator.add, "Min": min, "Max": max, "First": lambda old, _: old, "Last": lambda _, new: new,
    }  # fmt: skip
    totals: dict[int, dict[str, Any]] = {}
    for record in records:
        values = {name: record[name] for name in merge}
        values["total"] = None if values["total"] is None else Decimal(values["total"])
        old = totals.setdefault(record["customer"], values)
        if old is not values:
            for name, how in merge.items():
                known = [value for value in (old[name], values[name]) if value is not None]
                old[name] = combine[how](*known) if len(known) == 2 else next(iter(known), None)
    return {customer: tuple(values[name] for name in merge) for customer, values in totals.items()}


@pytest.mark.parametrize("commit", one_or_all(["Batch", "Partition"]))
def test_batches_of_which_no_row_is_left_move_the_positions_alone(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, commit: str
) -> None:
    rig = Rig(kafka, postgres_18, tmp_path, name, partitions=1)
    rig.overrides |= {
        "spec.transform": {"sql": "SELECT id, customer, amount, ts FROM source WHERE amount > 0"},
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres.commit": commit,
    }
    rig.produce(LARGE, amount="0.00")
    kept = rig.produce(20)
    rig.produce(LARGE - 20 + TINY, amount="-1.00")
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once(
        without=sorted({*rig.produced} - {*kept} | {number for number in kept if number % 1000 == 0})
    )
    assert rig.landed_batch() == 3
    assert rig.sql("select next_offset from exactlyonce.offsets") == [(2 * LARGE + TINY,)]


@pytest.mark.parametrize("where", one_or_all(["behind a pooler", "PostgreSQL 16"]))
def test_a_whole_stream_lands_once_through_kills(
    kafka: Kafka, tmp_path: Path, name: str, where: str, request: pytest.FixtureRequest
) -> None:
    """Staged by tasks and moved, and a last batch that the driver copies; elsewhere the tests use PostgreSQL 18 itself."""
    server: Postgres = request.getfixturevalue("postgres_16" if "16" in where else "postgres_18")
    rig = Rig(kafka, server, tmp_path, name)
    if "pooler" in where:
        rig.write_secret(port=str(request.getfixturevalue("pooler").port))
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    rig.produce(LARGE + TINY)
    # The kill in a transaction is the one that a pooler could answer otherwise; the points before it: tests/faults.
    crash, replays = in_full(
        ("batch.rows-written@1=kill-driver land.before-commit@2=kill-driver", 2),
        otherwise=("land.before-commit@1=kill-driver", 1),
    )
    assert rig.run(crash=crash, seconds=400) == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", *["ReplayBatch"] * replays]
