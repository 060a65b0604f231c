"""The restart table, proven: what Spark 4.2.0 does when it is started on each golden checkpoint.

docs/checkpoint-states.md tells the same to a person. One Spark session with a driver's settings serves all; its topic ends
beyond every recorded batch, so a query that continues has records to read, and each record is known by partition and offset.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactlyonce.api.refused_conf import IN_MEMORY, STATE_STORE
from exactlyonce.checkpoint.generation import Generation, write_seed
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.retained import copy_retained
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.state import Damaged, Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from testbed.golden import EARLIEST, LATEST, ROCKSDB, START, Batches, GoldenTopic, records_between, run_to_end
from testbed.kafka import Kafka
from testbed.s3 import S3
from testbed.spark import local_session
from tests.checkpoints import GOLDEN, golden_states
from tests.combinations import one_or_all
from tests.restart_table import FAILS, GOES_ON, GOES_ON_WRONGLY, OTHER_QUERIES, Ran
from tests.s3_stores import BUCKET

pytestmark = pytest.mark.seconds(6)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("checkpoint restarts", ROCKSDB, with_kafka=True) as session:
        yield session


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> GoldenTopic:
    golden_topic = GoldenTopic(kafka)
    golden_topic.fill(LATEST)
    return golden_topic


def copy_of(state: str, folder: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / state, folder / state))


def expected_batches(ran: Ran) -> list[tuple[int, list[tuple[int, int]]]]:
    return [(number, records_between(start, end)) for number, start, end in ran]


def restart(spark: SparkSession, topic: GoldenTopic, checkpoint: Path) -> Batches:
    return run_to_end(topic.read(spark), checkpoint)


def test_every_golden_checkpoint_is_started_or_excused() -> None:
    assert sorted([*GOES_ON, *GOES_ON_WRONGLY, *FAILS, *OTHER_QUERIES]) == golden_states()


@pytest.mark.parametrize("state", GOES_ON)
def test_spark_goes_on_as_this_project_reads_the_checkpoint(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, state: str
) -> None:
    checkpoint = copy_of(state, tmp_path)
    before = read_generation(LocalLogStore(str(tmp_path)), CODEC, state)
    found = restart(spark, topic, checkpoint)
    assert (found.ran, found.error) == (expected_batches(GOES_ON[state]), None)
    assert isinstance(before, Readable)
    first, records = found.ran[0]
    if before.planned == before.checkpointed:
        assert first == before.planned + 1, "the next batch"
        assert records == records_between(before.planned_end, LATEST), "from where the logs end"
    else:
        assert before.planned_start is not None
        assert first == before.planned, "the planned batch, again"
        assert records == records_between(before.planned_start, before.planned_end), "with the range that was planned"
    after = read_generation(LocalLogStore(str(tmp_path)), CODEC, state)
    assert isinstance(after, Readable), "what Spark has added is read again"
    assert (after.planned, after.checkpointed, after.planned_end) == (found.numbers[-1], found.numbers[-1], LATEST)


@pytest.mark.parametrize("state", GOES_ON_WRONGLY)
def test_spark_goes_on_where_this_project_does_not_let_it(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, state: str
) -> None:
    checkpoint = copy_of(state, tmp_path)
    before = read_generation(LocalLogStore(str(tmp_path)), CODEC, state)
    found = restart(spark, topic, checkpoint)
    assert (found.ran, found.error) == (expected_batches(GOES_ON_WRONGLY[state]), None)
    start_is_unknown = isinstance(before, Readable) and before.planned_start is None
    assert isinstance(before, Damaged) or start_is_unknown, "named, or read as one whose batch 0 has no known start"


@pytest.mark.parametrize("state", FAILS)
def test_spark_fails_on_what_this_project_names_as_damaged(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, state: str
) -> None:
    checkpoint = copy_of(state, tmp_path)
    before = read_generation(LocalLogStore(str(tmp_path)), CODEC, state)
    ran, error = FAILS[state]
    found = restart(spark, topic, checkpoint)
    assert found.ran == expected_batches(ran)
    assert error in (found.error or "it ended without an error")
    assert isinstance(before, Damaged)


def test_a_stateful_query_goes_on_with_its_state(spark: SparkSession, topic: GoldenTopic, tmp_path: Path) -> None:
    checkpoint = copy_of("stateful", tmp_path)
    found = run_to_end(topic.read(spark).groupBy("partition").count(), checkpoint)
    counted = [(key.key, LATEST[key] - START[key]) for key in LATEST]
    assert (found.ran, found.error) == ([(2, counted)], None), "records before the restart are counted in"


CHANGELOGS = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
FORMAT_1 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"}
RETAINED = [
    pytest.param({STATE_STORE: IN_MEMORY, **FORMAT_1}, True, id="in memory, on S3"),
    pytest.param({}, True, id="RocksDB, on S3"),
    pytest.param(CHANGELOGS, True, id="RocksDB with changelogs, on S3"),
    pytest.param({STATE_STORE: IN_MEMORY, **FORMAT_1}, False, id="in memory"),
    pytest.param({}, False, id="RocksDB"),
]


# By default RocksDB on a disk, with a driver: test_retained_state.py; the other files: tests/unit/test_retained_state.py.
@pytest.mark.parametrize(("settings", "on_s3"), one_or_all(RETAINED))
def test_a_query_continues_with_the_state_that_was_copied_of_an_earlier_batch(
    spark: SparkSession, topic: GoldenTopic, s3: S3, tmp_path: Path, settings: Mapping[str, str], on_s3: bool
) -> None:
    """Every batch after it is what it was in the undisturbed run."""
    location = f"s3a://{BUCKET}/retained-{tmp_path.name}" if on_s3 else str(tmp_path)
    login = S3Service.of(s3.endpoint, None, path_style=True, secret=s3.secret())
    store = S3LogStore(location, login) if on_s3 else LocalLogStore(location)
    former, made = Generation(1, Epoch(1)), Generation(2, Epoch(2))

    def counted(generation: Generation) -> Batches:
        rows = topic.read(spark, batch_records=10).groupBy("partition").count()
        return run_to_end(rows, f"{location}/{generation.folder}")

    with chosen(spark, {"spark.sql.shuffle.partitions": "1", **(spark_to(s3) if on_s3 else {}), **settings}):
        undisturbed = counted(former)
        assert (undisturbed.error, len(undisturbed.ran)) == (None, 4)
        last = {key: count for _, rows in undisturbed.ran for key, count in rows}
        assert last == {int(key.key): end for key, end in LATEST.items()}, "every record counts once"
        copy_retained(store, CODEC, former, made, BatchNumber(1))
        again = counted(made)
    assert (again.error, again.ran) == (None, undisturbed.ran[2:])


@contextmanager
def chosen(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Run queries of the session with other settings than a driver's usual ones."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)


def spark_to(s3: S3) -> dict[str, str]:
    """Settings with which the session reaches the bucket; a driver's login is in its environment."""
    keys = s3.secret()
    named = {
        "endpoint": s3.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": keys["AWS_ACCESS_KEY_ID"],
        "secret.key": keys["AWS_SECRET_ACCESS_KEY"],
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    manager = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    return {
        "spark.sql.streaming.checkpointFileManagerClass": manager,
        **{f"fs.s3a.bucket.{BUCKET}.{key}": value for key, value in named.items()},
    }


def test_state_without_offsets_stops_a_stateful_query(spark: SparkSession, topic: GoldenTopic, tmp_path: Path) -> None:
    checkpoint = copy_of("state-without-offsets", tmp_path)
    found = run_to_end(topic.read(spark).groupBy("partition").count(), checkpoint)
    assert found.ran == []
    assert "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" in (found.error or "")


def seed(folder: Path, batch: int, at: Positions = START) -> Path:
    """Write a generation whose empty batch ends at `at`; returns the checkpoint directory that Spark is given."""
    generation = Generation(7, Epoch(3))
    write_seed(LocalLogStore(str(folder)), CODEC, generation, BatchNumber(batch), at, 2)
    return Path(generation.path(str(folder)))


def files_of(checkpoint: Path) -> dict[str, bytes]:
    return {str(file.relative_to(checkpoint)): file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}


@pytest.mark.parametrize("batch", [0, 1, 41])
def test_spark_continues_a_seed_with_the_next_batch_from_exactly_its_positions(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, batch: int
) -> None:
    checkpoint = seed(tmp_path, batch)
    seeded = files_of(checkpoint)
    found = restart(spark, topic, checkpoint)
    # Spark runs the empty batch 0 itself, and finds a later one committed.
    own: list[tuple[int, list[object]]] = [(0, [])] if batch == 0 else []
    assert (found.ran, found.error) == ([*own, (batch + 1, records_between(START, LATEST))], None)
    assert seeded.items() <= files_of(checkpoint).items(), "Spark changes no file of the seed"
    assert restart(spark, topic, checkpoint).ran == [], "and has nothing more to read"


@pytest.mark.parametrize("batch", [0, 41])
def test_no_record_is_skipped_or_repeated_over_a_seed_a_failed_batch_and_restarts(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, batch: int
) -> None:
    """The first batch after the seed fails, then a later one; a failed batch leaves no rows, as in a transaction."""
    checkpoint = seed(tmp_path, batch)
    runs = [
        run_to_end(topic.read(spark, batch_records=6), checkpoint, fail_at=fail_at)
        for fail_at in (batch + 1, batch + 3, None)
    ]
    numbers = [number for run in runs for number in run.numbers]
    first = 0 if batch == 0 else batch + 1
    assert numbers == list(range(first, first + len(numbers))), "each batch landed once, in order"
    assert len(numbers) > 3
    assert [run.error is None for run in runs] == [False, False, True]
    assert sorted(record for run in runs for record in run.records) == records_between(START, LATEST)


def test_a_batch_planned_after_a_seed_is_run_again_with_its_range(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path
) -> None:
    """The offset log must hold spark.sql.shuffle.partitions, or Spark ends with None.get when it compares two batches."""
    checkpoint = seed(tmp_path, 41)
    run_to_end(topic.read(spark, batch_records=6), checkpoint, fail_at=42)
    planned = read_generation(LocalLogStore(str(tmp_path)), CODEC, checkpoint.name)
    assert isinstance(planned, Readable)
    assert (planned.planned, planned.checkpointed, planned.planned_start, planned.has_run) == (42, 41, START, True)
    found = restart(spark, topic, checkpoint)
    assert found.ran[0] == (42, records_between(START, planned.planned_end))
    assert found.records == records_between(START, LATEST)


def test_a_partition_that_the_seed_does_not_name_is_read_from_its_first_record(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path
) -> None:
    two = Positions(list(START.items())[:2])
    found = restart(spark, topic, seed(tmp_path, 41, two))
    assert found.ran == [(42, records_between(two, LATEST))]


@pytest.mark.parametrize("batch", [0, 1, 41])
def test_a_half_written_seed_starts_from_the_earliest_record_or_where_it_says_or_not_at_all(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path, batch: int
) -> None:
    """Why a generation is published only after it was read back whole."""
    whole = seed(tmp_path / "whole", batch)
    order = ["metadata", "sources/0/0", f"commits/{batch}", f"offsets/{batch - 1}", f"offsets/{batch}"]
    order = [path for path in order if (whole / path).exists()]
    for count in range(len(order)):
        cut = tmp_path / f"cut-{count}"
        for path in order[:count]:
            (cut / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole / path, cut / path)
        found = restart(spark, topic, cut)
        start = START if "sources/0/0" in order[:count] else EARLIEST
        expected = records_between(start, LATEST)
        assert found.records in ([], expected), f"{order[:count]}: {found}"
        assert found.error is not None or found.records == expected, f"{order[:count]}: {found}"


def test_a_batch_0_whose_start_was_not_written_runs_from_the_earliest_record(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path
) -> None:
    """Why the start is written before the offsets: the other order has a moment that reads old records again."""
    checkpoint = seed(tmp_path, 0)
    shutil.rmtree(checkpoint / "sources")
    found = restart(spark, topic, checkpoint)
    assert found.ran == [(0, records_between(EARLIEST, START)), (1, records_between(START, LATEST))]


def test_spark_refuses_a_stateful_query_on_a_later_seed_because_it_has_no_state(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path
) -> None:
    found = run_to_end(topic.read(spark).groupBy("partition").count(), seed(tmp_path, 41))
    assert found.ran == []
    assert "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY" in (found.error or "")


def test_a_stateful_query_starts_at_the_seed_of_batch_0(
    spark: SparkSession, topic: GoldenTopic, tmp_path: Path
) -> None:
    """Spark runs the empty batch 0 itself, from Kafka's start as written to the same end, and makes its state with it."""
    found = run_to_end(topic.read(spark).groupBy("partition").count(), seed(tmp_path, 0))
    counted = [(key.key, LATEST[key] - START[key]) for key in LATEST]
    assert (found.ran, found.error) == ([(0, []), (1, counted)], None)
