"""Ask Kafka what it holds for one stream: bounds, topic ids, offsets for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec

from exactlyonce.connectors.kafka.admin import KafkaAdmin, LeaderMoves
from exactlyonce.connectors.kafka.answers import Topic, epochs_in
from exactlyonce.connectors.kafka.codec import CODEC, KafkaCodec
from exactlyonce.connectors.kafka.groups import stopped_group
from exactlyonce.connectors.kafka.last_records import LastRecords
from exactlyonce.connectors.kafka.mirror import OffsetMirror
from exactlyonce.connectors.kafka.properties import own_librdkafka_properties
from exactlyonce.connectors.kafka.spec import KafkaSource, StartFrom
from exactlyonce.connectors.kafka.start import given, where_group_stands
from exactlyonce.errors import OriginMissing, SourceRefused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.schema.moment import first_milliseconds
from exactlyonce.source.port import Bounds, LeaderEpochs, NotShown, ShownStream, SourceNow, SourceView

_ASK_AGAIN_SECONDS = 0.1
_CLEANUP_POLICY = "cleanup.policy"
_ABSENCE_SECONDS, _ABSENCE_PAUSE_SECONDS = 3.0, 0.5
"""A topic is gone when every answer of this time said so: a broker that has just started, or has not yet applied what is new,
says that it does not know a topic, too. Source: UNKNOWN_TOPIC_OR_PARTITION is retriable (Kafka's protocol guide, error 3)."""


class KafkaBounds:
    """A `Source` that asks the brokers of one stream; each request has `timeout_seconds`, and no answer is empty.

    `admin` is the client that asks, one for all streams with the same properties; without it the stream has its own.
    Latest is what Spark will plan up to: with read_committed, the first record of the earliest open transaction.

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
        self._isolation = IsolationLevel.READ_COMMITTED if spec.committed_only else IsolationLevel.READ_UNCOMMITTED
        self._admin = admin or KafkaAdmin(self.address, own_librdkafka_properties(spec, secret), timeout_seconds)

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
        wanted, read_before = self._topics(), {partition.origin for partition in also}
        described = self._describe(sorted(wanted | read_before))
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
        first_asked, last_asked = self._request_offsets(first), self._request_offsets(last)
        earliest, latest = self._offsets(first_asked, first), self._offsets(last_asked, last)
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
        return {name: topic.topic_id for name, topic in self._describe(list(origins)).items()}

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
        asked, last_asked = self._request_offsets(wanted), self._request_offsets(last)
        described = self._describe(topics)
        for topic in topics:
            if topic not in described:
                raise OriginMissing(f"Topic {topic} is gone from Kafka at {self.address}.")
        return SourceNow(
            Positions(self._offsets(asked, wanted)),
            {name: topic.topic_id for name, topic in described.items()},
            epochs_in(self._answers(last_asked, last)),
        )

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Ask for the leaders' epochs as of now; the answer is awaited where it is called for, and raises as `now`."""
        last = {partition: OffsetSpec.latest() for partition in partitions}
        asked = self._request_offsets(last)
        return lambda: epochs_in(self._answers(asked, last))

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
        found = self._list_offsets({key: OffsetSpec.for_timestamp(milliseconds) for key in bounds})
        # A partition without a record at or after the moment answers -1: its first such record is yet to come. Spark fails the
        # query there, or does as we do with startingOffsetsByTimestampStrategy: latest (KafkaOffsetReaderAdmin).
        return Positions({key: bounds[key].latest if offset < 0 else offset for key, offset in found.items()})

    def _topics(self) -> set[str]:
        if self._spec.topics is not None:
            return set(self._spec.topics)
        if self._spec.assign is not None:
            return {assignment.topic for assignment in self._spec.assign}
        metadata = self._admin.named(lambda: self._admin.client.list_topics(timeout=self._timeout))
        return {topic for topic in metadata.topics if self._set.reads_origin(topic)}

    def _describe(self, topics: list[str]) -> dict[str, Topic]:
        """Return each topic that exists; those that seem not to are asked for again before that is believed."""
        found = self._described(topics)
        until = time.monotonic() + _ABSENCE_SECONDS
        while len(found) < len(topics) and time.monotonic() < until:
            time.sleep(_ABSENCE_PAUSE_SECONDS)
            found |= self._described([topic for topic in topics if topic not in found])
        return found

    def _described(self, topics: list[str]) -> dict[str, Topic]:
        """Return each topic that this one answer knows."""
        if not topics:
            return {}
        futures = self._admin.named(
            lambda: self._admin.client.describe_topics(TopicCollection(topics), request_timeout=self._timeout)
        )
        found = {}
        for topic, future in futures.items():
            try:
                description = self._admin.answer(future)
            except OriginMissing:
                continue
            partitions = frozenset(Partition(topic, part.id) for part in description.partitions)
            found[topic] = Topic(str(description.topic_id), partitions, bool(description.is_internal))
        return found

    def _list_offsets(self, wanted: Mapping[Partition, Any]) -> dict[Partition, int]:
        return self._offsets(self._request_offsets(wanted), wanted)

    def _offsets(self, asked: Mapping[Partition, Future[Any]], wanted: Mapping[Partition, Any]) -> dict[Partition, int]:
        """Await the answers, and return the offset in each."""
        return {key: int(answer.offset) for key, answer in self._answers(asked, wanted).items()}

    def _answers(self, asked: Mapping[Partition, Future[Any]], wanted: Mapping[Partition, Any]) -> dict[Partition, Any]:
        """Await the answers, and ask again for partitions whose leader moves or does not know them yet, within the time limit.

        First of all the client's list of topics is renewed, which does not know partitions that are newer.
        """
        deadline = time.monotonic() + self._timeout
        found: dict[Partition, Any] = {}
        renewed = False
        while asked:
            again: dict[Partition, Any] = {}
            for partition, future in asked.items():
                try:
                    found[partition] = self._admin.answer(future)
                except (LeaderMoves, OriginMissing):
                    if time.monotonic() > deadline:
                        raise
                    again[partition] = wanted[partition]
            if again and renewed:
                time.sleep(_ASK_AGAIN_SECONDS)
            elif again:
                self._admin.named(lambda: self._admin.client.list_topics(timeout=self._timeout))
                renewed = True
            asked = self._request_offsets(again)
        return found

    def _request_offsets(self, wanted: Mapping[Partition, Any]) -> dict[Partition, Future[Any]]:
        if not wanted:
            return {}
        asked = {confluent_kafka.TopicPartition(key.origin, key.key): spec for key, spec in wanted.items()}
        futures = self._admin.named(
            lambda: self._admin.client.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=self._timeout
            )
        )
        return {Partition(key.topic, key.partition): future for key, future in futures.items()}
