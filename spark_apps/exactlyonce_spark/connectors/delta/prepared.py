"""A table with a log as a driver or a replay prepares it: columns as they are yielded, and a target over what has landed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce_spark.connectors.delta.target import TableTarget
from exactlyonce_spark.connectors.files.as_yielded import as_yielded
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, YieldedColumn
from exactlyonce_spark.manifest_landing import recover_manifests


@dataclass
class TableOfStream(ABC):
    """The table of one stream, which is looked at once the columns are known."""

    folder: OutputStore
    stream_id: str
    author: Author
    columns: dict[str, Type] = field(default_factory=dict, init=False)
    """Those that the query yields, once `fit` was called."""

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        self.columns, fitted = as_yielded(yielded)
        self.require_holdable()
        return fitted

    @abstractmethod
    def require_holdable(self) -> None:
        """Require that such a table can have these columns.

        Raises:
            ColumnsUnfit: naming the column and what to do.
        """

    @abstractmethod
    def opened(self) -> TableTarget:
        """Return the table, of which nothing was looked at yet."""


@dataclass(frozen=True)
class PreparedTable:
    """A `PreparedSink`: the table, for a driver."""

    table: TableOfStream
    ledger: Ledger
    permit: Permit

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        return self.table.fit(yielded, positions, deletes=deletes)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[TableTarget, NoTasks]:
        """Return the table, which has all that has landed."""
        target = self.table.opened()
        recover_manifests(self.ledger, self.permit, target)
        return target, NoTasks(self.permit.stream_id)

    def finishing(self) -> TableTarget:
        """Return the table, which may lack what has landed."""
        target = self.table.opened()
        target.writes = False
        return target
