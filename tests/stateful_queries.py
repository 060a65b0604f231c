"""Queries that keep state, one for each operator that a stream may use, with what a test expects of them.

Ten ids share a minute of event time, and a minute's row is emitted when it is over: the oracle counts and sums the ids that the
test has produced by itself. Each query has to know its state across batches, or a count is short or an id counts twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.rig import Rig

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
A_MINUTE, BATCH = 10, 100
"""Records of one minute, and of one batch."""

LATE_MINUTES = 10
_AGAIN_AFTER = 6 * A_MINUTE  # with each record twice, more than a batch later, and earlier than a deduplication forgets

_WINDOWS = """
from pyspark.sql import functions

def totals(rows):
    minutes = rows.withWatermark("ts", "0 seconds").groupBy(functions.window("ts", "1 minute"))
    totals = minutes.agg(functions.count("*").alias("orders"), functions.sum("id").alias("total"))
    return totals.selectExpr("window.start as minute", "orders", "total")
"""

_SQL_WINDOWS = """
SELECT window.start AS minute, count(*) AS orders, sum(id) AS total
FROM source WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '1 minute')
"""

_SQL_SESSIONS = """
SELECT session_window.start AS minute, count(*) AS orders, sum(id) AS total
FROM source WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY session_window(ts, '30 seconds'), id % 1
"""

_CHAIN = f"""
from pyspark.sql import functions

def totals(rows):
    rows = rows.withWatermark("ts", "{LATE_MINUTES} minutes").dropDuplicatesWithinWatermark(["id"])
    halves = rows.groupBy(functions.window("ts", "1 minute"), (functions.col("id") % 2).alias("half"))
    halves = halves.agg(functions.count("*").alias("orders"), functions.sum("id").alias("total"))
    minutes = halves.groupBy(functions.window("window", "1 minute"))
    totals = minutes.agg(functions.sum("orders").alias("orders"), functions.sum("total").alias("total"))
    return totals.selectExpr("window.start as minute", "orders", "total")
"""

_PYTHON_STATE = """
import pandas
from pyspark.sql import functions

def of_a_minute(key, frames, state):
    if state.hasTimedOut:
        orders, total = state.get
        state.remove()
        yield pandas.DataFrame({"minute": [key[0]], "orders": [orders], "total": [total]})
        return
    orders, total = state.get if state.exists else (0, 0)
    for frame in frames:
        orders, total = orders + len(frame), total + int(frame["id"].sum())
    state.update((orders, total))
    state.setTimeoutTimestamp((int(key[1]) + 60) * 1000)

def totals(rows):
    rows = rows.withWatermark("ts", "0 seconds")
    rows = rows.withColumn("minute", functions.date_trunc("minute", "ts"))
    rows = rows.withColumn("seconds", functions.unix_timestamp("minute"))
    return rows.groupBy("minute", "seconds").applyInPandasWithState(
        of_a_minute, "minute timestamp, orders bigint, total bigint", "orders bigint, total bigint",
        "append", "EventTimeTimeout")
"""


@dataclass(frozen=True)
class StatefulQuery:
    """A transform that counts and sums the ids of each minute: a Python module, or SQL."""

    name: str
    module: str | None = None
    sql: str | None = None
    held_back_minutes: int = 0
    """How many minutes more than the last one are not over when all is read."""
    drops_duplicates: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def set_up(self, rig: Rig) -> dict[str, str]:
        """Let the stream run it into a table of totals; returns the environment in which it finds the transform."""
        rig.sql("create table totals (minute timestamptz, orders bigint, total bigint)")
        rig.overrides["spec.sink.postgres.table"] = "totals"
        rig.overrides["spec.sparkConf"] = {**rig.document()["spec"]["sparkConf"], **self.settings}
        if self.module is None:
            rig.overrides["spec.transform"] = {"sql": self.sql}
            return {}
        (rig.folder / "totals_of_a_test.py").write_text(self.module)
        rig.overrides["spec.transform"] = {"python": {"module": "totals_of_a_test", "function": "totals"}}
        return {"PYTHONPATH": os.pathsep.join([str(rig.folder), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def produce(self, rig: Rig, count: int) -> None:
        """Produce records whose moments continue where the last ones ended, four at a moment.

        A query that drops duplicates gets each record twice, the second one later, in another batch.
        """
        first = len(rig.produced)
        for number in range(first, first + count, 4):
            ids = rig.produce(min(4, first + count - number), ts=moment_of(number))
            if self.drops_duplicates and number >= _AGAIN_AFTER:
                earlier = [it - _AGAIN_AFTER for it in ids]
                again = [json.dumps({"id": it, "ts": moment_of(it // 4 * 4)}).encode() for it in earlier]
                rig.send([(it % rig.partitions, value) for it, value in zip(earlier, again, strict=True)])

    def assert_minutes_once(self, rig: Rig) -> None:
        """Every minute that is over is there once, with each of its ids counted once."""
        expected = minutes_of(len(rig.produced))
        expected = expected[: len(expected) - self.held_back_minutes]
        assert rig.sql("select minute, orders, total from totals order by minute") == expected, rig.story()


WINDOWS = StatefulQuery("a window", _WINDOWS)
SQL_WINDOWS = StatefulQuery("a window in SQL", sql=_SQL_WINDOWS)
SQL_SESSIONS = StatefulQuery("sessions in SQL, of the records of a minute", sql=_SQL_SESSIONS)
CHAIN = StatefulQuery(
    "a deduplication before an aggregation of an aggregation",
    _CHAIN,
    held_back_minutes=LATE_MINUTES,
    drops_duplicates=True,
)
PYTHON_STATE = StatefulQuery(
    "applyInPandasWithState",
    _PYTHON_STATE,
    held_back_minutes=1,  # a time that is reached is not over to Spark, other than the end of a window
    settings={"spark.sql.streaming.stateStore.formatValidation.enabled": "false"},
)


def moment_of(number: int) -> str:
    """Records of ten ids share a minute."""
    return (NOON + timedelta(minutes=number // A_MINUTE)).isoformat()


def minutes_of(count: int) -> list[tuple[datetime, int, int]]:
    """Every minute but the last one, which is not over yet, with the count and the sum of its ids."""
    ids: dict[datetime, list[int]] = {}
    for number in range(count):
        ids.setdefault(datetime.fromisoformat(moment_of(number // 4 * 4)), []).append(number)
    return [(minute, len(found), sum(found)) for minute, found in sorted(ids.items())][:-1]
