"""Files by Spark's own writers, over a ledger in Postgres: each record is read once, by Spark and from the listing by pyarrow.

A driver that dies is a `Killed` here, raised at a named point: the stores are as a SIGKILL leaves them, and one JVM serves all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files import spark_log
from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION, ColumnsUnfit
from exactlyonce.connectors.files.compaction import Compaction
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, Write
from exactlyonce.connectors.files.orphans import REPLACED_KEPT_SECONDS, find_orphans
from exactlyonce.connectors.files.parquet import ParquetMerger
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.spec import FileFormat, FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import FilesLost, PathOfAnother, Tenant
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger.fence import Fenced, Permit, claim_epoch, raise_epoch
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark import crash_points
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.connectors.files.target import FilesTarget
from exactlyonce_spark.connectors.files.writer import SparkFileWriter
from exactlyonce_spark.manifest_landing import recover_manifests
from exactlyonce_spark.spark_port import ExecutedPlan
from testbed.postgres import Postgres
from testbed.spark import local_session
from tests.ledgers import IDS, P0, P1, STREAM, ledger_on, new_stream, started
from tests.simulation.source import MemoryTopic

SOURCE = MemoryTopic({P0: 100, P1: 0}, topic_id=IDS["orders"])
RECORDS = 4
"""How many records a batch has, of two tasks."""


class Killed(BaseException):
    """The driver died here."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("files sink") as session:
        yield session


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

    def malformed(self, ranges: Ranges, *, certain: bool) -> Sequence[Any]:
        return ()

    def collect(self) -> None:
        raise AssertionError("the sink's writer writes")

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
    ledger: PostgresLedger
    sink: FilesSink
    columns: Callable[[DataFrame], DataFrame] = named_after_day
    renamed: dict[str, str] = field(default_factory=dict)
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.permit = started(self.ledger)

    @property
    def store(self) -> LocalLogStore:
        return LocalLogStore(self.sink.path)

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
        raise_epoch(self.ledger, new_stream(self.ledger), epoch)
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}")
        return self.driver()

    def land(self, loop: BatchLoop, first: int, last: int) -> None:
        for number in range(first, last + 1):
            loop.run(Batch(self.spark, BatchNumber(number), self.columns))

    def listed(self) -> list[DataFile]:
        with self.ledger.transaction() as transaction:
            texts = transaction.read_committables(STREAM)
        return [file for batch, text in texts.items() for file in Manifest.from_json(batch, text).files]

    def seen_by_spark(self) -> Counter[int]:
        options = {"header": "true", "inferSchema": "true"} if self.sink.format is FileFormat.CSV else {}
        rows = self.spark.read.format(self.sink.format.spark_name).options(**options).load(self.sink.path)
        return Counter(row.id for row in rows.select("id").collect())

    def seen_by_pyarrow(self) -> Counter[int]:
        paths: Any = [f"{self.sink.path}/{file.path}" for file in self.listed()]
        given: Any = self.sink.format.spark_name
        table = pyarrow.dataset.dataset(paths, format=given).to_table(columns=["id"])
        return Counter(table["id"].to_pylist())

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


@pytest.fixture
def stream(spark: SparkSession, postgres_18: Postgres, name: str, tmp_path: Path) -> Stream:
    return Stream(spark, ledger_on(postgres_18, name), FilesSink(path=str(tmp_path / "out")))


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let the driver die at a point of a batch, once."""

    def arm(point: str, batch: int) -> None:
        assert point in (*crash_points.POINTS, *crash_points.POINTS_OF_MANIFESTS)
        armed = [(point, batch)]

        def watcher(reached: str, at: int | None = None) -> None:
            if (reached, at) in armed:
                armed.clear()
                raise Killed(reached)

        for module in ("batch", "landing", "manifest_landing", "connectors.files.target"):
            monkeypatch.setattr(f"exactlyonce_spark.{module}.reached", watcher)

    return arm


@pytest.mark.parametrize("given", list(FileFormat))
def test_each_record_is_read_once_in_every_format(stream: Stream, given: FileFormat) -> None:
    stream.sink = stream.sink.model_copy(update={"format": given})
    stream.land(stream.driver(), 1, 2)
    stream.require(2)
    rows = [file.rows for file in stream.listed()]
    counted = given in (FileFormat.PARQUET, FileFormat.ORC)
    assert rows == ([2] * 4 if counted else [None] * 4), "two tasks per batch write a file each"


def test_files_of_partition_columns_are_read_with_their_columns(stream: Stream) -> None:
    stream.sink = stream.sink.model_copy(update={"partition_by": ("day",)})
    stream.land(stream.driver(), 1, 2)
    stream.require(2)
    days = stream.spark.read.parquet(stream.sink.path).select("id", "day").collect()
    assert {row.id: row.day for row in days} == {number: f"d/{number % 2}" for number in range(8)}
    assert find_orphans(stream.store, stream.ledger, STREAM) == ()


@pytest.mark.parametrize(
    ("partition", "position", "first"),
    [(0, "bigint", 0), ("shardId-7", "decimal(38,0)", 10**37)],
    ids=["of Kafka", "a named shard and positions beyond 64 bits"],
)
def test_rows_carry_their_positions_where_that_is_asked_for(
    stream: Stream, partition: int | str, position: str, first: int
) -> None:
    """A task reads one partition here, so a file has rows of one partition alone and says which; 9 and 10 are in order."""
    stream.sink = stream.sink.model_copy(update={"include_positions": True, "manifest": ManifestKind.NONE})
    stream.renamed = {"at": ORIGIN, "shard": PARTITION, "number": OFFSET}
    number = f.expr(f"cast(id as {position}) + cast({first} + 8 as {position})").cast(position)
    view = {"at": f.lit("orders"), "shard": f.lit(partition), "number": number}
    stream.columns = lambda rows: rows.withColumns(view)
    stream.land(stream.driver(), 1, 1)
    stream.require(1)
    assert [file.spans for file in stream.listed()] == [
        (PositionSpan("orders", partition, first + 8, first + 9),),
        (PositionSpan("orders", partition, first + 10, first + 11),),
    ]
    assert not (Path(stream.sink.path) / "_spark_metadata").exists()


@pytest.mark.parametrize(
    ("point", "batch"),
    [
        ("batch.rows-written", 2),  # after the files, before the ledger
        ("land.before-commit", 2),
        ("batch.landed", 2),  # after the ledger, before readers are shown anything
        ("publish.prepared", 9),  # in the middle of a compaction: its content is made and not there yet
        ("publish.created", 9),
        ("batch.published", 9),
    ],
)
def test_a_driver_that_dies_is_followed_by_one_that_neither_loses_nor_doubles(
    stream: Stream, dies_at: Callable[[str, int], None], point: str, batch: int
) -> None:
    dies_at(point, batch)
    driver = stream.driver()
    with pytest.raises(Killed):
        stream.land(driver, 1, batch)
    successor = stream.next_attempt()
    landed = len(stream.seen_by_spark()) // RECORDS
    assert landed == (batch - 1 if point in ("batch.rows-written", "land.before-commit") else batch)
    stream.require(landed)
    stream.land(successor, landed + 1, batch + 1)
    stream.require(batch + 1)
    orphans = find_orphans(stream.store, stream.ledger, STREAM)
    assert bool(orphans) == (landed < batch), "what the dead driver wrote and did not land can be removed"
    for orphan in orphans:
        stream.store.remove(orphan.path)
    stream.require(batch + 1)


def test_small_files_that_are_merged_are_read_once_by_spark_with_the_types_that_it_wrote(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of four files in two folders, which one compaction of Spark's log shows; a third it shows alone."""
    monkeypatch.setattr(spark_log, "COMPACT_INTERVAL", 3)  # Spark takes it from the names of the entries
    stream.columns = lambda rows: named_after_day(rows).selectExpr(
        "*",
        "timestamp_millis(id * 1000) as at",
        "cast(id as decimal(9, 2)) as price",
        "array(named_struct('n', id)) as nested",
        "cast(id as tinyint) as small",
    )
    stream.sink = stream.sink.model_copy(update={"partition_by": ("day",)})
    stream.land(stream.driver(), 1, 3)
    before = stream.spark.read.parquet(stream.sink.path)
    rows = sorted(before.collect())

    def dies(point: str) -> None:
        if point == "compact.switched":
            raise Killed(point)

    assert len(stream.listed()) == 12
    with pytest.raises(Killed):
        list(stream.compaction(dies).run())
    stream.require(3)
    successor = stream.next_attempt()
    assert list(stream.compaction().run()) == [], "what the dead one left to do is done"
    assert len(stream.listed()) == 2 + 4
    shown = stream.spark.read.parquet(stream.sink.path)
    assert (sorted(shown.collect()), shown.schema) == (rows, before.schema)
    stream.land(successor, 4, 4)
    orphans = find_orphans(stream.store, stream.ledger, STREAM, lambda: time.time() + REPLACED_KEPT_SECONDS + 60)
    assert len([orphan for orphan in orphans if orphan.path.endswith(".parquet")]) == 8
    stream.store.delete([orphan.path for orphan in orphans])
    stream.require(4)
    stream.next_attempt()


def test_a_zombie_lands_nothing_and_what_it_landed_before_is_shown_once(
    stream: Stream, dies_at: Callable[[str, int], None]
) -> None:
    """It sleeps after the ledger's entry of batch 1 and wakes when its successor has landed two more."""
    dies_at("batch.landed", 1)
    target = stream.target()
    recover_manifests(stream.ledger, stream.permit, target)
    zombie = BatchLoop(stream.ledger, stream.permit, target, SOURCE, BatchSettings())
    with pytest.raises(Killed):
        stream.land(zombie, 1, 1)
    with stream.ledger.transaction() as transaction:
        committable = transaction.read_committables(STREAM)[BatchNumber(1)]
    stream.land(stream.next_attempt(), 2, 3)
    target.publish(BatchNumber(1), committable)
    stream.require(3)
    with pytest.raises(Fenced):
        stream.land(zombie, 4, 4)
    stream.require(3)


def test_a_file_that_was_deleted_behind_the_manifest_is_named_and_halts(stream: Stream) -> None:
    stream.land(stream.driver(), 1, 1)
    gone = stream.listed()[0].path
    stream.store.remove(gone)
    with pytest.raises(FilesLost, match=rf"1 of them \({gone}\), of 1 batch \(1\)"):
        stream.next_attempt()


def test_what_does_not_fit_the_path_is_refused_and_nothing_is_written(stream: Stream, tmp_path: Path) -> None:
    stream.land(stream.driver(), 1, 1)
    before = sorted(path for path in tmp_path.rglob("*"))
    fits = stream.columns
    stream.columns = lambda rows: rows.withColumn("name", f.lit(1)).withColumn("day", f.lit("d"))
    with pytest.raises(ColumnsUnfit, match="name was string and is integer"):
        stream.next_attempt()
    stream.columns = fits
    stream.sink = stream.sink.model_copy(update={"format": FileFormat.CSV})
    with pytest.raises(PathOfAnother, match="format was 'Parquet' and is 'Csv'"):
        stream.next_attempt()
    stream.columns = lambda rows: rows.select(f.array("id").alias("ids"))
    with pytest.raises(ColumnsUnfit, match="ids is or contains array, which Csv files cannot hold"):
        stream.next_attempt()
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_ledger_that_went_back_is_not_shown_over_what_readers_see(stream: Stream, tmp_path: Path) -> None:
    stream.land(stream.driver(), 1, 2)
    with stream.ledger.transaction() as transaction, transaction.cursor() as cursor:
        cursor.execute("delete from exactlyonce.committables where batch = 2")
        cursor.execute("update exactlyonce.streams set landed_batch = 1")
    with pytest.raises(LogUnfit, match="up to batch 2, and the ledger ends with batch 1"):
        stream.next_attempt()


def test_files_are_cut_near_the_size_that_is_asked_for(stream: Stream) -> None:
    """The first batch says how large a row is; from the second on, files are cut by rows."""
    stream.sink = stream.sink.model_copy(update={"target_file_size": "1Ki", "manifest": ManifestKind.NONE})
    stream.columns = lambda rows: rows.crossJoin(rows.sparkSession.range(400).withColumnRenamed("id", "more"))
    writer = SparkFileWriter(stream.sink)
    sizes: list[list[int]] = []
    for number in (1, 2):
        batch = Batch(stream.spark, BatchNumber(number), stream.columns)
        written = writer.write(Write.draw(Author(Epoch(1), "0" * 16), BatchNumber(number)), batch.unread())
        assert written.rows == sum(file.rows or 0 for file in written.files) == RECORDS * 400
        sizes.append([file.size_bytes for file in written.files])
        writer.learn(Manifest(BatchNumber(number), written.rows, written.files, ""))
    assert len(sizes[1]) > len(sizes[0])
    assert max(sizes[1]) < max(sizes[0])
