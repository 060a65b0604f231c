"""Parquet and ORC files as a source: Spark's own readers of the same files are the oracle; and a stream that is killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.format import Format
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_position import NOTHING_READ, after
from exactlyonce.connectors.files.source_spec import KEY, FilesSource
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.files.source_reader import FolderRecords
from exactlyonce_spark.connectors.files.source_records import Place
from exactlyonce_spark.replay_parts import Part, Unfit
from exactlyonce_spark.replay_records import PartMoved, failing_records, looked_at_before
from testbed.postgres import Postgres
from testbed.spark import local_session
from tests.combinations import in_full
from tests.folder_rig import FolderRig

pytestmark = pytest.mark.seconds(26)

SCHEMA = (
    "id BIGINT NOT NULL, small SMALLINT, price DECIMAL(38,18), amount DECIMAL(9,2), ratio DOUBLE, half FLOAT, flag BOOLEAN, "
    "name STRING, bytes BINARY, day DATE, at TIMESTAMP, local_at TIMESTAMP_NTZ, tags ARRAY<STRING>, "
    "counts MAP<STRING, BIGINT>, items ARRAY<STRUCT<sku: STRING, price: DECIMAL(12,2), notes: ARRAY<STRING>>>, "
    "nested STRUCT<a: INT, b: STRUCT<at: TIMESTAMP, many: MAP<INT, ARRAY<DATE>>>>, times ARRAY<TIMESTAMP_NTZ>, "
    "by_time MAP<TIMESTAMP_NTZ, STRUCT<at: TIMESTAMP_NTZ, until: TIMESTAMP>>, later STRING"
)
ROWS = """
SELECT id, cast(id % 300 AS SMALLINT) AS small, if(id % 7 = 0, NULL, cast(id / 7.0D AS DECIMAL(38,18))) AS price,
  cast(-id / 100 AS DECIMAL(9,2)) AS amount, if(id % 5 = 0, cast('NaN' AS DOUBLE), id / 3.0D) AS ratio,
  cast(id / 3.0D AS FLOAT) AS half, if(id % 3 = 0, NULL, id % 2 = 0) AS flag,
  if(id % 4 = 0, NULL, concat('näme ', id)) AS name, if(id % 6 = 0, NULL, cast(concat('b', id) AS BINARY)) AS bytes,
  date_add(date'1890-01-01', cast(id * 37 AS INT)) AS day, timestamp_micros(id * 86400123456 - 1) AS at,
  cast(timestamp_micros(id * 3600000001) AS TIMESTAMP_NTZ) AS local_at,
  if(id % 3 = 0, NULL, slice(array('a', NULL, 'c'), 1, cast(id % 4 AS INT))) AS tags,
  if(id % 4 = 1, NULL, map('x', id, 'y', NULL)) AS counts,
  if(id % 5 = 2, NULL,
    array(named_struct('sku', 's', 'price', cast(id AS DECIMAL(12,2)), 'notes', array('n', NULL)), NULL)) AS items,
  if(id % 6 = 3, NULL, named_struct('a', cast(id AS INT), 'b', if(id % 4 = 0, NULL,
    named_struct('at', timestamp_micros(id), 'many', map(1, array(date'2026-01-02', NULL)))))) AS nested,
  array(cast(timestamp_micros(id) AS TIMESTAMP_NTZ), NULL) AS times, map(cast(timestamp_micros(id) AS TIMESTAMP_NTZ),
    named_struct('at', cast(timestamp_micros(-id) AS TIMESTAMP_NTZ), 'until', timestamp_micros(-id))) AS by_time,
  'unread' AS other
FROM range(0, 3000, 1, 2)
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with local_session("columnar files") as session:
            yield session


def reader_of(folder: Path, **form: Any) -> FolderRecords:
    return FolderRecords(
        FilesSource.model_validate({"path": str(folder)}),
        Checkpoint.model_validate({"local": {"path": f"{folder}-checkpoint"}}),
        Format.model_validate(form),
        "a life",
    )


def read_by_us(spark: SparkSession, folder: Path, kind: str, schema: str) -> list[str]:
    """Return the rows that the view `source` has for all files of a folder, as JSON."""
    reader = reader_of(folder, type=kind, schema=schema)
    files = sorted(LocalFolder(str(folder)).files(), key=lambda file: file.order)
    ranges = Ranges({Partition(str(folder), KEY): OffsetRange(NOTHING_READ, after(NOTHING_READ, files))})
    records = reader.batch(spark, ranges)
    given = Format.model_validate({"type": kind, "schema": schema})
    rows = formats.well_formed(records, reader.columns(records), given)
    return as_json(rows.drop(*reader.reserved))


def as_json(rows: Any) -> list[str]:
    return sorted(row[0] for row in rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Parquet", {"spark.sql.parquet.outputTimestampType": "INT96"}),
        ("Parquet", {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "parquet.block.size": "65536"}),
        ("Parquet", {"spark.sql.parquet.writeLegacyFormat": "true"}),
        ("Orc", {}),
    ],
)
def test_rows_are_those_that_sparks_own_reader_gives_for_files_that_spark_wrote(
    spark: SparkSession, tmp_path: Path, kind: str, settings: dict[str, str]
) -> None:
    folder = tmp_path / "in"
    for key, value in settings.items():
        spark.conf.set(key, value)
    spark.sql(ROWS).write.format(kind.lower()).save(str(folder))
    for key in settings:
        spark.conf.unset(key)

    expected = as_json(spark.read.schema(SCHEMA).format(kind.lower()).load(str(folder)))

    assert len(expected) == 3000
    assert read_by_us(spark, folder, kind, SCHEMA) == expected


def test_rows_are_those_that_sparks_own_reader_gives_for_files_that_others_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = pa.array(["a", None, "b"] * 100)
    table = pa.table(
        {
            "id": pa.array(range(300), pa.int32()),
            "kind": texts.dictionary_encode(),
            "large": texts.cast(pa.large_string()),
            "at": pa.array([number * 1_000_000 for number in range(300)], pa.timestamp("ms")),
            "zoned": pa.array([number * 1_000_000 for number in range(300)], pa.timestamp("us", "Europe/Paris")),
            "price": pa.array([Decimal(number) / 4 for number in range(300)], pa.decimal128(7, 2)),
            "listed": pa.array([[number, None] for number in range(300)], pa.large_list(pa.int32())),
        }
    )
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=70, compression="zstd")
    pyarrow.parquet.write_table(table.slice(0, 9).drop_columns("large"), folder / "b.parquet", data_page_version="2.0")
    schema = (
        "id BIGINT, kind STRING, large STRING, at TIMESTAMP, zoned TIMESTAMP, price DECIMAL(12,4), listed ARRAY<INT>"
    )

    expected = as_json(spark.read.schema(schema).parquet(str(folder)))

    assert len(expected) == 309
    assert read_by_us(spark, folder, "Parquet", schema) == expected


def test_a_row_that_lacks_what_may_not_be_null_is_a_dead_letter_that_shows_the_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pyarrow.orc.write_table(pa.table({"id": [1, None], "name": ["a", "b"]}), folder / "a.orc")
    reader = reader_of(folder, type="Orc", schema="id BIGINT NOT NULL, name STRING, note STRING")
    (file,) = LocalFolder(str(folder)).files()
    ranges = Ranges({Partition(str(folder), KEY): OffsetRange(NOTHING_READ, after(NOTHING_READ, [file]))})
    records = reader.batch(spark, ranges)

    (letter,) = formats.malformed_records(records, reader.columns(records), reader.format).collect()

    assert json.loads(bytes(letter.value)) == {"id": None, "name": "b", "note": None}
    assert json.loads(letter._place) == {"folder": str(folder), "file": "a.orc", "row": 2}
    assert letter._why == "column id: no value, and the column is NOT NULL"


def test_each_row_lands_once_though_a_driver_is_killed_and_a_damaged_file_is_put_into_quarantine(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = FolderRig(
        postgres_18,
        tmp_path,
        name,
        **{
            "spec.source.format": {"type": "Parquet", "schema": "id BIGINT, customer STRING"},
            "spec.recovery": {"onPoisonBatch": "Quarantine", "maxFailuresPerBatch": in_full(2, otherwise=1)},
        },
    )
    for number in range(7):
        ids = list(range(number * 100, number * 100 + 100))
        path = rig.incoming / f"{number}.parquet"
        pyarrow.parquet.write_table(pa.table({"id": ids, "customer": [f"customer {each}" for each in ids]}), path)
        if number == 3:
            path.write_bytes(path.read_bytes()[:-4])
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        rig.produced += ids

    # A replay of lines: test_folder_stream.py.
    killed = in_full("land.before-commit@1=kill-driver", otherwise=None)
    assert isinstance(rig.run(crash=killed), Done), rig.story()

    rig.assert_exactly_once(without=range(300, 600))
    ((error,),) = rig.sql("select error from exactlyonce.failures where status = 'Quarantined'")
    assert f"{rig.incoming}/3.parquet is not a whole Parquet file" in error


def test_a_file_that_goes_between_its_count_and_its_task_is_looked_for_again_and_does_not_end_a_replay(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the task says comes back through Spark as text: a refusal, which would end a replay as one that a person mends."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    os.utime(folder / "a.json", (1_700_000_000, 1_700_000_000))
    reader = reader_of(folder, type="Json", schema="id BIGINT")
    place = Partition(str(folder), KEY)
    end = Place.of(reader._options(spark)).planner(FileLimit(9, 1 << 20)).end(NOTHING_READ)
    divider, span = reader.divider(spark, of_backfill=False), OffsetRange(NOTHING_READ, end)
    found = divider.first(place, span, 10)
    assert isinstance(found, Part)
    assert found.records == 2
    (folder / "a.json").unlink()
    with pytest.raises(PartMoved, match="FileVanished"), looked_at_before(is_divided=True), failing_records():
        reader.batch(spark, Ranges({place: span})).collect()
    divider.forget()
    assert isinstance(divider.first(place, span, 10), Unfit)
