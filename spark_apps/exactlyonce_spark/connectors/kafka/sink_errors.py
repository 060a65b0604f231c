"""What a Kafka client says of a topic that is written to, as errors named by situation. Performs no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from exactlyonce.errors import ExactlyOnceError, RefusedOutside, RowsNotTaken, Unreachable

_TRANSACTION_ABORTABLE = 120
"""Of KIP-890; the oldest client that is supported has no name for it."""

ENDED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    _TRANSACTION_ABORTABLE,
}
NO_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}
_NO_TRANSACTIONS = {
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_OF_A_RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,  # of a record that is good, and shares a request with one that is not
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class KafkaRefuses(RefusedOutside):
    """Kafka refuses to be written to: a login, a right, a topic that is not there, a setting of its brokers."""


class KafkaAway(Unreachable):
    """Kafka did not answer: what it was asked to do may still happen, until another driver takes the transactional id."""


class TransactionGone(Unreachable):
    """The producer is fenced: a later one has its transactional id, or the brokers have aborted its transaction."""


class IdForgotten(Unreachable):
    """The brokers have forgotten the transactional id, as nothing was written under it for long; it is to be taken again."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a sentence about a sink names. `field` is the part of the resource that says how the brokers are reached."""

    brokers: str
    topic: str
    transactional_id: str
    field: str = "sink.kafka"

    def error(self, problem: KafkaError, doing: str) -> ExactlyOnceError:
        """Return the error for what the client says, while `doing` something, such as `committing`."""
        code, said = problem.code(), f"{doing}: {problem.str()}"
        at = f"Kafka at {self.brokers}"
        if code in ENDED:
            return TransactionGone(
                f"{at} has ended the transaction of {self.transactional_id} ({said}): it was open for longer than "
                "sink.kafka.transactionTimeout, or a later driver or replay has begun. The next one finds out what has been "
                "committed."
            )
        if code == KafkaError.INVALID_PRODUCER_ID_MAPPING:
            return IdForgotten(
                f"{at} has forgotten the transactional id {self.transactional_id} ({said}), as it does with one that writes "
                "nothing for transactional.id.expiration.ms. The next driver takes the id again."
            )
        if code in _OF_A_RECORD:
            return RowsNotTaken(
                f"{at} does not take a record for topic {self.topic} ({said}); mend the query, or the topic's "
                "max.message.bytes or cleanup.policy."
            )
        refused = self._refusal(code)
        if refused is not None:
            return KafkaRefuses(f"{at} refuses ({said}). {refused}")
        return KafkaAway(f"{at} does not answer ({said}); it will be retried.")

    @contextmanager
    def making_a_client(self) -> Iterator[None]:
        """Name properties of which librdkafka makes no client; it tells the property, and no password."""
        try:
            yield
        except KafkaException as problem:
            raise KafkaRefuses(
                f"No client can be made for Kafka at {self.brokers} ({problem.args[0].str()}); correct {self.field}.properties "
                f"or the secret that {self.field}.secretRef names."
            ) from problem

    def _refusal(self, code: int) -> str | None:
        """Return what a person has to do, where waiting changes nothing."""
        if code in NO_LOGIN:
            return f"Correct the login in the secret that {self.field}.secretRef names."
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return f"Grant the login DESCRIBE and WRITE on the transactional id {self.transactional_id}."
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return f"Grant the login READ on the consumer group {self.transactional_id}."
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"Grant the login DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on the topic {self.topic}."
        if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return "Grant the login IDEMPOTENT_WRITE on the cluster, which brokers before 2.8 ask for."
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return "Lower sink.kafka.transactionTimeout, or raise transaction.max.timeout.ms of the brokers."
        if code in _NO_TRANSACTIONS:
            return (
                "Its brokers do not know what sink.kafka asks of them; it needs Kafka 2.5 or later, and the message format of "
                "0.11 or later."
            )
        if code in _NO_TOPIC:
            return f"Create the topic {self.topic}; sink.kafka creates none."
        return None


_ERRORS_KEPT = 50


@dataclass(frozen=True)
class Noted:
    """What a client tells of its connections by a callback: why one was refused, where a request says only "timed out"."""

    kept: deque[KafkaError] = field(default_factory=lambda: deque(maxlen=_ERRORS_KEPT))

    def error(self, named: Named, doing: str, problem: KafkaError, poll: Callable[[float], object]) -> ExactlyOnceError:
        """Return the error for what a request says, or for what is noted where it says that nobody answers.

        `poll` has the client hand out what it has noted.
        """
        error = named.error(problem, doing)
        return self.unanswered(named, doing, problem.str(), poll) if isinstance(error, KafkaAway) else error

    def unanswered(self, named: Named, doing: str, said: str, poll: Callable[[float], object]) -> ExactlyOnceError:
        """Return what stands behind an answer that is missing."""
        with suppress(KafkaException, SystemError):  # a fatal error comes out of any call, and was told as `said`
            poll(0)
        noted = [error for error in list(self.kept) if error.code() != KafkaError._ALL_BROKERS_DOWN]
        for error in noted:
            # A connection lost in the middle of a login has that code too, with one of librdkafka's own reasons.
            if error.code() in NO_LOGIN and "Local:" not in error.str():
                return named.error(error, doing)
        detail = noted[-1].str() if noted else said
        return KafkaAway(f"Kafka at {named.brokers} does not answer ({doing}: {detail}); it will be retried.")
