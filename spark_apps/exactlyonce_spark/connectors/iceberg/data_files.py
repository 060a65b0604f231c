"""What a table's manifests say of a file that Spark has written: its partition, and statistics from its footer.

Performs no I/O. Source: the Iceberg table specification, version 2, "Data File Fields" and "Column Projection": a partition
column of an identity transform need not stand in a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow
import pyarrow.parquet
from pyiceberg.conversions import partition_to_py
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, PrimitiveType, StringType

from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import DataFile as WrittenFile
from exactlyonce.errors import RowsNotTaken
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.fit import partition_of
from exactlyonce_spark.connectors.delta.table import FileFacts, TableUnfit

_FIELD_ID = b"PARQUET:field_id"
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Footer(FileFacts):
    """The footer of a file; its columns are known by the ids of the table's fields, so no renaming makes them unfit."""

    metadata: pyarrow.parquet.FileMetaData

    def ids(self) -> dict[str, int | None]:
        """Return the id of each column by its name, as it was when the file was written."""
        return field_ids(self.metadata)


def data_file(
    metadata: TableMetadata, address: str, file: WrittenFile, footer: pyarrow.parquet.FileMetaData
) -> DataFile:
    """Return the entry of a file in a manifest of the table.

    Raises:
        TableUnfit: if its columns have no ids, so that readers would find NULL in them.
    """
    ids = field_ids(footer)
    without = sorted(name for name, id_ in ids.items() if id_ is None)
    if without:
        raise TableUnfit(
            f"The file {address} has columns without field ids ({', '.join(without)}), so readers would find nothing in them; "
            "it has landed and is not committed. Report this, with the sparkConf of the stream."
        )
    known = {name: id_ for name, id_ in ids.items() if id_ is not None}
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=address,
        file_format=FileFormat.PARQUET,
        partition=partition_record(metadata, file),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **_statistics(metadata, known, footer),
    )


def field_ids(footer: pyarrow.parquet.FileMetaData) -> dict[str, int | None]:
    """Return the id of each column of a file by its name; no column is nested."""
    fields = footer.schema.to_arrow_schema()
    found = {field.name: (field.metadata or {}).get(_FIELD_ID) for field in fields}
    return {name: None if id_ is None else int(id_) for name, id_ in found.items()}


def _statistics(
    metadata: TableMetadata, ids: Mapping[str, int], footer: pyarrow.parquet.FileMetaData
) -> dict[str, Any]:
    """Return what the footer says; only counts where a bound is not to be had, such as a moment beyond Python's years."""
    nothing = MetricsMode(MetricModeTypes.NONE)
    plan = {id_: StatisticsCollector(id_, StringType(), nothing, name) for name, id_ in ids.items()}
    planned = compute_statistics_plan(metadata.schema(), metadata.properties)
    told = {**plan, **{id_: planned[id_] for id_ in plan if id_ in planned}}
    try:
        found = data_file_statistics_from_parquet_metadata(footer, told, dict(ids))
        return found.to_serialized_dict()
    except (ValueError, OverflowError, TypeError, pyarrow.ArrowException):
        return data_file_statistics_from_parquet_metadata(footer, plan, dict(ids)).to_serialized_dict()


def partition_record(metadata: TableMetadata, file: WrittenFile) -> Record:
    """Return the partition of a file, as the names of its folders say it, in the order of the table's own partition fields."""
    names, schema = partition_of(file), metadata.schema()
    values = []
    for part in metadata.spec().fields:
        field = schema.find_field(part.source_id)
        assert isinstance(field.field_type, PrimitiveType), "require_holdable comes first"
        values.append(_value(field.field_type, names[field.name]))
    return Record(*values)


def require_days_known(batch: BatchNumber, files: Sequence[WrittenFile], columns: Mapping[str, Type]) -> None:
    """Require that the days of partitions are of the years 1 to 9999: the library, as its readers, knows no others.

    Raises:
        RowsNotTaken: naming the column and the day.
    """
    for file in files:
        for name, text in partition_of(file).items():
            if columns.get(name) == "date" and text is not None and not _is_day(text):
                raise RowsNotTaken(
                    f"Batch {batch} has rows whose {name} is {text}, and an Iceberg table is partitioned here by days of the "
                    "years 1 to 9999 alone; nothing of the batch has landed. Mend the records, or have the transform make NULL "
                    "of such a day."
                )


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _value(type_: PrimitiveType, text: str | None) -> object:
    if text is None:
        return None
    if isinstance(type_, DateType):
        return (date.fromisoformat(text) - _EPOCH).days
    return partition_to_py(type_, text)
