"""Read exact ranges of Kafka partitions with one consumer, which a process keeps from one read to the next.

Where a range ends is told by librdkafka: by a record at or after its end, or by the end of the partition, which it reports
behind transaction markers, aborted records and what compaction took. A range that begins outside of the log, or runs beyond
its end, is never read as if it were shorter.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from exactlyonce.connectors.kafka.clients import destroy_dropped, destroy_later
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges

_MESSAGES_AT_ONCE = 5000
_WAIT_SECONDS = 0.01
"""How long a call waits for the messages that it lacks: those that a gap stands for never come."""

_ASK_SECONDS = 10.0
_PATIENCE_SECONDS, _PATIENCE_WITH_REASON_SECONDS = 60.0, 15.0
"""How long brokers may give nothing at all before the read fails: less where they refuse the login or do not know a topic."""

_EARLY_END_SECONDS = 15.0
"""How long a partition may end before its range does: a leader that is new learns within moments how far it is replicated."""

_CONSUMER: Mapping[str, Any] = {
    "group.id": "exactlyonce",  # the client asks for one; no group is joined and nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # a position that is not held is an answer
    "enable.partition.eof": True,
    # Bounds of librdkafka's that stand against small fetches, and against records that are larger than all of them.
    "message.max.bytes": 1000,
    "receive.message.max.bytes": 2_147_483_647,
    "log_level": 0,
}
_BY_DEFAULT: Mapping[str, Any] = {
    # All that is fetched ahead lies in one queue, whose size is the memory that a worker needs beside its records. It is small,
    # since what lies in it at the end of a range is thrown away.
    "queued.max.messages.kbytes": 16_384,
    "queued.min.messages": 10_000,
    "fetch.message.max.bytes": 1_048_576,
    "fetch.max.bytes": 16_777_216,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}


Records = tuple[Partition, list[Any]]
"""Some records of one partition, as confluent-kafka's messages."""


class RecordsGone(ExactlyOnceError):
    """A range is not held as a whole: retention or a truncated log took records of it before they were read."""


class RangeReader:
    """Reads ranges, one read at a time. Asks nobody anything until it is used.

    `properties` are librdkafka's, the login included; they may say how much is fetched ahead.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._errors: deque[KafkaError] = deque(maxlen=10)
        self._consumer: Any = None
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()

    def read(self, ranges: Ranges) -> Iterator[Records]:
        """Yield the records of the ranges, those of a partition in their order.

        Nothing of the ranges is fetched any more once the iterator has ended or is closed.

        Raises:
            RecordsGone: if a range is not held as a whole.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        unread = dict(ranges.non_empty())
        if not unread:
            return
        consumer = self._knowing({key.origin for key in unread})
        self._errors.clear()
        consumer.assign([_at(key, span.from_offset) for key, span in unread.items()])
        collects = gc.isenabled()
        gc.disable()  # looking through messages again and again was a third of the cost of a record
        try:
            yield from _Read(consumer, self._properties["bootstrap.servers"], self._errors, unread).records()
        finally:
            if collects:
                gc.enable()
            consumer.unassign()

    def _knowing(self, topics: set[str]) -> Any:
        """Return the consumer, which knows the leaders of these topics or is about to ask for them.

        One that is new asks as it connects. One that is connected would look for a topic that it does not know once a second.
        """
        if self._consumer is None:
            self._consumer = consumer_of(self._properties, self._errors.append)
            destroy_later(self, self._consumer)
        else:
            for topic in topics - self._known:
                with suppress(KafkaException):  # the read tells what it is
                    self._consumer.list_topics(topic, _ASK_SECONDS)
        self._known |= topics
        return self._consumer


def consumer_of(properties: Mapping[str, Any], note: Callable[[Any], None] = lambda _error: None) -> Any:
    """Return a consumer of librdkafka, which `note`s what goes wrong with its connections. Nothing is connected to yet.

    Raises:
        SourceRefused: if no client can be made of the properties.
    """
    destroy_dropped()
    try:
        return Consumer({**_BY_DEFAULT, **with_tokens(properties), **_CONSUMER, "error_cb": note})
    except KafkaException as problem:
        raise SourceRefused(
            f"No client can be made for Kafka at {properties['bootstrap.servers']} ({problem.args[0].str()}); correct "
            "source.kafka.properties or the secret that source.kafka.secretRef names."
        ) from problem


@dataclass
class _Read:
    """One read: `unread` is what is left of each range, `early_ends` where and since when a partition ends before its range."""

    consumer: Any
    brokers: str
    noted: Collection[KafkaError]
    unread: dict[Partition, OffsetRange]
    early_ends: dict[Partition, tuple[int, float]] = field(default_factory=dict)
    single: Partition | None = field(init=False)
    """The only partition that is read, so that no message has to be asked of which it is."""

    def __post_init__(self) -> None:
        self.single = next(iter(self.unread)) if len(self.unread) == 1 else None

    def records(self) -> Iterator[Records]:
        """Yield the records until every range is read."""
        progress = time.monotonic()
        while self.unread:
            left = sum(span.record_count for span in self.unread.values())
            messages = self.consumer.consume(min(left, _MESSAGES_AT_ONCE), _WAIT_SECONDS)
            for partition, run in self._runs(messages):
                if records := self._taken(partition, run):
                    yield partition, records
            if messages:
                progress = time.monotonic()  # after the yield: whoever takes the records may take its time
            self._require_whole()
            silent_seconds = time.monotonic() - progress
            if silent_seconds > _PATIENCE_WITH_REASON_SECONDS and (reason := self._reason()) is not None:
                raise reason
            if silent_seconds > _PATIENCE_SECONDS:
                raise self._silent()

    def _runs(self, messages: list[Any]) -> Iterator[Records]:
        """Yield the messages by partition; those that are of none are failures or are passed over."""
        if messages and self.single is not None and messages[0].topic() and messages[-1].topic():
            yield self.single, messages
            return
        for (topic, number), run in itertools.groupby(messages, lambda it: (it.topic(), it.partition())):
            if topic is None:
                for message in run:
                    self._require_no_failure(message.error(), None, None)
            elif Partition(topic, number) in self.unread:
                yield Partition(topic, number), list(run)

    def _taken(self, partition: Partition, messages: list[Any]) -> list[Any]:
        """Return the records among the messages that belong to the range, and note how far it is read."""
        span = self.unread[partition]
        records, position = messages, span.from_offset
        if any(message.error() is not None for message in messages):
            records = [message for message in messages if message.error() is None]
            for error, offset in ((it.error(), it.offset()) for it in messages if it.error() is not None):
                self._require_no_failure(error, partition, span)
                if error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, offset)
                    self.early_ends[partition] = (offset, time.monotonic())
        if records:
            position = max(position, records[-1].offset() + 1)
        if position > span.until_offset:
            records = [message for message in records if message.offset() < span.until_offset]
        self._move(partition, position)
        return records

    def _move(self, partition: Partition, position: int) -> None:
        """Note how far a range is read: up to `position`."""
        until = self.unread[partition].until_offset
        if position < until:
            self.unread[partition] = OffsetRange(position, until)
            if partition in self.early_ends and position > self.early_ends[partition][0]:
                del self.early_ends[partition]
            return
        del self.unread[partition]
        self.early_ends.pop(partition, None)
        if self.unread:
            self.consumer.incremental_unassign([_at(partition)])

    def _require_whole(self) -> None:
        for partition, (end, since) in self.early_ends.items():
            if time.monotonic() > since + _EARLY_END_SECONDS:
                raise RecordsGone(
                    f"Kafka at {self.brokers} ends {partition} at {end}, before {self.unread[partition].until_offset}, where "
                    "a range that it held ends: its log was truncated."
                )

    def _require_no_failure(self, error: Any, partition: Partition | None, span: OffsetRange | None) -> None:
        """Raise what an error means, unless it is the end of a partition, or something that the client tries again."""
        code = error.code()
        if code in _GONE and span is not None:
            raise RecordsGone(
                f"Kafka at {self.brokers} does not hold {partition} from {span.from_offset} on any more: retention, or a "
                "truncated log, took records before they were read."
            )
        if code in _REFUSED | _LOGIN:
            raise SourceRefused(
                f"Kafka at {self.brokers} refuses: {error.str()}. Correct the login in source.kafka.secretRef or grant it "
                "DESCRIBE and READ on the topics."
            )
        if code in _MISSING:
            raise OriginMissing(f"Kafka at {self.brokers} does not know {partition or 'the topic'} ({error.str()}).")
        if code != KafkaError._PARTITION_EOF and (error.fatal() or (span is not None and not error.retriable())):
            raise SourceUnreachable(
                f"Kafka at {self.brokers} gave no records of {partition or 'any topic'} ({error.str()}); nothing was "
                "decided, and it will be retried."
            )

    def _reason(self) -> ExactlyOnceError | None:
        """Return why nothing comes, where the client's errors say so."""
        partition, _ = next(iter(self.unread.items()))
        for error in self.noted:
            if error.code() in _MISSING:
                return OriginMissing(f"Kafka at {self.brokers} does not know {partition} ({error.str()}).")
            # A connection lost in the middle of a login has that code too, with one of librdkafka's own reasons.
            if error.code() in _LOGIN and "Local:" not in error.str():
                return SourceRefused(
                    f"Kafka at {self.brokers} refuses the login ({error.str()}); correct source.kafka.secretRef."
                )
        return None

    def _silent(self) -> ExactlyOnceError:
        partition, span = next(iter(self.unread.items()))
        noted = [error for error in self.noted if error.code() != KafkaError._ALL_BROKERS_DOWN]
        detail = noted[-1].str() if noted else "no answer in time"
        return SourceUnreachable(
            f"Kafka at {self.brokers} gave nothing of {partition} from {span.from_offset} on for {_PATIENCE_SECONDS:.0f} s "
            f"({detail}); nothing was decided, and it will be retried."
        )


def _at(key: Partition, offset: int = confluent_kafka.OFFSET_INVALID) -> Any:
    return confluent_kafka.TopicPartition(key.origin, key.key, offset)
