"""The store of loads where only who has prepared a load of a replay can commit it, as a producer its transaction in Kafka."""

from __future__ import annotations

from typing import Any

from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState, PreparedLoad
from tests.simulation.two_phase_store import StoreTarget, TwoPhaseStore

_OF_A_REPLAY = ":replay:"


class OneProducerTarget(StoreTarget):
    """Ends what another has prepared, unless that is committed; so does who has asked for a commit and got no answer."""

    def __init__(self, store: TwoPhaseStore, labels: LoadLabels, epoch: Epoch) -> None:
        super().__init__(store, labels, epoch)
        self._own: set[str] = set()

    def prepare(self, batch: BatchNumber, part: str, rows: Any) -> PreparedLoad | None:
        """Prepare rows."""
        prepared = super().prepare(batch, part, rows)
        self._own |= set() if prepared is None else {prepared.label}
        return prepared

    def commit(self, committable: Committable) -> bool:
        """Commit what this process has prepared; of anything else, end it and return what had become of it."""
        if _OF_A_REPLAY not in committable.label:
            return super().commit(committable)
        if committable.label in self._own:
            self._own.remove(committable.label)
            return super().commit(committable)
        self.end(committable)
        return self.state_of(committable) is LoadState.COMMITTED

    def end(self, committable: Committable) -> None:
        """Let nobody commit a load any more."""
        self._store.abort(int(committable.transaction_id))
