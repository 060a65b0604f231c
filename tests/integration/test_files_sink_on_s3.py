"""Spark's own writers on S3, and a service that fails them: each id once, as Spark and pyarrow count them.

Spark asks S3 through a proxy, which gives each request the fate of a bad day; readers ask the service itself. A driver that
dies is a `Killed` here, raised at a named point, so one JVM serves all. What S3 adds to the points on a disk, which are those
of test_files_sink.py, is that files are written by uploads which a committer completes, and moved by a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark.sql import SparkSession

from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.connectors.files.manifest import WRITING
from exactlyonce.connectors.files.orphans import find_orphans
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.failures import ending_of
from testbed.faulty_service import Fate, FaultyService, Request
from testbed.s3 import S3
from testbed.spark import local_session
from tests import object_logs
from tests.combinations import in_full, one_or_all, only_in_full
from tests.files_deaths import DEATHS, Killed, act_at, require_followed_by_one_that_neither_loses_nor_doubles
from tests.files_on_s3 import FAULTS, BadDay, StreamOnS3, new_bucket, settings_of_spark
from tests.ledgers import STREAM
from tests.s3_stores import service_of

MOVED = "files.moved"
ON_S3 = [MOVED, *(point for point in DEATHS if point not in (MOVED, "files.checksum-moved"))]
"""Hadoop keeps no checksums beside files on S3, and a file is moved there by a copy: that point tells the most."""


@pytest.fixture(scope="module")
def proxy(s3: S3) -> Iterator[FaultyService]:
    with FaultyService(s3.port) as made:
        yield made


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    return new_bucket(s3)


@pytest.fixture(scope="module")
def spark(s3: S3, bucket: str, proxy: FaultyService) -> Iterator[SparkSession]:
    with local_session("files on S3", settings_of_spark(s3, bucket, proxy.endpoint)) as session:
        yield session


@pytest.fixture
def stream(spark: SparkSession, s3: S3, bucket: str, proxy: FaultyService, name: str) -> Iterator[StreamOnS3]:
    proxy.fate = answered
    ledger = object_logs.ledger_on(S3LogStore(f"s3a://{bucket}/{name}-ledger", service_of(s3)))
    sink = FilesSink(path=f"s3a://{bucket}/{name}", endpoint=proxy.endpoint, path_style=True)
    yield StreamOnS3(spark, ledger, sink, s3=s3)
    proxy.fate = answered


def answered(request: Request) -> Fate:
    return Fate.ANSWERED


def is_of_spark(request: Request) -> bool:
    return "aws-sdk-java" in request.headers.get("User-Agent", "")


def land_all(stream: StreamOnS3, last: int) -> list[str]:
    """Land batches by as many drivers as it takes, each followed by the next one; return what ended them."""
    told: list[str] = []
    driver, landed = stream.driver(), 0
    while landed < last:
        assert len(told) < 50, told
        try:
            stream.land(driver, landed + 1, last)
        except Exception as problem:
            ending, words = ending_of(problem, in_batch=True)
            assert ending is Ending.UNREACHABLE, f"no fault of S3 is one of the batch: {words}"
            told.append(words)
            driver = stream.next_attempt()
        view = stream.ledger.view(STREAM)
        assert view is not None
        landed = view.stream.landed_batch or 0
    return told


@only_in_full
def test_files_that_spark_writes_on_a_bad_day_of_s3_are_read_once(stream: StreamOnS3, proxy: FaultyService) -> None:
    """Answers of 500 and 503, before and after a request took effect; no answer, a late one, and requests that arrive twice.

    A driver as it is run has fewer of them by default: test_files_on_s3.py.
    """
    last = 2
    day = BadDay(6, is_of_spark)
    proxy.fate = day.fate
    land_all(stream, last)
    assert set(day.struck) == set(FAULTS)
    proxy.fate = answered
    stream.require(last)
    proxy.deliver()  # what was under way all the time arrives when nobody waits for it any more
    stream.require(last)
    stream.folder().remove(find_orphans(stream.store, stream.ledger, STREAM))
    assert stream.on_disk() == {file.path for file in stream.listed()}
    stream.require(last)


KINDS: dict[str, Callable[[Request], bool]] = {
    "begins an upload": lambda request: request.method == "POST" and request.path.endswith("?uploads"),
    "uploads a part": lambda request: request.method == "PUT" and "partNumber=" in request.path,
    "lists its uploads": lambda request: request.method == "PUT" and "__magic" in request.path,
    "completes an upload": lambda request: request.method == "POST" and "uploadId=" in request.path,
    "copies a file": lambda request: "x-amz-copy-source" in {name.lower() for name in request.headers},
    "deletes an object": lambda request: request.method == "DELETE",
    "deletes objects": lambda request: request.method == "POST" and request.path.endswith("?delete"),
}
"""What Spark asks S3 to change. Reads and lists are struck on the bad day, as these are."""


@only_in_full
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_of_each_kind_that_takes_effect_unseen_late_or_twice_changes_nothing_that_is_read(
    stream: StreamOnS3, proxy: FaultyService, kind: str
) -> None:
    """The first try of each such request is struck, so that Spark sends it again; a batch for each of the faults."""
    driver = stream.driver()
    for batch, fault in enumerate((Fate.TAKEN_500, Fate.CUT, Fate.TWICE, Fate.LATE), 1):
        struck: set[str] = set()
        proxy.fate = partial(first_of, kind, fault, struck)
        stream.land(driver, batch, batch)
        assert struck
        proxy.fate = answered
        stream.require(batch)
    assert proxy.late
    proxy.deliver()
    stream.require(batch)


def first_of(kind: str, fault: Fate, struck: set[str], request: Request) -> Fate:
    if not KINDS[kind](request) or request.path in struck:
        return Fate.ANSWERED
    struck.add(request.path)
    return fault


@pytest.mark.parametrize("given", one_or_all([FileFormat.JSON, FileFormat.PARQUET]))
def test_what_a_committer_could_not_remove_of_its_own_is_no_file_of_the_batch(
    stream: StreamOnS3, proxy: FaultyService, monkeypatch: pytest.MonkeyPatch, given: FileFormat
) -> None:
    """S3A only logs that it could not remove `__magic…`, whose lists of uploads are JSON: readers would count them as rows.

    Parquet has footers, without which the batch would have failed: tests/unit/test_files_writer.py.
    """
    stream.sink = stream.sink.model_copy(update={"format": given})
    left: set[str] = set()

    def spark_has_written() -> None:
        proxy.fate = answered
        left.update(key for key in stream.keys(f"{WRITING}/") if "/__magic" in key)

    act_at(monkeypatch, "files.written", 1, spark_has_written)
    driver = stream.driver()
    proxy.fate = lambda request: Fate.REFUSED_500 if removes_of_committer(request) else Fate.ANSWERED
    stream.land(driver, 1, 1)
    of_spark = [(request.method, request.path) for request in proxy.seen if is_of_spark(request)]
    assert [key for key in left if key.endswith(".pendingset")], (left, of_spark)
    stream.require(1)
    assert stream.keys(f"{WRITING}/") == set()


@pytest.mark.parametrize("point", one_or_all(ON_S3))
def test_a_driver_that_dies_on_s3_is_followed_by_one_that_neither_loses_nor_doubles(
    stream: StreamOnS3, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def dies() -> None:
        if point == MOVED:  # between the copy and the deletion, a file is in both of its places
            (copied,) = stream.on_disk() - {file.path for file in stream.listed()}
            attempt, part, name = copied.partition("-part-")
            stream.copy(copied, f"{WRITING}/{attempt}/{part.removeprefix('-')}{name}")
        raise Killed

    batch = in_full(DEATHS[point], otherwise=1)
    last = in_full(batch + 1, otherwise=batch)
    require_followed_by_one_that_neither_loses_nor_doubles(monkeypatch, stream, point, batch, last, dies)


@only_in_full
def test_what_a_job_leaves_whose_service_goes_away_while_it_completes_its_uploads_is_read_by_nobody(
    stream: StreamOnS3, proxy: FaultyService
) -> None:
    """As a driver leaves it that is killed there; what else it leaves: test_a_driver_that_dies_on_s3…."""
    driver = stream.driver()
    stream.land(driver, 1, 1)
    gone: list[Request] = []

    def fate(request: Request) -> Fate:
        if "uploadId=" in request.path and request.method == "POST":
            gone.append(request)
        return Fate.REFUSED_503 if gone and is_of_spark(request) else Fate.ANSWERED

    proxy.fate = fate
    with pytest.raises(Exception, match="SlowDown") as caught:
        stream.land(driver, 2, 2)
    assert ending_of(caught.value, in_batch=True)[0] is Ending.UNREACHABLE
    proxy.fate = answered
    assert stream.left_of_attempts()
    successor = stream.next_attempt()
    stream.require(1)
    stream.land(successor, 2, 2)
    stream.require(2)
    orphans = find_orphans(stream.store, stream.ledger, STREAM)
    assert {orphan.path for orphan in orphans} == stream.left_of_attempts()
    stream.folder().remove(orphans)
    assert stream.left_of_attempts() == set()
    stream.require(2)


def removes_of_committer(request: Request) -> bool:
    alone = request.method == "DELETE" and "__magic" in request.path
    return alone or (request.path.endswith("?delete") and b"__magic" in request.body)
