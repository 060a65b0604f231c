"""What a stream of files may not be pointed at: each in its own whole sentence, on a disk and on S3, and nothing is written.

Every one of them halts the stream; drivers of Spark that halt are in test_files_stream.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exactlyonce.checkpoint.s3_conditions import PROBE, ConditionsIgnored
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.columns import ColumnsUnfit
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.connectors.files.tenancy import FilesLost, PathNotWritable, PathOfAnother, Tenant, take_place
from exactlyonce.connectors.object_log.tenancy import LocationNotEmpty, LogOfAnother
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.failures import ending_of
from testbed.s3 import S3
from tests.compacted_lake import CompactedLake
from tests.ledgers import STREAM, new_stream, started
from tests.object_logs import ledger_on
from tests.s3_stores import BUCKET
from tests.simulation.database import MemoryDatabase, MemoryLedger

TENANT = Tenant(STREAM, "ledger-2", "Parquet", (), "SparkMetadata")
Act = Callable[[], object]


@pytest.fixture(params=["on a disk", "on S3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> FilesFolder:
    """The path that a stream is pointed at; there is nothing yet."""
    if request.param == "on a disk":
        return FILES.folder(FilesSink(path=str(tmp_path / "out")), {})
    s3: S3 = request.getfixturevalue("s3")
    return on_s3(s3, f"s3a://{BUCKET}/refused/{name}")


def on_s3(s3: S3, path: str) -> FilesFolder:
    return FILES.folder(FilesSink(path=path, endpoint=s3.endpoint, path_style=True), s3.secret())


def new_ledger() -> MemoryLedger:
    return MemoryLedger(MemoryDatabase())


def first_driver(folder: FilesFolder) -> Act:
    return lambda: CompactedLake(folder, new_ledger())


def foreign_files(folder: FilesFolder) -> Act:
    folder.store.create("report.parquet", b"of somebody else")
    return first_driver(folder)


def log_of_another_query(folder: FilesFolder) -> Act:
    folder.store.create("_spark_metadata/0", b"v1")
    return first_driver(folder)


def another_stream(folder: FilesFolder) -> Act:
    take_place(folder.store, replace(TENANT, stream="bank/accounts"))
    return first_driver(folder)


def another_ledger(folder: FilesFolder) -> Act:
    take_place(folder.store, TENANT)
    return first_driver(folder)


def rows_of_another_type(folder: FilesFolder) -> Act:
    lake = CompactedLake(folder, new_ledger())
    lake.land(1, 2)
    lake.rows = {"id": "string", "day": "date"}
    return lake.next_driver


def a_column_that_is_gone(folder: FilesFolder) -> Act:
    lake = CompactedLake(folder, new_ledger())
    lake.land(1, 1)
    lake.rows = {"day": "date"}
    return lake.next_driver


def a_type_that_no_csv_file_holds(folder: FilesFolder) -> Act:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    csv = replace(folder, sink=folder.sink.model_copy(update={"format": FileFormat.CSV}))
    return lambda: CompactedLake(csv, new_ledger(), {"id": "long", "tags": array})


def a_deleted_file(folder: FilesFolder) -> Act:
    lake = CompactedLake(folder, new_ledger())
    lake.land(1, 2)
    folder.store.remove(lake.listed()[1])
    return lake.next_driver


def a_ledger_of_another_stream(folder: FilesFolder) -> Act:
    started(ledger_on(folder.store))
    other = ledger_on(folder.store)
    return lambda: raise_epoch(other, replace(new_stream(other), stream_id="shop/refunds"), Epoch(1), "ticket")


def a_ledgers_folder_with_files(folder: FilesFolder) -> Act:
    folder.store.create("ledger/report.csv", b"of somebody else")
    return lambda: ledger_on(folder.store)


REFUSED: dict[Callable[[FilesFolder], Act], tuple[type[ExactlyOnceError], str]] = {
    foreign_files: (
        PathOfAnother,
        "The path {path} holds files that this stream did not write (report.parquet); readers would count them with its rows. "
        "Use an empty path, or restore _exactlyonce/stream.json if it was removed.",
    ),
    log_of_another_query: (
        PathOfAnother,
        "The path {path} holds _spark_metadata of another query, whose batches would be taken for this stream's. Use a path "
        "of this stream alone; or, if that query has ended for good, continue its output with continueAfterBatch.",
    ),
    another_stream: (
        PathOfAnother,
        "The path {path} belongs to another stream than shop/orders; _exactlyonce/stream.json there says which. Use a path of "
        "this stream alone.",
    ),
    another_ledger: (
        PathOfAnother,
        "The path {path} was written by shop/orders with another ledger, which alone knows what landed there; "
        "_exactlyonce/stream.json there says which. Use that ledger, or another path; if its content was moved to this ledger, "
        "write {ledger!r} there as the value of ledger.",
    ),
    rows_of_another_type: (
        ColumnsUnfit,
        "The rows do not fit the Parquet files that have landed in {path}: id was long and is string. Change the transform so "
        "that they do, or use another path.",
    ),
    a_column_that_is_gone: (
        ColumnsUnfit,
        "The rows do not fit the Parquet files that have landed in {path}: id is gone. Change the transform so that they do, "
        "or use another path.",
    ),
    a_type_that_no_csv_file_holds: (
        ColumnsUnfit,
        "The type of column tags is or contains array, which Csv files cannot hold; leave it out or convert it in the "
        "transform, or choose another sink.files.format.",
    ),
    a_deleted_file: (
        FilesLost,
        "Files that have landed are missing from {path} or have another size: 1 of them (FILE), of 1 batch (2). Somebody "
        "deleted or replaced them; restore them, or start a stream with another streamId and another path. In doubt are "
        "the records orders-0 [1, 2) of batch 2.",
    ),
    a_ledger_of_another_stream: (
        LogOfAnother,
        "The ledger at {path}/ledger is that of another stream, so shop/refunds cannot keep its own there; name a folder of "
        "this stream alone.",
    ),
    a_ledgers_folder_with_files: (
        LocationNotEmpty,
        "The ledger's location {path}/ledger has no log.json and is not empty (report.csv); name an empty folder of this "
        "stream alone, or restore log.json from a backup if it was removed.",
    ),
}


@pytest.mark.parametrize("situation", REFUSED, ids=lambda situation: situation.__name__)
def test_what_does_not_fit_halts_with_one_sentence_and_nothing_is_written(
    folder: FilesFolder, situation: Callable[[FilesFolder], Act]
) -> None:
    kind, sentence = REFUSED[situation]
    act = situation(folder)
    before = content(folder.store)
    with pytest.raises(kind) as refused:
        act()
    told = re.sub(r"\(1-2-\S+\.parquet\)", "(FILE)", str(refused.value))  # the name of an attempt has a random part
    assert told == sentence.format(path=folder.location, ledger=new_ledger().identity())
    assert ending_of(refused.value, in_batch=False)[0] is Ending.REFUSED, "the stream halts"
    assert content(folder.store) == before


def content(store: FolderStore) -> dict[str, bytes]:
    return {name: store.read(name) for name in store.tree("")}


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("{disk}/file/out", "[Errno 20] Not a directory: '{disk}/file/out/_exactlyonce/stream.json'"),
        (
            "s3a://nowhere/out",
            "s3a://nowhere/out/_exactlyonce/stream.json could not be read: there is no bucket nowhere; make it, or correct "
            "location",
        ),
    ],
    ids=["on a disk", "on S3"],
)
def test_a_path_that_cannot_be_written_halts_with_one_sentence(tmp_path: Path, s3: S3, where: str, why: str) -> None:
    """A login that lacks a right: test_s3_logins.py."""
    (tmp_path / "file").write_text("no folder")
    path = where.format(disk=tmp_path)
    folder = on_s3(s3, path) if path.startswith("s3a") else FILES.folder(FilesSink(path=path), {})
    with pytest.raises(PathNotWritable) as refused:
        first_driver(folder)()
    assert str(refused.value) == (
        f"The path {path} of the files sink cannot be written: {why.format(disk=tmp_path)}. Let the driver create and list "
        "files there."
    )
    assert ending_of(refused.value, in_batch=False)[0] is Ending.REFUSED


def test_a_bucket_without_conditional_writes_halts_with_one_sentence(tmp_path: Path) -> None:
    """The object that was to prove the conditions is all that is there."""
    with S3(tmp_path / "older", ignores_conditions=True) as older:
        older.create_bucket(BUCKET)
        folder = on_s3(older, f"s3a://{BUCKET}/out")
        for act in (first_driver(folder), lambda: ledger_on(folder.store)):
            with pytest.raises(ConditionsIgnored) as refused:
                act()
            assert str(refused.value) == (
                f"{older.endpoint} ignores If-None-Match or If-Match, so two operators could write one file at "
                f"{folder.location}; use a service, or a release of it, that has conditional writes."
            )
            assert ending_of(refused.value, in_batch=False)[0] is Ending.REFUSED
        keys = [item["Key"] for item in older.client().list_objects_v2(Bucket=BUCKET)["Contents"]]
        assert keys == [f"out/{PROBE}"]
