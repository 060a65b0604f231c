"""Files by Spark's own writers, over a ledger in Postgres: each record is read once, by Spark and from the listing by pyarrow.

A driver that dies is a `Killed` here, raised at a named point: the stores are as a SIGKILL leaves them, and one JVM serves all.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files import spark_log
from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION, ColumnsUnfit
from exactlyonce.connectors.files.connector import FILES
from exactlyonce.connectors.files.manifest import WRITING
from exactlyonce.connectors.files.orphans import REPLACED_KEPT_SECONDS, find_orphans
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.spec import FileFormat, FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import FilesLost, PathOfAnother
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.fence import Fenced
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark import crash_points
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.manifest_landing import recover_manifests
from testbed.postgres import Postgres
from testbed.spark import local_session
from tests import object_logs
from tests.awkward_rows import DAYS, LOCAL_MOMENTS, MOMENTS, PER_RECORD, PRICES, RATIOS, awkward, texts_of
from tests.files_deaths import (
    DEATHS,
    Killed,
    act_at,
    require_followed_by_one_that_neither_loses_nor_doubles,
)
from tests.files_rig import RECORDS, SOURCE, Stream, named_after_day
from tests.ledgers import STREAM, ledger_on

pytestmark = pytest.mark.seconds(4)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("files sink") as session:
        yield session


@pytest.fixture
def stream(spark: SparkSession, postgres_18: Postgres, name: str, tmp_path: Path) -> Stream:
    return Stream(spark, ledger_on(postgres_18, name), FilesSink(path=str(tmp_path / "out")))


Meanwhile = Callable[[str, int, Callable[[], object]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    return partial(act_at, monkeypatch)


def dies() -> None:
    raise Killed


@pytest.mark.parametrize("given", list(FileFormat))
def test_each_record_is_read_once_and_as_it_was_in_every_format(stream: Stream, given: FileFormat) -> None:
    stream.sink = stream.sink.model_copy(update={"format": given})
    stream.columns = awkward
    stream.land(stream.driver(), 1, 2)
    stream.require(2)
    names = stream.columns(stream.spark.range(0)).columns
    rows = stream.read_by_spark().select(*(f.col(name).cast("string") for name in names)).collect()
    read = {int(row.id): [row[name] for name in names[1:]] for row in rows}
    typed = (MOMENTS, LOCAL_MOMENTS, DAYS, PRICES, RATIOS)
    expected = {number: [*texts_of(number), *(values[number % 4] for values in typed)] for number in range(2 * RECORDS)}
    assert read == expected
    table = stream.read_by_pyarrow(*(f"text{number}" for number in range(PER_RECORD)), "at")
    moments = table["at"].cast(pyarrow.timestamp("us", "UTC")).to_pylist()
    assert {row["id"]: [row[f"text{number}"] for number in range(PER_RECORD)] for row in table.to_pylist()} == {
        number: texts_of(number) for number in range(2 * RECORDS)
    }
    assert dict(zip(table["id"].to_pylist(), moments, strict=True)) == {
        number: text and datetime.fromisoformat(f"{text}+00:00")
        for number in range(2 * RECORDS)
        for text in (MOMENTS[number % 4],)
    }
    held = [file.rows for file in stream.listed()]
    counted = given in (FileFormat.PARQUET, FileFormat.ORC)
    assert held == ([2] * 4 if counted else [None] * 4), "two tasks per batch write a file each"


@pytest.mark.parametrize(
    ("given", "column", "expression", "why"),
    [
        (FileFormat.CSV, "text", "if(id = 3, concat('a', char(0)), 'a')", "text (it contains the character NUL"),
        (FileFormat.ORC, "at", "array(timestamp_millis(-id))", "at (a moment within the second before 1970"),
        (FileFormat.ORC, "day", "date_add(date'1582-10-03', int(id))", "day (a moment within the second before 1970"),
        (FileFormat.JSON, "folder", "if(id = 3, '', 'a')", "folder (as the name of a folder it means NULL"),
    ],
    ids=["NUL in CSV", "before 1970 in ORC", "the gap of calendars in ORC", "an empty text as a folder"],
)
def test_a_value_that_readers_would_not_get_back_ends_its_batch(
    stream: Stream, given: FileFormat, column: str, expression: str, why: str
) -> None:
    folders = ("folder",) if column == "folder" else ()
    stream.sink = stream.sink.model_copy(update={"format": given, "partition_by": folders})
    stream.columns = lambda rows: rows.select("id", f.expr(expression).alias(column))
    driver = stream.driver()
    with pytest.raises(Exception, match="files cannot hold a value of column") as caught:
        stream.land(driver, 1, 1)
    ending, told = ending_of(caught.value, in_batch=True)
    assert ending is Ending.BATCH_FAILED
    assert told.startswith(f"{given} files cannot hold a value of column {why}"), told
    assert stream.listed() == []


def test_a_null_that_is_alone_in_its_line_of_csv_ends_its_batch(stream: Stream) -> None:
    """Readers pass over an empty line, and the record would be gone."""
    stream.sink = stream.sink.model_copy(update={"format": FileFormat.CSV})
    stream.columns = lambda rows: rows.select(f.expr("if(id = 6, null, '')").alias("id"))
    driver = stream.driver()
    stream.land(driver, 1, 1)
    assert stream.seen_by_spark() == stream.seen_by_pyarrow() == Counter([""] * RECORDS)
    with pytest.raises(Exception, match="column id \\(it is NULL and the only column"):
        stream.land(driver, 2, 2)


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


def test_a_driver_dies_at_every_point_of_the_sink() -> None:
    assert (
        {*crash_points.POINTS_OF_FILES, *crash_points.POINTS_OF_MANIFESTS} < DEATHS.keys() < {*crash_points.ALL_POINTS}
    )


@pytest.mark.parametrize("point", DEATHS)
def test_a_driver_that_dies_is_followed_by_one_that_neither_loses_nor_doubles(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    batch = DEATHS[point]
    require_followed_by_one_that_neither_loses_nor_doubles(monkeypatch, stream, point, batch, batch + 1, dies)


def test_what_a_driver_leaves_that_dies_while_sparks_tasks_write_does_not_count_and_can_be_removed(
    stream: Stream, tmp_path: Path
) -> None:
    """Spark's job fails here, which leaves nothing; what it had written is put back: a driver that dies cannot remove it."""
    stream.land(stream.driver(), 1, 1)
    writing, kept = Path(stream.sink.path, WRITING), tmp_path / "kept"

    def written(number: int) -> int:
        """Runs in Spark's worker, which does not import the tests' own modules."""
        if number == 2 * RECORDS - 1:  # the last record, of the other task
            while not any(writing.glob("*/_temporary/*/task_*/*.parquet")):  # until the first task has ended
                threading.Event().wait(0.05)
            shutil.copytree(writing, kept)
            raise ValueError("a test asked for it")
        return number

    lands, stream.columns = (
        stream.columns,
        lambda rows: named_after_day(rows.select(f.udf(written, "long", useArrow=False)("id").alias("id"))),
    )
    driver = stream.driver()
    with pytest.raises(Exception, match="a test asked for it"):
        stream.land(driver, 2, 2)
    stream.columns = lands
    assert list(writing.iterdir()) == []
    shutil.copytree(kept, writing, dirs_exist_ok=True)
    successor = stream.next_attempt()
    stream.require(1)
    stream.land(successor, 2, 2)
    stream.require(2)
    orphans = find_orphans(stream.store, stream.ledger, STREAM)
    assert {orphan.path for orphan in orphans} == {
        f"{WRITING}/{path.relative_to(kept)}" for path in kept.rglob("*") if path.is_file()
    }
    FILES.folder(stream.sink, {}).remove(orphans)
    assert list(writing.iterdir()) == []
    stream.require(2)


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


def on_object_log(stream: Stream, folder: Path) -> Stream:
    """The same stream, whose ledger is a log on this disk."""
    log = object_logs.ledger_on(LocalLogStore(str(folder)))
    return Stream(stream.spark, log, stream.sink)


@pytest.mark.parametrize(
    ("ledger", "point"),
    [("Postgres", "files.moved"), ("Postgres", "batch.rows-written"), ("object log", "land.before-commit")],
)
def test_a_zombie_that_wakes_before_the_ledgers_entry_of_a_batch_that_its_successor_landed_counts_for_nothing(
    stream: Stream, meanwhile: Meanwhile, tmp_path: Path, ledger: str, point: str
) -> None:
    """Both wrote batch 2. In Postgres the entry waits for the row's lock; in a log the zombie has only to create its own."""
    if ledger == "object log":
        stream = on_object_log(stream, tmp_path / "ledger")
    zombie = stream.driver()
    meanwhile(point, 2, lambda: stream.land(stream.next_attempt(), 2, 3))
    with pytest.raises(Fenced):
        stream.land(zombie, 1, 2)
    stream.require(3)
    listed = {file.path for file in stream.listed()}
    of_zombie = stream.on_disk() - listed
    assert len(of_zombie) == 2, "both of its tasks wrote a file"
    orphans = find_orphans(stream.store, stream.ledger, STREAM)
    assert {orphan.path for orphan in orphans if orphan.path.endswith(".parquet")} == of_zombie
    FILES.folder(stream.sink, {}).remove(orphans)
    assert stream.on_disk() == listed
    stream.require(3)
    stream.land(stream.next_attempt(), 4, 4)
    stream.require(4)


def test_a_zombie_lands_nothing_and_what_it_landed_before_is_shown_once(stream: Stream, meanwhile: Meanwhile) -> None:
    """It sleeps after the ledger's entry of batch 1 and wakes when its successor has landed two more."""
    meanwhile("batch.landed", 1, dies)
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
    assert isinstance(stream.ledger, PostgresLedger)
    with stream.ledger.transaction() as transaction, transaction.cursor() as cursor:
        cursor.execute("delete from exactlyonce.committables where batch = 2")
        cursor.execute("update exactlyonce.streams set landed_batch = 1")
    with pytest.raises(LogUnfit, match="up to batch 2, and the ledger ends with batch 1"):
        stream.next_attempt()


def test_files_are_cut_near_the_size_that_is_asked_for(stream: Stream) -> None:
    """The first batch says how large a row is; from then on, all files of a task but its last one are near the size.

    The rows are of random texts, which no codec makes smaller: some 200 KiB for each of two tasks.
    """
    asked = 32 * 1024
    stream.sink = stream.sink.model_copy(update={"target_file_size": "32Ki", "manifest": ManifestKind.NONE})
    stream.columns = lambda rows: rows.crossJoin(
        rows.sparkSession.range(400).withColumnRenamed("id", "more")
    ).withColumn("text", f.expr("concat(uuid(), uuid(), uuid(), uuid(), uuid(), uuid(), uuid(), uuid())"))
    driver = stream.driver()
    seen: set[str] = set()
    for batch in (1, 2, 3):
        stream.land(driver, batch, batch)
        new, seen = stream.on_disk() - seen, stream.on_disk()
        of_tasks: dict[str, list[int]] = {}
        for path in sorted(new):  # …-part-TASK-…-cNUMBER.snappy.parquet
            task = re.search(r"-part-(\d+)-", path)
            assert task is not None
            of_tasks.setdefault(task[1], []).append((Path(stream.sink.path) / path).stat().st_size)
        assert len(of_tasks) == 2
        for sizes in of_tasks.values():
            *cut, rest = sizes
            if batch == 1:
                assert cut == []
                assert rest > 2 * asked, "there is something to cut"
            else:
                assert len(cut) >= 2
                assert all(0.8 * asked < size < 1.2 * asked for size in cut), sizes
                assert rest < 1.2 * asked
    assert stream.seen_by_pyarrow() == Counter(dict.fromkeys(range(3 * RECORDS), 400))
