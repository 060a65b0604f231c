"""What data files say of themselves: how many rows they hold, and of which source positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION
from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark.connectors.files.folders import Footer, Spans


class Footers:
    """Reads the footers of Parquet and ORC files in a bucket, in the driver's JVM.

    The JVM's classes are looked up once: each lookup through py4j takes as long as several calls.
    """

    def __init__(self, session: SparkSession, file_format: FileFormat, *, with_spans: bool) -> None:
        jvm: Any = session._jvm
        self._format = file_format
        self._with_spans = with_spans
        self._conf = session._jsc.hadoopConfiguration()
        self._orc = jvm.org.apache.orc.OrcFile
        self._parquet = jvm.org.apache.parquet.hadoop.ParquetFileReader
        self._parquet_file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile

    def read(self, status: Any) -> Footer:
        """Return what a file says of itself; which columns have no dictionary would be a call of py4j for each of them."""
        if self._format is FileFormat.ORC:
            reader = self._orc.createReader(status.getPath(), self._orc.readerOptions(self._conf))
            try:
                return Footer(int(reader.getNumberOfRows()))
            finally:
                reader.close()
        if self._format is not FileFormat.PARQUET:
            return Footer()
        reader = self._parquet.open(self._parquet_file.fromStatus(status, self._conf))
        try:
            spans = self._spans(reader.getFooter()) if self._with_spans else ()
            return Footer(int(reader.getRecordCount()), spans)
        finally:
            reader.close()

    def _spans(self, footer: Any) -> Spans:
        """Return the span of each source partition, where every row group holds rows of one partition alone.

        A source with one origin may have no column of it; the origin is then empty.
        """
        found: dict[tuple[str, int | str], tuple[int, int]] = {}
        for block in footer.getBlocks():
            bounds = {ORIGIN: ("", ""), **dict(_bounds(block))}
            if not {PARTITION, OFFSET} <= bounds.keys():
                return ()
            (origin, other_origin), (partition, other_partition) = bounds[ORIGIN], bounds[PARTITION]
            if (origin, partition) != (other_origin, other_partition):
                return ()
            first, last = bounds[OFFSET]
            before = found.get((origin, partition), (first, last))
            found[origin, partition] = min(before[0], first), max(before[1], last)
        return tuple(PositionSpan(*key, *span) for key, span in sorted(found.items(), key=lambda item: str(item[0])))


def _bounds(block: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the least and the greatest value of each column of positions that has them."""
    for column in block.getColumns():
        name, statistics = column.getPath().toDotString(), column.getStatistics()
        if name in (ORIGIN, PARTITION, OFFSET) and statistics is not None and statistics.hasNonNullValue():
            is_text = str(column.getPrimitiveType().getLogicalTypeAnnotation()) == "STRING"
            least, greatest = (
                _value(value, is_text=is_text) for value in (statistics.genericGetMin(), statistics.genericGetMax())
            )
            yield name, (int(least), int(greatest)) if name == OFFSET else (least, greatest)


def _value(value: Any, *, is_text: bool) -> int | str:
    """A number beyond 64 bits is a decimal, whose bytes are a signed integer, the first the highest; or it is a text."""
    if isinstance(value, int):
        return value
    return str(value.toStringUsingUTF8()) if is_text else int.from_bytes(value.getBytes(), "big", signed=True)
