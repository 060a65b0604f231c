"""Kafka as a sink inside Spark: the driver sends the rows of a batch in one transaction, which the ledger decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.kafka.properties import librdkafka_properties, own_librdkafka_properties
from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import Refused
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.connectors.kafka.sink_checks import SinkAdmin, Topic, require_not_read, require_topic
from exactlyonce_spark.connectors.kafka.sink_errors import Named
from exactlyonce_spark.connectors.kafka.sink_fit import fit_record
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, YieldedColumn
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.load_labels import LoadLabels


class KafkaAheadOfLedger(Refused):
    """Kafka has committed a batch that the ledger does not know: the ledger was restored, and would land it again."""


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


class KafkaSinkConnector:
    """Kafka."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedKafka:
        """Look at the topic, take the transactional id, and compare the marker with the ledger.

        Raises:
            Refused, Unreachable: as they say; nothing was written.
        """
        sink, source = spec.sink.spec, spec.source.spec
        assert isinstance(sink, KafkaSink), "the registry gives each connector its own spec"
        labels = LoadLabels(permit.stream_id, stream.token)
        named = named_of(sink, labels)
        properties = own_librdkafka_properties(sink, secrets(sink.secret_ref))
        topic = SinkAdmin(named, {**properties}).topic(sink.topic)
        require_topic(sink, topic)
        if isinstance(source, KafkaSource):
            reading = Named(source.bootstrap_servers, sink.topic, named.transactional_id, "source.kafka")
            asked = SinkAdmin(reading, librdkafka_properties(source, secrets(source.secret_ref)))
            require_not_read(source, sink, asked.cluster_id(), topic)
        written = taken(sink, properties, labels, permit.epoch, topic)
        require_ledger_knows(written.marker, stream, named)
        return PreparedKafka(sink, written)


def taken(
    sink: KafkaSink, properties: Mapping[str, str], labels: LoadLabels, epoch: Epoch, topic: Topic
) -> KafkaTarget:
    """Take the transactional id, and return the topic.

    Raises:
        KafkaRefuses, KafkaAway: as they say.
    """
    named = named_of(sink, labels)
    at = f"{sink.topic} of the Kafka cluster {topic.cluster_id}"
    own = {key: value for key, value in sink.properties.items() if key in ("compression.type", "linger.ms")}

    def under(transactional_id: str) -> KafkaTransactions:
        return KafkaTransactions(
            replace(named, transactional_id=transactional_id),
            {**properties, **own},
            sink.transaction_timeout.total_seconds(),
            topic.most_bytes,
        )

    transactions = under(named.transactional_id)
    marker = transactions.take()
    reached("transaction.taken")
    return KafkaTarget(
        transactions,
        marker,
        labels,
        epoch,
        at,
        named.transactional_id,
        lambda transactional_id: under(transactional_id).take(),
        f"Read topic {sink.topic} of Kafka at {sink.bootstrap_servers} at isolation.level read_committed, and look for the "
        "records of these ranges by their keys.",
        tuple(header.name for header in sink.headers),
    )


def named_of(sink: KafkaSink, labels: LoadLabels) -> Named:
    """Return what sentences name; the transactional id is the consumer group of the marker, too."""
    return Named(sink.bootstrap_servers, sink.topic, labels.prefix.rstrip(":"))


def require_ledger_knows(marker: Marker | None, stream: StreamRow, named: Named) -> None:
    """Require that nothing was committed that was not decided: else a ledger that went back would have it landed again.

    Raises:
        KafkaAheadOfLedger: naming the batch.
    """
    landed = stream.landed_batch
    if marker is None or marker.batch is None or (landed is not None and marker.batch <= landed):
        return
    raise KafkaAheadOfLedger(
        f"Kafka at {named.brokers} has committed batch {marker.batch} of this stream to topic {named.topic}, and the ledger "
        f"{'knows no batch' if landed is None else f'stands at batch {landed}'}: it was restored to an earlier state. Nothing "
        "is written. Restore a later state of the ledger, or make a new stream that starts behind what the topic has."
    )
