"""A table of Doris as a sink of two phases (docs/adr/0036). No pyspark here: rows are Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from exactlyonce.connectors.doris.answers import LabelState, NotSettled, Settled
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.doris.client import DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.rows import json_lines
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad, TwoPhaseTarget


@dataclass(frozen=True)
class DorisTarget(TwoPhaseTarget):
    """The table as a driver of an epoch, or one of its tasks, writes to it."""

    loads: Loads
    columns: tuple[DorisFit, ...]
    labels: LoadLabels
    epoch: Epoch

    def prepare(self, batch: BatchNumber, part: str, rows: Any) -> PreparedLoad | None:
        """Have Doris take the rows of Arrow batches. They are kept until it has, since a lost answer sends them again."""
        pieces = list(rows)
        count = sum(piece.num_rows for piece in pieces)
        if not count:
            return None
        names = [column.name for column in self.columns]
        documents = frozenset(column.name for column in self.columns if column.is_document)
        label = self.labels.label(self.epoch, batch, part)
        return self.loads.prepare(label, names, lambda: json_lines(_rows_of(pieces), names, documents), count)

    def commit(self, committable: Committable) -> bool:
        """Commit a load by the id of its transaction."""
        answer = self.loads.client.settle(Operation.COMMIT, int(committable.transaction_id))
        match answer:
            case Settled.DONE_NOW | Settled.COMMITTED_BEFORE:
                return True
            case Settled.ABORTED_BEFORE | Settled.NOT_FOUND:
                return False
            case Settled.ONLY_BEGAN:
                raise DorisUnreachable(
                    f"Doris says that {committable} only began, though it was prepared; it is asked again."
                )
            case NotSettled(message):
                raise DorisUnreachable(f"Doris does not commit {committable}: {message}.")
            case _:
                assert_never(answer)

    def state_of(self, committable: Committable) -> LoadState:
        """Return what Doris says of a load: by its id alone, because a label names its latest transaction only.

        HTTP has no question about an id. So it is committed, which is what is to be done with it: whoever asks has decided it.
        Only of one that Doris does not know by its id is the label asked, and it can say no more than that it does not either.
        """
        answer = self.loads.client.settle(Operation.COMMIT, int(committable.transaction_id))
        match answer:
            case Settled.DONE_NOW | Settled.COMMITTED_BEFORE:
                return LoadState.COMMITTED
            case Settled.ABORTED_BEFORE:
                return LoadState.ABORTED
            case Settled.NOT_FOUND:
                return LoadState.UNKNOWN
            case Settled.ONLY_BEGAN:
                return LoadState.PREPARED
            case NotSettled(message):
                raise DorisUnreachable(f"Doris does not tell what became of {committable}: {message}.")
            case _:
                assert_never(answer)

    def label_state(self, label: str) -> LabelState:
        """Return the state of a label, for a person or a metric: it decides nothing."""
        return self.loads.client.state_of(label)

    def open_loads(self) -> Iterable[OpenLoad]:
        """Return none: HTTP lists no transactions. What nobody decided is aborted by Doris, after an hour by default."""
        return ()

    def abort(self, load: OpenLoad) -> None:
        """Abort a load that is prepared."""
        self.loads.abort(int(load.transaction_id))


def _rows_of(pieces: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Yield the values of each row in the order of the columns, whatever Spark calls them on their way."""
    for piece in pieces:
        yield from zip(*(column.to_pylist() for column in piece.columns), strict=True)
