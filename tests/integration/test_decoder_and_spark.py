"""The decoder beside Spark: DDL is parsed as Spark parses it, and CSV of the files sink comes back value for value."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.columns import ddl
from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce_spark.connectors.files.exact_values import OPTIONS, checked
from exactlyonce_spark.decode.csv_format import CsvDecoder, Dialect
from exactlyonce_spark.decode.rules import Rules
from testbed.spark import local_session
from tests.unit.decode.answers import shown
from tests.unit.test_column_ddl import TAKEN

pytestmark = pytest.mark.seconds(20)
SCHEMA = (
    "id BIGINT, t TINYINT, v STRING, w STRING, a DECIMAL(12,7), e DECIMAL(38,18), f FLOAT, d DOUBLE, b BOOLEAN, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, day DATE"
)
ODD = [
    *["", " ", "a", ",", '"', '""', "\\", '\\"', "\n", "\r\n", "\r", " x ", "#", "'", "null", "NULL", "-", "\t"],
    *["ä日😀", "\ufeff", 'a,b"c\nd'],
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("decoder and Spark") as session:
        yield session


def without_comments(fields: StructType) -> Any:
    document = fields.jsonValue()
    return [(it["name"], it["type"], it["nullable"]) for it in document["fields"]]


def same(one: Any) -> str:
    return str(one).replace("'metadata': {'comment': 'n'}", "'metadata': {}")


@pytest.mark.parametrize("text", TAKEN)
def test_a_schema_has_the_columns_that_spark_reads_in_it(spark: SparkSession, text: str) -> None:
    theirs = cast("StructType", StructType.fromDDL(text))
    ours = cast("StructType", StructType.fromDDL(ddl(parse(text))))
    assert same(without_comments(ours)) == same(without_comments(theirs))


def row(number: int, chosen: random.Random) -> tuple[Any, ...]:
    moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(
        seconds=chosen.randrange(10**11), microseconds=chosen.randrange(10**6)
    )
    values = (
        chosen.randrange(-128, 128),
        chosen.choice(ODD),
        "".join(chosen.choices(ODD, k=3)),
        Decimal(chosen.choice([0, 1, -1, 10**11 - 1, chosen.randrange(10**9)])).scaleb(-7),
        Decimal(chosen.choice([0, 1, 10**37])).scaleb(-18),
        chosen.choice([0.1, 1e-40, 3.4028234663852886e38, 16777217.0, -0.0]),
        chosen.choice([0.1, 5e-324, 1.7976931348623157e308, 1e22, -0.0]),
        chosen.choice([True, False]),
        moment,
        moment.replace(tzinfo=None),
        moment.date() if number % 2 else date(9999, 12, 31),
    )
    return (number, *(None if chosen.random() < 0.1 else value for value in values))


def test_csv_that_the_files_sink_has_written_comes_back_value_for_value(spark: SparkSession, tmp_path: Path) -> None:
    chosen = random.Random(5)
    frame = spark.createDataFrame([row(number, chosen) for number in range(3000)], SCHEMA)
    checked(frame, FileFormat.CSV, []).coalesce(1).write.options(**OPTIONS[FileFormat.CSV]).csv(str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("part-*")
    records = records_of(file.read_bytes())[1:]
    decoded = CsvDecoder(parse(SCHEMA), Rules(), Dialect()).decode(pa.array(records, pa.binary()))
    assert decoded.malformed == ()
    expected = {it["id"]: it for it in frame.toArrow().to_pylist()}
    assert len(decoded.rows) == len(expected)
    for found in decoded.rows.to_pylist():
        assert shown(found) == shown(expected[found["id"]])


def records_of(content: bytes) -> list[bytes]:
    """Divide a file into records, as another reader of RFC 4180 sees them: where a line ends outside of quotes."""
    lines, record = [], b""
    for line in content.split(b"\n"):
        record = record + b"\n" + line if record else line
        if record.count(b'"') % 2 == 0:
            lines.append(record)
            record = b""
    assert len(list(csv.reader(content.decode().splitlines(keepends=True)))) == len(lines) - 1
    return lines[:-1]
