"""The columns of the rows that a query of Spark's own has written, as a Parquet file of it says. No pyspark here."""

from __future__ import annotations

import json

from exactlyonce.checkpoint.store import BulkStore
from exactlyonce.connectors.files.columns import Type, plain
from exactlyonce.connectors.files.parquet import footer_of

DESCRIBED_BY = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of a footer under which Spark's writer keeps the columns. Source: ParquetReadSupport.SPARK_METADATA_KEY."""


def columns_in(store: BulkStore, path: str) -> dict[str, Type] | None:
    """Return the columns in a file, without those of its partition; None if it is not one of Parquet that Spark has written."""
    if not path.endswith(".parquet"):
        return None
    with store.fetched(path) as place:
        found = (footer_of(place).metadata or {}).get(DESCRIBED_BY)
    return None if found is None else {it["name"]: plain(it["type"]) for it in json.loads(found)["fields"]}
