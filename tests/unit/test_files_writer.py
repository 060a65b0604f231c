"""What the writer of files asks of a file system, beside what Spark does. No Spark session is started."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pytest

from exactlyonce.connectors.files.manifest import WRITING, Author, DataFile, Write
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.launch.last_message import Ending
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark.connectors.files.folders import Folder, FolderUnwritable, RowsMissing, told_if_unwritable
from exactlyonce_spark.connectors.files.local_folder import LocalFolder
from exactlyonce_spark.connectors.files.writer import SparkFileWriter, _flush
from exactlyonce_spark.failures import ending_of

WRITE = Write.draw(Author(Epoch(1), "0123456789abcdef"), BatchNumber(3))


def written(root: Path, *names: str) -> LocalFolder:
    """The folder of a sink in which an attempt has written these files, with Hadoop's checksums."""
    for name in names:
        place = root / WRITING / WRITE.name / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("four")
        place.with_name(f".{place.name}.crc").write_text(f"checksum of {name}")
    return LocalFolder(str(root), FileFormat.JSON, with_spans=False)


def files_of(root: Path, folder: Folder) -> list[DataFile]:
    writer = SparkFileWriter(FilesSink(path=str(root), format=FileFormat.JSON, partition_by=("day",)))
    return list(writer._files(WRITE, folder, f"{WRITING}/{WRITE.name}"))


def test_files_go_below_the_path_with_the_checksums_that_hadoops_readers_compare_them_with(tmp_path: Path) -> None:
    names = [f"day={day}/part-{part}.json" for day in ("1 00%3A00", "2") for part in (0, 1)]
    folder = written(tmp_path, *names)
    files = files_of(tmp_path, folder)
    finals = [f"{name.split('/')[0]}/{WRITE.name}-{name.split('/')[1]}" for name in names]
    assert [(file.path, file.size_bytes, file.rows) for file in files] == [(final, 4, None) for final in finals]
    for name, file in zip(names, files, strict=True):
        place = tmp_path / file.path
        assert place.read_text() == "four"
        assert place.with_name(f".{place.name}.crc").read_text() == f"checksum of {name}"
        assert file.modified_milliseconds == place.stat().st_mtime_ns // 1_000_000
    assert not [left for left in (tmp_path / WRITING).rglob("*") if left.is_file()]
    folder.remove(f"{WRITING}/{WRITE.name}")
    assert list((tmp_path / WRITING).iterdir()) == []


@pytest.mark.parametrize(
    "left",
    [
        "__magic_job-job_1/job-job_1/00/task_1.pendingset",
        "_temporary/0/_temporary/attempt_1/part-0.json",
        "day=1/.part-1.json.1.tmp",
        "_SUCCESS",
    ],
)
def test_what_a_committer_left_of_its_own_is_no_file_of_rows_and_goes_with_the_attempts_folder(
    tmp_path: Path, left: str
) -> None:
    """Text formats have no footers to say that it holds no rows, so readers would count it."""
    folder = written(tmp_path, left, "_day=1/part-0.json")
    assert [file.path for file in files_of(tmp_path, folder)] == [f"_day=1/{WRITE.name}-part-0.json"]
    folder.remove(f"{WRITING}/{WRITE.name}")
    assert list((tmp_path / WRITING).iterdir()) == []


def test_a_file_is_never_put_in_the_place_of_another(tmp_path: Path) -> None:
    folder = written(tmp_path, "part-0.json")
    other = tmp_path / f"{WRITE.name}-part-0.json"
    other.write_text("somebody's")
    with pytest.raises(RowsMissing, match=r"could not be renamed to .*-part-0.json \(there is a file of that name\)"):
        files_of(tmp_path, folder)
    assert other.read_text() == "somebody's"


def test_a_disk_that_takes_no_file_is_an_outage_and_no_failure_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/orders/part-0")

    folder = written(tmp_path, "part-0.json")
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(FolderUnwritable) as caught, told_if_unwritable():
        files_of(tmp_path, folder)
    ending, message = ending_of(caught.value, in_batch=True)
    assert ending is Ending.UNREACHABLE
    assert message == (
        "No file can be written to the sink's folder ([Errno 28] No space left on device: '/lake/orders/part-0'); "
        "nothing was landed by this. Make the folder writable, or free space on it."
    )


@pytest.mark.parametrize(
    "problem", [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "I/O error")]
)
def test_a_folder_that_cannot_be_listed_is_an_outage_and_its_rows_are_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: OSError
) -> None:
    scan = os.scandir

    def fail(place: str | Path) -> object:
        if Path(place).name == "day=2":
            raise problem
        return scan(place)

    folder = written(tmp_path, "day=1/part-0.json", "day=2/part-0.json")
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(FolderUnwritable), told_if_unwritable():
        files_of(tmp_path, folder)


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
def test_a_file_on_a_disk_says_how_many_rows_it_holds(tmp_path: Path, file_format: FileFormat) -> None:
    table = pyarrow.table({"id": list(range(1234))})
    write = pyarrow.orc.write_table if file_format is FileFormat.ORC else pyarrow.parquet.write_table
    write(table, tmp_path / "part-0")
    folder = LocalFolder(str(tmp_path), file_format, with_spans=True)
    assert [folder.footer(file).rows for file in folder.files_below("")] == [1234]


def test_a_file_on_a_disk_says_which_positions_it_holds(tmp_path: Path) -> None:
    columns = {
        "_exactlyonce_origin": ["orders"] * 3,
        "_exactlyonce_partition": [2] * 3,
        "_exactlyonce_offset": [7, 9, 8],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "part-0")
    folder = LocalFolder(str(tmp_path), FileFormat.PARQUET, with_spans=True)
    (file,) = folder.files_below("")
    assert folder.footer(file).spans == (PositionSpan("orders", 2, 7, 9),)
    assert LocalFolder(str(tmp_path), FileFormat.PARQUET, with_spans=False).footer(file).spans == ()


def test_every_file_and_every_folder_between_it_and_the_path_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new day's folder is a name in the folder above: the machine may forget it though the file in it was flushed."""
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    paths = [f"day={day}/hour=1/part-{part}" for day in (1, 2) for part in (0, 1)]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    _flush(tmp_path, paths)
    folders = ["", "day=1", "day=1/hour=1", "day=2", "day=2/hour=1"]
    assert sorted(flushed) == sorted(str(tmp_path / name) for name in (*paths, *folders))
