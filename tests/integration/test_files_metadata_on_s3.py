"""`_spark_metadata` on S3, without Spark: a service that fails, is late or loses answers delays readers and changes nothing."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count, cycle

import pytest

from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.connectors.files.spark_log import FOLDER, batch_of, is_compaction, line_of, name_of, parse, render
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import PathNotWritable, Tenant, take_place
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber
from testbed.faulty_service import Fate, FaultyService, Request
from testbed.s3 import S3
from tests.compacted_lake import CompactedLake
from tests.ledgers import STREAM
from tests.s3_stores import BUCKET
from tests.simulation.database import MemoryDatabase, MemoryLedger

LAST = 24
"""Two compactions, and some batches after the second."""

_numbers = count(1)


@pytest.fixture(autouse=True)
def no_waits_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits up to a second before it asks again."""
    monkeypatch.setattr("exactlyonce.aws.calls._FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def path() -> str:
    return f"s3a://{BUCKET}/orders-{next(_numbers)}"


def opened(s3: S3, path: str, endpoint: str | None = None) -> FolderStore:
    return FILES.folder(FilesSink(path=path, endpoint=endpoint or s3.endpoint, path_style=True), s3.secret()).store


def folder_on(s3: S3, path: str) -> FilesFolder:
    return FILES.folder(FilesSink(path=path, endpoint=s3.endpoint, path_style=True), s3.secret())


def landed() -> dict[BatchNumber, Manifest]:
    numbers = [BatchNumber(number) for number in range(LAST + 1)]
    return {number: Manifest(number, 1, (DataFile(f"file-{number}", 1, number),), "columns") for number in numbers}


def visible(store: FolderStore) -> list[str]:
    """What Spark reads: the latest compaction, and every entry after it."""
    names = {batch: entry.name for entry in store.list(FOLDER) if (batch := batch_of(entry.name)) is not None}
    latest = max(names)
    first = max(0, (latest + 1) // 10 * 10 - 1)
    lines = [
        line
        for batch in range(first, latest + 1)
        for line in parse(names[BatchNumber(batch)], store.read(f"{FOLDER}/{name_of(batch)}"))
    ]
    return [json.loads(line)["path"].rsplit("/", 1)[1] for line in lines]


def often(chance: float, seed: int) -> Callable[[Request], Fate]:
    """Refusals and lost answers, at random."""
    drawn = random.Random(seed)
    faults = (Fate.REFUSED_500, Fate.REFUSED_503, Fate.CUT, Fate.TWICE)
    return lambda request: drawn.choice(faults) if drawn.random() < chance else Fate.ANSWERED


@pytest.mark.parametrize("seed", range(2))
def test_a_log_written_through_a_bad_service_is_the_one_that_a_good_service_holds(s3: S3, path: str, seed: int) -> None:
    """Drivers end when the service does not answer, and the next one begins again; each is a new process's log."""
    drivers = 0
    with FaultyService(s3.port, often(0.4, seed)) as proxy:
        while True:
            drivers += 1
            assert drivers < 1000
            store = opened(s3, path, proxy.endpoint)
            try:
                SparkMetadata(store, path).recover(landed(), BatchNumber(LAST))
                break
            except StoreUnreachable:
                continue
    assert drivers > 1, "the faults were felt"
    direct = opened(s3, path)
    assert visible(direct) == [f"file-{number}" for number in range(LAST + 1)]
    SparkMetadata(opened(s3, f"{path}-good"), path).publish(landed())
    good = opened(s3, f"{path}-good")
    assert {entry.name: direct.read(f"{FOLDER}/{entry.name}") for entry in direct.list(FOLDER)} == {
        entry.name: good.read(f"{FOLDER}/{entry.name}") for entry in good.list(FOLDER)
    }


def test_an_entry_that_arrives_although_nobody_says_so_is_there_once(s3: S3, path: str) -> None:
    """The client sends the request again by itself, or the network does, and finds its own entry there."""
    faults = cycle((Fate.CUT, Fate.TAKEN_500, Fate.TAKEN_503, Fate.TWICE))
    struck: dict[str, Fate] = {}

    def fate(request: Request) -> Fate:
        if request.method == "PUT" and f"{FOLDER}/" in request.path and request.path not in struck:
            struck[request.path] = next(faults)
            return struck[request.path]
        return Fate.ANSWERED

    with FaultyService(s3.port, fate) as proxy:
        SparkMetadata(opened(s3, path, proxy.endpoint), path).publish(landed())
    assert len(struck) == LAST + 1
    assert visible(opened(s3, path)) == [f"file-{number}" for number in range(LAST + 1)]


def late(number: int) -> Callable[[Request], Fate]:
    """Every try to write one entry is refused, and arrives when it is let go."""
    name = f"{FOLDER}/{name_of(number)}"
    return lambda request: Fate.LATE if request.method == "PUT" and request.path.endswith(name) else Fate.ANSWERED


@pytest.mark.parametrize("number", [8, 19], ids=["an entry", "a compaction"])
def test_an_entry_that_arrives_late_changes_nothing_whatever_came_before_it(s3: S3, path: str, number: int) -> None:
    """Every try of a driver is refused and under way; it arrives when its successor has shown that batch and all later ones."""
    with FaultyService(s3.port) as proxy:
        proxy.fate = late(number)
        with pytest.raises(StoreUnreachable):
            SparkMetadata(opened(s3, path, proxy.endpoint), path).publish(landed())
        assert len(proxy.late) > 1, "it was sent again"
        direct = opened(s3, path)
        assert visible(direct) == [f"file-{batch}" for batch in range(number)]
        successor = SparkMetadata(direct, path)
        successor.recover(landed(), BatchNumber(LAST))
        before = direct.tree(FOLDER)
        assert set(proxy.deliver()) == {412}
        assert direct.tree(FOLDER) == before
        assert visible(direct) == [f"file-{batch}" for batch in range(LAST + 1)]


def test_an_entry_that_arrives_late_and_first_is_the_one_that_the_next_driver_would_write(s3: S3, path: str) -> None:
    with FaultyService(s3.port) as proxy:
        proxy.fate = late(9)
        with pytest.raises(StoreUnreachable):
            SparkMetadata(opened(s3, path, proxy.endpoint), path).publish(landed())
        assert proxy.deliver()[0] == 200
        SparkMetadata(opened(s3, path), path).recover(landed(), BatchNumber(LAST))
    assert visible(opened(s3, path)) == [f"file-{batch}" for batch in range(LAST + 1)]


def test_small_files_on_a_bad_service_become_one_and_every_reader_counts_the_same_all_along(s3: S3, path: str) -> None:
    """Requests are refused and answers are lost; each run continues where the one before it ended."""
    lake = CompactedLake(folder_on(s3, path), MemoryLedger(MemoryDatabase()))
    lake.land(1, 10)
    runs = 0
    with FaultyService(s3.port, often(0.3, 1)) as proxy:
        through = dataclasses.replace(lake.folder, store=opened(s3, path, proxy.endpoint))
        while len(lake.shown()) != 2:
            runs += 1
            assert runs < 1000
            with suppress(StoreUnreachable):
                list(through.compact(lake.ledger, STREAM))
            lake.require(10)
    assert runs > 1, "the faults were felt"
    assert len(lake.listed()) == 2
    lake.now = time.time()
    lake.a_day_passes()
    lake.remove_orphans()
    lake.require(10)
    assert len([name for name in lake.store.tree("") if name.endswith(".parquet")]) == 2
    lake.next_driver()


def test_a_service_that_does_not_answer_is_named_and_the_path_stays_as_it_was(s3: S3, path: str) -> None:
    tenant = Tenant("shop/orders", "ledger-1", "Parquet", (), "SparkMetadata")
    with (
        FaultyService(s3.port, lambda request: Fate.REFUSED_503) as proxy,
        pytest.raises(PathNotWritable, match=rf"The path {path} of the files sink cannot be written: .*SlowDown"),
    ):
        take_place(opened(s3, path, proxy.endpoint), tenant)
    assert opened(s3, path).tree("") == {}


def test_the_output_of_a_former_query_is_continued_past_two_compactions_and_readers_see_the_files_of_both(
    s3: S3, path: str
) -> None:
    former = 11
    store = opened(s3, path)
    lines: list[str] = []
    for number in range(former + 1):
        name = f"part-00000-{number:08x}-0000-4000-8000-000000000000-c000.snappy.parquet"
        store.create(name, b"x" * (number + 1))
        lines.append(line_of(DataFile(name, number + 1, 0), path))
        store.create(f"{FOLDER}/{name_of(number)}", render(lines if is_compaction(number) else lines[-1:]))
    shown = visible(store)
    assert len(shown) == former + 1
    take_place(store, Tenant("shop/orders", "ledger-1", "Parquet", (), "SparkMetadata", former))
    log = SparkMetadata(opened(s3, path), path, has_former=True)
    log.recover({}, BatchNumber(former + 1))
    own = {batch: manifest for batch, manifest in landed().items() if batch > former + 1}
    for batch in own:
        log.publish({batch: own[batch]})
    SparkMetadata(opened(s3, path), path, has_former=True).recover(own, BatchNumber(LAST))
    assert visible(store) == [*shown, *(f"file-{batch}" for batch in own)]
    sink = FilesSink(path=path, endpoint=s3.endpoint, path_style=True, continue_after_batch=former)
    listed = [file.address.rsplit("/", 1)[1] for file in FILES.folder(sink, s3.secret()).former()]
    assert listed[: former + 1] == shown
