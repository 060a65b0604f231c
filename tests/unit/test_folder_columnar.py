"""Rows of Parquet and ORC files: which types are taken for which declared ones, and what is said of a file that is unfit."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pyarrow.parquet.encryption as encryption
import pytest
from pyspark.sql.types import ArrayType, DayTimeIntervalType, LongType, StructField, StructType, VarcharType

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.format_type import FormatType
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lines import FileUnreadable, FileVanished
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.connectors.files import columnar, source_rows
from exactlyonce_spark.connectors.files.columnar import count_rows, rows_of
from exactlyonce_spark.connectors.files.columnar_schema import columnar_schema
from exactlyonce_spark.connectors.files.source_rows import POSITION_DIGITS, columnar_batches, placed
from exactlyonce_spark.decode.records import Records
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.formats import SchemaInvalid
from tests.decoders import BYTES

WRITERS: dict[FormatType, Callable[[pa.Table, Any], None]] = {
    FormatType.PARQUET: pyarrow.parquet.write_table,
    FormatType.ORC: pyarrow.orc.write_table,
}
UTC_MICROSECONDS = pa.timestamp("us", "UTC")
NINE = datetime(2026, 1, 2, 9, tzinfo=UTC)


def struct(fields: dict[str, Any]) -> Any:
    """Return a struct: pyarrow's stubs do not take a dict of types."""
    return pa.struct(list(fields.items()))


def file_of(kind: FormatType, **columns: Any) -> bytes:
    into = io.BytesIO()
    WRITERS[kind](pa.table(columns), into)
    return into.getvalue()


def read(kind: FormatType, content: bytes, **wanted: Any) -> list[dict[str, Any]]:
    parts: Any = rows_of(kind, "/in/file", io.BytesIO(content), struct(wanted))
    return [row for part in parts for row in part.to_pylist()]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1, -1], pa.int8()), pa.int16(), [1, -1]),
        (pa.array([1, 2], pa.int32()), pa.float64(), [1.0, 2.0]),
        (pa.array([0.5, None], pa.float32()), pa.float64(), [0.5, None]),
        (pa.array([7], pa.int32()), pa.decimal128(12, 2), [Decimal("7.00")]),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(12, 2), [Decimal("1.50")]),
        (pa.array([b"a", None]), pa.string(), ["a", None]),
        (pa.array([date(9999, 12, 31), date(1, 1, 1)]), pa.date32(), [date(9999, 12, 31), date(1, 1, 1)]),
        (pa.array([NINE], UTC_MICROSECONDS), UTC_MICROSECONDS, [NINE]),
        (pa.array([NINE.replace(tzinfo=None)], pa.timestamp("us")), UTC_MICROSECONDS, [NINE]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.int64()), [[1], None, []]),
        (
            pa.array([{"b": 1, "a": "x", "c": 0}, None], struct({"b": pa.int32(), "a": pa.string(), "c": pa.int8()})),
            struct({"A": pa.string(), "b": pa.int64(), "later": pa.string()}),
            [{"A": "x", "b": 1, "later": None}, None],
        ),
        (
            pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int32()))),
            pa.map_(pa.string(), pa.list_(pa.int64())),
            [[("k", [1])], None],
        ),
    ],
)
def test_what_fits_is_taken_as_it_is_declared(kind: FormatType, found: Any, wanted: Any, expected: Any) -> None:
    assert [row["x"] for row in read(kind, file_of(kind, x=found), x=wanted)] == expected


def test_of_int96_what_is_more_exact_than_a_microsecond_is_cut_off_as_spark_does() -> None:
    into = io.BytesIO()
    nanoseconds = pa.table({"x": pa.array([1_999, -1], pa.timestamp("ns"))})
    pyarrow.parquet.write_table(nanoseconds, into, use_deprecated_int96_timestamps=True)

    assert [row["x"].microsecond for row in read(FormatType.PARQUET, into.getvalue(), x=UTC_MICROSECONDS)] == [
        1,
        999_999,
    ]


@pytest.mark.parametrize(
    ("found", "wanted", "sentence"),
    [
        (pa.array([1], pa.int64()), pa.int32(), "column x is int64, which is not taken for INT"),
        (pa.array([1], pa.uint64()), pa.int64(), "column x is uint64, which is not taken for BIGINT"),
        (pa.array(["1"]), pa.int64(), "column x is string, which is not taken for BIGINT"),
        (pa.array([1], pa.int64()), pa.string(), "column x is int64, which is not taken for STRING"),
        (pa.array([0.5]), pa.float32(), "column x is double, which is not taken for FLOAT"),
        (
            pa.array([Decimal("1.5")]),
            pa.decimal128(9, 0),
            r"column x is decimal128\(2, 1\).* not taken for DECIMAL\(9,0\)",
        ),
        (pa.array([NINE], UTC_MICROSECONDS), pa.timestamp("us"), "which is not taken for TIMESTAMP_NTZ"),
        (pa.array([1], pa.timestamp("ns")), UTC_MICROSECONDS, "has a value that TIMESTAMP does not hold"),
        (pa.array([b"\xff"]), pa.string(), "has a value that STRING does not hold"),
        (pa.array([[1]]), pa.list_(pa.string()), r"column x\[\] is int64"),
        (pa.array([{"a": 1}]), struct({"a": pa.string()}), "column x.a is int64"),
        (pa.array([{"a": 1}]), pa.string(), "column x is struct<a: int64>"),
        (pa.array([1]), pa.list_(pa.int64()), "column x is int64, which is not taken for an ARRAY"),
    ],
)
def test_what_does_not_fit_is_named_with_file_and_column_and_fails_its_batch(
    found: Any, wanted: Any, sentence: str
) -> None:
    content = file_of(FormatType.PARQUET, x=found)

    with pytest.raises(
        FileUnreadable, match=f"/in/file does not fit source.format.schema: its .*{sentence}"
    ) as problem:
        read(FormatType.PARQUET, content, x=wanted)

    assert ending_of(problem.value, in_batch=True)[0] is Ending.BATCH_FAILED, "so it can be put into quarantine"


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_are_found_by_their_names_and_those_that_a_file_lacks_are_null(kind: FormatType) -> None:
    content = file_of(kind, Id=[1, 2], other=["a", "b"], also=[None, None] if kind is FormatType.PARQUET else ["", ""])

    assert read(kind, content, id=pa.int64(), note=pa.string()) == [{"id": 1, "note": None}, {"id": 2, "note": None}]
    with pytest.raises(FileUnreadable, match=r"it has none of the columns of source\.format\.schema, but Id, other"):
        read(kind, content, a=pa.int64(), b=pa.int64())
    with pytest.raises(FileUnreadable, match="it has 2 columns ID"):
        read(kind, file_of(kind, id=[1], iD=[2]), ID=pa.int64())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_with_a_dot_in_its_name_is_no_field_of_a_struct_and_a_file_without_rows_has_none(
    kind: FormatType,
) -> None:
    content = file_of(kind, **{"a.b": pa.array([1, 2]), "a": pa.array([{"b": 5}, {"b": 6}])})

    assert read(kind, content, **{"a": struct({"b": pa.int64()}), "a.b": pa.int64()}) == [
        {"a": {"b": 5}, "a.b": 1},
        {"a": {"b": 6}, "a.b": 2},
    ]
    assert read(kind, file_of(kind, id=pa.array([], pa.int64())), id=pa.int64()) == []


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: b"id,name\n" * 100, id="text"),
        pytest.param(lambda content: content[:-3], id="cut short"),
        pytest.param(lambda content: content[: len(content) // 2] + content[-200:], id="a hole"),
        pytest.param(lambda content: content[:100] + bytes(len(content) - 400) + content[-300:], id="zeros"),
    ],
)
def test_a_damaged_file_is_named_and_fails_its_batch(kind: FormatType, damage: Callable[[bytes], bytes]) -> None:
    content = file_of(kind, id=list(range(5000)), name=[f"name {number * 7919}" for number in range(5000)])

    with pytest.raises(FileUnreadable, match=f"/in/file is not a whole {kind} file") as problem:
        read(kind, damage(content), id=pa.int64(), name=pa.string())

    assert ending_of(problem.value, in_batch=True)[0] is Ending.BATCH_FAILED


class _Keys(encryption.KmsClient):
    """Keys that are not kept."""

    def wrap_key(self, key_bytes: Any, master_key_identifier: str) -> Any:
        return key_bytes

    def unwrap_key(self, wrapped_key: Any, master_key_identifier: str) -> Any:
        return wrapped_key


def test_an_encrypted_file_is_named() -> None:
    factory = encryption.CryptoFactory(lambda _config: _Keys())
    config = encryption.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["id"]})
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    into = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(into, pa.schema({"id": pa.int64()}), encryption_properties=properties) as writer:
        writer.write_table(pa.table({"id": [1]}))

    with pytest.raises(FileUnreadable, match="/in/file is encrypted"):
        read(FormatType.PARQUET, into.getvalue(), id=pa.int64())


def test_times_of_the_old_calendar_are_refused_where_calendars_differ() -> None:
    def written(day: date, metadata: dict[str, str]) -> bytes:
        into = io.BytesIO()
        table = pa.table({"day": [day, None]}).replace_schema_metadata(metadata)
        pyarrow.parquet.write_table(table, into)
        return into.getvalue()

    old: dict[str, str] = {"org.apache.spark.version": "2.4.8"}
    legacy: dict[str, str] = {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}
    for metadata in (old, legacy):
        assert read(FormatType.PARQUET, written(date(1900, 1, 1), metadata), day=pa.date32())[0] == {
            "day": date(1900, 1, 1)
        }
        with pytest.raises(FileUnreadable, match="its column day has times before 1900"):
            read(FormatType.PARQUET, written(date(1500, 1, 1), metadata), day=pa.date32())
    today = {"org.apache.spark.version": "4.2.0"}
    assert read(FormatType.PARQUET, written(date(1500, 1, 1), today), day=pa.date32())[0] == {"day": date(1500, 1, 1)}


def test_an_orc_time_that_arrow_cannot_hold_is_refused_and_never_another_time() -> None:
    content = file_of(FormatType.ORC, at=pa.array([253_402_214_400_000_000], pa.timestamp("us")))

    with pytest.raises(
        FileUnreadable, match=r"/in/file is not a whole Orc file, or not one that can be read .*out of range"
    ):
        read(FormatType.ORC, content, at=UTC_MICROSECONDS)


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_come_in_their_order_in_parts_that_a_task_holds_easily_and_are_counted_by_the_footer(
    kind: FormatType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "_BATCH_BYTES", 20_000)
    texts = [f"{number:0500}" for number in range(1000)]
    lists = [[number] * (number % 3) for number in range(1000)]
    content = file_of(kind, text=texts, listed=pa.array(lists, pa.list_(pa.int32())))
    wanted = struct({"text": pa.string(), "listed": pa.list_(pa.int64())})

    parts: list[Any] = list(rows_of(kind, "file", io.BytesIO(content), wanted))

    assert [row for part in parts for row in part.to_pylist()] == [
        {"text": text, "listed": listed} for text, listed in zip(texts, lists, strict=True)
    ]
    assert max(len(part) for part in parts) <= 60
    assert count_rows(kind, "file", io.BytesIO(content)) == 1000


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("tail", [0, source_rows._TAIL - 2])
def test_each_row_has_the_position_of_its_file_and_its_number(tmp_path: Path, kind: FormatType, tail: int) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(file_of(kind, id=list(range(3))))
    folder = LocalFolder(str(tmp_path))
    files = placed(NOTHING_READ, sorted(folder.files(), key=lambda file: file.path))
    if tail:
        files[1] = files[1].__class__(files[1].file, files[1].position - files[1].position % source_rows._TAIL + tail)
    fields: list[tuple[str, Any]] = [
        ("value", struct({"id": pa.int64()})),
        ("malformed", BYTES.decode(Records(pa.array([], pa.binary()), lambda _: None, lambda _: None))[1].type),
        ("folder", pa.string()),
        ("partition", pa.int32()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("modification_time", UTC_MICROSECONDS),
        ("position", pa.string()),
    ]
    schema = pa.schema(fields)

    batches = list(columnar_batches(folder, "/in", files, kind, schema, parse("id BIGINT")))

    assert all(batch.schema == schema for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["file"], row["row"], row["value"]["id"]) for row in rows] == [
        (name, number + 1, number) for name in ("a", "b") for number in range(3)
    ]
    starts = {each.file.path: each.position for each in files}
    for row in rows:
        assert row["position"] == str(starts[row["file"]] + row["row"]).zfill(POSITION_DIGITS)
    if not tail:
        assert starts["b"] == after(NOTHING_READ, [files[0].file])


def test_a_file_that_changes_or_goes_is_told_as_that_and_never_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(file_of(FormatType.PARQUET, id=list(range(100_000))))
    folder = LocalFolder(str(tmp_path))
    (file,) = folder.files()
    with folder.opened(file) as opened:
        parts = rows_of(FormatType.PARQUET, "a", opened, struct({"id": pa.int64()}))
        next(parts)
        path.unlink()
        assert sum(len(part) for part in parts) > 0, "what was opened is read to its end"
    with pytest.raises(FileVanished), folder.opened(file):
        pass
    path.write_bytes(b"half of a fi")
    (file,) = folder.files()
    with pytest.raises(FileChanged, match=r"a \(3 bytes, was 12\)"):
        _read_while_it_is_written(folder, file, path)


def _read_while_it_is_written(folder: LocalFolder, file: SourceFile, path: Path) -> None:
    with folder.opened(file) as opened:
        os.truncate(path, 3)
        list(rows_of(FormatType.PARQUET, "a", opened, struct({"id": pa.int64()})))


def test_a_declared_type_that_is_not_read_from_such_files_is_named() -> None:
    nested = ArrayType(StructType([StructField("length", DayTimeIntervalType(), nullable=False)]), containsNull=False)

    with pytest.raises(SchemaInvalid, match=r"declares calls\[\]\.length as interval day to second, which is not read"):
        columnar_schema(StructType([StructField("calls", nested)]))
    with pytest.raises(SchemaInvalid, match="declares code as varchar"):
        columnar_schema(StructType([StructField("code", VarcharType(3))]))
    allowed = columnar_schema(StructType([StructField("a", ArrayType(LongType(), containsNull=False), nullable=False)]))
    assert allowed == StructType([StructField("a", ArrayType(LongType()))]), "NULL is looked at in each record"
