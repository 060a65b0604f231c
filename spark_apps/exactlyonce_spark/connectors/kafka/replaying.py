"""A topic as a replay writes to it: each chunk is a transaction of its own, which the ledger decides. No pyspark here.

docs/adr/0055.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.errors import ExactlyOnceError
from exactlyonce_spark.connectors.kafka.sink_fit import fit_record
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import ReplayLabels
from exactlyonce_spark.replay_loads import LoadsOfChunks
from exactlyonce_spark.target import PreparedLoad


@dataclass(frozen=True)
class KafkaReplayTarget(LoadsOfChunks):
    """A `ReplayTarget` that `DecidesLoads`: one transaction at a time, under the id of this replay."""

    loads: KafkaTarget

    def abort_load(self, load: PreparedLoad) -> None:
        """Abort the open transaction; where Kafka does not answer, the brokers do so after its time."""
        with suppress(ExactlyOnceError):
            self.loads.abandon()


@dataclass(frozen=True)
class PreparedKafkaReplay:
    """A `PreparedReplay`: the topic, and what takes the transactional id of a replay with these labels."""

    sink: KafkaSink
    labels: Callable[[str], ReplayLabels]
    taken: Callable[[ReplayLabels], KafkaTarget]

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return key, value and headers of a record, as the stream makes them."""
        return fit_record(yielded, self.sink)

    def target(self, columns: Sequence[FittedColumn], token: str) -> KafkaReplayTarget:
        """Return the target of the replay with this token, which has taken its transactional id."""
        return KafkaReplayTarget(self.taken(self.labels(token)))
