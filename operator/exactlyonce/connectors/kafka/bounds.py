"""Ask Kafka what it holds for one stream: bounds, topic ids, offsets for a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka.admin import ConfigResource, OffsetSpec

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.answers import epochs_in
from exactlyonce.connectors.kafka.codec import CODEC, KafkaCodec
from exactlyonce.connectors.kafka.groups import stopped_group
from exactlyonce.connectors.kafka.last_records import LastRecords
from exactlyonce.connectors.kafka.mirror import OffsetMirror
from exactlyonce.connectors.kafka.properties import own_librdkafka_properties
from exactlyonce.connectors.kafka.spec import KafkaSource, StartFrom
from exactlyonce.connectors.kafka.start import given, where_group_stands
from exactlyonce.connectors.kafka.topics import KafkaTopics
from exactlyonce.errors import OriginMissing, SourceRefused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.schema.moment import first_milliseconds
from exactlyonce.source.port import Bounds, LeaderEpochs, NotShown, ShownStream, SourceNow, SourceView

_CLEANUP_POLICY = "cleanup.policy"


class KafkaBounds:
    """A `Source` that asks the brokers of one stream; each request has `timeout_seconds`, and no answer is empty.

    `admin` is the client that asks, one for all streams with the same properties; without it the stream has its own.
    Latest is what a query will plan up to: with read_committed, the first record of the earliest open transaction.

    Raises:
        SecretMissing, SourceRefused: from the constructor, if no client can be made of the properties and the secret.
    """

    def __init__(
        self,
        spec: KafkaSource,
        secret: Mapping[str, str],
        timeout_seconds: float = 15.0,
        admin: KafkaAdmin | None = None,
    ) -> None:
        self._spec = spec
        self._set = spec.selection()
        self._timeout = timeout_seconds
        self._admin = admin or KafkaAdmin(self.address, own_librdkafka_properties(spec, secret), timeout_seconds)
        self._topics = KafkaTopics(spec, self._admin, timeout_seconds)

    @property
    def address(self) -> str:
        """The bootstrap servers."""
        return self._spec.bootstrap_servers

    @property
    def codec(self) -> KafkaCodec:
        """How Spark's logs hold Kafka's positions."""
        return CODEC

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what the partitions that the spec reads, and those in `also`, hold now, and the records at `offsets`.

        `stands` is not looked at: the earliest offset tells whether the next record is there.

        Raises:
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
        """
        wanted, read_before = self._topics.names(), {partition.origin for partition in also}
        described = self._topics.describe(sorted(wanted | read_before))
        missing = tuple(sorted(wanted - described.keys()))
        if self._spec.topic_pattern is not None:
            # Spark finds topics by pattern as Admin.listTopics lists them: without Kafka's own.
            described = {
                name: topic for name, topic in described.items() if name in read_before or not topic.is_internal
            }
        existing = frozenset(partition for topic in described.values() for partition in topic.partitions)
        selected = frozenset(partition for partition in existing if self._set.reads(partition))
        asked = sorted(selected | (also & existing))
        first = {partition: OffsetSpec.earliest() for partition in asked}
        last = {partition: OffsetSpec.latest() for partition in asked}
        first_asked, last_asked = self._topics.request_offsets(first), self._topics.request_offsets(last)
        earliest, latest = self._topics.offsets(first_asked, first), self._topics.offsets(last_asked, last)
        bounds = {key: Bounds(earliest[key], max(earliest[key], latest[key])) for key in asked}
        held = {
            key: offset
            for key, offset in (offsets or {}).items()
            if key in bounds and bounds[key].earliest <= offset < bounds[key].latest
        }
        records = self.records_at(held)
        absent = frozenset(key.origin for key, found in records.items() if found is None)
        return SourceView(
            bounds=bounds,
            origin_ids={name: topic.topic_id for name, topic in described.items()},
            selected=selected,
            missing=missing,
            records=records,
            compacted=self.compacted(absent),
        )

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Resolve where the stream starts, or where the partitions in `only` do.

        Raises:
            OriginMissing: if a topic or a partition does not exist; there is nothing to start from.
            StartInvalid: if an offset given is missing, unknown or outside of what the source holds.
            GroupUnfit: if the consumer group has members, or no offset to continue at.
            SourceUnreachable, SourceRefused: as `view`.
        """
        if view.missing or not view.selected:
            wanted = ", ".join(view.missing) or f"that matches {self._spec.topic_pattern}"
            raise OriginMissing(f"Kafka at {self.address} has no topic {wanted}; create it, or correct source.kafka.")
        absent = [str(partition) for partition in sorted(self._set.partitions) if partition not in view.bounds]
        if absent:
            raise OriginMissing(
                f"Kafka at {self.address} has no partition {', '.join(absent)}; create it, or correct source.kafka.assign."
            )
        bounds = {key: view.bounds[key] for key in (view.selected if only is None else only)}
        match self._spec.start.from_:
            case StartFrom.EARLIEST:
                return Positions({key: found.earliest for key, found in bounds.items()})
            case StartFrom.LATEST:
                return Positions({key: found.latest for key, found in bounds.items()})
            case StartFrom.OFFSETS:
                return given(self._spec.start.positions, view.bounds, bounds, self.address)
            case StartFrom.TIMESTAMP:
                return self._at_moment(bounds)
            case StartFrom.CONSUMER_GROUP:
                if not bounds:  # nothing was added, and the group that the stream took over from may be gone by now
                    return Positions()
                group = stopped_group(self._admin, self._spec.start.consumer_group, frozenset(bounds))
                return where_group_stands(group, bounds, self.address)

    def origin_ids(self, origins: Sequence[str]) -> dict[str, str]:
        """Return the ids of those of these topics that exist."""
        return {name: topic.topic_id for name, topic in self._topics.describe(list(origins)).items()}

    def show_landed(self, stream: ShownStream, landed: Positions) -> NotShown | None:
        """Write what has landed to the consumer group that the stream names, if any; return why it does not show it."""
        if self._spec.mirror_offsets is None:
            return None
        return OffsetMirror(self._admin, self._spec.mirror_offsets.group, stream.took_over).show(
            stream.stream_id, landed
        )

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return earliest offsets, topic ids and leader epochs, asked for at once: what a batch checks before it commits.

        Raises:
            OriginMissing: if a topic is gone.
            SourceUnreachable, SourceRefused: as `view`.
        """
        topics = sorted({partition.origin for partition in partitions})
        wanted = {partition: OffsetSpec.earliest() for partition in partitions}
        last = {partition: OffsetSpec.latest() for partition in partitions}
        asked, last_asked = self._topics.request_offsets(wanted), self._topics.request_offsets(last)
        described = self._topics.describe(topics)
        for topic in topics:
            if topic not in described:
                raise OriginMissing(f"Topic {topic} is gone from Kafka at {self.address}.")
        return SourceNow(
            Positions(self._topics.offsets(asked, wanted)),
            {name: topic.topic_id for name, topic in described.items()},
            epochs_in(self._topics.answers(last_asked, last)),
        )

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Ask for the leaders' epochs as of now; the answer is awaited where it is called for, and raises as `now`."""
        last = {partition: OffsetSpec.latest() for partition in partitions}
        asked = self._topics.request_offsets(last)
        return lambda: epochs_in(self._topics.answers(asked, last))

    def records_at(self, offsets: Mapping[Partition, int]) -> dict[Partition, Fingerprint | None]:
        """Return the record at each offset, None where there is none; offsets that are not held are left out.

        Raises:
            SourceUnreachable, SourceRefused: as `view`.
        """
        return self._admin.named(lambda: self._admin.records.at(offsets, self._timeout)) if offsets else {}

    def last_records(self, ranges: Ranges) -> LastRecords:
        """Begin to read the last record of each range, in a thread of its own."""
        return LastRecords(lambda seconds: self._admin.records.last_of(ranges.non_empty(), seconds))

    def compacted(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics, of those given, from which compaction takes records.

        Raises:
            SourceRefused: if the login may not ask for a topic's configuration.
            SourceUnreachable: as `view`.
        """
        if not topics:
            return frozenset()
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
        futures = self._admin.named(lambda: self._admin.client.describe_configs(asked, request_timeout=self._timeout))
        try:
            answers = {resource.name: self._admin.answer(future) for resource, future in futures.items()}
        except SourceRefused as problem:
            raise SourceRefused(
                f"Kafka at {self.address} does not let this login ask for the configuration of {', '.join(sorted(topics))}, "
                "of which a record that landed is missing; grant it DESCRIBE_CONFIGS, so that compaction can be told from loss."
            ) from problem
        return frozenset(topic for topic, found in answers.items() if "compact" in found[_CLEANUP_POLICY].value)

    def _at_moment(self, bounds: Mapping[Partition, Bounds]) -> Positions:
        milliseconds = first_milliseconds(self._spec.start.moment)
        found = self._topics.list_offsets({key: OffsetSpec.for_timestamp(milliseconds) for key in bounds})
        # A partition without a record at or after the moment answers -1: its first such record is yet to come. Spark fails the
        # query there, or does as we do with startingOffsetsByTimestampStrategy: latest (KafkaOffsetReaderAdmin).
        return Positions({key: bounds[key].latest if offset < 0 else offset for key, offset in found.items()})
