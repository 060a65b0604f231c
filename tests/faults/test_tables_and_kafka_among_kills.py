"""100,000 ids into a Delta table, an Iceberg table and a Kafka topic; drivers are killed at drawn points (make test-full).

Everything is counted by readers that are not ours: deltalake, pyiceberg and DuckDB, and a consumer at read_committed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from exactlyonce.reconcile.loop import Done
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.delta_rig import ids_by_duckdb
from tests.folder_rig import FolderRig
from tests.kafka_sink_rig import KafkaSinkRig
from tests.rig import Rig
from tests.struck_report import recorded
from tests.table_streams import records_told

IDS = int(os.environ.get("STRUCK_IDS", "100000"))
KILLS = int(os.environ.get("STRUCK_DRIVERS", "20"))
SPARE = 5
"""So many batches more than kills: each kill is of a batch of its own, or follows on another one in it."""
OF_A_BATCH = IDS // (KILLS + SPARE)

OF_EVERY_BATCH = (
    ("batch.planned",),
    ("batch.begun",),
    ("batch.rows-written",),
    ("batch.source-checked",),
    ("land.fenced",),
    ("land.before-commit",),
    ("batch.landed",),
)
OF_TABLES = (
    *OF_EVERY_BATCH,
    ("land.positions-advanced",),
    ("files.written",),
    ("files.folder-removed",),
    ("table.before-commit",),
    ("table.committed",),
    ("batch.published",),
    ("batch.landed", "table.before-commit"),
    ("batch.landed", "table.before-commit", "table.committed"),
)
OF_KAFKA = (
    *OF_EVERY_BATCH,
    ("transaction.piece-sent",),
    ("batch.decided",),
    ("commit.answered",),
    ("batch.committed",),
    ("batch.committed", "finish.read"),
    ("batch.decided", "finish.landed"),
    ("batch.decided", "finish.read", "finish.written-again"),
)
"""The points at which drivers of one batch are killed, one after another: the later ones finish what the first one left."""

Ids = Counter[int]


@dataclass(frozen=True)
class Case:
    """A stream with all of its records, the points of its sink, and what readers count."""

    rig: Rig
    points: Sequence[tuple[str, ...]]
    readers: Sequence[Callable[[], Ids]]


def _ids_of(rows: pa.Table) -> Ids:
    found: Counter[Any] = Counter(rows["id"].to_pylist())
    return found


def _into_delta(kafka: Kafka, postgres: Postgres, folder: Path, name: str) -> Case:
    """From two partitions of Kafka, each read into every batch."""
    where = str(folder / "out")
    overrides = {
        "spec.sink": {"delta": {"location": where}},
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": OF_A_BATCH,
    }
    rig = Rig(kafka, postgres, folder, name, overrides, partitions=2)
    rig.produce(IDS)

    def by_history() -> Ids:
        """The table's history says of each record that one commit holds it."""
        told = [commit["exactlyonce"] for commit in DeltaTable(where).history() if "exactlyonce" in commit]
        positions = [str(it["positions"]) for it in reversed(told) if "batch" in it]
        return Counter(range(records_told(positions, name)))

    return Case(
        rig,
        OF_TABLES,
        (
            lambda: _ids_of(DeltaTable(where).to_pyarrow_table(columns=["id"])),
            lambda: Counter(ids_by_duckdb(DeltaTable(where).file_uris())),
            by_history,
        ),
    )


def _into_iceberg(kafka: Kafka, postgres: Postgres, folder: Path, name: str) -> Case:
    """From a folder, a file to each batch."""
    catalog = {"sql": {"secretRef": {"name": "warehouse"}}}
    overrides = {
        "spec.sink": {"iceberg": {"catalog": catalog, "table": "shop.orders", "location": str(folder / "out")}},
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
    }
    rig = FolderRig(postgres, folder, name, **overrides)
    rig.overrides["spec.source"]["files"]["maxFilesPerTrigger"] = 1
    rig.put(KILLS + SPARE, ids_each=OF_A_BATCH)

    def table() -> Table:
        uri = f"postgresql+psycopg2://postgres:{postgres.password}@{postgres.host}:{postgres.port}/{name}"
        return SqlCatalog("default", uri=uri).load_table("shop.orders")

    def by_duckdb() -> Ids:
        return Counter(ids_by_duckdb([it.file.file_path.removeprefix("file://") for it in table().scan().plan_files()]))

    return Case(rig, OF_TABLES, (lambda: _ids_of(table().scan().to_arrow()), by_duckdb))


def _into_kafka(kafka: Kafka, postgres: Postgres, folder: Path, name: str) -> Case:
    """From two partitions of Kafka into three."""
    rig = KafkaSinkRig(kafka, postgres, folder, name, **{"spec.source.kafka.maxOffsetsPerTrigger": OF_A_BATCH})
    rig.produce(IDS)
    return Case(rig, OF_KAFKA, (rig.counts,))


CASES = {"a Delta table": _into_delta, "an Iceberg table": _into_iceberg, "Kafka": _into_kafka}


def drawn(dice: random.Random, points: Sequence[tuple[str, ...]]) -> list[str]:
    """Draw where drivers are killed, as often as asked: every kind of kill comes up before one comes up again."""
    found: list[str] = []
    left: list[tuple[str, ...]] = []
    for batch in dice.sample(range(1, KILLS + SPARE - 1), KILLS):
        fitting = [kind for kind in left if len(found) + len(kind) <= KILLS]
        if not fitting:
            left = list(points)
            fitting = [kind for kind in left if len(found) + len(kind) <= KILLS]
        if not fitting:
            break
        kind = dice.choice(fitting)
        left.remove(kind)
        found += [f"{point}@{batch}" for point in kind]
    return found


@only_in_full  # fewer ids and kills: tests/integration/test_delta_stream.py, test_iceberg_stream.py and test_kafka_sink.py
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sink", CASES)
def test_a_hundred_thousand_ids_are_there_once_after_twenty_kills(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, sink: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    case = CASES[sink](kafka, postgres_18, tmp_path, name)
    points = drawn(random.Random(seed), case.points)
    with capsys.disabled():
        print(f"\nInto {sink}: KILL_SEED={seed} kills at {' '.join(points)}")
    assert len(points) == KILLS
    rig = case.rig
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    crash = " ".join(f"{point}=kill-driver" for point in points)
    with recorded(f"into {sink}", len(rig.produced), f"{KILLS} drivers", seed):
        result = rig.run(crash=crash, seconds=120.0 + 90.0 * KILLS)
        assert isinstance(result, Done), rig.story()
        require_each_once(case, points)


def require_each_once(case: Case, points: Sequence[str]) -> None:
    """Fail where a driver was not killed, or a reader finds an id that is not there once."""
    rig = case.rig
    missed = [point for place, point in enumerate(points) if not any(rig.folder.glob(f"fired-{place}-*"))]
    assert not missed, f"no driver came to {missed}\n{rig.story()}"
    expected: Ids = Counter(rig.produced)
    assert expected.total() >= IDS - KILLS - SPARE
    for read in case.readers:
        found = read()
        lost, doubled = sorted(expected - found), sorted(found - expected)
        assert (lost[:9], doubled[:9]) == ([], []), f"{len(lost)} lost, {len(doubled)} doubled\n{rig.story()}"
