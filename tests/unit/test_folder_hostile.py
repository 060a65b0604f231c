"""Files are counted at a server that a tenant named: what it may answer, and what it can never do to the operator with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.aws.clients import AnswerTooLarge
from exactlyonce.checkpoint.folders import open_folder, open_versions
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS, S3Service
from exactlyonce.connectors.files import source_counter
from exactlyonce.connectors.files.source_counter import (
    MOST_REQUESTS,
    FilesUncounted,
    FolderCounter,
    _FewLists,
)
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.places import S3Place
from tests.other_server import answering

PATH = "s3a://shop/incoming"
LOGIN = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "hidden"}
XML = "http://s3.amazonaws.com/doc/2006-03-01/"


def counter(endpoint: str, tmp_path: Path, **more: Any) -> FolderCounter:
    given = {"path": PATH, "secretRef": {"name": "lake"}, "endpoint": endpoint, "pathStyle": True}
    return FolderCounter(FilesSource.model_validate(given), LOGIN, LocalLogStore(str(tmp_path)), **more)


def listing(size: str = "1", modified: str = "2026-01-01T00:00:00Z") -> bytes:
    one = f"<Key>incoming/a</Key><LastModified>{modified}</LastModified><ETag>1</ETag><Size>{size}</Size>"
    return f'<ListBucketResult xmlns="{XML}"><Contents>{one}</Contents></ListBucketResult>'.encode()


def test_what_a_service_lists_is_counted(tmp_path: Path) -> None:
    with answering(listing(size="17")) as endpoint:
        found = counter(endpoint, tmp_path).count({})
    assert (found.files, found.size_bytes, found.at_least_because) == (1, 17, None)


@pytest.mark.parametrize(
    ("size", "modified"),
    [
        ("9" * 400, "2026-01-01T00:00:00Z"),
        ("9" * 5000, "2026-01-01T00:00:00Z"),
        ("x" * 1000, "2026-01-01T00:00:00Z"),
        ("-5", "2026-01-01T00:00:00Z"),
        ("1", "0001-01-01T00:00:00+14:00"),
        ("1", "1e18"),
        ("1", "nan"),
        ("1", ""),
    ],
)
def test_a_size_or_a_moment_that_no_service_has_is_told_in_a_short_sentence_and_counted_nowhere(
    tmp_path: Path, size: str, modified: str
) -> None:
    with answering(listing(size, modified)) as endpoint, pytest.raises(StoreUnreachable) as told:
        counter(endpoint, tmp_path).count({})
    assert "what answers is not an S3 service" in str(told.value)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "answer", [b"<" + b"x" * (9 << 20), b"<L>" + b"<a/>" * 300_000 + b"</L>"], ids=["long", "many"]
)
def test_an_answer_that_would_fill_the_operators_memory_is_not_read_to_its_end(answer: bytes, status: int) -> None:
    with answering(answer, status) as endpoint:
        place = S3Place(location=PATH, endpoint=endpoint, path_style=True)
        with pytest.raises(StoreUnreachable, match="what answers is not an S3 service"):
            list(open_versions(place, LOGIN).versions(recursive=True))
        if status >= 400:  # what is read of a file has the limit of who reads it
            with pytest.raises(StoreUnreachable, match="what answers is not an S3 service"):
                open_folder(place, LOGIN).read("list", 100)


@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_to_what_is_written_or_deleted_is_not_read_to_its_end_either(status: int) -> None:
    with answering(b"<L>" + b"<a/>" * 300_000 + b"</L>", status) as endpoint:
        store = open_folder(S3Place(location=PATH, endpoint=endpoint, path_style=True), LOGIN)
        for act in (lambda: store.delete(["list"]), lambda: store.create("list", b"")):
            with pytest.raises(StoreUnreachable, match="what answers is not an S3 service"):
                act()


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("copy_object", {"CopySource": "shop/a"}),
        ("create_multipart_upload", {}),
        ("upload_part", {"UploadId": "1", "PartNumber": 1}),
        ("upload_part_copy", {"UploadId": "1", "PartNumber": 1, "CopySource": "shop/a"}),
        ("complete_multipart_upload", {"UploadId": "1"}),
        ("abort_multipart_upload", {"UploadId": "1"}),
    ],
)
def test_neither_is_one_to_a_copy_or_to_an_upload_in_parts(operation: str, given: dict[str, Any]) -> None:
    with answering(b"<L>" + b"<a/>" * 300_000 + b"</L>") as endpoint:
        client = CLIENTS.get(S3Service.of(endpoint, None, path_style=True, secret=LOGIN)).api()
        with pytest.raises(AnswerTooLarge):
            getattr(client, operation)(Bucket="shop", Key="b", **given)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let no listing ever end, with marks of folders alone; each page takes a second of the clock `asked`."""
    asked = [0]

    def pages(self: S3LogStore, prefix: str, **more: str) -> Iterator[dict[str, Any]]:
        while True:
            asked[0] += 1
            yield {"IsTruncated": True, "Contents": [{"Key": prefix, "Size": 0}]}

    monkeypatch.setattr(S3LogStore, "_pages", pages)
    return asked


@pytest.mark.parametrize(("seconds_each", "requests"), [(0.0, MOST_REQUESTS), (1.0, 11)])
def test_a_listing_that_goes_on_without_a_file_ends_and_is_not_taken_for_an_empty_folder(
    endless: list[int], tmp_path: Path, seconds_each: float, requests: int
) -> None:
    asked = counter("http://s3.invalid:9000", tmp_path, clock=lambda: endless[0] * seconds_each)
    with pytest.raises(FilesUncounted, match="counting stopped after 0 objects"):
        asked.count({})
    assert endless == [requests]


def test_a_listing_of_lists_that_goes_on_without_one_ends(endless: list[int], tmp_path: Path) -> None:
    place = S3Place(location="s3a://lake/orders", endpoint="http://s3.invalid:9000")
    given = counter("http://s3.invalid:9000", tmp_path, clock=lambda: float(endless[0]))
    asked = FolderCounter(given.spec, LOGIN, open_folder(place, LOGIN), given.clock)
    at = after(NOTHING_READ, [SourceFile("a", 1, 1, "1")])
    with pytest.raises(FilesUncounted, match="were not read within 10 seconds"):
        asked.count({Partition(PATH, 0): at})
    assert endless[0] < 20


def test_lists_of_many_short_lines_are_not_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_counter, "MOST_LIST_LINES", 3)
    (tmp_path / "list").write_bytes(b"1\n2\n")
    few = _FewLists(LocalLogStore(str(tmp_path)), lambda: False)
    few.read("list")
    with pytest.raises(FilesUncounted, match="name more than 3 files"):
        few.read("list")


def test_lists_are_as_long_as_they_are_and_not_as_their_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_counter, "MOST_LIST_BYTES", 100)

    class Store(LocalLogStore):
        asked: list[int | None] = []  # noqa: RUF012

        def read(self, path: str, most_bytes: int | None = None) -> bytes:
            self.asked.append(most_bytes)
            return super().read(path, most_bytes)

    store = Store(str(tmp_path))
    (tmp_path / "list").write_bytes(b"x" * 60)
    few = _FewLists(store, lambda: False)
    assert few.read("list") == b"x" * 60
    for _ in range(2):
        with pytest.raises(FilesUncounted, match="more than 100 bytes"):
            few.read("list")
    assert store.asked[:2] == [100, 40]
