"""What a manifest of an Iceberg table says of a file: partition values from the names of folders, statistics by field ids."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.table import TableUnfit
from exactlyonce_spark.connectors.iceberg.data_files import data_file, partition_record
from exactlyonce_spark.connectors.iceberg.fit import PARTITIONS, iceberg_type, schema_of, spark_type

TYPES = (*PARTITIONS, "float", "double", "binary", "timestamp", "timestamp_ntz", "decimal(38,18)", "decimal(9,2)")


def metadata_of(columns: Mapping[str, Type], partition_by: str | None = None) -> TableMetadata:
    schema = schema_of(columns)
    parts = [] if partition_by is None else [schema.find_field(partition_by).field_id]
    fields = [PartitionField(source, 1000, IdentityTransform(), f"{partition_by}") for source in parts]
    return new_table_metadata(schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, "file:///lake/orders")


def footer_of(columns: Mapping[str, tuple[Any, int | None]]) -> pyarrow.parquet.FileMetaData:
    fields = [
        pa.field(name, values.type, metadata=None if id_ is None else {b"PARQUET:field_id": str(id_).encode()})
        for name, (values, id_) in columns.items()
    ]
    written = BytesIO()
    arrays = [values for values, _ in columns.values()]
    pyarrow.parquet.write_table(pa.table(arrays, schema=pa.schema(fields)), written)
    written.seek(0)
    return pyarrow.parquet.read_metadata(written)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("string", "d/0=é", "d/0=é"),
        ("long", "-9223372036854775808", -(2**63)),
        ("integer", "7", 7),
        ("boolean", "false", False),
        ("boolean", "true", True),
        ("date", "1970-01-03", 2),
        ("date", "0001-01-01", -719162),
        ("date", "9999-12-31", 2932896),
    ],
)
def test_a_partition_has_the_value_that_sparks_folder_names(type_: str, text: str, value: object) -> None:
    metadata = metadata_of({"id": "long", "part": type_}, "part")
    named = DataFile(f"1-1-a-b/part={quote(text, safe='')}/x.parquet", 1, 1)
    null = DataFile("1-1-a-b/part=__HIVE_DEFAULT_PARTITION__/x.parquet", 1, 1)
    assert [partition_record(metadata, file)[0] for file in (named, null)] == [value, None]


def bounds(found: Entry) -> list[dict[int, object]]:
    """Both bounds of each column of integers, by its id."""
    return [
        {id_: from_bytes(LongType(), it) for id_, it in each.items()}
        for each in (found.lower_bounds, found.upper_bounds)
    ]


def test_bounds_go_by_the_ids_of_columns_and_by_no_names() -> None:
    metadata = metadata_of({"id": "long", "key": "long"})
    footer = footer_of({"key": (pa.array([1, 5]), 1), "gone": (pa.array(["a", "b"]), 9), "id": (pa.array([7, 7]), 2)})
    found = data_file(metadata, "file:///x", DataFile("x", 10, 1, 2), footer)
    assert bounds(found) == [{1: 1, 2: 7}, {1: 5, 2: 7}]
    assert found.record_count == 2


def test_a_column_that_others_have_widened_since_has_bounds_of_its_new_type() -> None:
    footer = footer_of({"id": (pa.array([-1, 2], pa.int32()), 1)})
    found = data_file(metadata_of({"id": "long"}), "file:///x", DataFile("x", 10, 1, 2), footer)
    assert bounds(found) == [{1: -1}, {1: 2}]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("timestamp_ntz", pa.array([-(2**62), 2**62], pa.timestamp("us"))),
        ("date", pa.array([-(2**30), 2**30], pa.date32())),
    ],
    ids=["moments beyond Python's years", "days beyond Python's years"],
)
def test_where_no_bound_is_to_be_had_the_file_is_added_without_one(type_: str, values: Any) -> None:
    footer = footer_of({"id": (pa.array([3, 4]), 1), "value": (values, 2)})
    found = data_file(metadata_of({"id": "long", "value": type_}), "file:///x", DataFile("x", 10, 1, 2), footer)
    assert found.record_count == 2
    assert 2 not in (found.lower_bounds or {})


def test_a_file_whose_columns_have_no_ids_is_not_committed() -> None:
    footer = footer_of({"id": (pa.array([1]), None), "key": (pa.array([1]), 2)})
    with pytest.raises(TableUnfit, match=r"The file file:///x has columns without field ids \(id\)"):
        data_file(metadata_of({"id": "long", "key": "long"}), "file:///x", DataFile("x", 10, 1, 1), footer)


@pytest.mark.parametrize("type_", TYPES)
def test_a_type_of_spark_comes_back_from_the_table_as_it_was(type_: str) -> None:
    found = iceberg_type(type_)
    assert found is not None
    assert spark_type(found) == type_
