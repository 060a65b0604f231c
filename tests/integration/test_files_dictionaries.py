"""Spark's writer is spared a dictionary that is of no use, and the files are the same as with the attempt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce.connectors.files.manifest import Author, Write
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.files.dictionaries import FIRST_PAGE_ROWS
from exactlyonce_spark.connectors.files.folders import Footer
from exactlyonce_spark.connectors.files.writer import SparkFileWriter
from testbed.spark import local_session

AUTHOR = Author(Epoch(1), "life")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("dictionaries") as session:
        yield session


def rows(spark: SparkSession) -> DataFrame:
    """Unique values, few values, and unique values within a column."""
    found = spark.range(0, 2 * (FIRST_PAGE_ROWS + 1), 1, 2)
    return found.select(
        f.col("id").alias("orderId"),
        f.concat(f.lit("customer-"), f.col("id") % 9).alias("customer"),
        f.struct(f.col("id").alias("placedAt")).alias("held"),
    )


def written(writer: SparkFileWriter, folder: Path, number: int, frame: DataFrame) -> list[dict[str, tuple[bool, int]]]:
    """Of each file, which columns have a dictionary, and how many bytes they take."""
    found = writer.write(Write.draw(AUTHOR, BatchNumber(number)), frame)
    footers = [pyarrow.parquet.read_metadata(folder / file.path) for file in found.files]
    return [{column.path_in_schema: _of(column) for column in _columns(footer)} for footer in footers]


def _columns(footer: Any) -> list[Any]:
    (group,) = [footer.row_group(at) for at in range(footer.num_row_groups)]
    return [group.column(at) for at in range(group.num_columns)]


def _of(column: Any) -> tuple[bool, int]:
    return bool(column.has_dictionary_page), int(column.total_compressed_size)


def test_a_batch_is_written_alike_whether_the_batch_before_was_learned_from_or_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = SparkFileWriter(FilesSink(path=str(tmp_path / "out")))
    first = written(writer, tmp_path / "out", 1, rows(spark))
    second = written(writer, tmp_path / "out", 2, rows(spark))
    assert first == second
    assert [{name: has for name, (has, _) in file.items()} for file in first] == [
        {"orderId": False, "customer": True, "held.placedAt": False}
    ] * 2
    assert writer._dictionaries.options() == {
        "parquet.enable.dictionary#held.placedAt": "false",
        "parquet.enable.dictionary#orderId": "false",
    }


def test_spark_passes_on_what_it_is_told_of_a_column_in_whatever_case_its_name_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The files of the test above are alike even if Spark is told in vain, so here it is told what is wrong."""
    frame = rows(spark).withColumnRenamed("customer", "customerName")
    writer = SparkFileWriter(FilesSink(path=str(tmp_path / "out")))
    writer._dictionaries.saw(Footer(FIRST_PAGE_ROWS, (), frozenset({"customerName"})))
    (one, other) = written(writer, tmp_path / "out", 1, frame)
    assert [file["customerName"][0] for file in (one, other)] == [False, False]
