"""One Parquet file of several: the same rows, the same types for every reader, and footers that still tell source positions."""

from __future__ import annotations

import builtins
import os
import resource
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.scratch import ScratchFull
from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION
from exactlyonce.connectors.files.compaction_plan import MergeUnfit
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce.connectors.files.parquet import ParquetMerger, PyarrowMissing
from exactlyonce.connectors.files.parquet_source import FileUnreadable
from exactlyonce.positions.spans import PositionSpan

MERGED = "day=1/merged.parquet"
OF_SPARK = {"org.apache.spark.version": "4.2.0", "org.apache.spark.sql.parquet.row.metadata": '{"type":"struct"}'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "day=1").mkdir()
    return tmp_path


def write(folder: Path, name: str, table: pa.Table, *spans: PositionSpan, **options: Any) -> DataFile:
    """Write a file as Spark does, and return what a manifest says of it."""
    path = f"day=1/{name}.parquet"
    given = {"store_schema": False, "store_decimal_as_integer": True, "use_deprecated_int96_timestamps": True}
    group, told = options.pop("row_group_size", None), options.pop("told", {})
    with pyarrow.parquet.ParquetWriter(folder / path, table.schema, **(given | options)) as writer:
        writer.add_key_value_metadata(OF_SPARK | told)
        writer.write_table(table, row_group_size=group)
    return DataFile(path, (folder / path).stat().st_size, 1, table.num_rows, spans)


def merge(folder: Path, files: Sequence[DataFile]) -> DataFile:
    store = LocalLogStore(str(folder))
    return ParquetMerger(store, store.location).merge(files, MERGED, 7)


def positions(origin: str, partition: int | str, numbers: Sequence[int], type_: pa.DataType) -> pa.Table:
    count = len(numbers)
    values = [Decimal(number) for number in numbers] if pa.types.is_decimal(type_) else list(numbers)
    return pa.table({ORIGIN: [origin] * count, PARTITION: [partition] * count, OFFSET: pa.array(values, type_)})


def test_rows_and_types_are_those_of_the_files(folder: Path) -> None:
    moment = datetime(1600, 1, 1, 12, 30, 59, 123456, tzinfo=UTC)  # no nanoseconds since 1970 reach it
    table = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int64()),
            "at": pa.array([moment.replace(tzinfo=None), None, datetime(2026, 1, 1)], pa.timestamp("us")),
            "price": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(9, 2)),
            "large": pa.array([Decimal(10**37), None, Decimal(-(10**37))], pa.decimal128(38, 0)),
            "small": pa.array([1, -1, None], pa.int8()),
            "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
            "by": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "inner": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
            "raw": pa.array([b"\x00", None, b""], pa.binary()),
        }
    )
    files = [write(folder, name, table) for name in ("a", "b", "c")]
    merged = merge(folder, files)
    assert (merged.path, merged.rows, merged.spans, merged.modified_milliseconds) == (MERGED, 9, (), 7)
    assert merged.size_bytes == (folder / MERGED).stat().st_size
    with (
        pyarrow.parquet.ParquetFile(folder / MERGED) as found,
        pyarrow.parquet.ParquetFile(folder / files[0].path) as one,
    ):
        assert found.schema.equals(one.schema), "physical types, too: INT96, and decimals as integers"
        assert found.num_row_groups == 1
        assert found.metadata.metadata == {key.encode(): text.encode() for key, text in OF_SPARK.items()}
        options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
        together = pa.concat_tables([pyarrow.parquet.read_table(folder / file.path, **options) for file in files])
        assert pyarrow.parquet.read_table(folder / MERGED, partitioning=None, **options).equals(
            together.drop_columns(["day"]) if "day" in together.column_names else together
        )
    assert [path.name for path in (folder / "day=1").iterdir() if path.suffix != ".parquet"] == []


@pytest.mark.parametrize(
    ("type_", "partitions", "base"),
    [(pa.int64(), (0, 10), 0), (pa.decimal128(38, 0), ("shardId-0", "shardId-10"), 10**37)],
    ids=["of Kafka", "named shards and positions beyond 64 bits"],
)
def test_a_merged_file_tells_the_positions_of_each_partition_though_its_files_had_several(
    folder: Path, type_: pa.DataType, partitions: tuple[int | str, int | str], base: int
) -> None:
    files = []
    for name, first in (("a", base + 8), ("b", base + 10)):
        tables = [positions("orders", partition, [first, first + 1], type_) for partition in partitions]
        spans = [PositionSpan("orders", partition, first, first + 1) for partition in partitions]
        files.append(write(folder, name, pa.concat_tables(tables), *spans, row_group_size=2))
    merged = merge(folder, files)
    assert merged.rows == 8
    assert merged.spans == tuple(PositionSpan("orders", partition, base + 8, base + 11) for partition in partitions)
    rows = pyarrow.parquet.ParquetFile(folder / MERGED).read()
    for partition in partitions:
        found = [int(row[OFFSET]) for row in rows.to_pylist() if row[PARTITION] == partition]
        assert found == [base + 8, base + 9, base + 10, base + 11], "in the order in which they landed"


def test_a_file_whose_positions_nobody_knows_takes_them_from_the_merged_one_only(folder: Path) -> None:
    table = positions("orders", 0, [1, 2], pa.int64())
    files = [write(folder, "a", table, PositionSpan("orders", 0, 1, 2)), write(folder, "b", table)]
    assert merge(folder, files).spans == ()


def test_what_would_not_be_the_same_is_refused_and_nothing_is_written(folder: Path) -> None:
    one = write(folder, "a", pa.table({"id": [1, 2]}))
    other_type = write(folder, "b", pa.table({"id": pa.array([1, 2], pa.int32())}))
    as_micros = [
        write(folder, name, pa.table({"at": pa.array([0, 1], pa.timestamp("us"))}), use_deprecated_int96_timestamps=old)
        for name, old in (("c", True), ("d", False))
    ]
    without = write(folder, "f", pa.table({"id": [1], "other": ["x"]}))
    days = pa.table({"day": pa.array([-200_000], pa.date32())})
    paris = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.timeZone": "Europe/Paris"}
    legacy = [write(folder, name, days, told=told) for name, told in (("g", paris), ("h", {}))]
    more_rows = DataFile(one.path, one.size_bytes, 1, 3)
    at = positions("orders", 0, [1, 2], pa.int64())
    other_span = write(folder, "e", at, PositionSpan("orders", 0, 1, 9))
    for files, words in (
        (
            [one, other_type],
            r"a.parquet and \S+b.parquet cannot become one, since column id is int64 in the first and int32 in",
        ),
        ([one, without], "column other is missing in the first and string in the second"),
        (as_micros, "column at is INT96 in the first and INT64 Timestamp"),
        (legacy, r"differ in org.apache.spark.legacyDateTime, by which Spark reads dates and timestamps"),
        ([one, more_rows], "it holds 4 rows, and they 5"),
        ([other_span, other_span], "its footer tells other source positions than theirs"),
    ):
        with pytest.raises(MergeUnfit, match=words):
            merge(folder, files)
    assert not (folder / MERGED).exists()


def test_what_a_file_calls_its_columns_is_told_as_one_short_printable_line(folder: Path) -> None:
    name = "id\x1b[2J\n" + "x" * 1000
    files = [write(folder, "a", pa.table({name: [1]})), write(folder, "b", pa.table({name: ["x"]}))]
    with pytest.raises(MergeUnfit, match=r"column id \[2J x+… is int64 in the first") as told:
        merge(folder, files)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 700 + 2 * len(str(folder))


def test_files_that_spark_reads_the_same_legacy_way_become_one_that_says_so(folder: Path) -> None:
    days = pa.table({"day": pa.array([-200_000], pa.date32())})
    paris = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.timeZone": "Europe/Paris"}
    merge(folder, [write(folder, name, days, told=paris) for name in ("a", "b")])
    with pyarrow.parquet.ParquetFile(folder / MERGED) as found:
        assert found.metadata.metadata == {key.encode(): text.encode() for key, text in (OF_SPARK | paris).items()}


def test_a_file_that_is_damaged_is_told_by_its_path(folder: Path) -> None:
    files = [write(folder, name, pa.table({"id": [1]})) for name in ("a", "b")]
    good = (folder / files[1].path).read_bytes()
    for bad in (b"x" * len(good), b"PAR1" + b"x" * 30 + good[34:]):
        (folder / files[1].path).write_bytes(bad)
        with pytest.raises(
            FileUnreadable, match=r"day=1/b.parquet, which has landed, cannot be read \(.+\): it is damaged"
        ):
            merge(folder, files)
    assert not (folder / MERGED).exists()


def test_of_a_thousand_files_a_few_are_open_at_once(folder: Path) -> None:
    files = [write(folder, str(number), pa.table({"id": [number]})) for number in range(200)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    merge(folder, files[:2])  # whatever is opened once is open
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        assert merge(folder, files).rows == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_scratch_disk_without_room_is_told_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(folder, name, pa.table({"id": list(range(10_000))})) for name in ("a", "b")]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(
            ScratchFull, match=r"no room for temporary files on this machine \(.*File too large\); free"
        ):
            merge(folder, files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    with pytest.raises(ScratchFull, match=r"\(No such file or directory\); free space .* or set TMPDIR"):
        merge(folder, files)
    assert not (folder / MERGED).exists()


def test_without_pyarrow_it_is_said_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refused(name: str, *given: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(PyarrowMissing, match=r"pip install 'exactlyonce-operator\[compaction\]'"):
        ParquetMerger(LocalLogStore(str(folder)), str(folder))
