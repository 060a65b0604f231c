"""Read what Spark really executes: ranges, tasks, state, and what would break the promise.

The truth about a batch is the plan in memory, not `offsets/<batch>`: Spark runs the former even when another process has
overwritten the latter (measured with 4.2.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.connectors.ports import SourceReader
from exactlyonce_spark.observed import observed_letters
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.tables_read_again import PlanNode, Role, refused_table
from exactlyonce_spark.target import DeadLetter, TaskRange

_SCAN = "MicroBatchScanExec"
_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator"
_EXCHANGE = "org.apache.spark.sql.execution.exchange.Exchange"
_NONDETERMINISTIC = "org.apache.spark.sql.catalyst.expressions.Nondeterministic"
_SAME_AGAIN = (
    "SparkPartitionID",
)  # nondeterministic to Spark, and the same whenever a task is run again: formats._STAYS
_OBSERVES = "CollectMetricsExec"  # hands on its rows as they are, whatever it collects
_NOT_ONE_TO_ONE = ("CoalesceExec", "UnionExec", "CartesianProductExec")
_BROADCAST = "BroadcastExchangeExec"
_SUBQUERY = "SubqueryExec"  # its value is kept by the driver, as what is broadcast
_REUSED = ("ReusedExchangeExec", "ReusedSubqueryExec")  # leaves to Spark, which stand for what is elsewhere in the plan
_WRITTEN_OUT = ("LocalTableScanExec", "RangeExec", "OneRowRelationExec", "EmptyRelationExec")
_OF_THE_DRIVER = "org.apache.spark.rdd.ParallelCollectionRDD"
_TRANSFORM_WITH_STATE = "TransformWithState"  # how the names of several nodes begin
_PYTHON_STATE = "FlatMapGroupsInPandasWithStateExec"
_NUMBERED = re.compile(r"#\d+L?|\bplan_id=\d+")  # expressions and nodes have other numbers in each batch
_VALIDATION = "spark.sql.streaming.stateStore.formatValidation.enabled"


class PlanRefused(Refused):
    """The query cannot be landed exactly once, whatever the sink does."""


class PlanReader:
    """Reads the executed plan of each batch of one query; a plan of the same shape as the one before is inspected once.

    Spark plans each batch by itself, and may join in another way once it knows how large a table is: a table that was
    broadcast at first may be shuffled later.
    """

    def __init__(self, session: SparkSession, query: Any, reader: SourceReader) -> None:
        self._session = session
        self._query = query
        self._reader = reader
        self._class = session._jvm.java.lang.Class  # type: ignore[union-attr] # a classic session has a JVM
        self._inspected: tuple[str, tuple[bool, bool]] | None = None

    def read(self) -> ExecutedPlan:
        """Return the plan of the batch that runs now.

        Raises:
            PlanRefused: if its rows may differ when a task is run again.
        """
        plan = self._execution().executedPlan()
        scan = self._scan(plan)
        if scan is None:
            return self._without_records(plan)
        stateful, chain = self._shape_of(plan)
        told = self._reader.task_ranges(_items(scan.inputPartitions()))
        of_tasks = None if told is None else tuple(told)
        tasks = None if of_tasks is None else tuple(part for parts in of_tasks for part in parts)
        starts = self._reader.codec.parse_entry(scan.start().json())
        ends = self._reader.codec.parse_entry(scan.end().json())
        ranges = _ranges(starts, ends, () if tasks is None and self._reader.names_before_reading else tasks)
        return ExecutedPlan(ranges, _one_each(of_tasks) if chain else None, stateful)

    def records_read(self) -> int | None:
        """Return how many records the scan of the batch has read so far."""
        scan = self._scan(self._execution().executedPlan())
        return 0 if scan is None else int(scan.metrics().apply("numOutputRows").value())

    def malformed(self) -> Sequence[DeadLetter]:
        """Return the malformed records that the run of the batch has read.

        Raises:
            LettersIncomplete: if not all of what the scan has read was observed.
        """
        plan = self._execution().executedPlan()
        scan = self._scan(plan)
        return () if scan is None else observed_letters(self._session, plan, self.records_read())

    def _execution(self) -> Any:
        return self._query._jsq.streamingQuery().lastExecution()

    def _without_records(self, plan: Any) -> ExecutedPlan:
        """Spark plans a batch without a scan when a query with state is run once more for rows whose time has come.

        Such a batch stands where its predecessor ended. Nothing of it is kept for later plans, which have more to look at.
        """
        query = self._query._jsq.streamingQuery()
        starts = self._positions(query.getStartOffsetsOfLatestBatch())
        ends = self._positions(query.availableOffsets())
        if starts != ends:
            raise PlanRefused(
                "The query reads no record of its source, as if its condition were never true; correct the transform."
            )
        stateful, _ = self._inspect_shape(plan)
        return ExecutedPlan(Ranges.empty_at(ends), None, stateful)

    def _positions(self, progress: Any) -> Positions:
        """The positions of a query's one source, as Spark holds them in memory."""
        return self._reader.codec.parse_entry(progress.valuesIterator().next().json())

    def _scan(self, plan: Any) -> Any | None:
        scans = [leaf for leaf in _items(plan.collectLeaves()) if _name(leaf) == _SCAN]
        if len(scans) > 1:
            raise PlanRefused(
                f"The query scans its source {len(scans)} times; a transform may use the view `source` once, or every record "
                "would be read twice."
            )
        return scans[0] if scans else None

    def _shape_of(self, plan: Any) -> tuple[bool, bool]:
        drawn = _NUMBERED.sub("", plan.treeString())
        if self._inspected is None or self._inspected[0] != drawn:
            self._inspected = (drawn, self._inspect_shape(plan))
        return self._inspected[1]

    def _inspect_shape(self, plan: Any) -> tuple[bool, bool]:
        """Return whether the query keeps state, and whether it is one chain of operators without an exchange."""
        stateful_class, exchange_class = self._class.forName(_STATEFUL), self._class.forName(_EXCHANGE)
        stateful, chain = False, True
        for node in _nodes(plan):
            _require_state_that_lasts(node)
            stateful = stateful or stateful_class.isInstance(node)
            is_exchange = exchange_class.isInstance(node)
            if is_exchange:
                _require_deterministic(node, self._class.forName(_NONDETERMINISTIC))
            chain = chain and not is_exchange and node.children().size() <= 1 and _name(node) not in _NOT_ONE_TO_ONE
        if (refused := refused_table(_shape(plan, stateful_class))) is not None:
            raise PlanRefused(refused)
        return stateful, chain


def _shape(plan: Any, stateful: Any) -> PlanNode:
    """Return a plan as the rules of tables see it; subqueries are below the node that uses their value."""
    below = [*_items(plan.children()), *_items(plan.subqueries())]
    if _name(plan) in _REUSED:
        below.append(plan.child())
    return PlanNode(
        _role(plan, stateful), str(plan.nodeName()).strip(), tuple(_shape(node, stateful) for node in below)
    )


def _role(node: Any, stateful: Any) -> Role:
    name = _name(node)
    if name == _SCAN:
        return Role.SOURCE
    if name in (_BROADCAST, _SUBQUERY):
        return Role.BROADCAST
    if name == "ShuffleExchangeExec":
        return Role.SHUFFLE
    if stateful.isInstance(node):
        return Role.STATE
    reads = node.children().isEmpty() and name not in (*_REUSED, *_WRITTEN_OUT)
    if reads and name == "RDDScanExec" and _is_of_the_driver(node.rdd()):
        return Role.OTHER
    return Role.TABLE if reads else Role.OTHER


def _is_of_the_driver(rdd: Any) -> bool:
    """Whether rows come from a list that the transform has given Spark, as `createDataFrame` does."""
    parents = [dependency.rdd() for dependency in _items(rdd.dependencies())]
    return all(_is_of_the_driver(parent) for parent in parents) if parents else _class(rdd) == _OF_THE_DRIVER


def _require_state_that_lasts(node: Any) -> None:
    """Source: docs/stateful-queries.md, measured with Spark 4.2.0."""
    name = _name(node)
    if name.startswith(_TRANSFORM_WITH_STATE):
        raise PlanRefused(
            "The transform uses transformWithState, which names files of its state by absolute path, so that no other "
            "checkpoint can continue with it; use applyInPandasWithState, an aggregation or a deduplication."
        )
    validates = node.conf().stateStoreFormatValidationEnabled() if name == _PYTHON_STATE else False
    if validates and node.timeoutConf().toString() != "NoTimeout":
        raise PlanRefused(
            "The transform uses applyInPandasWithState with a timeout, which Spark takes for a damaged row of state where it "
            f'checks the format of rows: set {_VALIDATION}: "false" in spec.sparkConf, or use GroupStateTimeout.NoTimeout.'
        )


def _require_deterministic(exchange: Any, by_itself: Any) -> None:
    """A shuffle whose input differs when a task is run again loses and doubles rows (SPARK-23207)."""
    for node in _nodes(exchange):
        if _name(node) == _OBSERVES:
            continue
        for expression in _items(node.expressions()):
            if any(_name(cause) not in _SAME_AGAIN for cause in _nondeterministic(expression, by_itself)):
                raise PlanRefused(
                    f"The transform feeds {expression.toString()} into a shuffle, which gives other rows when a task is run "
                    "again; compute it from the record, or after the shuffle."
                )


def _nondeterministic(expression: Any, by_itself: Any) -> Iterator[Any]:
    """Yield what makes an expression nondeterministic: the parts that are so by themselves, not by what is in them."""
    if expression.deterministic():
        return
    below = [cause for child in _items(expression.children()) for cause in _nondeterministic(child, by_itself)]
    yield from below
    if not below or by_itself.isInstance(expression):
        yield expression


def _one_each(of_tasks: tuple[tuple[TaskRange, ...], ...] | None) -> tuple[TaskRange, ...] | None:
    """Return the range of each task; None where a task has not exactly one, or another task reads of the same partition."""
    if of_tasks is None or any(len(parts) != 1 for parts in of_tasks):
        return None
    tasks = tuple(part for (part,) in of_tasks)
    return tasks if len({part.partition for part in tasks}) == len(tasks) else None


def _ranges(starts: Positions, ends: Positions, tasks: tuple[TaskRange, ...] | None) -> Ranges:
    """A partition that appears in this batch has no start but the one its first task reads from.

    Raises:
        PlanRefused: if one appears and nothing tells what the tasks read.
    """
    if tasks is None:
        if appeared := [str(key) for key in ends if key not in starts]:
            raise PlanRefused(
                f"{', '.join(appeared)} appeared while the query ran, and this source does not say where their first batch "
                "begins; the author of its connector has to implement SourceReader.task_ranges."
            )
        tasks = ()
    first: dict[Partition, int] = {}
    for part in tasks:
        known = first.get(part.partition)
        first[part.partition] = part.offsets.from_offset if known is None else min(known, part.offsets.from_offset)
    return Ranges(
        {key: OffsetRange(starts[key] if key in starts else first.get(key, end), end) for key, end in ends.items()}
    )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _leaf(plan: Any) -> Any:
    """The first leaf below a node."""
    return plan.collectLeaves().apply(0)


def _items(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _class(node: Any) -> str:
    return str(node.getClass().getName())
