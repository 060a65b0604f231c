"""A replay into a table with a log over real servers: one dies between its files and the ledger, the next one lands.

The driver whose batch takes that over dies before its commit, and its successor commits it. Each id is in the table once, by
the table's library and by DuckDB. At every other point they die in tests/unit/test_table_replays.py and in the simulation.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import one_or_all
from tests.delta_rig import ids_by_duckdb
from tests.integration.test_files_replay import FAILS, MENDED, command, ranges, warm
from tests.integration.test_iceberg_stream import login, sink, table_of
from tests.rig import Rig

pytestmark = pytest.mark.seconds(50)


# Of Iceberg by default tests/unit/test_table_replays.py says the same.
@pytest.mark.parametrize("kind", one_or_all(["delta", "iceberg"]))
def test_what_is_in_quarantine_lands_in_a_table_once_though_a_replay_and_a_driver_die(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, kind: str
) -> None:
    where = str(tmp_path / "out")
    sinks: dict[str, Any] = {"delta": {"delta": {"location": where}}, "iceberg": sink(where)}
    overrides = {
        "spec.sink": sinks[kind],
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": {
            "backoff": {"initial": "0s", "max": "1s"},
            "maxFailuresPerBatch": 1,
            "onPoisonBatch": "Quarantine",
        },
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, overrides, partitions=2)
    rig.write_login("catalog", login(postgres_18, name))

    def ids() -> Counter[int]:
        return delta_ids(where) if kind == "delta" else iceberg_ids(postgres_18, name)

    rig.produce(20)
    rig.produce(1, customer="nobody")
    rig.produce(19)
    assert rig.run() == Done(completed=True), rig.story()
    landed = ids()
    missing = set(rig.produced) - set(landed)
    assert 1 < len(missing) <= 20, "the record that fails, and its batch"

    rig.overrides["spec.transform"] = {"sql": MENDED}
    crash = {VARIABLE: f"replay.files-written=kill-driver,{tmp_path / 'fired'}"}
    report = run_replay(
        rig.open(), Path(rig.secrets), ranges(rig), most_records=100, environment={**warm(rig, "a"), **crash}
    )
    assert report.problem is not None, "it died"
    left = set(Path(where).rglob("replay-*/**/*.parquet"))
    assert left, "its files were written"
    done = command(rig, "replay", "--yes")
    assert done.exit_code == 0, done.output
    assert "Readers of the table see these rows with the next batch that lands." in done.output
    assert ranges(rig) == []
    assert ids() == landed, "the table shows what was replayed with the next batch"

    rig.produce(2)
    result = rig.run(crash="table.before-commit@1=kill-driver")
    assert isinstance(result, Done), rig.story()
    assert ids() == Counter(rig.produced), rig.story()
    assert all(path.exists() for path in left), "nothing that a replay left which had died was committed, or removed"


def delta_ids(where: str) -> Counter[int]:
    table = DeltaTable(where)
    found: Counter[Any] = Counter(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())
    assert Counter(ids_by_duckdb(table.file_uris())) == found
    return found


def iceberg_ids(postgres: Postgres, name: str) -> Counter[int]:
    table = table_of(postgres, name)
    found: Counter[Any] = Counter(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    names = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    assert Counter(ids_by_duckdb(names)) == found
    return found
