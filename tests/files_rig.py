"""A stream that writes files by Spark's own writers: its batches, its drivers one after another, and its two readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.compaction import Compaction
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.manifest import WRITING, Author, DataFile, Manifest
from exactlyonce.connectors.files.parquet import ParquetMerger
from exactlyonce.connectors.files.spec import FileFormat, FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import Tenant
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.connectors.files.target import FilesTarget
from exactlyonce_spark.connectors.files.writer import SparkFileWriter
from exactlyonce_spark.manifest_landing import recover_manifests
from exactlyonce_spark.spark_port import ExecutedPlan
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.source import MemoryTopic

SOURCE = MemoryTopic({P0: 100, P1: 0}, topic_id=IDS["orders"])
CSV_READER = {"header": "true", "multiLine": "true", "escape": '"', "nullValue": "\0"}
"""What docs/files.md tells readers that use Spark."""

RECORDS = 4
"""How many records a batch has, of two tasks."""


@dataclass
class Batch:
    """A batch of records whose ids are their offsets."""

    spark: SparkSession
    number: BatchNumber
    columns: Callable[[DataFrame], DataFrame]

    @property
    def first(self) -> int:
        return RECORDS * (self.number - 1)

    def plan(self) -> ExecutedPlan:
        read = Ranges({P0: OffsetRange(self.first, self.first + RECORDS), P1: OffsetRange(0, 0)})
        return ExecutedPlan(read, None, stateful=False)

    def unread(self) -> DataFrame:
        return self.columns(self.spark.range(self.first, self.first + RECORDS, 1, 2))

    def records_read(self) -> int:
        return RECORDS

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[Any]:
        return ()

    def collect(self) -> None:
        raise AssertionError("the sink's writer writes")

    def pieces(self) -> Any:
        raise AssertionError("no driver of these prepares rows piece by piece")

    def run_tasks(self, job: Any) -> list[Any]:
        raise AssertionError("the sink's writer writes")

    def run_without_rows(self) -> None:
        raise AssertionError("the query keeps no state")


def named_after_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("name", f.concat(f.lit("n"), "id")).withColumn("day", f.concat(f.lit("d/"), f.col("id") % 2))


@dataclass
class Stream:
    """A stream that writes files, and its drivers."""

    spark: SparkSession
    ledger: Ledger
    sink: FilesSink
    columns: Callable[[DataFrame], DataFrame] = named_after_day
    renamed: dict[str, str] = field(default_factory=dict)
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.permit = started(self.ledger)

    @property
    def store(self) -> FolderStore:
        return LocalLogStore(self.sink.path)

    def folder(self) -> FilesFolder:
        """The folder as a person's command has it."""
        return FILES.folder(self.sink, {})

    def target(self) -> FilesTarget:
        schema = self.columns(self.spark.range(0)).schema.jsonValue()
        columns = {column["name"]: column["type"] for column in schema["fields"]}
        sink = self.sink
        view = self.ledger.view(STREAM)
        assert view is not None
        author = Author.of(view.stream)
        tenant = Tenant.of(sink, STREAM, self.ledger.identity())
        return FilesTarget(self.store, SparkFileWriter(sink, self.renamed), tenant, author, columns)

    def driver(self) -> BatchLoop:
        """A driver that has recovered what its predecessor left."""
        target = self.target()
        recover_manifests(self.ledger, self.permit, target)
        return BatchLoop(self.ledger, self.permit, target, SOURCE, BatchSettings())

    def next_attempt(self) -> BatchLoop:
        """The successor of a driver, whether that one has ended or not."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
        return self.driver()

    def land(self, loop: BatchLoop, first: int, last: int) -> None:
        for number in range(first, last + 1):
            loop.run(Batch(self.spark, BatchNumber(number), self.columns))

    def on_disk(self) -> set[str]:
        """The data files where readers might look, whether they count or not."""
        root = Path(self.sink.path)
        found = {path.relative_to(root) for path in root.rglob(f"*.{self.sink.format.spark_name}")}
        return {str(path) for path in found if path.parts[0] != "_exactlyonce"}

    def left_of_attempts(self) -> set[str]:
        """What is where attempts write: files, and on a disk empty folders."""
        return {path.name for path in Path(self.sink.path, WRITING).iterdir()}

    def listed(self) -> list[DataFile]:
        with self.ledger.transaction() as transaction:
            texts = transaction.read_committables(STREAM)
        return [file for batch, text in texts.items() for file in Manifest.from_json(batch, text).files]

    def seen_by_spark(self) -> Counter[Any]:
        return Counter(row.id for row in self.read_by_spark().select("id").collect())

    def read_by_spark(self) -> DataFrame:
        """As docs/files.md says."""
        options = CSV_READER if self.sink.format is FileFormat.CSV else {}
        reader = self.spark.read.schema(self.columns(self.spark.range(0)).schema)
        return reader.format(self.sink.format.spark_name).options(**options).load(self.sink.path)

    def seen_by_pyarrow(self) -> Counter[Any]:
        """From the listing; where it is empty, there is nothing that says which columns there are."""
        return Counter(self.read_by_pyarrow()["id"].to_pylist() if self.listed() else [])

    def read_by_pyarrow(self, *columns: str) -> Any:
        """From the listing, with the options of docs/files.md; texts are texts whatever they look like."""
        root, files = self.root_of_pyarrow()
        paths: Any = [f"{root}/{file.path}" for file in self.listed()]
        given: Any = self.sink.format.spark_name
        if self.sink.format is FileFormat.CSV:
            parsed = pyarrow.csv.ParseOptions(newlines_in_values=True)
            texts = {name: pyarrow.string() for name in columns if name.startswith("text")}
            converted = pyarrow.csv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=texts
            )
            given = pyarrow.dataset.CsvFileFormat(parsed, convert_options=converted)
        return pyarrow.dataset.dataset(paths, format=given, filesystem=files).to_table(columns=["id", *columns])

    def root_of_pyarrow(self) -> tuple[str, Any]:
        """The path as pyarrow calls it, and its file system; None is that of this machine."""
        return self.sink.path, None

    def compaction(self, reached: Callable[[str], None] = lambda point: None) -> Compaction:
        """A compaction that has not begun."""
        merger = ParquetMerger(self.store, self.sink.path)
        return Compaction(self.store, self.ledger, STREAM, self.sink.target_file_bytes, merger, reached)

    def require(self, last: int) -> None:
        """Every record up to a batch is there once, for every reader."""
        expected = Counter(range(RECORDS * last))
        assert self.seen_by_pyarrow() == expected
        if self.sink.manifest is ManifestKind.SPARK_METADATA:
            assert self.seen_by_spark() == expected
