"""The folder of a files sink: whose it is, what is missing from it, and which of its files nobody will ever count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.store import Entry
from exactlyonce.connectors.files.manifest import MARKER, WRITING, Author, DataFile, Manifest, ManifestUnreadable, Write
from exactlyonce.connectors.files.orphans import orphans
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import (
    FilesLost,
    PathNotWritable,
    PathOfAnother,
    Tenant,
    require_files,
    take_place,
)
from exactlyonce.errors import StoreForbidden
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.positions.spans import PositionSpan

DRIVER = Author(Epoch(3), "0123456789abcdef")
TENANT = Tenant("shop/orders", "ledger-1", "Parquet", ("day",), "SparkMetadata")


def store_in(folder: Path) -> LocalLogStore:
    return LocalLogStore(str(folder))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_stream_takes_an_empty_folder_and_finds_it_its_own_again(tmp_path: Path) -> None:
    for _ in range(2):
        take_place(store_in(tmp_path), TENANT)
    (tmp_path / "day=1").mkdir()
    take_place(store_in(tmp_path), TENANT)
    assert names(tmp_path) == [MARKER]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(TENANT, stream="shop/payments"), "belongs to another stream than shop/orders"),
        (replace(TENANT, ledger="ledger-2"), "was written by shop/orders with another ledger"),
        (replace(TENANT, format="Csv"), "format was 'Csv' and is 'Parquet'"),
        (replace(TENANT, partition_by=()), r"partitionBy was \[\] and is \['day'\]"),
        (replace(TENANT, manifest="None"), "manifest was 'None' and is 'SparkMetadata'"),
    ],
)
def test_a_folder_of_another_is_refused_and_left_as_it_was(tmp_path: Path, other: Tenant, words: str) -> None:
    take_place(store_in(tmp_path), other)
    before = (tmp_path / MARKER).read_bytes()
    with pytest.raises(PathOfAnother, match=words) as refused:
        take_place(store_in(tmp_path), TENANT)
    assert (tmp_path / MARKER).read_bytes() == before
    assert "payments" not in str(refused.value), "a tenant who names a path does not learn whose it is"
    assert "ledger-2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("part-0.parquet", r"holds files that this stream did not write \(part-0.parquet\)"),
        ("_spark_metadata/0", "holds _spark_metadata of another query"),
        ("data/x", r"did not write \(data\)"),
    ],
)
def test_a_folder_with_foreign_files_is_refused_and_nothing_is_written(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    with pytest.raises(PathOfAnother, match=words):
        take_place(store_in(tmp_path), TENANT)
    assert names(tmp_path) == [name]


def test_a_marker_that_is_torn_says_nothing_of_whose_the_folder_is(tmp_path: Path) -> None:
    store_in(tmp_path).create(MARKER, b'{"stream"')
    with pytest.raises(PathOfAnother, match="cannot be read, so nobody knows whose the path is"):
        take_place(store_in(tmp_path), TENANT)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        PathNotWritable, match=rf"The path {tmp_path}/file of the files sink cannot be written: .*Not a dir"
    ):
        take_place(store_in(tmp_path / "file"), TENANT)


def test_a_stream_starts_in_no_folder_of_another_and_takes_none_that_another_is_in(tmp_path: Path) -> None:
    inner, outer, linked = tmp_path / "lake/eu/orders", tmp_path / "lake", tmp_path / "link"
    take_place(store_in(outer), replace(TENANT, stream="shop/payments"))
    linked.symlink_to(outer)
    for path in (inner, linked / "eu/orders"):
        with pytest.raises(PathOfAnother, match=rf"is inside {outer}, the folder of a stream") as refused:
            take_place(store_in(path), TENANT)
        assert "payments" not in str(refused.value)
    assert names(tmp_path) == [f"lake/{MARKER}"]
    (outer / MARKER).unlink()
    take_place(store_in(inner), TENANT)
    with pytest.raises(PathOfAnother, match=r"did not write \(_exactlyonce, eu\)"):
        take_place(store_in(outer), replace(TENANT, stream="shop/payments"))
    assert names(tmp_path) == [f"lake/eu/orders/{MARKER}"]
    (outer / MARKER).write_bytes(TENANT.to_bytes())
    with pytest.raises(PathOfAnother, match="is inside"):
        take_place(store_in(inner), TENANT)


def test_a_folder_above_that_may_not_be_read_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = LocalLogStore.read

    def within(self: LocalLogStore, path: str) -> bytes:
        if self.location != str(tmp_path / "mine"):
            raise StoreForbidden("403")
        return read(self, path)

    monkeypatch.setattr(LocalLogStore, "read", within)
    take_place(store_in(tmp_path / "mine"), TENANT)
    assert names(tmp_path) == [f"mine/{MARKER}"]


def test_a_folder_that_has_lost_its_marker_is_nobodys_and_one_whose_marker_was_begun_is_empty(tmp_path: Path) -> None:
    (tmp_path / MARKER).parent.mkdir()
    (tmp_path / MARKER).with_name(".stream.json.1.tmp").write_text("half of")  # the driver died before it had its name
    take_place(store_in(tmp_path), TENANT)
    (tmp_path / MARKER).with_name(".stream.json.1.tmp").unlink()
    store_in(tmp_path).create("1-1-part-0.parquet", b"rows")
    (tmp_path / MARKER).unlink()
    with pytest.raises(PathOfAnother, match=rf"or restore {MARKER} if it was removed"):
        take_place(store_in(tmp_path), TENANT)
    assert names(tmp_path) == ["1-1-part-0.parquet"]


def test_a_folder_that_is_taken_is_not_listed_and_another_only_until_it_is_known_not_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    entries = LocalLogStore.entries

    def counting(self: LocalLogStore, folder: str) -> Iterator[Entry]:
        for entry in entries(self, folder):
            listed.append(entry.name)
            yield entry

    monkeypatch.setattr(LocalLogStore, "entries", counting)
    take_place(store_in(tmp_path / "own"), TENANT)
    for number in range(50):
        for folder in ("own", "other"):
            store_in(tmp_path / folder).create(f"part-{number}", b"rows")
    take_place(store_in(tmp_path / "own"), TENANT)
    assert listed == []
    with pytest.raises(PathOfAnother, match=r"did not write \(part-[0-9]+, part-[0-9]+, part-[0-9]+, …\)"):
        take_place(store_in(tmp_path / "other"), TENANT)
    assert len(listed) == 4


def landed(*files: DataFile, batch: int = 3) -> Manifest:
    return Manifest(BatchNumber(batch), sum(file.rows or 0 for file in files), files, "schema")


def test_a_file_that_was_deleted_or_replaced_behind_the_manifest_is_named(tmp_path: Path) -> None:
    paths = [f"day=1/1-{batch}-0123456789abcdef-part-0.parquet" for batch in (3, 4, 5)]
    for path in paths:
        store_in(tmp_path).create(path, b"12345")
    manifests = {
        BatchNumber(batch): landed(DataFile(path, 5, 1, 1), batch=batch) for batch, path in enumerate(paths, 3)
    }
    require_files(store_in(tmp_path), manifests)
    (tmp_path / paths[0]).unlink()
    (tmp_path / paths[2]).write_bytes(b"other")
    with pytest.raises(FilesLost, match=rf"1 of them \({paths[0]}\), of 1 batch \(3\)"):
        require_files(store_in(tmp_path), manifests)
    (tmp_path / paths[2]).write_bytes(b"shorter than before")
    with pytest.raises(FilesLost, match=r"of 2 batches \(3, 5\). Somebody deleted or replaced them"):
        require_files(store_in(tmp_path), manifests)


def test_a_manifest_is_read_as_it_was_written() -> None:
    spans = (PositionSpan("orders", 0, 5, 9), PositionSpan("shards", "shardId-1", 10**38, 10**38 + 1))
    manifest = landed(DataFile("a", 1, 2, 3, spans), DataFile("b", 4, 5))
    assert Manifest.from_json(manifest.batch, manifest.to_json()) == manifest


FILE = {"path": "a", "size": 1, "modified": 2, "rows": 3}
DOCUMENT = {"version": 1, "rows": 3, "schema": "x", "files": [FILE]}


@pytest.mark.parametrize("text", ["", "[]", "{}", "1", "null", '"text"', "[" * 100_000])
def test_what_is_no_manifest_is_no_empty_one(text: str) -> None:
    with pytest.raises(ManifestUnreadable, match="batch 3 in the ledger cannot be read"):
        Manifest.from_json(BatchNumber(3), text)
    with pytest.raises(ManifestUnreadable, match="has version 2, and this release reads version 1"):
        Manifest.from_json(BatchNumber(3), '{"version":2}')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "1"}, "version is not a whole number"),
        ({"rows": "3"}, "rows is not a whole number"),
        ({"rows": 1.5}, "rows is not a whole number"),
        ({"rows": float("inf")}, "rows is not a whole number"),
        ({"rows": True}, "rows is not a whole number"),
        ({"rows": -1}, "rows is not a whole number"),
        ({"schema": 7}, "schema is not a string"),
        ({"files": {}}, "files is not a list"),
        ({"files": "abc"}, "files is not a list"),
        ({"files": None}, "files is not a list"),
        ({"files": [[]]}, "path is missing"),
        ({"files": ["a"]}, "path is missing"),
        ({"files": [FILE | {"path": 1}]}, "path is not a string"),
        ({"files": [FILE | {"path": ""}]}, "is not a path below the sink's"),
        ({"files": [FILE | {"path": "/etc/passwd"}]}, "is not a path below the sink's"),
        ({"files": [FILE | {"path": "day=1/../../b"}]}, "is not a path below the sink's"),
        ({"files": [FILE | {"size": None}]}, "size is not a whole number"),
        ({"files": [FILE | {"modified": "now"}]}, "modified is not a whole number"),
        ({"files": [FILE | {"rows": "all"}]}, "rows is not a whole number"),
        ({"files": [FILE | {"spans": {}}]}, "spans is not a list"),
        ({"files": [FILE | {"spans": [["orders", 0, 5]]}]}, "is not a span of positions"),
        ({"files": [FILE | {"spans": [["orders", [0], 5, 9]]}]}, "is not a span of positions"),
        ({"files": [FILE | {"spans": [["orders", 0, 9, 5]]}]}, "is not a span of positions"),
        ({"files": [FILE | {"spans": [7]}]}, "is not a span of positions"),
    ],
)
def test_a_manifest_with_a_part_of_another_kind_is_refused_by_name(changes: dict[str, object], words: str) -> None:
    Manifest.from_json(BatchNumber(3), json.dumps(DOCUMENT))
    with pytest.raises(ManifestUnreadable, match=f"batch 3 in the ledger cannot be read \\(.*{words}"):
        Manifest.from_json(BatchNumber(3), json.dumps(DOCUMENT | changes))


def test_an_attempt_is_known_by_the_path_of_each_of_its_files() -> None:
    write = Write.draw(DRIVER, BatchNumber(17))
    days, hours = ("day",), ("day", "hour")
    assert Write.of_path(f"{write.name}-part-00000.parquet", ()) == write
    assert Write.of_path(f".{write.name}-part-00000.parquet.crc", ()) == write
    assert Write.of_path(f"{WRITING}/{write.name}/_temporary/0/part-00000.parquet", days) == write
    assert Write.of_path(f"{write.name}/part-00000.parquet", ()) is None
    assert Write.of_path("_spark_metadata/9.compact", ()) is None
    assert Write.of_path(f"day=1/hour=2/{write.name}-part-00000.parquet", hours) == write
    for others in ((), days, ("hour", "day"), ("day", "hour", "minute"), ("da", "hour")):
        assert Write.of_path(f"day=1/hour=2/{write.name}-part-00000.parquet", others) is None
    assert Write.of_path("day=1/part-00000.parquet", days) is None
    assert Write.of_path(f"day={write.name}/part-00000.parquet", days) is None
    assert write != Write.draw(DRIVER, BatchNumber(17)), "two attempts of a batch never share a name"


def test_only_what_no_driver_can_land_any_more_is_an_orphan() -> None:
    def path(epoch: int, batch: int, random: str = "a", life: str = "e") -> str:
        return f"{epoch}-{batch}-{life * 16}-{random * 16}-part-0.parquet"

    listed = {
        path(1, 4): 10,  # named by the manifest
        path(1, 5): 11,  # of a driver that was fenced before it landed
        path(2, 5, "b"): 12,  # named
        path(2, 5, "c"): 13,  # a second attempt of a batch that has landed
        path(2, 6): 14,  # the driver may be writing it now
        path(3, 6): 15,  # of a driver that was started after the ledger was read
        path(1, 3, "a", "f"): 19,  # of a former life of the stream
        "by-hand.parquet": 16,
        f"{WRITING}/1-9-{'e' * 16}-{'d' * 16}/x": 17,
        f".{path(1, 4)}.crc": 18,  # the checksum of a file that is named
    }
    manifests = [
        landed(DataFile(path(1, 4), 10, 1), batch=4),
        landed(DataFile(path(2, 5, "b"), 12, 1), batch=5),
    ]
    kept = {file.path for manifest in manifests for file in manifest.files}
    found = orphans(listed, (), kept, Author(Epoch(2), "e" * 16), BatchNumber(5))
    assert [orphan.path for orphan in found] == [path(1, 5), path(2, 5, "c"), f"{WRITING}/1-9-{'e' * 16}-{'d' * 16}/x"]
    assert [orphan.size_bytes for orphan in found] == [11, 13, 17]


def test_a_path_is_absolute_and_never_climbs() -> None:
    for path in ("/data/orders", "file:///data/orders"):
        assert FilesSink(path=path).folder == "/data/orders"
    for path in (
        "orders",
        "/",
        "/data/../etc",
        "s3a://bucket-1",
        "s3://bucket-1/orders",
        "s3a://bucket-1/../x",
        "https://host/x",
    ):
        with pytest.raises(ValueError, match="write"):
            FilesSink(path=path)
    assert FilesSink(path="/data/orders", target_file_size="3Ki").target_file_bytes == 3072
