"""How many files of a folder wait, counted from outside: what is counted, where it ends, and what is never opened for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.locations import StoreInPods
from exactlyonce.checkpoint.s3_versions import ObjectVersion
from exactlyonce.connectors.files import source_counter
from exactlyonce.connectors.files.connector import SOURCE
from exactlyonce.connectors.files.source_counter import MOST_OBJECTS, MOST_SECONDS, FilesUncounted
from exactlyonce.connectors.files.source_lists import COMPACT_EACH, FileLists, Known, folder_of
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.errors import ExactlyOnceError, SecretMissing, StoreUnreachable
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.counted_files import CountsFiles, FileCounter, FilesNotLanded

PATH = "s3a://shop/incoming"
FOLDER = Partition(PATH, 0)
LOGIN = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "hidden"}


@dataclass
class Bucket:
    """A folder on S3, which counts what is taken from its listing and with which login it was opened."""

    objects: Iterable[ObjectVersion] = ()
    problem: Exception | None = None
    taken: int = 0
    logins: list[Mapping[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    seconds_each: float = 0.0

    def open(self, place: object, secret: Mapping[str, str]) -> Bucket:
        self.logins.append(secret)
        return self

    def versions(self, *, recursive: bool, is_enough: Callable[[], bool]) -> Iterator[ObjectVersion]:
        if self.problem is not None:
            raise self.problem
        for found in self.objects:
            self.taken += 1
            self.seconds += self.seconds_each
            yield found

    def clock(self) -> float:
        return self.seconds


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    monkeypatch.setattr(source_counter, "open_versions", made.open)
    return made


def objects(*paths: str, first: int = 0) -> list[ObjectVersion]:
    """Objects of 10 bytes, each written to a second after the one before."""
    return [ObjectVersion(path, 10, (first + number) * 1000, f'"{path}"') for number, path in enumerate(paths, 1)]


def read_of(found: Iterable[ObjectVersion]) -> list[SourceFile]:
    return [SourceFile(it.path, it.size_bytes, it.modified_milliseconds, it.tag) for it in found]


def written(location: Path, files: Iterable[SourceFile], each: int = 1) -> int:
    """Write lists as a driver does, a batch of so many files after another; return where they end."""
    lists, known, at = (
        FileLists(LocalLogStore(str(location)), folder_of(PATH, "source"), "life-1"),
        Known((), ()),
        NOTHING_READ,
    )
    added = list(files)
    for start in range(0, len(added), each):
        known = lists.record(known, at, added[start : start + each])
        at = known.ends[-1]
    return at


def counter(checkpoints: Any, bucket: Bucket, secret: Mapping[str, str] = LOGIN, **spec: Any) -> FileCounter:
    given = FilesSource.model_validate({"path": PATH, "secretRef": {"name": "lake"}, **spec})
    address = SOURCE.address(given, secret)
    assert isinstance(address, CountsFiles)
    made: FileCounter = address.counter(checkpoints)
    object.__setattr__(made, "clock", lambda: bucket.clock())  # its text would show the bucket
    return made


@pytest.mark.parametrize("batches", [1, 7, COMPACT_EACH, 2 * COMPACT_EACH + 3])
def test_what_waits_is_the_folder_less_what_the_lists_up_to_the_landed_position_hold(
    bucket: Bucket, tmp_path: Path, batches: int
) -> None:
    names = [f"{number:03}.json" for number in range(40)]
    every = objects(*names)
    landed, planned = every[:batches], every[batches : batches + 2]
    at = written(tmp_path, read_of(landed))
    written(tmp_path, read_of([*landed, *planned]))  # a plan that has not landed is a list as well
    bucket.objects = [*every[3:], *objects("_hidden.json", ".c.json", "b.csv", "below/d.json")]

    found = counter(LocalLogStore(str(tmp_path)), bucket, fileNames="*.json").count({FOLDER: at})

    waits = names[max(batches, 3) :]
    assert found == FilesNotLanded(len(waits), 10 * len(waits), names.index(waits[0]) + 1.0)
    assert bucket.logins == [LOGIN]


def test_before_anything_has_landed_every_file_waits_but_those_that_the_start_leaves_out(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.objects = objects("a", "b", "c")
    store = LocalLogStore(str(tmp_path))

    assert counter(store, bucket).count({}) == FilesNotLanded(3, 30, 1.0)
    later = {"from": "Timestamp", "timestamp": "1970-01-01T00:00:02Z"}
    assert counter(store, bucket, start=later).count({}) == FilesNotLanded(2, 20, 2.0)
    with pytest.raises(FilesUncounted, match="the files that Spark's own query has read do not count"):
        counter(store, bucket, start={"from": "SparkCheckpoint", "checkpoint": "s3a://shop/q"}).count({})


def test_nothing_waits_is_said_only_where_all_of_the_folder_was_looked_at(bucket: Bucket, tmp_path: Path) -> None:
    every = objects("a", "b")
    at = written(tmp_path, read_of(every))
    bucket.objects = every

    assert counter(LocalLogStore(str(tmp_path)), bucket).count({FOLDER: at}).is_none

    bucket.objects = objects(*["a"] * (MOST_OBJECTS + 5))
    with pytest.raises(FilesUncounted, match="counting stopped after 100,000 objects"):
        counter(LocalLogStore(str(tmp_path)), bucket).count({FOLDER: at})


def test_a_folder_of_a_million_files_is_at_least_so_many_and_no_more_of_it_is_listed(
    bucket: Bucket, tmp_path: Path
) -> None:
    at = written(tmp_path, read_of(objects("0", "1")))
    bucket.objects = (ObjectVersion(str(number), 10, number + 5000, "") for number in range(1_000_000))

    found = counter(LocalLogStore(str(tmp_path)), bucket).count({FOLDER: at})

    assert (found.files, found.oldest_timestamp) == (MOST_OBJECTS - 2, 5.002)
    assert "counting stopped after 100,000 objects" in (found.at_least_because or "")
    assert bucket.taken == MOST_OBJECTS + 1


def test_a_folder_that_answers_slowly_is_counted_no_longer_than_the_deadline(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects, bucket.seconds_each = objects(*map(str, range(1000))), 1.0

    found = counter(LocalLogStore(str(tmp_path)), bucket).count({})

    assert found.files == MOST_SECONDS
    assert found.at_least_because is not None
    assert bucket.taken == MOST_SECONDS + 1


def test_without_lists_it_is_at_least_the_folder_less_as_many_as_were_read(bucket: Bucket, tmp_path: Path) -> None:
    at = after(NOTHING_READ, read_of(objects("a", "b")))
    bucket.objects = objects("a", "c", "d", "e")  # b was read and is gone, so three wait
    in_pods = StoreInPods("s3a://lake/checkpoints", "it is on a volume")

    for store, said in (
        (LocalLogStore(str(tmp_path)), "no list in"),
        (in_pods, "only the stream's own pods can reach"),
    ):
        found = counter(store, bucket).count({FOLDER: at})
        assert (found.files, found.size_bytes, found.oldest_timestamp) == (2, None, None)
        assert said in (found.at_least_because or "")
    bucket.objects = objects("a", "c")
    with pytest.raises(FilesUncounted, match=r"How many files of .* are waiting is unknown: which files were read"):
        counter(in_pods, bucket).count({FOLDER: at})


def test_lists_that_no_driver_writes_cost_a_bounded_look(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = objects(*map(str, range(50)))
    at = written(tmp_path, read_of(every[:40]), each=8)
    bucket.objects = every
    store = LocalLogStore(str(tmp_path))
    assert counter(store, bucket).count({FOLDER: at}).files == 10

    folder = tmp_path / folder_of(PATH, "source")
    with monkeypatch.context() as patched:
        patched.setattr(source_counter, "MOST_LIST_BYTES", 1000)
        found = counter(store, bucket).count({FOLDER: at})
        assert "more than 1,000 bytes" in (found.at_least_because or "")
    for number in range(300):
        (folder / f"{number}-x").write_bytes(b"x")
    found = counter(store, bucket).count({FOLDER: at})
    assert (found.files, "holds more than 200 lists" in (found.at_least_because or "")) == (10, True)


@pytest.mark.parametrize(
    ("spec", "secret", "expected", "said"),
    [
        (
            {"path": "/data/incoming", "secretRef": None},
            {},
            FilesUncounted,
            "on a volume that only the stream's own pods",
        ),
        ({"path": "file:///data/incoming", "secretRef": None}, {}, FilesUncounted, "only from the driver's metrics"),
        ({"secretRef": None}, {}, FilesUncounted, r"name a secret with one in spec\.source\.files\.secretRef"),
        ({}, {"ca.crt": "a certificate alone"}, FilesUncounted, "never lists a stream's files with its own"),
    ],
)
def test_a_folder_for_which_the_stream_has_no_login_is_never_opened(
    bucket: Bucket, tmp_path: Path, spec: dict[str, Any], secret: dict[str, str], expected: type[Exception], said: str
) -> None:
    with pytest.raises(expected, match=said):
        counter(LocalLogStore(str(tmp_path)), bucket, secret, **spec).count({})
    assert bucket.logins == []


def test_half_a_login_and_a_service_that_is_silent_are_told_and_no_secret_is(bucket: Bucket, tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    with pytest.raises(SecretMissing):
        counter(store, bucket, {"AWS_ACCESS_KEY_ID": "reader"}).count({})
    bucket.problem = StoreUnreachable("s3a://shop/incoming could not be listed.")
    asked = counter(store, bucket)
    with pytest.raises(ExactlyOnceError, match="could not be listed"):
        asked.count({})
    assert "hidden" not in f"{asked!r} {SOURCE.address(FilesSource(path=PATH), LOGIN)!r}"
    assert asked.place == "Amazon S3 bucket shop"
