"""A folder of Parquet files with small batches, for tests of compaction: what every kind of reader counts in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files import columns
from exactlyonce.connectors.files.compaction import Compaction
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.orphans import REPLACED_KEPT_SECONDS, find_orphans
from exactlyonce.connectors.files.parquet import ParquetMerger
from exactlyonce.connectors.files.spark_log import FOLDER, batch_of, first_entry, name_of, parse
from exactlyonce.connectors.files.spec import ManifestKind
from exactlyonce.connectors.files.tenancy import Tenant
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.connectors.files.target import FilesTarget, FileWriter
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.manifest_landing import recover_manifests, show_landed
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started

COLUMNS = {"id": "long"}
NOW = 1_000_000.0


class Killed(BaseException):
    """The process ended here."""


class NoWriter:
    """The lake writes its files itself."""

    def write(self, write: Write | ReplayWrite, rows: Any) -> Any:
        raise AssertionError("the lake writes")

    def learn(self, manifest: Manifest) -> None:
        """Sizes do not matter."""


class CompactedLake:
    """The folder of one stream; a batch is a file of two records, whose ids are twice its number and one more."""

    def __init__(self, folder: FilesFolder, ledger: Ledger, rows: Mapping[str, columns.Type] = COLUMNS) -> None:
        self.folder = folder
        self.ledger = ledger
        self.rows = rows
        self.permit = started(ledger)
        self.now = NOW
        self.target = self.driver()

    @property
    def store(self) -> FolderStore:
        """The store of the folder."""
        return self.folder.store

    @property
    def path(self) -> Path:
        """The folder on this disk."""
        return Path(self.folder.location)

    @property
    def author(self) -> Author:
        """The driver that has claimed the stream."""
        view = self.ledger.view(STREAM)
        assert view is not None
        return Author.of(view.stream)

    def driver(self) -> FilesTarget:
        """A driver that has recovered what its predecessor left."""
        tenant = Tenant.of(self.folder.sink, STREAM, self.ledger.identity())
        target = FilesTarget(self.store, self.writer(), tenant, self.author, self.rows)
        recover_manifests(self.ledger, self.permit, target)
        return target

    def writer(self) -> FileWriter:
        """What a driver of this lake writes with."""
        return NoWriter()

    def next_driver(self) -> None:
        """Fence the driver, and start the next one."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
        self.target = self.driver()

    def write(self, batch: int, ids: Sequence[int] = ()) -> DataFile:
        """Write the file of a batch as an attempt does."""
        return self.put(Write.draw(self.author, BatchNumber(batch)).name, list(ids) or [2 * batch, 2 * batch + 1])

    def put(self, name: str, ids: Sequence[int]) -> DataFile:
        """Put the only file of an attempt, which has this name, into the folder."""
        path = f"{name}-part-0.parquet"
        with TemporaryDirectory() as scratch:
            written = Path(scratch, "file.parquet")
            pyarrow.parquet.write_table(pa.table({"id": list(ids)}), written, store_schema=False)
            self.store.put(written, path)
            return DataFile(path, written.stat().st_size, 1, len(ids))

    def record(self, batch: int) -> str:
        """Land a batch in the ledger, and return what it names."""
        number = BatchNumber(batch)
        file = self.write(batch)
        manifest = Manifest(number, file.rows or 0, (file,), columns.digest(COLUMNS)).to_json()

        def write(transaction: LedgerTransaction) -> Written:
            transaction.write_committable(STREAM, number, manifest)
            return Written(file.rows)

        ranges = Ranges({P0: OffsetRange(batch - 1, batch), P1: OffsetRange(0, 0)})
        land_batch(self.ledger, self.permit, PlannedBatch(number, ranges, IDS), write)
        return manifest

    def land(self, first: int, last: int) -> None:
        """Land batches and show them to readers."""
        for batch in range(first, last + 1):
            show_landed(self.ledger, self.permit, self.target, BatchNumber(batch), self.record(batch), None)

    def compaction(self, reached: Callable[[str], None] = lambda point: None) -> Compaction:
        """A compaction that has not begun."""
        merger = ParquetMerger(self.store, self.folder.location)
        sink = self.folder.sink
        return Compaction(self.store, self.ledger, STREAM, sink.target_file_bytes, merger, reached, lambda: self.now)

    def compact(self, reached: Callable[[str], None] = lambda point: None) -> int:
        """Merge what can be merged, and return how many files that were."""
        return sum(len(merge.files) for merge in self.compaction(reached).run())

    def orphans(self) -> list[str]:
        """What can be removed now."""
        return [orphan.path for orphan in find_orphans(self.store, self.ledger, STREAM, lambda: self.now)]

    def remove_orphans(self) -> None:
        """Remove it."""
        self.folder.remove(find_orphans(self.store, self.ledger, STREAM, lambda: self.now))

    def a_day_passes(self) -> None:
        """What was replaced before may go now."""
        self.now += REPLACED_KEPT_SECONDS + 1

    def listed(self) -> list[str]:
        """What the ledger names."""
        return [Path(file.address).name for file in FILES.landed(self.folder.sink, self.ledger, STREAM)]

    def shown(self) -> list[str]:
        """What Spark's readers are shown, by the rule of CompactibleFileStreamLog.allFiles."""
        held = [number for entry in self.store.list(FOLDER) if (number := batch_of(entry.name)) is not None]
        names = [name_of(number) for number in range(first_entry(max(held)), max(held) + 1)] if held else []
        lines = [line for name in names for line in parse(name, self.store.read(f"{FOLDER}/{name}"))]
        return [unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines]

    def ids(self, names: Sequence[str]) -> Counter[int]:
        """Count the ids in files."""
        found: list[Any] = []
        for name in names:
            with self.store.fetched(name) as file:
                found += pyarrow.parquet.read_table(file)["id"].to_pylist()
        return Counter(found)

    def require(self, last: int, shown: int | None = None) -> None:
        """Every record up to a batch is counted once, by every reader; Spark's may not be shown the last ones yet."""
        assert self.ids(self.listed()) == Counter(range(2, 2 * last + 2)), "by the ledger"
        if self.folder.sink.manifest is ManifestKind.SPARK_METADATA:
            assert self.ids(self.shown()) == Counter(range(2, 2 * (last if shown is None else shown) + 2)), (
                "by Spark's log"
            )
