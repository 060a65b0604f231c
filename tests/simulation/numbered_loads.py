"""Loads of replays under numbers, in both kinds of sinks: one whose labels are taken, and one whose producer has an id.

docs/adr/0058. A load under the label of a number that nobody has decided is aborted by whoever needs the number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.kafka.replay_transactions import state_by
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.load_labels import LoadLabels, names_replay, number_of_replay
from exactlyonce_spark.replay_load_target import NumberCommitted
from exactlyonce_spark.target import LoadState, PreparedLoad
from tests.simulation.two_phase_store import PREPARE_TRIES, LabelTaken, SinkSilent, StoreTarget, TwoPhaseStore


class IdTaken(Unreachable):
    """Another has taken the transactional id of the replays since."""


class NumberedTarget(StoreTarget):
    """A store whose labels tell of a number that is taken."""

    def take(self) -> None:
        """Begin to write; such a store keeps nobody else out."""

    def prepare_number(self, number: int, batch: BatchNumber, rows: Sequence[Hashable]) -> PreparedLoad | None:
        """Prepare rows under the label of a number."""
        if not rows:
            return None
        label = self._labels.label(Epoch(0), batch, f"{number}")
        for left in reversed(range(PREPARE_TRIES)):
            try:
                return PreparedLoad(label, str(self._store.prepare(label, rows)), len(rows))
            except SinkSilent:
                if not left:
                    raise
            except LabelTaken:
                self._make_free(label)
        raise SinkSilent(f"{label} is not prepared")

    def _make_free(self, label: str) -> None:
        found = self._store.find(label)
        if found is not None and found[1] is LoadState.COMMITTED:
            raise NumberCommitted(f"the store has committed {label}")
        if found is not None:
            self._store.abort(found[0])


@dataclass
class ReplaysId:
    """The transactional id of a stream's replays: who has it, and the marker of the latest transaction."""

    holder: object = None
    marker: Marker | None = None


class OneProducerTarget(StoreTarget):
    """A store where only who has prepared a load of a replay can commit it, as a producer its transaction in Kafka.

    A driver has no id of replays until it asks what became of a load.
    """

    def __init__(self, store: TwoPhaseStore, labels: LoadLabels, epoch: Epoch, replays: ReplaysId) -> None:
        super().__init__(store, labels, epoch)
        self._replays = replays
        self._marker: Marker | None = None
        self._own: set[str] = set()
        self._has_asked_to_commit = False
        self._said: dict[str, LoadState] = {}

    def take(self) -> None:
        """Take the id: what is open under it is aborted, and nobody else commits it."""
        self._marker = self._store._asked("take the id of the replays", lambda: self.taken_by(self))

    def prepare_number(self, number: int, batch: BatchNumber, rows: Sequence[Hashable]) -> PreparedLoad | None:
        """Prepare rows as the transaction of a number."""
        latest = None if self._marker is None else number_of_replay(self._marker.label)
        if latest is not None and latest >= number:
            raise NumberCommitted(f"the marker is of {latest}")
        if not rows:
            return None
        if self._marker is None:
            self._mark(Marker(self._labels.label(Epoch(0), batch, f"{number - 1}")))
        label = self._labels.label(Epoch(0), batch, f"{number}")
        prepared = self._store._asked(f"prepare {label}", lambda: self._prepare(label, tuple(rows)))
        self._own.add(label)
        return PreparedLoad(label, str(prepared), len(rows))

    def commit(self, committable: Committable) -> bool:
        """Commit what this process has prepared; of anything else, return what had become of it."""
        if not names_replay(committable.label):
            return super().commit(committable)
        if committable.label in self._own:
            self._own.remove(committable.label)
            self._has_asked_to_commit = True
            self._store._asked(f"commit {committable.label}", lambda: self._commit(committable))
            self._has_asked_to_commit = False
            self._marker = self._replays.marker
            return True
        return self.state_of(committable) is LoadState.COMMITTED

    def state_of(self, committable: Committable) -> LoadState:
        """Return what the marker says."""
        label = committable.label
        if not names_replay(label):
            return super().state_of(committable)
        if self._marker is not None and not self._has_asked_to_commit:
            self._mark(self._marker)
            return state_by(self._marker, label)
        if label not in self._said:
            found = self._store._asked("take the id of the replays", lambda: self.taken_by(object()))
            self._said[label] = state_by(found, label)
        return self._said[label]

    def taken_by(self, holder: object) -> Marker | None:
        """Give the id to somebody else."""
        self._abort_open()
        self._replays.holder = holder
        return self._replays.marker

    def _mark(self, marker: Marker) -> None:
        def mark() -> None:
            self._require_id()
            self._abort_open()
            self._replays.marker = marker

        self._store._asked("mark again", mark)
        self._marker = marker

    def _prepare(self, label: str, rows: tuple[Hashable, ...]) -> int:
        self._require_id()
        self._abort_open()
        return self._store._prepare(label, rows)

    def _commit(self, committable: Committable) -> None:
        self._require_id()
        number = int(committable.transaction_id)
        if not self._store._commit(number):
            raise IdTaken("the transaction was aborted")
        self._replays.marker = Marker(committable.label, BatchNumber(0))

    def _require_id(self) -> None:
        if self._replays.holder is not self:
            raise IdTaken("another has taken the id")

    def _abort_open(self) -> None:
        for label, number in self._store._prepared():
            if names_replay(label):
                self._store._abort(number)
