"""What others do to a Delta table beside a stream, and what it remembers of one; test_table_targets.py has the rest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from exactlyonce.connectors.files.manifest import Write
from exactlyonce.positions.ranges import BatchNumber
from tests.delta_rig import DeltaStream, PyarrowWriter, act_at
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> DeltaStream:
    return DeltaStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def written_by_another(stream: DeltaStream, *ids: int) -> None:
    rows = pa.table({"id": list(ids), "day": ["another's"] * len(ids)})
    write_deltalake(str(stream.root), rows, mode="append")


def vacuum_what_a_dead_driver_left(stream: DeltaStream) -> None:
    """With VACUUM's own retention of a week: files of a driver that died before are older, and those of this batch are not."""
    left = PyarrowWriter(stream.root, stream.columns).write(
        Write.draw(stream.log().author, BatchNumber(4)), [stream.row(8, "x"), stream.row(9, "x")]
    )
    paths = [stream.root / file.path for file in left.files]
    eight_days_ago = time.time() - 8 * 24 * 3600
    for path in paths:
        os.utime(path, (eight_days_ago, eight_days_ago))
    stream.table().vacuum(full=True, dry_run=False)
    assert not any(path.exists() for path in paths)


FOREIGN: Mapping[str, Callable[[DeltaStream], object]] = {
    "appends": lambda stream: written_by_another(stream, 900, 901),
    "merges small files": lambda stream: stream.table().optimize.compact(),
    "deletes rows of its own": lambda stream: stream.table().delete("id >= 900"),
    "writes a checkpoint of the log": lambda stream: stream.table().create_checkpoint(),
    "sets a property": lambda stream: stream.table().alter.set_table_properties({"delta.appendOnly": "false"}),
    "removes files that no version names": lambda stream: vacuum_what_a_dead_driver_left(stream),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("point", ["batch.rows-written", "table.before-commit"])
def test_somebody_else_works_on_the_table_meanwhile(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, what: str, point: str
) -> None:
    target = stream.driver()
    stream.land(target, 1, 3)
    written_by_another(stream, 990, 991)
    act_at(monkeypatch, point, 4, lambda: FOREIGN[what](stream))
    stream.land(target, 4, 5)
    foreign = {"appends": [990, 991, 900, 901], "deletes rows of its own": []}.get(what, [990, 991])
    stream.require(5, foreign)
    stream.land(stream.next_driver(), 6, 6)
    stream.require(6, foreign)


def test_what_the_table_knows_of_a_stream_outlives_the_versions_of_its_log(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 5)
    stream.table().create_checkpoint()
    for version in sorted((stream.root / "_delta_log").glob("*.json"))[:-1]:
        version.unlink()  # as the cleanup of the log does, after a month
    stream.land(stream.next_driver(), 6, 12)  # a checkpoint of its own is among them
    stream.require(12)


def test_a_batch_without_rows_adds_no_version(stream: DeltaStream) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    version = stream.table().version()
    prepared = driver.prepare(BatchNumber(2), [])
    driver.publish(BatchNumber(2), prepared.committable)
    assert stream.table().version() == version
    stream.next_driver().recover({**stream.committables(), BatchNumber(2): prepared.committable}, BatchNumber(2))
    stream.require(1)


def test_a_table_that_is_made_again_is_noticed_though_its_latest_version_is_in_a_checkpoint_alone(
    stream: DeltaStream,
) -> None:
    """Nothing tells two versions of one number apart whose own files are gone, so the table is opened again."""
    log = stream.root / "_delta_log"

    def in_a_checkpoint_alone() -> None:
        DeltaTable(str(stream.root)).create_checkpoint()
        for entry in log.glob("*.json"):
            entry.unlink()

    stream.driver()
    in_a_checkpoint_alone()
    opened = stream.log()
    first = opened.view(opened.author.life)
    shutil.rmtree(stream.root)
    stream.driver()
    in_a_checkpoint_alone()
    again = opened.view(opened.author.life)
    assert first is not None
    assert again is not None
    assert first.id != again.id
