"""Kafka as a source outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.client_properties import AWS_MSK_IAM, MECHANISM
from exactlyonce.connectors.kafka.fleet import KafkaFleet
from exactlyonce.connectors.kafka.properties import canonical_servers, librdkafka_properties
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.places import MSK_PREFIX, NamedPlace
from exactlyonce.source.connector import GoesOn

_SHARED_SECONDS = 15.0


@dataclass(frozen=True)
class KafkaAddress:
    """The brokers of one stream and its login."""

    spec: KafkaSource
    secret: Mapping[str, str] = field(repr=False)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The properties of a client that all streams of these brokers and this login share."""
        return tuple(sorted(librdkafka_properties(self.spec, self.secret).items()))

    @property
    def shown(self) -> str:
        """The bootstrap servers."""
        return self.spec.bootstrap_servers

    @property
    def reached_by_process(self) -> tuple[NamedPlace, ...]:
        """The MSK clusters that a login by IAM reaches, unless the stream's secret holds the login.

        A cluster is named by what follows the name of a broker, or of one of its groups, in its bootstrap servers.
        """
        if self.spec.properties.get(MECHANISM) != AWS_MSK_IAM or self.spec.secret_ref is not None:
            return ()
        servers = canonical_servers(self.spec.bootstrap_servers).split(",")
        clusters = {server.rpartition(":")[0].partition(".")[2] or server for server in servers}
        return tuple(NamedPlace(f"{MSK_PREFIX}{cluster}") for cluster in sorted(clusters))

    def store_name(self, namespace: str) -> str:
        """Return the name of the cluster, whatever the order of its servers."""
        return f"Kafka at {canonical_servers(self.spec.bootstrap_servers)} of namespace {namespace}"

    def client(self) -> KafkaAdmin:
        """Return an admin client."""
        properties = dict(self.key)
        return KafkaAdmin(properties["bootstrap.servers"], properties, _SHARED_SECONDS)

    def start_behind(self, last: Mapping[Partition, int]) -> GoesOn:
        """Return the offset behind each last row; nothing is asked."""
        behind = {key: position + 1 for key, position in sorted(last.items())}
        offsets = [{"topic": key.origin, "partition": key.key, "offset": offset} for key, offset in behind.items()]
        return GoesOn(("topic", "partition", "offset"), behind, {"from": "Offsets", "offsets": offsets})

    def open(self, client: KafkaAdmin | None = None) -> KafkaBounds:
        """Return the topics of the stream."""
        return KafkaBounds(self.spec, self.secret, _SHARED_SECONDS, client)


class KafkaConnector:
    """Kafka."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> KafkaAddress:
        """Return the brokers of a stream and its login."""
        assert isinstance(spec, KafkaSource), "the registry gives each connector its own spec"
        return KafkaAddress(spec, secret)

    def fleet(self, key: tuple[tuple[str, str], ...]) -> KafkaFleet:
        """Return the brokers as the monitor asks them."""
        return KafkaFleet(dict(key))


SOURCE = KafkaConnector()
