"""What others do to an Iceberg table beside a stream, and what it remembers of one; test_table_targets.py has the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from exactlyonce.positions.ranges import BatchNumber
from tests.delta_rig import Killed, act_at, dies
from tests.iceberg_rig import IcebergStream
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> IcebergStream:
    return IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def rewrites_all_files(stream: IcebergStream) -> None:
    """As a compaction does: the rows are in other files, and the snapshot says so."""
    table = stream.table()
    table.overwrite(table.scan().to_arrow())


def commits_to_a_branch(stream: IcebergStream) -> None:
    """Which takes a sequence number, and leaves the table's current snapshot as it is."""
    table = stream.table()
    with table.manage_snapshots() as manage:
        manage.create_branch(stream.snapshot(), "audit")
    table.append(table.scan(limit=1).to_arrow(), branch="audit")


def adds_a_column(stream: IcebergStream) -> None:
    with stream.table().update_schema() as update:
        update.add_column("more", stream.table().schema().find_type("id"))


FOREIGN: Mapping[str, Callable[[IcebergStream], object]] = {
    "appends": lambda stream: stream.written_by_another(900, 901),
    "rewrites all files": rewrites_all_files,
    "deletes rows of its own": lambda stream: stream.table().delete("id >= 900"),
    "expires snapshots": lambda stream: stream.expire_snapshots(),
    "sets a property": lambda stream: stream.table().transaction().set_properties({"x": "y"}).commit_transaction(),
    "commits to a branch": commits_to_a_branch,
    "adds a column": adds_a_column,
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("point", ["batch.rows-written", "table.before-commit"])
def test_somebody_else_works_on_the_table_meanwhile(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch, what: str, point: str
) -> None:
    target = stream.driver()
    stream.land(target, 1, 3)
    stream.written_by_another(990, 991)
    act_at(monkeypatch, point, 4, lambda: FOREIGN[what](stream))
    stream.land(target, 4, 5)
    foreign = {"appends": [990, 991, 900, 901], "deletes rows of its own": []}.get(what, [990, 991])
    stream.require(5, foreign)
    stream.land(stream.next_driver(), 6, 6)
    stream.require(6, foreign)


@pytest.mark.parametrize("dies_first", [True, False], ids=["committed by the next driver", "committed by its own"])
def test_what_the_table_knows_of_a_stream_outlives_its_snapshots(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch, dies_first: bool
) -> None:
    """All snapshots of the stream are expired, by the time that a driver asks whether its latest batch was committed."""
    if dies_first:
        act_at(monkeypatch, "batch.landed", 3, dies)
        with pytest.raises(Killed):
            stream.land(stream.driver(), 1, 3)
    else:
        stream.land(stream.driver(), 1, 3)
    stream.written_by_another(900)
    stream.expire_snapshots()
    summaries = [it.summary for it in stream.table().snapshots() if it.summary is not None]
    assert [summary.additional_properties.get("exactlyonce.batch") for summary in summaries] == [None]
    stream.land(stream.next_driver(), 4, 5)
    stream.require(5, [900])


def test_a_batch_without_rows_adds_no_snapshot(stream: IcebergStream) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    snapshot = stream.snapshot()
    prepared = driver.prepare(BatchNumber(2), [])
    driver.publish(BatchNumber(2), prepared.committable)
    assert stream.snapshot() == snapshot
    stream.next_driver().recover({**stream.committables(), BatchNumber(2): prepared.committable}, BatchNumber(2))
    stream.require(1)


def test_a_table_of_many_batches_has_few_manifests(stream: IcebergStream) -> None:
    """Each commit reads and writes the list of all of them; deletions by others and expired snapshots are among them."""
    table = stream.made_by_another(properties={"commit.manifest.min-count-to-merge": "4"})
    driver = stream.driver()
    stream.written_by_another(900, 901)
    stream.land(driver, 1, 5)
    stream.table().delete("id = 900")
    stream.land(driver, 6, 9)
    stream.expire_snapshots()
    stream.land(driver, 10, 15)
    stream.require(15, [901])
    current = stream.table().current_snapshot()
    assert current is not None
    assert len(current.manifests(table.io)) < 6


def test_a_late_registration_does_not_take_the_number_of_a_batch_back(stream: IcebergStream) -> None:
    """A driver that has seen a table which knows nothing of the stream wakes when its successor has committed a batch."""
    stream.made_by_another()
    late = stream.log()
    assert late.view(late.author.life) is not None
    stream.land(stream.driver(), 1, 2)
    assert not late.commit(None, {})
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


def test_metadata_that_nobody_else_has_changed_are_read_once(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They grow with the snapshots that are kept; every look asks the catalog which file of them is the table's."""
    driver = stream.driver()
    stream.land(driver, 1, 1)
    read, reads = FromInputFile.table_metadata, []

    def counted(file: InputFile, *given: Any) -> TableMetadata:
        reads.append(file.location)
        return read(file, *given)

    monkeypatch.setattr(FromInputFile, "table_metadata", counted)
    stream.land(driver, 2, 4)
    assert reads == []
    stream.written_by_another(900)
    reads.clear()
    stream.land(driver, 5, 6)
    assert len(reads) == 1, "what another writer has committed"
    monkeypatch.undo()
    properties = stream.table().metadata.properties
    assert not {"commit.retry.num-retries", "commit.manifest-merge.enabled"} & properties.keys(), "its own alone"
    stream.require(6, [900])
