"""A table of Doris as a replay writes to it: each chunk is a load of its own, which the ledger decides. No pyspark here.

Rows of a replay come after those of later records, so what a table makes of equal keys must not depend on which row was loaded
last. docs/adr/0053.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exactlyonce.connectors.doris.spec import DorisSink, Write
from exactlyonce.connectors.doris.table import DorisTable
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.doris.fit import DorisFit, TableUnfit, fit_columns
from exactlyonce_spark.connectors.doris.loads import LabelCommitted, Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import NO_EPOCH, ReplayLabels
from exactlyonce_spark.replay_load_target import LoadsOfChunks, NumberCommitted
from exactlyonce_spark.target import OpenLoad, PreparedLoad

_IN_ANY_ORDER = ("", "NONE", "SUM", "MIN", "MAX", "BITMAP_UNION", "HLL_UNION", "QUANTILE_UNION")
"""Aggregations whose result is the same in whatever order rows are loaded; keys have none.

Source: fe-catalog, AggregateType.java. REPLACE and REPLACE_IF_NOT_NULL keep the row that was loaded last, and of GENERIC
(AGG_STATE) `_schema` does not tell the function.
"""


@dataclass(frozen=True)
class DorisReplayTarget(LoadsOfChunks):
    """A `ReplayTarget` that `DecidesLoads`. The login is in `loads` and is shown nowhere."""

    loads: DorisTarget

    def prepare_load(self, number: int, batch: BatchNumber, rows: Any) -> PreparedLoad | None:
        """Have Doris take the rows of a chunk."""
        try:
            return super().prepare_load(number, batch, rows)
        except LabelCommitted as problem:
            raise NumberCommitted(f"Doris has committed the load {problem.label}") from problem

    def abort_load(self, load: PreparedLoad) -> None:
        """Abort a load that nobody has decided; where Doris does not answer, it does so itself, an hour later."""
        with suppress(ExactlyOnceError):
            self.loads.abort(OpenLoad(load.label, load.transaction_id, NO_EPOCH))


@dataclass(frozen=True)
class PreparedDorisReplay:
    """A `PreparedReplay`: the table as Doris describes it, and whose labels the loads have."""

    sink: DorisSink
    loads: Loads
    table: DorisTable
    stream_id: str
    stream_token: str

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[DorisFit, ...]:
        """Return how each column is handed over, as the stream does it.

        Raises:
            TableUnfit: if the table keeps of a key what was loaded last, or the columns do not fit.
        """
        name = f"{self.sink.database}.{self.sink.table}"
        by_order = [
            f"{column.name} ({column.aggregation})"
            for column in self.table.columns
            if self.sink.write is Write.AGGREGATE and column.aggregation.upper() not in _IN_ANY_ORDER
        ]
        if by_order:
            raise TableUnfit(
                f"Nothing can be replayed into the table {name} of Doris: of each key it keeps what was loaded last in "
                f"{', '.join(by_order)}, and a replay loads older rows after newer ones."
            )
        return fit_columns(yielded, self.table, name, self.sink.write, self.sink.told_columns)

    def target(self, columns: Sequence[FittedColumn], token: str) -> DorisReplayTarget:
        """Return the target of the replay with this token; its chunks are stream loads, whatever the stream's batches are."""
        fitted = tuple(column for column in columns if isinstance(column, DorisFit))
        labels = ReplayLabels(self.stream_id, self.stream_token)
        return DorisReplayTarget(DorisTarget(self.loads, fitted, labels, NO_EPOCH))
