"""Ask Kafka what it holds: bounds, topic ids, offsets for a moment. confluent-kafka is imported here only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactlyonce.api.source import KafkaSource, StartFrom
from exactlyonce.errors import Refused, SourceUnreachable, StartInvalid, TopicMissing
from exactlyonce.offsets import Positions, TopicPartition
from exactlyonce.source.bounds import Bounds, SourceView
from exactlyonce.source.kafka_properties import librdkafka_properties

Result = TypeVar("Result")

_NO_RIGHT = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_NO_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class SourceRefused(Refused):
    """The brokers answered with a refusal: a wrong login or a missing right."""


class KafkaBounds:
    """A `Source` that asks the brokers of one stream; each question has `timeout_seconds`, and none is answered empty."""

    def __init__(self, spec: KafkaSource, secret: Mapping[str, str], timeout_seconds: float = 15.0) -> None:
        self._spec = spec
        self._timeout = timeout_seconds
        self._last_error = ""
        properties = librdkafka_properties(spec, secret)
        self._admin = AdminClient({**properties, "error_cb": self._note_error, "log_level": 0})

    @property
    def brokers(self) -> str:
        """The bootstrap servers."""
        return self._spec.bootstrap_servers

    def view(self, also: frozenset[TopicPartition] = frozenset()) -> SourceView:
        """Return what the partitions that the spec reads, and those in `also`, hold now.

        Raises:
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
        """
        topics = sorted(self._topics() | {partition.topic for partition in also})
        described = self._describe(topics)
        existing = {TopicPartition(topic, number) for topic, (_, numbers) in described.items() for number in numbers}
        selected = frozenset(partition for partition in existing if self._selects(partition))
        asked = sorted(selected | (also & existing))
        earliest = self._list_offsets({partition: OffsetSpec.earliest() for partition in asked})
        latest = self._list_offsets({partition: OffsetSpec.latest() for partition in asked})
        return SourceView(
            bounds={key: Bounds(earliest[key], max(earliest[key], latest[key])) for key in asked},
            topic_ids={topic: topic_id for topic, (topic_id, _) in described.items()},
            selected=selected,
            missing=tuple(topic for topic in topics if topic not in described),
        )

    def start(self, view: SourceView) -> Positions:
        """Resolve where the stream starts.

        Raises:
            TopicMissing: if a topic does not exist; there is nothing to start from.
            StartInvalid: if an offset given is missing, unknown or outside of what the source holds.
            SourceUnreachable, SourceRefused: as `view`.
        """
        if view.missing or not view.selected:
            wanted = ", ".join(view.missing) or f"that matches {self._spec.topic_pattern}"
            raise TopicMissing(f"Kafka at {self.brokers} has no topic {wanted}; create it, or correct source.kafka.")
        match self._spec.start.from_:
            case StartFrom.EARLIEST:
                return view.earliest
            case StartFrom.LATEST:
                return view.latest
            case StartFrom.OFFSETS:
                return self._given(view)
            case StartFrom.TIMESTAMP:
                return self._at_moment(view)

    def earliest_and_ids(self, partitions: list[TopicPartition]) -> tuple[Positions, dict[str, str]]:
        """Return the earliest offset of each partition and the id of each topic: what a batch checks before it commits.

        Raises:
            TopicMissing: if a topic is gone.
            SourceUnreachable, SourceRefused: as `view`.
        """
        topics = sorted({partition.topic for partition in partitions})
        asked = self._ask_offsets({partition: OffsetSpec.earliest() for partition in partitions})
        described = self._describe(topics)
        for topic in topics:
            if topic not in described:
                raise TopicMissing(f"Topic {topic} is gone from Kafka at {self.brokers}.")
        earliest = {partition: self._answer(future).offset for partition, future in asked.items()}
        return Positions(earliest), {topic: topic_id for topic, (topic_id, _) in described.items()}

    def _given(self, view: SourceView) -> Positions:
        given = self._spec.start.positions
        absent = [str(partition) for partition in view.bounds if partition not in given]
        unknown = [str(partition) for partition in given if partition not in view.bounds]
        if absent or unknown:
            wrong = f"lacks {', '.join(absent)}" if absent else f"names {', '.join(unknown)}, which the source has not"
            raise StartInvalid(
                f"source.kafka.start.offsets {wrong}; give one entry for every partition of {self.brokers}."
            )
        for partition, offset in given.items():
            bounds = view.bounds[partition]
            if not bounds.earliest <= offset <= bounds.latest:
                raise StartInvalid(
                    f"source.kafka.start.offsets asks for {partition} at {offset}; the source holds "
                    f"{bounds.earliest} to {bounds.latest}. Give an offset within."
                )
        return given

    def _at_moment(self, view: SourceView) -> Positions:
        milliseconds = round(self._spec.start.moment.timestamp() * 1000)
        found = self._list_offsets({key: OffsetSpec.for_timestamp(milliseconds) for key in view.bounds})
        # A partition without a record at or after the moment answers -1: its first such record is yet to come.
        return Positions({key: view.bounds[key].latest if offset < 0 else offset for key, offset in found.items()})

    def _topics(self) -> set[str]:
        if self._spec.topics is not None:
            return set(self._spec.topics)
        if self._spec.assign is not None:
            return {assignment.topic for assignment in self._spec.assign}
        metadata = self._named(lambda: self._admin.list_topics(timeout=self._timeout))
        return {topic for topic in metadata.topics if self._matches(topic)}

    def _selects(self, partition: TopicPartition) -> bool:
        if self._spec.topics is not None:
            return partition.topic in self._spec.topics
        if self._spec.assign is not None:
            return any(
                chosen.topic == partition.topic and partition.partition in chosen.partitions
                for chosen in self._spec.assign
            )
        return self._matches(partition.topic)

    def _matches(self, topic: str) -> bool:
        assert self._spec.topic_pattern is not None
        return re.fullmatch(self._spec.topic_pattern, topic) is not None

    def _describe(self, topics: list[str]) -> dict[str, tuple[str, list[int]]]:
        """Return id and partitions of each topic that exists."""
        if not topics:
            return {}
        futures = self._named(
            lambda: self._admin.describe_topics(TopicCollection(topics), request_timeout=self._timeout)
        )
        found = {}
        for topic, future in futures.items():
            try:
                description = self._answer(future)
            except TopicMissing:
                continue
            found[topic] = (str(description.topic_id), sorted(part.id for part in description.partitions))
        return found

    def _list_offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return {partition: self._answer(future).offset for partition, future in self._ask_offsets(wanted).items()}

    def _ask_offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Future[Any]]:
        if not wanted:
            return {}
        asked = {confluent_kafka.TopicPartition(key.topic, key.partition): spec for key, spec in wanted.items()}
        futures = self._named(lambda: self._admin.list_offsets(asked, request_timeout=self._timeout))
        return {TopicPartition(key.topic, key.partition): future for key, future in futures.items()}

    def _answer(self, future: Future[Any]) -> Any:
        return self._named(lambda: future.result(self._timeout + 1))

    def _named(self, ask: Callable[[], Result]) -> Result:
        """Ask, and turn what goes wrong into an error named by situation."""
        try:
            return ask()
        except FutureTimeoutError as problem:
            raise self._unreachable("no answer in time") from problem
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() in _NO_TOPIC:
                raise TopicMissing(f"Kafka at {self.brokers} does not know the topic ({error.str()}).") from problem
            if error.code() in _NO_RIGHT | _NO_LOGIN:
                raise SourceRefused(
                    f"Kafka at {self.brokers} refuses: {error.str()}. Correct the login in source.kafka.secretRef or "
                    "grant it DESCRIBE and READ on the topics."
                ) from problem
            raise self._unreachable(error.str()) from problem

    def _unreachable(self, said: str) -> Refused | SourceUnreachable:
        if "authentication" in self._last_error.lower():
            return SourceRefused(
                f"Kafka at {self.brokers} refuses the login ({self._last_error}); correct source.kafka.secretRef."
            )
        detail = self._last_error or said
        return SourceUnreachable(
            f"Kafka at {self.brokers} does not answer ({detail}); nothing was decided, it is tried again."
        )

    def _note_error(self, error: KafkaError) -> None:
        self._last_error = error.str()
