"""A world in which labels of loads name neither epoch nor run of a task: `labelFormat: Compatible` of `sink.doris`.

Target, loads and labels are the product's own; the store of the model answers in place of Doris' client. Two runs of one task,
and drivers of two epochs, share a label, and each aborts what the other has under it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from exactlyonce.connectors.doris.answers import (
    JobStatus,
    LabelUsed,
    LoadAnswer,
    Settled,
    SettledAnswer,
    Taken,
)
from exactlyonce.ledger.known_loads import Span
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark.connectors.doris.client import (
    DorisClient,
    DorisRefused,
    DorisUnreachable,
    LoadUnanswered,
    Operation,
)
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.target import LoadState, PreparedLoad
from tests.simulation.causes import SUCCESSOR
from tests.simulation.resource import STREAM_ID
from tests.simulation.scheduler import Process
from tests.simulation.two_phase_store import LabelTaken, SinkSilent, TwoPhaseStore
from tests.simulation.two_phase_world import LABELS_EXPIRE, LOADS_ABORTED, SINK_SILENT, TwoPhaseWorld

_ABORTED_BY_A_LOST_TASK = "lose task"
"""A run of a task that Spark gave up, and that runs on, aborts what the run in its place has prepared and reported."""

LOCATION = "s3a://checkpoints/shop/orders"
TRIES = 3

_JOBS = {LoadState.PREPARED: JobStatus.PRECOMMITTED, LoadState.COMMITTED: JobStatus.FINISHED}
_BEFORE = {
    None: Settled.NOT_FOUND,
    LoadState.PREPARED: Settled.DONE_NOW,
    LoadState.COMMITTED: Settled.COMMITTED_BEFORE,
    LoadState.ABORTED: Settled.ABORTED_BEFORE,
}


@dataclass(frozen=True)
class StoreClient:
    """Answers as the client of Doris does, from the store: by ids, and with what it says of a label that is in use."""

    world: SharedLabelsWorld
    database: str = "shop"
    table: str = "orders"
    frontends: tuple[str, ...] = ("doris:8030",)

    @property
    def store(self) -> TwoPhaseStore:
        """The store."""
        return self.world.loads

    def load(self, label: str, columns: Sequence[str], body: Any) -> LoadAnswer:
        """Take rows under a label."""
        rows = tuple(body())
        try:
            return self.store._asked(f"prepare {label}", partial(self._load, label, rows))
        except SinkSilent as problem:
            raise LoadUnanswered(str(problem)) from None

    def settle(self, operation: Operation, number: int) -> SettledAnswer:
        """Commit or abort a load by its id, and say what it was before."""
        try:
            return self.store._asked(f"{operation.value} load {number}", partial(self._settle, operation, number))
        except SinkSilent as problem:
            raise DorisUnreachable(str(problem)) from None

    def _load(self, label: str, rows: tuple[Hashable, ...]) -> LoadAnswer:
        try:
            return Taken(self.store._prepare(label, rows), len(rows), 0, 0)
        except LabelTaken:
            number = self.store.labels[label]
            return LabelUsed(_JOBS[self.store.loads[number].state], number)

    def _settle(self, operation: Operation, number: int) -> SettledAnswer:
        load = self.store.loads.get(number)
        before = _BEFORE[None if load is None else load.state]
        if operation is Operation.COMMIT:
            self.store._commit(number)
        else:
            self.world.aborted_under_a_label(number)
            self.store._abort(number)
        return before


class SharedLabelTarget(DorisTarget):
    """The product's target; rows are what the model has, and no Arrow batches."""

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Have the store take rows."""
        return self.load(batch, part, (), lambda: cast("Iterable[bytes]", rows), len(rows)) if rows else None


class SharedLabelsWorld(TwoPhaseWorld):
    """The ledger is a database's; what is under a label may be of anybody's run."""

    errors: Mapping[type[BaseException], frozenset[str]] = {
        **TwoPhaseWorld.errors,
        DorisUnreachable: frozenset({SINK_SILENT, LOADS_ABORTED, LABELS_EXPIRE}),
        DorisRefused: frozenset({SUCCESSOR}),
        NotCommitted: TwoPhaseWorld.errors[NotCommitted] | {_ABORTED_BY_A_LOST_TASK},
    }
    written_again_after = TwoPhaseWorld.written_again_after | {_ABORTED_BY_A_LOST_TASK}

    def target(self, epoch: int) -> Any:
        """Return the sink as a driver of this epoch writes to it."""
        loads = Loads(cast("DorisClient", StoreClient(self)), TRIES, lambda seconds: None)
        return SharedLabelTarget(loads, (), LoadLabels(STREAM_ID, "token"), Epoch(epoch), LOCATION)

    def tasks_of(self, driver: Process, ranges: Ranges) -> list[tuple[Partition, OffsetRange]]:
        """The index of a task names nothing stable: another driver's tasks read the same ranges in another order."""
        pieces = super().tasks_of(driver, ranges)
        return pieces[::-1] if int(driver.name.split()[1].split(".")[0]) % 2 else pieces

    def aborted_under_a_label(self, number: int) -> None:
        """Note that a run aborts what another one has prepared, and a decision may name: its rows are then made again."""
        decided, load = self.decided(), self.loads.loads.get(number)
        named = {one.transaction_id for one in decided.committables} if decided is not None else set()
        if load is not None and load.state is LoadState.PREPARED and str(number) in named:
            self.journal.strike(LOADS_ABORTED)
