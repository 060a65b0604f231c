"""A folder on S3 as a source: what is listed, that what is read is what was listed, and a stream whose drivers are killed."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from botocore.exceptions import ClientError

from exactlyonce.api.format_type import FormatType
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS
from exactlyonce.checkpoint.s3_versions import S3Versions
from exactlyonce.connectors.files.connector import SOURCE
from exactlyonce.connectors.files.source_lines import FileUnreadable, FileVanished, NameFilter
from exactlyonce.connectors.files.source_lists import FileLists, Known, folder_of
from exactlyonce.connectors.files.source_on_s3 import S3Folder
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.errors import SourceUnreachable
from exactlyonce.positions.ranges import Partition
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.connectors.files.columnar import rows_of
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.combinations import only_in_full
from tests.folder_rig import FolderRig
from tests.s3_stores import BUCKET, service_of


@pytest.fixture
def prefix(name: str) -> str:
    return f"incoming/{name}"


def put(s3: S3, key: str, content: bytes = b"a\nb\n") -> None:
    s3.client().put_object(Bucket=BUCKET, Key=key, Body=content)


def folder_at(s3: S3, prefix: str, names: NameFilter | None = None) -> S3Folder:
    return S3Folder(S3Versions(f"s3a://{BUCKET}/{prefix}", service_of(s3)), names or NameFilter())


def only_file(folder: S3Folder) -> SourceFile:
    (file,) = folder.files()
    return file


def test_objects_are_listed_by_name_and_hidden_ones_left_out_as_on_a_disk(s3: S3, prefix: str) -> None:
    for key in ("a.json", "b.csv", ".c.json", "_d.json", "below/e.json", "_log/f.json", "empty/"):
        put(s3, f"{prefix}/{key}")
    put(s3, f"{prefix}-of-another/g.json")

    def paths(names: NameFilter) -> set[str]:
        return {file.path for file in folder_at(s3, prefix, names).files()}

    assert paths(NameFilter()) == {"a.json", "b.csv"}
    assert paths(NameFilter("*.json", recursive=True)) == {"a.json", "below/e.json"}
    assert folder_at(s3, f"{prefix}-none").files() == (), "S3 has no folders, so none is missing"


def test_lines_are_those_of_the_object_plain_or_gzip(s3: S3, prefix: str) -> None:
    content = b"".join(b"%d\r\n" % number for number in range(300_000))
    put(s3, f"{prefix}/a.txt", content)
    put(s3, f"{prefix}/a.txt.gz", gzip.compress(content))
    folder = folder_at(s3, prefix)

    for file in folder.files():
        lines = [(line.number, line.value) for line in folder.lines(file)]
        assert lines == [(number + 1, b"%d" % number) for number in range(300_000)]


def _remove(s3: S3, key: str) -> None:
    s3.client().delete_object(Bucket=BUCKET, Key=key)


@pytest.mark.parametrize(
    ("change", "expected", "sentence"),
    [
        (lambda s3, key: put(s3, key, b"c\nd\n"), FileChanged, "a.txt .its ETag is no longer .* was written to after"),
        (_remove, FileVanished, "a.txt was planned into a batch and is gone"),
    ],
)
def test_an_object_that_is_not_the_one_that_was_listed_is_named(
    s3: S3, prefix: str, change: Callable[[S3, str], None], expected: type[Exception], sentence: str
) -> None:
    put(s3, f"{prefix}/a.txt")
    folder = folder_at(s3, prefix)
    file = only_file(folder)
    assert [line.value for line in folder.lines(file)] == [b"a", b"b"]

    change(s3, f"{prefix}/a.txt")

    with pytest.raises(expected, match=f"{sentence}.*change maxFilesPerTrigger"):
        list(folder.lines(file))


def test_what_s3_refuses_or_does_not_answer_is_told_of_the_source(s3: S3, prefix: str, tmp_path: Path) -> None:
    put(s3, f"{prefix}/a.gz", b"plain")
    folder = folder_at(s3, prefix)
    with pytest.raises(FileUnreadable, match="is not a whole gzip file"):
        list(folder.lines(only_file(folder)))
    with pytest.raises(SourceUnreachable, match="there is no bucket none"):
        S3Folder(S3Versions("s3a://none/incoming", service_of(s3)), NameFilter()).files()
    ended = S3(tmp_path)
    with pytest.raises(SourceUnreachable, match="could not be listed: there is no connection"):
        folder_at(ended, prefix).files()


def test_what_has_landed_is_removed(s3: S3, prefix: str) -> None:
    put(s3, f"{prefix}/a.txt")
    folder = folder_at(s3, prefix)

    folder.remove(folder.files())
    folder.remove(())

    assert folder.files() == ()


def test_an_object_that_is_another_one_than_was_listed_is_not_removed_where_the_service_compares(
    s3: S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, f"{prefix}/a.txt")
    store = S3Versions(f"s3a://{BUCKET}/{prefix}", service_of(s3))
    (listed,) = store.versions(recursive=False)
    asked: list[Any] = []
    # moto does not compare ETags here: this is what S3 answers.
    error = {"Key": f"{prefix}/a.txt", "Code": "PreconditionFailed", "Message": "At least one condition did not hold"}

    class Comparing:
        def delete_objects(self, **request: Any) -> dict[str, Any]:
            asked.append(request["Delete"]["Objects"])
            return {"Errors": [error]}

    monkeypatch.setattr(CLIENTS.get(store._service), "api", Comparing)

    assert store.delete_listed([(listed.path, listed.tag)]) == ("a.txt",)
    assert asked == [[{"Key": f"{prefix}/a.txt", "ETag": listed.tag}]]


def test_a_service_that_refuses_the_condition_is_asked_without_it(
    s3: S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Versions(f"s3a://{BUCKET}/{prefix}", service_of(s3))
    asked: list[Any] = []

    class Refusing:
        def delete_objects(self, **request: Any) -> dict[str, Any]:
            asked.append(request["Delete"]["Objects"])
            if "ETag" in asked[-1][0]:
                raise ClientError({"Error": {"Code": "NotImplemented"}}, "DeleteObjects")
            return {}

    monkeypatch.setattr(CLIENTS.get(store._service), "api", Refusing)

    assert store.delete_listed([("a.txt", '"1"')]) == ()
    assert asked[-1] == [{"Key": f"{prefix}/a.txt"}]


def _contents(s3: S3, folder: str) -> dict[str, bytes]:
    found = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/").get("Contents", [])
    return {
        it["Key"].removeprefix(f"{folder}/"): s3.client().get_object(Bucket=BUCKET, Key=it["Key"])["Body"].read()
        for it in found
    }


def test_what_has_landed_is_archived_as_it_was_listed_and_never_over_another_object(
    s3: S3, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive = f"{prefix}-archive"
    for name in ("a", "below/b", "changed", "gone", "taken"):
        put(s3, f"{prefix}/{name}", name.encode())
    s3.client().put_object(
        Bucket=BUCKET, Key=f"{prefix}/a", Body=b"a", ContentType="text/csv", Metadata={"writer": "till 7"}
    )
    folder = folder_at(s3, prefix, NameFilter(recursive=True))
    files = folder.files()
    put(s3, f"{prefix}/changed", b"more")
    _remove(s3, f"{prefix}/gone")
    put(s3, f"{archive}/taken", b"of another")

    folder.archive(files, f"s3a://{BUCKET}/{archive}")

    assert _contents(s3, prefix) == {"changed": b"more", "taken": b"taken"}
    assert _contents(s3, archive) == {"a": b"a", "below/b": b"below/b", "taken": b"of another"}
    copied = s3.client().head_object(Bucket=BUCKET, Key=f"{archive}/a")
    assert (copied["ContentType"], copied["Metadata"]["writer"]) == ("text/csv", "till 7")
    assert [record.getMessage() for record in caplog.records] == [
        f"s3a://{BUCKET}/{prefix}/taken has landed and stays where it is: there is another object of its name in "
        f"s3a://{BUCKET}/{archive}."
    ]


def test_a_move_that_died_between_copy_and_removal_is_finished_by_the_next_one(
    s3: S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = f"s3a://{BUCKET}/{prefix}-archive"
    put(s3, f"{prefix}/a", b"a")
    folder = folder_at(s3, prefix)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(S3Versions, "delete_listed", die)
        with pytest.raises(KeyboardInterrupt):
            folder.archive(folder.files(), archive)
    assert (_contents(s3, prefix), _contents(s3, f"{prefix}-archive")) == ({"a": b"a"}, {"a": b"a"}), "nothing is lost"

    folder.archive(folder.files(), archive)

    assert (_contents(s3, prefix), _contents(s3, f"{prefix}-archive")) == ({}, {"a": b"a"})


def test_rows_of_an_object_are_read_in_parts_of_the_version_that_was_listed(s3: S3, prefix: str) -> None:
    into = io.BytesIO()
    ids = list(range(200_000))
    pyarrow.parquet.write_table(pa.table({"id": ids}), into, row_group_size=50_000)
    put(s3, f"{prefix}/a.parquet", into.getvalue())
    folder = folder_at(s3, prefix)
    file = only_file(folder)
    wanted = pa.struct([("id", pa.int64())])

    def rows() -> Iterator[int]:
        with folder.opened(file) as opened:
            parts: Iterator[Any] = rows_of(FormatType.PARQUET, "a", opened, wanted)
            for part in parts:
                yield from (row["id"] for row in part.to_pylist())

    assert list(rows()) == ids
    reading = rows()
    next(reading)
    put(s3, f"{prefix}/a.parquet", b"another")
    with pytest.raises(FileChanged, match="its ETag is no longer"):
        list(reading)
    _remove(s3, f"{prefix}/a.parquet")
    with pytest.raises(FileVanished):
        list(rows())


@only_in_full  # on a disk: test_folder_stream.py; what differs on S3 is above
def test_each_id_of_a_folder_on_s3_lands_once_though_a_driver_is_killed(
    postgres_18: Postgres, s3: S3, tmp_path: Path, name: str, prefix: str
) -> None:
    place: dict[str, Any] = {
        "path": f"s3a://{BUCKET}/{prefix}",
        "endpoint": s3.endpoint,
        "pathStyle": True,
        "secretRef": {"name": "lake"},
        "minFileAge": "0s",
        "cleanSource": "Delete",
        "maxFilesPerTrigger": 2,
    }
    rig = FolderRig(postgres_18, tmp_path, name, **{"spec.source.files": place})
    rig.write_login("lake", s3.secret())
    for number in range(5):
        ids = [10 * number + each for each in range(10)]
        rig.produced += ids
        put(s3, f"{prefix}/{number}.json", "\n".join(json.dumps({"id": each}) for each in ids).encode())

    assert isinstance(rig.run(crash="land.before-commit@2=kill-driver"), Done), rig.story()

    rig.assert_exactly_once()
    assert "ReplayBatch" in rig.verdicts(), rig.story()
    assert folder_at(s3, prefix).files() == ()


def test_the_operator_counts_what_waits_in_a_bucket_with_the_streams_own_login(s3: S3, prefix: str) -> None:
    names = [f"{number:05}.json" for number in range(1205)]  # more than one answer lists
    for name in names:
        put(s3, f"{prefix}/{name}", b"12345")
    put(s3, f"{prefix}/_hidden.json")
    folder = f"s3a://{BUCKET}/{prefix}"
    listed = sorted(folder_at(s3, prefix).files(), key=lambda file: file.order)
    checkpoints = S3LogStore(f"s3a://{BUCKET}/{prefix}-checkpoint", service_of(s3))
    lists, read = FileLists(checkpoints, folder_of(folder, "source"), "a life"), listed[:200]
    known = lists.record(Known((), ()), NOTHING_READ, read[:150])
    landed = lists.record(known, known.ends[-1], read[150:]).ends[-1]
    for file in read[:50]:
        _remove(s3, f"{prefix}/{file.path}")
    spec = {"path": folder, "endpoint": s3.endpoint, "pathStyle": True, "secretRef": {"name": "lake"}}

    address = SOURCE.address(FilesSource.model_validate(spec), s3.secret())
    found = address.counter(checkpoints).count({Partition(folder, 0): landed})

    waiting = listed[200:]
    assert (found.files, found.size_bytes) == (1005, 5025)
    assert found.oldest_timestamp == min(file.modified_milliseconds for file in waiting) / 1000
    assert found.at_least_because is None
