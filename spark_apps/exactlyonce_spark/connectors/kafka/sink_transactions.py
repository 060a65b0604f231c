"""One transactional id in Kafka: who takes it ends what was open under it, and alone writes from then on. No pyspark here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from exactlyonce.connectors.kafka.clients import destroy_dropped, destroy_later
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce.errors import RowsNotTaken, TransactionTooLong
from exactlyonce_spark.connectors.kafka.marker_reading import MarkerReader
from exactlyonce_spark.connectors.kafka.sink_errors import Named, Noted, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker

Headers = Sequence[tuple[str, bytes]]

ASK_SECONDS = 60.0
"""So long is one answer waited for, other than those to records."""

MOST_RECORD_BYTES = 67_108_864
"""A record may be as large where its topic takes it: the driver holds that many bytes that are on their way."""

_QUEUED_KILOBYTES = MOST_RECORD_BYTES // 1024
_MARKED_PARTITION = 0

_RAISED = (KafkaException, SystemError)
"""What any call of a client may raise: a fatal error comes out of the next one, and from within a callback as SystemError."""

_SAYS_LITTLE = {
    KafkaError._STATE,
    KafkaError._FATAL,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
}
"""What follows from an error and does not name it."""

_FOR_NOW = {
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""What passes within moments, although the client does not say so of answers to an admin."""


class Transactions(Protocol):
    """What a target needs of one transactional id. There is one transaction at a time."""

    def take(self) -> Marker | None:
        """Take the id, end what was open under it, and return the marker as it then stands; None where there is none.

        From then on no earlier producer commits anything under the id, so the marker changes by this one's commits alone.
        """
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Send a record in it; that it was taken is known when `mark` returns."""
        ...

    def mark(self, marker: Marker) -> None:
        """Put the marker into the transaction, and wait until the brokers have all of it."""
        ...

    def commit(self) -> None:
        """Commit it. Where this raises, only `take` tells what became of it."""
        ...

    def abort(self) -> None:
        """Abort it."""
        ...


class KafkaTransactions:
    """`Transactions` over librdkafka; `properties` say how the brokers are reached, and as whom.

    The marker is in the consumer group of the same name. `most_bytes` is what the topic takes: librdkafka puts no more into one
    request, since Kafka refuses a request as a whole, and no more than `MOST_RECORD_BYTES`.

    Raises:
        KafkaRefuses: from the constructor, if no client can be made of the properties.
    """

    def __init__(self, named: Named, properties: Mapping[str, Any], timeout_seconds: float, most_bytes: int) -> None:
        self._named = named
        self._timeout_seconds = timeout_seconds
        self._noted = Noted()
        self._failed: KafkaError | None = None
        self._began = 0.0
        self._delivered_at: float | None = None
        self._marked = TopicPartition(named.topic, _MARKED_PARTITION)
        common = {**with_tokens(properties), "log_level": 0, "error_cb": self._noted.kept.append}
        most = min(max(1_000, most_bytes), MOST_RECORD_BYTES)
        self._is_capped = most < most_bytes
        producing = {
            **common,
            "transactional.id": named.transactional_id,
            "transaction.timeout.ms": int(timeout_seconds * 1000),
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",  # as Kafka's own clients place records
            "message.max.bytes": most,
            "batch.size": min(1_000_000, most),
            "queue.buffering.max.kbytes": _QUEUED_KILOBYTES,
            "on_delivery": self._delivered,
        }
        of_a_producer = ("compression.type", "linger.ms")
        self._reading = {key: value for key, value in common.items() if key not in of_a_producer}
        destroy_dropped()
        with named.making_a_client():
            self._producer = Producer(producing)
            # It is never subscribed and asks nothing: it says which group the producer marks.
            member = Consumer({**self._reading, "group.id": named.transactional_id, "enable.auto.commit": False})
        destroy_later(self, self._producer)
        self._group = member.consumer_group_metadata()
        member.close()

    def take(self) -> Marker | None:
        """Take the id. Once it is taken, what was open before has been committed or aborted in every partition."""
        self._asked("taking the transactional id", self._producer.init_transactions)
        reader = MarkerReader(self._named, self._reading)
        found = self._asked("reading the marker", lambda left: self._read_marker(reader, left))
        return Marker.from_metadata(found.metadata) if found.offset >= 0 else None

    def begin(self) -> None:
        """Begin a transaction."""
        self._failed, self._began, self._delivered_at = None, time.monotonic(), None
        self._now("beginning a transaction", self._producer.begin_transaction)

    def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Send a record, and wait while too many are on their way."""
        told = list(headers) if headers else None
        while True:
            try:
                self._producer.produce(self._named.topic, value=value, key=key, headers=told)
                self._producer.poll(0)
            except BufferError:
                self._wait_for_answers(self._producer.poll)
            except _RAISED as problem:
                raise self._not_sent(problem, value) from problem
            else:
                return

    def mark(self, marker: Marker) -> None:
        """Put the marker in, behind the records, and wait for the answers to all of them."""
        while self._wait_for_answers(self._producer.flush):
            pass
        offset = TopicPartition(self._named.topic, _MARKED_PARTITION, marker.offset, metadata=marker.to_metadata())
        self._asked(
            "marking the transaction",
            lambda left: self._producer.send_offsets_to_transaction([offset], self._group, left),
        )

    def commit(self) -> None:
        """Commit; what the brokers have not said within a minute the next driver finds out."""
        self._began = 0.0  # the batch is decided: that its transaction was open for too long is no failure of it
        self._asked("committing", self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort."""
        self._began = 0.0  # what is given up is no longer too long, and no failure of the batch that comes next
        self._asked("aborting", self._producer.abort_transaction)

    def _read_marker(self, reader: MarkerReader, seconds: float) -> TopicPartition:
        try:
            return reader.read(self._marked, seconds)
        except FutureTimeoutError as problem:
            raise self._unanswered("reading the marker", "no answer in time") from problem

    def _delivered(self, problem: KafkaError | None, _message: Any) -> None:
        if problem is None:
            self._delivered_at = time.monotonic()
        elif self._failed is None or self._failed.code() in _SAYS_LITTLE:
            self._failed = problem

    def _require_none_failed(self) -> None:
        if self._failed is not None:
            raise self._error(self._failed, "sending records")

    def _wait_for_answers(self, call: Callable[[float], object]) -> bool:
        """Wait for answers to records for a moment, and return whether some are still lacking.

        Brokers abort the transaction at its timeout. Where they have taken records until now the batch is too large for it;
        where they have not, they are away.
        """
        try:
            call(1.0)
        except _RAISED as problem:
            raise self._error(self._cause(problem), "sending records") from problem
        self._require_none_failed()
        lacks = len(self._producer) > 0
        if lacks and time.monotonic() - self._began > self._timeout_seconds:
            raise self._too_slow() if self._takes_records else self._unanswered("sending records", "no answer in time")
        return lacks

    @property
    def _takes_records(self) -> bool:
        return self._delivered_at is not None and time.monotonic() - self._delivered_at < ASK_SECONDS

    def _not_sent(self, problem: Exception, value: bytes | None) -> Exception:
        is_unfit = isinstance(problem, KafkaException) and problem.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        if is_unfit and self._is_capped:
            return RowsNotTaken(
                f"A record for topic {self._named.topic} has a value of {len(value or b'')} bytes. sink.kafka sends none of "
                f"more than {MOST_RECORD_BYTES} bytes with its key and headers, whatever the topic takes; mend the query."
            )
        return self._error(self._cause(problem), "sending a record")

    def _cause(self, problem: Exception) -> KafkaError:
        """Return what stands behind an error that a call has raised while a transaction is open.

        In a transaction that has failed librdkafka says of a new record only that the state is wrong. It tells the cause to who
        begins another one, which it refuses, as it does while one is open.

        Source: rd_kafka_txn_require_state0 in rdkafka_txnmgr.c.
        """
        found = [] if self._failed is None else [self._failed]
        if isinstance(problem, KafkaException):
            found.append(problem.args[0])
        if all(one.code() in _SAYS_LITTLE for one in found):
            try:
                self._producer.begin_transaction()
            except KafkaException as told:
                found.append(told.args[0])
        said = [one for one in found if one.code() not in _SAYS_LITTLE]
        return next(iter([*said, *found]), KafkaError(KafkaError._FATAL))

    def _now(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except _RAISED as problem:
            raise self._error(self._cause(problem), doing) from problem

    def _asked(self, doing: str, call: Callable[[float], Any]) -> Any:
        """Ask until there is an answer, or the time is over; each of these calls may be repeated."""
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                answer = call(max(0.1, deadline - time.monotonic()))
            except SystemError as problem:
                raise self._error(self._cause(problem), doing) from problem
            except KafkaException as problem:
                error = problem.args[0]
                if not error.retriable() and error.code() not in _FOR_NOW:
                    told = self._failed if self._failed and self._failed.code() not in _SAYS_LITTLE else error
                    raise self._error(told, doing) from problem
                if time.monotonic() >= deadline:
                    raise self._unanswered(doing, error.str()) from problem
                threading.Event().wait(0.05)
            else:
                self._noted.kept.clear()
                return answer

    def _error(self, problem: KafkaError, doing: str) -> Exception:
        if problem.code() == KafkaError._MSG_TIMED_OUT and self._began and self._takes_records:
            return self._too_slow()  # a record waits as long as the transaction may be open
        error = self._noted.error(self._named, doing, problem, self._producer.poll)
        is_late = self._began and time.monotonic() - self._began > self._timeout_seconds
        return self._too_long("so Kafka has aborted it") if isinstance(error, TransactionGone) and is_late else error

    def _too_slow(self) -> TransactionTooLong:
        return self._too_long("and Kafka has not taken all of its records by then")

    def _too_long(self, what: str) -> TransactionTooLong:
        lasted = time.monotonic() - self._began
        return TransactionTooLong(
            f"The transaction of {self._named.transactional_id} was open for {lasted:.0f} s, longer than "
            f"sink.kafka.transactionTimeout, {what}; raise that, or let a batch read less."
        )

    def _unanswered(self, doing: str, said: str) -> Exception:
        return self._noted.unanswered(self._named, doing, said, self._producer.poll)
