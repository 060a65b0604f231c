"""A folder's files in quarantine land by a replay: each id once, whole files, and one that is gone is named and stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.postgres import Postgres
from tests.combinations import in_full, only_in_full
from tests.folder_rig import FolderRig
from tests.integration.test_replay import replayed, statuses, warm

pytestmark = pytest.mark.seconds(25)

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer from source"
MENDED = "select id, customer from source"
EACH = 5
OVERRIDES = {
    "spec.transform": {"sql": FAILS},
    "spec.recovery": {
        "backoff": {"initial": "0s", "max": "1s"},
        "maxFailuresPerBatch": 1,
        "onPoisonBatch": "Quarantine",
    },
}


def test_the_files_of_a_batch_that_failed_land_once_though_a_replay_is_killed_and_a_file_is_away_for_a_while(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = FolderRig(postgres_18, tmp_path, name, **OVERRIDES)
    good, poison, away = rig.put(3, ids_each=EACH)
    spoil(poison)
    rig.put(2, ids_each=EACH)
    assert rig.run() == Done(completed=True), rig.story()
    missing = set(range(3 * EACH))
    assert set(rig.produced) - set(rig.counts()) == missing
    stood = rig.sql("select position from exactlyonce.offsets")

    shown = replayed(rig)
    assert shown.exit_code == 0, shown.output
    assert "how many records they have is known once they are read" in shown.stdout
    for point in in_full(("replay.source-checked", "replay.landed"), otherwise=("replay.source-checked",)):
        killed(rig, point)
    assert statuses(rig) >= {"Replaying"}

    away.rename(rig.folder / "away")
    again = replayed(rig, "--yes")
    assert again.exit_code == 1, again.output
    assert f"The file {poison} ({EACH} records) of the range" in again.stderr
    assert "division by zero" in again.stderr.lower()
    assert f"{away} was planned into a batch and is gone" in again.stderr
    assert set(rig.produced) - set(rig.counts()) == missing - ids_of(good), (
        "two files fail, and what is beside them lands"
    )
    assert statuses(rig) == {"Quarantined", "Replayed"}

    (rig.folder / "away").rename(away)
    (rig.folder / "mended.sql").write_text(MENDED)
    landed = replayed(rig, "--yes", "--transform", str(rig.folder / "mended.sql"))
    assert landed.exit_code == 0, landed.output
    assert f"Landed {2 * EACH} records ({2 * EACH} rows); 0 failed, 0 are lost." in landed.stdout
    assert rig.sql("select count(*), count(distinct id) from orders") == [(5 * EACH, 5 * EACH)]
    assert statuses(rig) == {"Replayed"}
    assert rig.sql("select position from exactlyonce.offsets") == stood, "the stream stands where it stood"


@only_in_full
def test_the_files_of_a_batch_that_failed_land_in_files_with_their_positions(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    """What is other of a sink of files is shown by tests/integration/test_files_replay.py."""
    placed = ", _folder, _partition, _position from source"
    sink = {"files": {"path": str(tmp_path / "lake"), "includePositions": True}}
    transform = {"sql": FAILS.replace(" from source", placed)}
    rig = FolderRig(postgres_18, tmp_path, name, **{**OVERRIDES, "spec.transform": transform, "spec.sink": sink})
    _, poison, _ = rig.put(3, ids_each=EACH)
    spoil(poison)
    assert rig.run() == Done(completed=True), rig.story()
    (rig.folder / "mended.sql").write_text(MENDED.replace(" from source", placed))
    landed = replayed(rig, "--yes", "--chunk", str(EACH), "--transform", str(rig.folder / "mended.sql"))
    assert landed.exit_code == 0, landed.output
    files = list((tmp_path / "lake").glob("**/replay-*.parquet"))
    landed_ids: list[Any] = [each for file in files for each in pq.ParquetFile(file).read().column("id").to_pylist()]
    assert sorted(landed_ids) == rig.produced


def spoil(path: Path) -> None:
    """Let one line of a file fail the transform."""
    was = path.stat()
    path.write_text(path.read_text().replace("customer 0", "nobody", 1))
    assert "nobody" in path.read_text()
    os.utime(path, (was.st_atime, was.st_mtime))


def ids_of(path: Path) -> set[int]:
    return {json.loads(line)["id"] for line in path.read_text().splitlines()}


def killed(rig: FolderRig, point: str) -> None:
    """Replay all, one file in each chunk, by a process that dies at a point."""
    rows = rig.sql(
        "select batch, topic, coalesce(from_position, from_offset) from exactlyonce.failures "
        "where status in ('Quarantined', 'Replaying')"
    )
    wanted = [RangeKey(BatchNumber(batch), Partition(topic, 0), int(start)) for batch, topic, start in rows]
    environment = {**warm(rig, point), VARIABLE: f"{point}=kill-driver,{rig.folder / f'fired-{point}'}"}
    report = run_replay(rig.open(), Path(rig.secrets), wanted, most_records=EACH, environment=environment)
    assert report.problem is not None, "it died"
