"""The columns of the rows that a query of Spark's own has written, as a Parquet file of it says. No pyspark here."""

from __future__ import annotations

import pyarrow

from exactlyonce.bounded_text import one_line
from exactlyonce.checkpoint.store import BulkStore
from exactlyonce.connectors.files.columns import Type, described_columns
from exactlyonce.connectors.files.former_output import OutputUnfit
from exactlyonce.connectors.files.parquet import footer_of


def columns_in(store: BulkStore, path: str) -> dict[str, Type] | None:
    """Return the columns in a Parquet file, without those of its partition; None if Spark has not described them.

    Raises:
        OutputUnfit: if it cannot be read.
    """
    with store.fetched(path) as place:
        try:
            return described_columns(footer_of(place).metadata)
        except (pyarrow.ArrowException, ValueError, KeyError, TypeError) as problem:
            raise OutputUnfit(
                f"{path}, which a former query has written, is not a Parquet file that can be read "
                f"({one_line(str(problem))}). Restore it from a backup."
            ) from problem
