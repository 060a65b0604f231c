"""A topic as a replay writes to it: each chunk is a transaction of its own, which the ledger decides. No pyspark here.

docs/adr/0055 and 0058.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.kafka.sink_fit import fit_record
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import NO_EPOCH, number_of_replay
from exactlyonce_spark.replay_load_target import LoadsOfChunks, NumberCommitted
from exactlyonce_spark.target import PreparedLoad


@dataclass(frozen=True)
class KafkaReplayTarget(LoadsOfChunks):
    """A `ReplayTarget` that `DecidesLoads`: one transaction at a time, under the id of the stream's replays."""

    loads: KafkaTarget

    def prepare_load(self, number: int, batch: BatchNumber, rows: Any) -> PreparedLoad | None:
        """Send the rows of a chunk, unless the marker is of this number or of a later one.

        A first marker says that nothing is known of earlier ones: brokers may have forgotten their marker.
        """
        marker = self.loads.marker
        latest = None if marker is None else number_of_replay(marker.label)
        if marker is not None and latest is not None and latest >= number:
            raise NumberCommitted(f"Kafka has committed {marker.label}")
        self.loads.first_marker = Marker(self.loads.labels.label(NO_EPOCH, batch, f"{number - 1}"))
        return super().prepare_load(number, batch, rows)

    def abort_load(self, load: PreparedLoad) -> None:
        """Abort the open transaction; where Kafka does not answer, the brokers do so after its time."""
        with suppress(ExactlyOnceError):
            self.loads.abandon()


@dataclass(frozen=True)
class PreparedKafkaReplay:
    """A `PreparedReplay`: the topic, and what takes the transactional id of the stream's replays."""

    sink: KafkaSink
    taken: Callable[[], KafkaTarget]

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return key, value and headers of a record, as the stream makes them."""
        return fit_record(yielded, self.sink)

    def target(self, columns: Sequence[FittedColumn], token: str) -> KafkaReplayTarget:
        """Return the target, which has taken the transactional id: a replay that had it before commits nothing more."""
        return KafkaReplayTarget(self.taken())
