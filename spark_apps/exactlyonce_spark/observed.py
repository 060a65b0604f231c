"""Malformed records as a run of the query has observed them (`formats.observed`): rows and letters come from one read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.formats import OBSERVED, OBSERVED_LETTERS, OBSERVED_RECORDS
from exactlyonce_spark.target import DeadLetter

_NODE = "CollectMetricsExec"


class LettersIncomplete(ExactlyOnceError):
    """Spark has lost some of what tasks observed, so which records are malformed is not known; the batch is run again."""


def observed_letters(session: SparkSession, plan: Any, records_read: int | None) -> Sequence[DeadLetter]:
    """Return the dead letters of a plan that has run.

    A task that ran twice has observed its records twice; each is returned once.

    Raises:
        LettersIncomplete: if it has observed fewer records than it has read.
    """
    found = next((node for node in _nodes(plan) if _name(node) == _NODE and node.name() == OBSERVED), None)
    if found is None:
        return ()
    row = found.collectedMetrics()
    observed = int(row.getAs(OBSERVED_RECORDS))
    if records_read is not None and observed < records_read:
        raise LettersIncomplete(
            f"Spark has observed {observed} of the {records_read} records that it has read; the batch is run again."
        )
    letters = row.getAs(OBSERVED_LETTERS)
    if letters.isEmpty():
        return ()
    jvm = session._jvm
    assert jvm is not None, "a classic session has a JVM"
    type_ = row.schema().apply(OBSERVED_LETTERS).dataType().elementType()
    rows = session._jsparkSession.createDataFrame(jvm.scala.jdk.javaapi.CollectionConverters.asJava(letters), type_)
    once = {(it.partition, it.offset): it for it in letters_of(DataFrame(rows, session))}
    return tuple(once[key] for key in sorted(once))


def letters_of(malformed: DataFrame) -> Sequence[DeadLetter]:
    """Return the dead letters of what `formats.malformed_records` makes."""
    return [
        DeadLetter(
            Partition(row._origin, row._partition),
            int(row._position),
            row._timestamp,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row._why,
            row._place,
        )
        for row in malformed.collect()
    ]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())
