"""A Kafka client whose every answer is awaited for a bounded time, with errors named by situation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from exactlyonce.connectors.kafka.clients import destroy_dropped, destroy_later
from exactlyonce.connectors.kafka.records import KafkaRecords
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce.errors import OriginMissing, RefusedOutside, SourceRefused, SourceUnreachable

Result = TypeVar("Result")

_NO_RIGHT = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_NO_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART}
_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    # The client knows an older leader than the broker does, or a newer one.
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # By the client's own list of topics and leaders, which may be older than a partition.
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._NOENT,
}


_NO_COORDINATOR = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    # A transaction that commits offsets of the group has not ended.
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


# A client may be kept for hours: brokers that are back are found within a second, not after the usual ten.
_LONG_LIVED = {"reconnect.backoff.max.ms": "1000"}
_ERRORS_KEPT = 50


class LeaderMoves(SourceUnreachable):
    """No leader of a partition is known at this moment: it is new, or its leader's broker is being restarted."""


class CoordinatorMoves(SourceUnreachable):
    """The broker that keeps a consumer group's offsets cannot tell them at this moment."""


class NoGroup(SourceRefused):
    """There is no consumer group of that name."""


class KafkaAdmin:
    """An AdminClient for the brokers at `brokers`; each question has `timeout_seconds`. Threads may share it.

    Raises:
        SourceRefused: from the constructor, if no client can be made of the properties.
    """

    def __init__(self, brokers: str, properties: Mapping[str, str], timeout_seconds: float) -> None:
        self.brokers = brokers
        self.timeout_seconds = timeout_seconds
        self._errors: deque[KafkaError] = deque(maxlen=_ERRORS_KEPT)
        self.records = KafkaRecords(brokers, properties)
        own = {"error_cb": self._errors.append, "log_level": 0}
        destroy_dropped()
        try:
            self.client = AdminClient({**_LONG_LIVED, **with_tokens(properties), **own})
        except KafkaException as problem:
            raise SourceRefused(
                f"No client can be made for Kafka at {brokers} ({problem.args[0].str()}); correct "
                "source.kafka.properties or the secret that source.kafka.secretRef names."
            ) from problem
        destroy_later(self, self.client)

    def answer(self, future: Future[Any]) -> Any:
        """Await one answer; raises as `named`."""
        return self.named(lambda: future.result(self.timeout_seconds + 1))

    def named(self, call: Callable[[], Result]) -> Result:
        """Ask, and turn what goes wrong into an error named by situation.

        Raises:
            OriginMissing, NoGroup, SourceRefused, LeaderMoves, CoordinatorMoves, SourceUnreachable: by what the brokers said,
                if anything.
        """
        destroy_dropped()
        try:
            answer = call()
        except FutureTimeoutError as problem:
            raise self._unreachable("no answer in time") from problem
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() in _NO_TOPIC:
                raise OriginMissing(f"Kafka at {self.brokers} does not know the topic ({error.str()}).") from problem
            if error.code() in _NO_RIGHT | _NO_LOGIN:
                raise SourceRefused(
                    f"Kafka at {self.brokers} refuses: {error.str()}. Correct the login in source.kafka.secretRef or "
                    "grant it DESCRIBE and READ on the topics."
                ) from problem
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise SourceRefused(
                    f"Kafka at {self.brokers} refuses: {error.str()}. Correct the login in source.kafka.secretRef or grant it "
                    "DESCRIBE on the consumer group."
                ) from problem
            if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                raise NoGroup(f"Kafka at {self.brokers} does not know the consumer group ({error.str()}).") from problem
            if error.code() in _NO_COORDINATOR:
                raise CoordinatorMoves(
                    f"Kafka at {self.brokers} cannot tell the offsets of a consumer group now ({error.str()}); it is "
                    "tried again."
                ) from problem
            if error.code() in _NO_LEADER:
                raise LeaderMoves(
                    f"Kafka at {self.brokers} names no leader of a partition ({error.str()}); it will be retried."
                ) from problem
            raise self._unreachable(error.str()) from problem
        self._noted_errors()
        self._errors.clear()
        return answer

    def _unreachable(self, said: str) -> RefusedOutside | SourceUnreachable:
        noted = self._noted_errors()
        for error in noted:
            # A connection lost in the middle of a login has that code too, with one of librdkafka's own reasons.
            if error.code() in _NO_LOGIN and "Local:" not in error.str():
                return SourceRefused(
                    f"Kafka at {self.brokers} refuses the login ({error.str()}); correct source.kafka.secretRef."
                )
        detail = noted[-1].str() if noted else said
        return SourceUnreachable(
            f"Kafka at {self.brokers} does not answer ({detail}); nothing was decided, and it will be retried."
        )

    def _noted_errors(self) -> list[KafkaError]:
        """What went wrong with connections since the latest answer; the client hands it out when it is polled."""
        self.client.poll(0)
        return [error for error in list(self._errors) if error.code() != KafkaError._ALL_BROKERS_DOWN]
