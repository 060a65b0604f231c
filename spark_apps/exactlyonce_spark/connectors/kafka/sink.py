"""Kafka as a sink inside Spark: the driver sends the rows of a batch in one transaction, which the ledger decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.kafka.properties import librdkafka_properties, own_librdkafka_properties
from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.connectors.kafka.replay_transactions import PATIENCE_SECONDS, ReplayTransactions
from exactlyonce_spark.connectors.kafka.replaying import PreparedKafkaReplay
from exactlyonce_spark.connectors.kafka.sink_checks import (
    SinkAdmin,
    Topic,
    require_keeps_all,
    require_not_read,
    require_topic,
)
from exactlyonce_spark.connectors.kafka.sink_errors import Named
from exactlyonce_spark.connectors.kafka.sink_fit import fit_record
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, YieldedColumn
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.load_labels import NO_EPOCH, LoadLabels, ReplayLabels


@dataclass(frozen=True)
class PreparedKafka:
    """A `PreparedSink`: the topic, whose transactional id this driver has taken."""

    sink: KafkaSink
    written: KafkaTarget

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return key, value and headers of a record."""
        return fit_record(yielded, self.sink)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[KafkaTarget, NoTasks]:
        """Return the topic; no task writes to it."""
        return self.written, NoTasks(f"{self.written.labels.stream_id} {self.written.epoch}")

    def finishing(self) -> KafkaTarget:
        """Return the same topic: what became of a transaction is known by its id, which this driver has taken."""
        return self.written


class KafkaSinkConnector:
    """Kafka."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedKafka:
        """Look at the topic, and take the transactional id.

        Raises:
            Refused, Unreachable: as they say; nothing was written.
        """
        labels = LoadLabels(permit.stream_id, stream.token)
        opened = OpenedTopic.of(spec, secrets, labels)
        return PreparedKafka(opened.sink, opened.taken(labels, permit.epoch, PATIENCE_SECONDS))

    def prepare_replay(self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets) -> PreparedKafkaReplay:
        """Look at the topic; the transactional id is taken once the columns are known.

        Raises:
            NothingToReplayInto: if the ledger does not know the stream.
            Refused, Unreachable: as they say; nothing was written.
        """
        view = ledger.view(stream_id)
        if view is None:
            raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
        token = view.stream.token
        opened = OpenedTopic.of(spec, secrets, LoadLabels(stream_id, token))
        require_keeps_all(opened.sink, opened.topic)
        return PreparedKafkaReplay(
            opened.sink,
            lambda: opened.taken(ReplayLabels(stream_id, token), NO_EPOCH, 0.0),
        )


@dataclass(frozen=True)
class OpenedTopic:
    """The topic as its brokers have described it, and how they are reached. The login is shown nowhere."""

    sink: KafkaSink
    named: Named
    properties: Mapping[str, str] = field(repr=False)
    topic: Topic

    @classmethod
    def of(cls, spec: StreamSpec, secrets: Secrets, labels: LoadLabels) -> OpenedTopic:
        """Look at the topic, and require that it can be written to and is not read by the stream.

        Raises:
            KafkaRefuses, KafkaAway: as they say.
        """
        sink, source = spec.sink.spec, spec.source.spec
        assert isinstance(sink, KafkaSink), "the registry gives each connector its own spec"
        named = named_of(sink, labels)
        properties = own_librdkafka_properties(sink, secrets(sink.secret_ref))
        topic = SinkAdmin(named, {**properties}).topic(sink.topic)
        require_topic(sink, topic)
        if isinstance(source, KafkaSource):
            reading = Named(source.bootstrap_servers, sink.topic, named.transactional_id, "source.kafka")
            asked = SinkAdmin(reading, librdkafka_properties(source, secrets(source.secret_ref)))
            require_not_read(source, sink, asked.cluster_id(), topic)
        return cls(sink, named, properties, topic)

    def taken(self, labels: LoadLabels, epoch: Epoch, patience_seconds: float) -> KafkaTarget:
        """Take the transactional id of a stream, or of its replays, and return the topic.

        What other replays have decided is left to them for so many seconds.

        Raises:
            KafkaRefuses, KafkaAway: as they say.
        """
        own = named_of(self.sink, labels).transactional_id
        transactions = self._under(own)
        marker = transactions.take()
        reached("transaction.taken")
        return KafkaTarget(
            transactions,
            marker,
            labels,
            epoch,
            f"{self.sink.topic} of the Kafka cluster {self.topic.cluster_id}",
            own,
            self._marker_of,
            ReplayTransactions(self._marker_of, patience_seconds),
            f"Read topic {self.sink.topic} of Kafka at {self.sink.bootstrap_servers} at isolation.level read_committed, and "
            "look for the records of these ranges by their keys.",
            tuple(header.name for header in self.sink.headers),
        )

    def _marker_of(self, transactional_id: str) -> Marker | None:
        return self._under(transactional_id).take()

    def _under(self, transactional_id: str) -> KafkaTransactions:
        own = {key: value for key, value in self.sink.properties.items() if key in ("compression.type", "linger.ms")}
        return KafkaTransactions(
            replace(self.named, transactional_id=transactional_id),
            {**self.properties, **own},
            self.sink.transaction_timeout.total_seconds(),
            self.topic.most_bytes,
        )


def named_of(sink: KafkaSink, labels: LoadLabels) -> Named:
    """Return what sentences name; the transactional id is the consumer group of the marker, too."""
    name = labels.name if isinstance(labels, ReplayLabels) else labels.prefix.rstrip(":")
    return Named(sink.bootstrap_servers, sink.topic, name)
