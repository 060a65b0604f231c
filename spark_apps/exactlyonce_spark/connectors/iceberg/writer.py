"""Spark's own writer of files, told the ids of the table's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, functions

from exactlyonce.connectors.files.manifest import Manifest, ReplayWrite, Write
from exactlyonce_spark.connectors.files.target import FileWriter, WrittenFiles
from exactlyonce_spark.sql_text import quoted

FIELD_ID = "parquet.field.id"
"""The key of a column's metadata by which Spark knows its id. Source: Spark, ParquetUtils.FIELD_ID_METADATA_KEY."""

SETTINGS = {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""What Iceberg's types are in Parquet: moments in microseconds, decimals in integers as far as they fit."""


@dataclass
class SparkIcebergWriter:
    """An `IdentifyingWriter` around the writer of the files sink."""

    files: FileWriter
    ids: Mapping[str, int] = field(default_factory=dict)

    def write(self, write: Write | ReplayWrite, rows: DataFrame) -> WrittenFiles:
        """Write rows into files whose columns have the ids of the table's fields."""
        known = [functions.col(quoted(name)).alias(name, metadata={FIELD_ID: self.ids[name]}) for name in rows.columns]
        return self.files.write(write, rows.select(*known))

    def learn(self, manifest: Manifest) -> None:
        """Take from a batch that has landed how many bytes a row takes."""
        self.files.learn(manifest)
