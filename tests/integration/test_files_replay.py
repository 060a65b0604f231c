"""A replay into files over real servers: one dies between its files and the ledger, the next one lands, each id counts once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
import yaml
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.cli.main import main
from exactlyonce.launch.local import MARKER
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.spark import local_session
from tests.combinations import one_or_all
from tests.rig import Rig
from tests.warm.launcher import warm_environment

pytestmark = pytest.mark.seconds(60)

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, _topic, _partition, _offset from source"
MENDED = "select id, customer, _topic, _partition, _offset from source"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("files replay") as session:
        yield session


# Of the object log by default tests/unit/test_files_replayed.py says the same.
@pytest.mark.parametrize("ledger", one_or_all(["postgres", "objectLog"]))
def test_what_is_in_quarantine_lands_in_files_once_though_a_replay_dies_between_its_files_and_the_ledger(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, spark: SparkSession, ledger: str
) -> None:
    places = {"postgres": {"secretRef": {"name": "warehouse"}}, "objectLog": {"location": str(tmp_path / "ledger")}}
    overrides = {
        "spec.sink": {"files": {"path": str(tmp_path / "out"), "includePositions": True}},
        "spec.ledger": {ledger: places[ledger]},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": {
            "backoff": {"initial": "0s", "max": "1s"},
            "maxFailuresPerBatch": 1,
            "onPoisonBatch": "Quarantine",
        },
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, overrides, partitions=2)
    rig.produce(20)
    rig.produce(1, customer="nobody")
    rig.produce(19)
    assert rig.run() == Done(completed=True), rig.story()
    landed = listed_ids(rig)
    assert landed == seen_by_spark(rig, spark)
    missing = set(rig.produced) - set(landed)
    assert 1 < len(missing) <= 20, "the record that fails, and its batch"

    # In the simulation they are killed between every two statements: tests/simulation/files_replay_world.py.
    (tmp_path / "mended.sql").write_text(MENDED)
    rig.overrides["spec.transform"] = {"sql": MENDED}
    crash = {VARIABLE: f"replay.files-written=kill-driver,{tmp_path / 'fired'}"}
    report = run_replay(
        rig.open(), Path(rig.secrets), ranges(rig), most_records=100, environment={**warm(rig, "a"), **crash}
    )
    assert report.problem is not None, "it died"
    left = files_of_replays(tmp_path)
    assert left, "its files were written"
    assert listed_ids(rig) == landed == seen_by_spark(rig, spark), "and nobody counts them"
    assert command(rig, "files", "--orphans").stdout == "", "the ranges are its own until another replay has taken them"

    done = command(rig, "replay", "--yes")
    assert done.exit_code == 0, done.output
    once = Counter(rig.produced)
    assert listed_ids(rig) == once, "the ledger lists them with the transaction that marks the range"
    assert seen_by_spark(rig, spark) == landed, "Spark's log has entries of batches alone"
    assert {file["batch"] is None for file in listed(rig)} == {True, False}

    removed = command(rig, "files", "--remove-orphans", "--yes")
    assert removed.exit_code == 0, removed.output
    assert {tmp_path / "out" / path for path in left} == {Path(line) for line in removed.stdout.splitlines()}
    assert listed_ids(rig) == once

    rig.produce(2)
    assert rig.run() == Done(completed=True), rig.story()
    once = Counter(rig.produced)
    assert listed_ids(rig) == once, rig.story()
    assert seen_by_spark(rig, spark) == once, "the next batch that landed shows what was replayed"
    assert all(file["batch"] is not None for file in listed(rig))
    assert ranges(rig) == []


def listed(rig: Rig) -> list[dict[str, Any]]:
    shown = command(rig, "files", "-o", "json")
    assert shown.exit_code == 0, shown.output
    found: list[dict[str, Any]] = json.loads(shown.stdout)
    return found


def listed_ids(rig: Rig) -> Counter[int]:
    """The ids in the files that the ledger lists, read by pyarrow."""
    files = pyarrow.dataset.dataset([file["address"] for file in listed(rig)], format="parquet")
    return Counter(files.to_table(columns=["id"])["id"].to_pylist())


def seen_by_spark(rig: Rig, spark: SparkSession) -> Counter[int]:
    return Counter(row.id for row in spark.read.parquet(str(rig.folder / "out")).select("id").collect())


def files_of_replays(folder: Path) -> set[str]:
    return {path.name for path in (folder / "out").glob("replay-*.parquet")} | {
        path.name for path in (folder / "out").glob(".replay-*.crc")
    }


def ranges(rig: Rig) -> list[RangeKey]:
    opened = rig.open()
    return [RangeKey.of(kept.row) for kept in opened.ledger.kept_failures(opened.stream.stream_id, HELD, None, 100)]


def command(rig: Rig, word: str, *arguments: str) -> Result:
    """Run a command on the stream as its file has it."""
    file = rig.folder / "orders.yaml"
    file.write_text(yaml.safe_dump(rig.document()))
    options = ["--secrets", str(rig.secrets)]
    if word == "replay":
        options += ["--state", str(rig.folder / "state")]
    environment = {**warm(rig, "command"), "COLUMNS": "250"}
    return CliRunner().invoke(main, [word, str(file), *options, *arguments], env=environment)


def warm(rig: Rig, name: str) -> dict[str, str]:
    """What lets the process of a replay take a JVM that is there already."""
    return {**warm_environment({}), MARKER: f"{rig.folder}/{name}"}
