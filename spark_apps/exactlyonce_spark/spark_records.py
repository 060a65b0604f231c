"""The records of a replay as Spark reads them: exactly given ranges, in batch mode, and the rows that the transform makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from exactlyonce.api.format import OnMalformed
from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader
from exactlyonce_spark.observed import letters_of
from exactlyonce_spark.query import malformed_records, rows_of
from exactlyonce_spark.spark_batch import handed_over
from exactlyonce_spark.target import DeadLetter

_OF_MANY_RECORDS = frozenset(
    {
        "Aggregate",
        "Distinct",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Window",
        "WindowGroupLimit",
        "Sort",
        "Sample",
    }
    | {"GlobalLimit", "LocalLimit", "Tail", "Offset", "Intersect", "Except", "Pivot"}
    | {"FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark", "FlatMapGroupsInPandasWithState"}
    | {"FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "MapGroups", "CoGroup"}
)
"""Nodes of Spark's logical plan whose rows depend on more than one record (catalyst/plans/logical, Spark 4.2.0)."""


class TransformNotOfEachRecord(Refused):
    """The transform makes rows of several records, and a replay reads only some of them."""


def require_rows_of_each_record(rows: DataFrame) -> None:
    """Require of the stream's rows, as a streaming DataFrame, that each is made of one record; static tables may be joined.

    Spark itself refuses a subquery over a stream.

    Raises:
        TransformNotOfEachRecord: naming what is in the way.
    """
    for node in _streaming_nodes(rows._jdf.queryExecution().analyzed()):
        name, streams = str(node.nodeName()), [child for child in _items(node.children()) if child.isStreaming()]
        if name in _OF_MANY_RECORDS or (name == "Join" and len(streams) > 1):
            raise TransformNotOfEachRecord(
                f"The transform makes rows of more than one record ({name}), and a replay reads only those that are in "
                "quarantine, so its rows would be wrong; nothing was landed."
            )


def _streaming_nodes(plan: Any) -> Iterator[Any]:
    if plan.isStreaming():
        yield plan
        for child in _items(plan.children()):
            yield from _streaming_nodes(child)


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


@dataclass(frozen=True)
class SparkRecords:
    """A `RecordReader` over a stream's source and transform."""

    session: SparkSession
    reader: SourceReader
    spec: StreamSpec
    columns: tuple[FittedColumn, ...]

    def rows(self, ranges: Ranges) -> Sequence[pa.RecordBatch]:
        """Return the rows, collected as Arrow."""
        rows = rows_of(self.session, self.reader, self.spec, ranges)
        return handed_over(rows, self.columns).toArrow().to_batches()

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        """Return the malformed records, with onMalformed: DeadLetter."""
        if self.spec.source.format.on_malformed is not OnMalformed.DEAD_LETTER:
            return ()
        return letters_of(malformed_records(self.session, self.reader, self.spec.source.format, ranges))


@dataclass(frozen=True)
class SparkRows(SparkRecords):
    """The same for a sink whose rows Spark's own tasks write: they are read once it does."""

    def rows(self, ranges: Ranges) -> Any:
        """Return the rows as Spark's DataFrame, with the columns as the query yields them."""
        return rows_of(self.session, self.reader, self.spec, ranges)
