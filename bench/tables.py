"""Rows per second into a table with a log, or a topic, against what people use for the same batches in a job without a ledger.

The plain job hands each batch of Spark to the library as Arrow, on the driver; ours writes files by Spark's tasks and has the
library commit them. Into a topic the plain job writes by Spark's tasks (`df.write.format("kafka")`), at least once; ours sends
from the driver, each batch in one transaction. All check each record alike. Goal for tables: at least 0.95 of its rows per
second, and as many for a core-second; for a topic, docs/adr/0048 has it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from bench.bare_job import ICEBERG_TABLE, catalog_uri, topic_of
from bench.core_seconds import CoreSeconds, counted
from bench.figures import Figure, compared
from bench.setup import PARTITIONS, Setup, batch_moments, finish

_SECONDS = 60.0


@dataclass(frozen=True)
class Kind:
    """A kind of sink: the plain job's name, and what both write into."""

    name: str
    peer: str
    told: str
    spec: Callable[[Setup, Path], dict[str, Any]]
    """What ours says of its sink, in this folder."""
    count: Callable[[Setup, Path, str], int]
    """The rows of the table in this folder, or in the catalog in this database, or in the topic that is named by the folder."""
    left_out: tuple[str, ...] = ("Kafka",)
    """Whose core-seconds do not count: those of a broker that serves both alike."""
    files: str | None = None
    """A plain job that writes the same rows by Spark's own writer into files that no log names: ours can cost no less."""


def _iceberg(_: Setup, out: Path) -> dict[str, Any]:
    catalog = {"sql": {"secretRef": {"name": "warehouse"}}}
    return {"sink": {"iceberg": {"catalog": catalog, "table": ICEBERG_TABLE, "location": str(out)}}}


def _kafka(setup: Setup, out: Path) -> dict[str, Any]:
    sink = {"bootstrapServers": setup.kafka.bootstrap_servers, "topic": topic_of(out), "key": "k"}
    query = "select cast(id as string) as k, id, customer, amount, ts from source"
    return {"sink": {"kafka": sink}, "transform": {"sql": query}}


def _records(setup: Setup, out: Path) -> int:
    """Count what a reader at read_committed sees, to the end of every partition."""
    reader = Consumer({
        "bootstrap.servers": setup.kafka.bootstrap_servers, "group.id": "counts", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    try:
        reader.assign([TopicPartition(topic_of(out), number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        count, ended, heard_at = 0, 0, time.monotonic()
        while ended < PARTITIONS:
            found = reader.consume(10_000, 1.0)  # which waits for as many, and the last ones are fewer
            heard_at = time.monotonic() if found else heard_at
            assert time.monotonic() - heard_at < _SECONDS, f"a reader came to the end of {ended} partitions alone"
            at_end = sum(record.error() is not None for record in found)
            count, ended = count + len(found) - at_end, ended + at_end
        return count
    finally:
        reader.close()


DELTA = Kind(
    "delta",
    "deltalake",
    "a Delta table",
    lambda _, out: {"sink": {"delta": {"location": str(out)}}},
    lambda _, out, __: DeltaTable(str(out)).count(),
    files="parquet-checked",
)
ICEBERG = Kind(
    "iceberg",
    "pyiceberg",
    "an Iceberg table",
    _iceberg,
    lambda _, __, url: SqlCatalog("default", uri=catalog_uri(url)).load_table(ICEBERG_TABLE).scan().count(),
)
KAFKA = Kind("kafka", "spark-kafka", "a Kafka topic", _kafka, lambda setup, out, _: _records(setup, out), left_out=())


def table_sink(setup: Setup, kind: Kind, records: int, batch: int, repeats: int) -> list[Figure]:
    """Measure both `repeats` times, in turns, and return medians; the first batch of each run warms up."""
    setup.fill(kind.name, records)
    names = tuple(name for name in (kind.peer, kind.files, kind.name) if name is not None)
    rates: dict[str, list[float]] = {name: [] for name in names}
    used: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(1, repeats + 1):
        for name in names:
            core_seconds = CoreSeconds(setup.kafka.pid)
            with counted(core_seconds):
                moments = _run(setup, kind, name, batch, records)
            rows = (len(moments) - 1) * batch
            rates[name].append(rows / (moments[-1] - moments[0]))
            parts = core_seconds.between(moments[0], moments[-1])
            used[name].append(
                {part: seconds / rows * 1e6 for part, seconds in parts.items() if part not in kind.left_out}
            )
            told = ", ".join(f"{part} {seconds:.2f}" for part, seconds in used[name][-1].items())
            print(
                f"  {turn}/{repeats} {name}: {rates[name][-1]:,.0f} rows/s; core-seconds a million rows: {told}",
                flush=True,
            )
    plain = Figure(f"{kind.peer}, a plain job with the same rows", statistics.median(rates[kind.peer]), "rows/s")
    ours = compared(f"exactly once, {kind.told}", statistics.median(rates[kind.name]), "rows/s", plain)
    return [plain, ours, *_for_a_core_second(kind, used)]


def _for_a_core_second(kind: Kind, used: dict[str, list[dict[str, float]]]) -> list[Figure]:
    """Return the rows that a core-second takes, and what there is to gain at all where files are Spark's own."""
    rows = {name: 1e6 / statistics.median(sum(parts.values()) for parts in found) for name, found in used.items()}
    plain = Figure(f"{kind.peer}, for a core-second", rows[kind.peer], "rows")
    found = [plain, compared(f"exactly once, {kind.told}, for a core-second", rows[kind.name], "rows", plain)]
    if kind.files is not None:
        files = Figure("df.write.parquet of the same rows, for a core-second", rows[kind.files], "rows")
        found += [
            compared(files.name, files.value, "rows", plain),
            compared(f"exactly once, {kind.told}, for a core-second", rows[kind.name], "rows", files),
        ]
    return found


def _run(setup: Setup, kind: Kind, name: str, batch: int, records: int) -> list[float]:
    """Run one contender over the whole topic and return when each batch with data was committed."""
    folder, database = setup.fresh(name), setup.database()
    out = folder / "out"
    if kind is KAFKA:
        setup.kafka.create_topic(topic_of(out), PARTITIONS)
    if name == kind.name:
        spec = {
            **kind.spec(setup, out),
            "ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
            "trigger": {"availableNow": True},
        }
        finish(setup.run_stream(folder, setup.stream_file(folder, kind.name, database, batch, **spec)), folder)
    else:
        finish(setup.run_bare(folder, name, kind.name, database, batch), folder)
    counted_rows = _in_files(out) if name == kind.files else kind.count(setup, out, setup.url(database))
    assert counted_rows == records, f"{name} has written every row once"
    moments = batch_moments(folder)
    setup.postgres.execute(f"drop database {database} with (force)")
    return moments[1:] if name == kind.name else moments  # our first is the seed, an empty batch


def _in_files(out: Path) -> int:
    """Count by footers; nothing was killed, so every file counts."""
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in out.glob("*.parquet"))
