"""A folder on S3 as a source: what is listed, that what is read is what was listed, and a stream whose drivers are killed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.checkpoint.s3_versions import S3Versions
from exactlyonce.connectors.files.source_lines import FileUnreadable, FileVanished, NameFilter
from exactlyonce.connectors.files.source_on_s3 import S3Folder
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.errors import SourceUnreachable
from exactlyonce.reconcile.loop import Done
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
