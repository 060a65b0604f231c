"""Which files `exactlyonce files --remove-orphans` may remove: never one that any reader counts, whatever the ledger says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.manifest import MARKER, WRITING, Author, DataFile, Manifest, Write
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import PathOfAnother, Tenant, take_place
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.rows import DatabaseIdentity
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce.sink.files import StreamUnknown
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger


class Killed(BaseException):
    """The process ended here."""


class Lake:
    """The folder of one stream, whose drivers are this class: every batch is one file of one record."""

    def __init__(self, path: Path, partition_by: tuple[str, ...] = ()) -> None:
        self.ledger = MemoryLedger(MemoryDatabase())
        self.permit = started(self.ledger)
        self.folder: FilesFolder = FILES.folder(FilesSink(path=str(path), partition_by=partition_by), {})
        take_place(self.store, Tenant.of(self.folder.sink, STREAM, self.ledger.identity()))

    @property
    def store(self) -> FolderStore:
        """The store of the folder."""
        return self.folder.store

    @property
    def author(self) -> Author:
        """The driver that has claimed the stream."""
        view = self.ledger.view(STREAM)
        assert view is not None
        return Author.of(view.stream)

    def write(self, batch: int, *, unfinished: bool = False) -> DataFile:
        """Write a file as an attempt does, into its own folder or at its final place."""
        write = Write.draw(self.author, BatchNumber(batch))
        path = f"{WRITING}/{write.name}/part-0.parquet" if unfinished else f"{write.name}-part-0.parquet"
        self.store.create(path, b"rows")
        return DataFile(path, 4, 1, 1)

    def land(self, batch: int, *files: DataFile, shown: bool = True) -> None:
        """Record a batch in the ledger and show it to readers."""
        number = BatchNumber(batch)
        manifest = Manifest(number, len(files), files, "columns")

        def record(transaction: LedgerTransaction) -> Written:
            transaction.write_committable(STREAM, number, manifest.to_json())
            return Written(len(files))

        ranges = Ranges({P0: OffsetRange(batch - 1, batch), P1: OffsetRange(0, 0)})
        land_batch(self.ledger, self.permit, PlannedBatch(number, ranges, IDS), record)
        if shown:
            SparkMetadata(self.store, self.folder.location).publish({number: manifest})

    def next_driver(self) -> None:
        """Fence the driver and claim the next epoch."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")

    def orphans(self) -> list[str]:
        return [orphan.path for orphan in self.folder.orphans(self.ledger, STREAM)]

    def files(self) -> list[str]:
        return sorted(self.store.tree(""))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_what_fenced_drivers_left_is_removed_and_every_file_that_counts_or_may_count_stays(lake: Lake) -> None:
    counted = [lake.write(batch) for batch in (1, 2)]
    left = [lake.write(2), lake.write(3, unfinished=True)]
    for batch, file in enumerate(counted, 1):
        lake.land(batch, file)
    lake.next_driver()
    under_way = lake.write(3)
    before = lake.files()
    assert sorted(lake.orphans()) == sorted(file.path for file in left)
    lake.folder.remove(lake.folder.orphans(lake.ledger, STREAM))
    assert lake.files() == sorted(set(before) - {file.path for file in left})
    lake.land(3, under_way)
    landed = FILES.landed(lake.folder.sink, lake.ledger, STREAM)
    assert [file.address for file in landed] == [lake.folder.address(file.path) for file in (*counted, under_way)]


def test_a_removal_that_dies_in_the_middle_is_finished_by_the_next_and_readers_see_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(1, lake.write(1))
    left = [lake.write(2) for _ in range(3)]
    lake.next_driver()
    counted, found = FILES.landed(lake.folder.sink, lake.ledger, STREAM), lake.folder.orphans(lake.ledger, STREAM)
    delete = lake.store.delete

    def dies(paths: Sequence[str]) -> None:
        delete(paths[:1])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(lake.store, "delete", dies)
        with pytest.raises(Killed):
            lake.folder.remove(found)
    assert len(lake.orphans()) == len(left) - 1
    lake.folder.remove(found)
    lake.folder.remove(found)
    assert lake.orphans() == []
    assert FILES.landed(lake.folder.sink, lake.ledger, STREAM) == counted
    assert {file.address for file in counted} <= {lake.folder.address(path) for path in lake.files()}


def test_a_ledger_of_before_calls_no_file_that_readers_are_shown_an_orphan(lake: Lake) -> None:
    """It was restored, its epoch was raised since, and it has never heard of batch 2."""
    lake.land(1, lake.write(1))
    database = lake.ledger.database
    backup = database.tables.copy()
    lake.land(2, lake.write(2))
    database.restore(backup)
    lake.next_driver()
    with pytest.raises(LogUnfit, match="names files up to batch 2, and the ledger ends with batch 1"):
        lake.orphans()
    rows = database.tables.rows
    key = next(key for key in rows if key[0] == "stream")
    rows[key] = replace(rows[key], landed_batch=BatchNumber(9))  # a generation that continues past all numbers
    with pytest.raises(LogUnfit, match=r"_spark_metadata/2 shows readers .*, and the ledger names no such file"):
        lake.orphans()


def test_another_ledger_that_knows_a_stream_of_that_name_calls_no_file_an_orphan(lake: Lake) -> None:
    lake.land(1, lake.write(1))
    lake.ledger = MemoryLedger(MemoryDatabase())
    lake.ledger.database.identity = DatabaseIdentity("another", 7)
    lake.permit = started(lake.ledger, epoch=5)
    with pytest.raises(PathOfAnother, match=f"written by {STREAM} with another ledger"):
        lake.orphans()


def test_a_ledger_without_the_stream_and_a_folder_without_its_marker_say_of_no_file_that_it_can_go(lake: Lake) -> None:
    lake.land(1, lake.write(1))
    with pytest.raises(StreamUnknown, match="does not know shop/other, so it cannot say"):
        lake.folder.orphans(lake.ledger, "shop/other")
    with pytest.raises(
        StreamUnknown, match="does not know shop/other: the stream has never run, or this is not its ledger"
    ):
        FILES.landed(lake.folder.sink, lake.ledger, "shop/other")
    lake.store.remove(MARKER)
    with pytest.raises(PathOfAnother, match=r"_exactlyonce/stream.json is missing or cannot be read"):
        lake.orphans()


def test_a_folder_that_does_not_exist_has_no_orphans(lake: Lake, tmp_path: Path) -> None:
    assert FILES.folder(FilesSink(path=str(tmp_path / "none")), {}).orphans(lake.ledger, STREAM) == ()


def test_the_files_of_a_stream_below_this_ones_folder_are_never_its_orphans(lake: Lake) -> None:
    """Its folder was taken before this stream looked at the folders above; its ledger and epochs are its own."""
    lake.land(1, lake.write(1))
    before = set(lake.files())
    for folder in ("payments", "day=1"):
        inner = FILES.folder(FilesSink(path=f"{lake.folder.location}/{folder}"), {})
        inner.store.create(MARKER, b"{}")
        for epoch in (1, 2):
            inner.store.create(
                f"{Write.draw(replace(lake.author, epoch=Epoch(epoch)), BatchNumber(1)).name}-part-0.parquet", b"rows"
            )
    lake.next_driver()
    assert lake.orphans() == []
    lake.folder.remove(lake.folder.orphans(lake.ledger, STREAM))
    assert len(set(lake.files()) - before) == 6


def test_only_files_where_this_streams_partitions_are_can_be_its_orphans(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", partition_by=("day", "hour"))
    name = f"{Write.draw(lake.author, BatchNumber(1)).name}-part-0.parquet"
    own = f"day=1/hour=2/{name}"
    for folder in ("", "day=1/", "copy/", "hour=2/day=1/", "day=1/hour=2/minute=3/", "backup/day=1/hour=2/"):
        lake.store.create(f"{folder}{name}", b"rows")
    lake.store.create(own, b"rows")
    lake.next_driver()
    assert lake.orphans() == [own]


def test_files_of_a_former_life_of_the_stream_are_no_orphans(lake: Lake) -> None:
    """Deleting a stream leaves its files; a recreated one counts epochs and batches from the start."""
    lake.land(1, lake.write(1))
    lake.write(2)
    before = lake.files()
    lake.ledger.database.tables.rows.clear()
    lake.permit = started(lake.ledger, token="token-2")
    lake.next_driver()
    lake.land(1, lake.write(1), shown=False)
    left = lake.write(2)
    lake.next_driver()
    assert lake.orphans() == [left.path]
    assert set(before) <= set(lake.files())
