"""Which columns of Parquet files are written without trying a dictionary, since one has turned out to be of no use.

Parquet's writer puts the values of each column into a dictionary, and decides once the first page is full whether that made
the page smaller. If it did not, it writes the page once more without one, and the file's footer names no dictionary. Each task
of a batch writes a new file, so a column of unique values costs that attempt in every one. Without it, the files are the same.

Source: parquet-java 1.17, FallbackValuesWriter.getBytes (the decision), ParquetProperties.DEFAULT_PAGE_ROW_COUNT_LIMIT (the
rows of the first page), ParquetOutputFormat.ENABLE_DICTIONARY (`parquet.enable.dictionary#PATH` is of one column).
"""

from __future__ import annotations

from typing import Any

from exactlyonce_spark.connectors.files.folders import Footer

FIRST_PAGE_ROWS = 20_000
"""A file with fewer rows says little: a dictionary of a few values takes more room than they do."""

TRIED_AGAIN_EVERY = 20
"""Batches: values change, and a file that was written without a dictionary does not tell what one would have done."""


class Dictionaries:
    """What the files of one stream have shown so far."""

    def __init__(self) -> None:
        self._seen: list[Footer] = []
        self._useless: frozenset[str] = frozenset()
        self._batches = 0

    def saw(self, footer: Footer) -> None:
        """Take a file of the batch that is being written, whether it lands or not."""
        self._seen.append(footer)

    def options(self) -> dict[str, str]:
        """Return what Spark's writer of the next batch is told."""
        full = [footer.without_dictionary for footer in self._seen if (footer.rows or 0) >= FIRST_PAGE_ROWS]
        if full:
            self._useless = frozenset.intersection(*full)
        self._seen.clear()
        self._batches += 1
        if self._batches % TRIED_AGAIN_EVERY == 0:
            return {}
        return {f"parquet.enable.dictionary#{path}": "false" for path in sorted(self._useless)}


def without_dictionary(footer: Any) -> frozenset[str]:
    """Return the columns of a footer, as pyarrow has it, whose values no row group has in a dictionary."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    held = {column.path_in_schema for column in columns if column.has_dictionary_page}
    return frozenset(column.path_in_schema for column in columns) - held
