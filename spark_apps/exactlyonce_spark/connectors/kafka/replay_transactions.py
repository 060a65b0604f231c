"""What became of transactions of replays, each under an id of its replay alone. No pyspark here. docs/adr/0055.

Only the producer of a transaction commits it. So whoever finishes what a replay has decided takes its transactional id: from
then on the replay commits nothing, and its latest committed transaction is known for good by the marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from exactlyonce.ledger.decided import Committable
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.replay_loads import NotYet
from exactlyonce_spark.target import LoadState

PATIENCE_SECONDS = 60.0
"""How long a driver leaves a decision to its replay: taking the id would end a replay that is about to commit."""


@dataclass
class ReplayTransactions:
    """Asks what became of a transaction by taking its id with `take`, which returns the marker."""

    take: Callable[[str], Marker | None]
    patience_seconds: float = PATIENCE_SECONDS
    now: Callable[[], float] = time.monotonic
    _first_asked: dict[str, float] = field(default_factory=dict, init=False)
    _taken: dict[str, Marker | None] = field(default_factory=dict, init=False)

    def state_of(self, committable: Committable) -> LoadState:
        """Return COMMITTED or ABORTED, for good; UNKNOWN where the brokers have forgotten the marker.

        A replay decides one transaction at a time and the marker is of the latest that was committed. So where it is of another
        one, or says that none was, the decided one never will be.

        Raises:
            NotYet: if the replay may still be about to commit it.
            KafkaRefuses, KafkaAway: as `take`.
        """
        name = committable.transaction_id
        if name not in self._taken:
            now = self.now()
            if now - self._first_asked.setdefault(committable.label, now) < self.patience_seconds:
                raise NotYet(
                    f"The replay that has prepared {committable} is left {self.patience_seconds:.0f} s to commit it."
                )
            self._taken[name] = self.take(name)
        marker = self._taken[name]
        if marker is None:
            return LoadState.UNKNOWN
        return LoadState.COMMITTED if marker.label == committable.label else LoadState.ABORTED
