"""What became of transactions of replays, which have one transactional id for a stream. No pyspark here. docs/adr/0055.

Only the producer of a transaction commits it. So whoever finishes what a replay has decided takes the id: from then on the
replay commits nothing, and the latest transaction that was committed is known for good by the marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from exactlyonce.ledger.decided import Committable
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.load_labels import number_of_replay
from exactlyonce_spark.replay_load_target import NotYet
from exactlyonce_spark.target import LoadState

PATIENCE_SECONDS = 60.0
"""How long a driver leaves a decision to its replay: taking the id would end a replay that is about to commit."""


def state_by(marker: Marker | None, label: str) -> LoadState:
    """Return what a marker says of a transaction whose producer cannot commit it any more.

    Transactions of replays follow each other by their numbers. One behind the marker was aborted, for good; what became of one
    before it, or of one whose marker brokers have forgotten, the marker does not tell.
    """
    if marker is None:
        return LoadState.UNKNOWN
    if marker.label == label and marker.batch is not None:
        return LoadState.COMMITTED
    number, latest = number_of_replay(label), number_of_replay(marker.label)
    is_behind = number is None or latest is None or latest < number
    return LoadState.ABORTED if is_behind else LoadState.UNKNOWN


@dataclass
class ReplayTransactions:
    """Asks what became of a transaction by taking its id with `take`, which returns the marker."""

    take: Callable[[str], Marker | None]
    patience_seconds: float = PATIENCE_SECONDS
    now: Callable[[], float] = time.monotonic
    _first_asked: dict[str, float] = field(default_factory=dict, init=False)
    _said: dict[str, LoadState] = field(default_factory=dict, init=False)

    def state_of(self, committable: Committable) -> LoadState:
        """Return COMMITTED or ABORTED, for good; UNKNOWN where the marker does not tell, and never will.

        The id is taken once for each transaction, as that ends whatever replay has it.

        Raises:
            NotYet: if the replay may still be about to commit it.
            KafkaRefuses, KafkaAway: as `take`.
        """
        label = committable.label
        if label not in self._said:
            now = self.now()
            if now - self._first_asked.setdefault(label, now) < self.patience_seconds:
                raise NotYet(
                    f"The replay that has prepared {committable} is left {self.patience_seconds:.0f} s to commit it."
                )
            self._said[label] = state_by(self.take(committable.transaction_id), label)
        return self._said[label]
