"""Read single records of Kafka partitions, for their fingerprints; nothing of their content is kept.

Read uncommitted, whatever the stream reads: a record of an aborted transaction identifies a log as well as any other, and what
is compared does not depend on a property that may be changed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from exactlyonce.connectors.kafka.clients import destroy_later
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce.errors import SourceUnreachable
from exactlyonce.positions.fingerprint import Fingerprint, digest_of
from exactlyonce.positions.ranges import OffsetRange, Partition

_READ_AT_ONCE = 200
_POLL_SECONDS = 0.5
_CONSUMERS_KEPT = 4
_LOOKED_BACK = (2, 64, 2048)
"""How many offsets before its end a range is read: the first finds the record before a transaction's marker, the others one
before a gap that compaction left."""

# As the monitor's (fleet.py): little is wanted of each partition, and at once. Out of range is an answer here.
_CONSUMER = {
    "group.id": "exactlyonce-records",  # the client asks for one; no group is joined and nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 262_144,
    "fetch.max.bytes": 8_388_608,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": "1000",
    "log_level": 0,
}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED}

Windows = Mapping[Partition, OffsetRange]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The last record of each window that was read to its end, or None; `outside` are windows that begin outside of the log."""

    last: Mapping[Partition, Fingerprint | None]
    outside: frozenset[Partition]


class KafkaRecords:
    """Reads records with consumers that are kept; threads may share it. Asks nobody anything until it is used."""

    def __init__(self, brokers: str, properties: Mapping[str, str]) -> None:
        self._brokers = brokers
        self._properties = dict(properties)
        self._idle: deque[Any] = deque()
        destroy_later(self, self._idle)

    def at(self, offsets: Mapping[Partition, int], timeout_seconds: float) -> dict[Partition, Fingerprint | None]:
        """Return the record at each offset, None where there is none; offsets outside of the log are left out.

        Raises:
            SourceUnreachable: if not every partition has answered in time.
            KafkaException: if the brokers refuse.
        """
        windows = {key: OffsetRange(offset, offset + 1) for key, offset in offsets.items()}
        scanned = self._scan(windows, time.monotonic() + timeout_seconds)
        silent = [str(key) for key in offsets if key not in scanned.last and key not in scanned.outside]
        if silent:
            raise SourceUnreachable(
                f"Kafka at {self._brokers} gave no record of {', '.join(sorted(silent)[:10])} within {timeout_seconds:.0f} s; "
                "nothing was decided, and it will be retried."
            )
        return dict(scanned.last)

    def last_of(self, ranges: Windows, timeout_seconds: float) -> dict[Partition, Fingerprint]:
        """Return the last record of each range, as far as one is found near its end and in time.

        Raises:
            KafkaException: if the brokers refuse.
        """
        deadline = time.monotonic() + timeout_seconds
        found: dict[Partition, Fingerprint] = {}
        for looked_back in _LOOKED_BACK:
            windows = {
                key: OffsetRange(max(span.from_offset, span.until_offset - looked_back), span.until_offset)
                for key, span in ranges.items()
                if key not in found
            }
            if not windows:
                break
            last = self._scan(windows, deadline).last
            found |= {key: fingerprint for key, fingerprint in last.items() if fingerprint is not None}
        return found

    def _scan(self, windows: Windows, deadline: float) -> Scanned:
        last: dict[Partition, Fingerprint | None] = {}
        outside: set[Partition] = set()
        waiting = iter(sorted(windows.items()))
        with self._consumer() as consumer:
            while time.monotonic() < deadline and (chunk := dict(islice(waiting, _READ_AT_ONCE))):
                _read(consumer, chunk, deadline, last, outside)
        return Scanned(last, frozenset(outside))

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """Lend a consumer; one that something went wrong with is closed."""
        consumer = (
            self._idle.pop()
            if self._idle
            else Consumer({**with_tokens(self._properties), **_CONSUMER, "error_cb": _passed_over})
        )
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        if len(self._idle) < _CONSUMERS_KEPT:
            self._idle.append(consumer)
        else:
            consumer.close()


def _read(
    consumer: Any,
    windows: Windows,
    deadline: float,
    last: dict[Partition, Fingerprint | None],
    outside: set[Partition],
) -> None:
    """Read each window to its end, and let go of a partition as soon as it is there."""
    newest: dict[Partition, Fingerprint] = {}
    reading = set(windows)
    consumer.assign(
        [confluent_kafka.TopicPartition(key.origin, key.key, span.from_offset) for key, span in windows.items()]
    )
    try:
        while reading and time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None or message.topic() is None:
                continue
            key = Partition(message.topic(), message.partition())
            if key not in reading:
                continue
            if message.error() is None and windows[key].from_offset <= message.offset() < windows[key].until_offset:
                newest[key] = _fingerprint(message)
            if _is_over(message, windows[key]):
                reading.discard(key)
                if message.error() is not None and message.error().code() in _OUT_OF_RANGE:
                    outside.add(key)
                else:
                    last[key] = newest.get(key)
                consumer.incremental_unassign([confluent_kafka.TopicPartition(key.origin, key.key)])
    finally:
        consumer.unassign()


def _is_over(message: Any, window: OffsetRange) -> bool:
    """Whether a message shows that a window has been read to its end.

    Raises:
        KafkaException: if it is a refusal.
    """
    error = message.error()
    if error is None:
        return bool(message.offset() >= window.until_offset - 1)
    if error.code() in _REFUSED:
        raise KafkaException(error)
    return bool(error.code() == KafkaError._PARTITION_EOF or error.code() in _OUT_OF_RANGE)


def _fingerprint(message: Any) -> Fingerprint:
    kind, milliseconds = message.timestamp()
    timestamp = None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else int(milliseconds)
    digest = digest_of(message.key(), message.value(), message.headers() or (), timestamp)
    epoch = message.leader_epoch()
    return Fingerprint(message.offset(), digest, timestamp, None if epoch is None or epoch < 0 else epoch)


def _passed_over(error: Any) -> None:
    """What goes wrong with a connection is told by the questions; a read that brings nothing is told as that."""
