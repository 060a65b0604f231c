"""The streaming query of a stream: Kafka, format, transform; the sink takes its batches."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from exactlyonce.api.format import Format
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.transform import Transform
from exactlyonce.connectors.kafka.properties import java_properties
from exactlyonce.connectors.kafka.spec import DEFAULT_BATCH_OFFSETS, KafkaSource
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import Ranges
from exactlyonce.schema.name_pattern import for_java
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.chosen import kafka_of

VIEW = "source"


class TransformInvalid(Refused):
    """The transform does not parse, does not resolve, or is no function from DataFrame to DataFrame."""


def streaming_rows(
    session: SparkSession, spec: StreamSpec, secret: Mapping[str, str], partitions: int, most: int | None = None
) -> DataFrame:
    """Return the streaming DataFrame whose rows land; `partitions` is how many the topics have now.

    `most` is how many offsets a batch may span while that is less than the resource's own limit.

    Raises:
        Refused: if schema or transform cannot be used.
    """
    kafka = kafka_of(spec)
    options = _kafka_options(kafka, secret, with_headers=_may_read_headers(spec.transform))
    options |= _selection(kafka) | _limit(spec, partitions, most)
    # The start is never asked for: every checkpoint is seeded. A partition that appears later is read from its start.
    options["startingOffsets"] = "earliest"
    records = session.readStream.format("kafka").options(**options).load()
    schema = formats.parse_schema(spec.source.format)
    return transformed(session, formats.parsed(records, spec.source.format, schema), spec.transform)


_EMITS = {
    OutputMode.APPEND: (
        "appends rows",
        "An aggregation needs a watermark and a window of time, in transform.python; or outputMode: Update, with "
        "write: Upsert.",
    ),
    OutputMode.UPDATE: (
        "updates rows",
        "Update is for aggregations; a join or a deduplication emits rows that never change: set outputMode: Append.",
    ),
    OutputMode.COMPLETE: (
        "replaces its whole result",
        "Complete needs an aggregation, whose result is all that it replaces; set outputMode: Append or Update.",
    ),
}


def started(writer: DataStreamWriter, output_mode: OutputMode = OutputMode.APPEND) -> StreamingQuery:
    """Start the query.

    Raises:
        TransformInvalid: if Spark cannot run it as a stream of this mode, such as an aggregation without a watermark.
    """
    try:
        return writer.outputMode(output_mode.value.lower()).start()
    except AnalysisException as problem:
        emits, advice = _EMITS[output_mode]
        raise TransformInvalid(
            f"The transform cannot run as a stream that {emits}: {_first_line(problem)} {advice}"
        ) from problem


def malformed_records(
    session: SparkSession, kafka: KafkaSource, given: Format, secret: Mapping[str, str], ranges: Ranges
) -> DataFrame:
    """Return the malformed records of exactly these ranges, read again as a batch."""
    options = _kafka_options(kafka, secret, with_headers=False)
    positions = ranges.non_empty()
    options["assign"] = _assignment(positions)
    options["startingOffsets"] = positions.starts.to_json()
    options["endingOffsets"] = positions.ends.to_json()
    records = session.read.format("kafka").options(**options).load()
    return formats.malformed_records(records, given, formats.parse_schema(given))


def transformed(session: SparkSession, rows: DataFrame, transform: Transform | None) -> DataFrame:
    """Apply the stream's transform, if it has one.

    Raises:
        TransformInvalid: naming what does not parse or resolve.
    """
    if transform is None:
        return rows.drop(*formats.META_COLUMNS)
    if transform.sql is not None:
        rows.createOrReplaceTempView(VIEW)
        try:
            return session.sql(transform.sql)
        except ParseException as problem:
            raise TransformInvalid(
                f"transform.sql does not parse: {_first_line(problem)} Correct the statement."
            ) from problem
        except AnalysisException as problem:
            known = ", ".join(rows.columns)
            raise TransformInvalid(
                f"transform.sql does not resolve: {_first_line(problem)} The view {VIEW} has the columns {known}."
            ) from problem
    assert transform.python is not None, "a transform is one of the two"
    return _by_python(rows, transform.python.module, transform.python.function)


def _by_python(rows: DataFrame, module: str, name: str) -> DataFrame:
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise TransformInvalid(
            f"transform.python names {module}.{name}, which cannot be imported ({problem}); put the module on the driver's "
            "Python path."
        ) from problem
    try:
        result = function(rows)
    except Exception as problem:
        said = _first_line(problem) if isinstance(problem, PySparkException) else repr(problem)
        raise TransformInvalid(f"transform.python {module}.{name} failed: {said}") from problem
    if not isinstance(result, DataFrame):
        raise TransformInvalid(
            f"transform.python {module}.{name} returned {type(result).__name__}; return a DataFrame."
        )
    return result


def _kafka_options(kafka: KafkaSource, secret: Mapping[str, str], *, with_headers: bool) -> dict[str, str]:
    options = {f"kafka.{key}": value for key, value in java_properties(kafka, secret).items()}
    # Without it a batch that reaches the end of the log waits half a second for records that are not there.
    options.setdefault("kafka.fetch.max.wait.ms", "10")
    options["failOnDataLoss"] = "true"
    options["includeHeaders"] = str(with_headers).lower()
    return options


def _selection(kafka: KafkaSource) -> dict[str, str]:
    if kafka.topics is not None:
        return {"subscribe": ",".join(kafka.topics)}
    if kafka.topic_pattern is not None:
        return {"subscribePattern": for_java(kafka.topic_pattern)}
    assert kafka.assign is not None, "a source is one of the three"
    chosen = {assignment.topic: list(assignment.partitions) for assignment in kafka.assign}
    return {"assign": json.dumps(chosen)}


def _limit(spec: StreamSpec, partitions: int, most: int | None) -> dict[str, str]:
    asked = _asked_limit(spec, partitions)
    return {"maxOffsetsPerTrigger": str(asked if most is None else min(asked, most))}


def _asked_limit(spec: StreamSpec, partitions: int) -> int:
    kafka = kafka_of(spec)
    if kafka.max_rate_per_partition is not None:
        assert spec.trigger.interval is not None, "the resource's rules ask for an interval"
        seconds = spec.trigger.interval.total_seconds()
        return max(1, math.floor(kafka.max_rate_per_partition * seconds * partitions))
    return kafka.max_offsets_per_trigger or DEFAULT_BATCH_OFFSETS


def _may_read_headers(transform: Transform | None) -> bool:
    """Headers cost time for every record; they are read where the transform may use them."""
    return transform is not None and (transform.sql is None or "_headers" in transform.sql.lower())


def _assignment(ranges: Ranges) -> str:
    chosen: dict[str, list[int]] = {}
    for partition in ranges:
        chosen.setdefault(partition.origin, []).append(int(partition.key))
    return json.dumps(chosen)


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().splitlines()
    return text[0] if text else type(problem).__name__
