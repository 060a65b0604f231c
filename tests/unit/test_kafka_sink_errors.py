"""What a Kafka client says of a topic that is written to is told apart: refused, unreachable, or a record that does not fit."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from exactlyonce.errors import ExactlyOnceError, RowsNotTaken
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaAway, KafkaRefuses, Named, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from exactlyonce_spark.failures import ending_of

NAMED = Named("127.0.0.1:9", "rows", "exactlyonce:shop_orders:0123")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError._FENCED, TransactionGone, "a later driver or replay has begun"),
        (KafkaError.INVALID_PRODUCER_EPOCH, TransactionGone, "open for longer than sink.kafka.transactionTimeout"),
        (KafkaError.MSG_SIZE_TOO_LARGE, RowsNotTaken, "max.message.bytes"),
        (KafkaError.INVALID_RECORD, RowsNotTaken, "cleanup.policy"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefuses, "READ and WRITE on the topic rows"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaRefuses,
            "the transactional id exactlyonce:shop_orders:0123",
        ),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaRefuses, "the consumer group exactlyonce:shop_orders:0123"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaRefuses, "Correct the login"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaRefuses, "Lower sink.kafka.transactionTimeout"),
        (KafkaError.UNSUPPORTED_VERSION, KafkaRefuses, "it needs Kafka 2.5 or later"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaRefuses, "Create the topic rows"),
        (KafkaError.NOT_ENOUGH_REPLICAS, KafkaAway, "will be retried"),
        (KafkaError._TRANSPORT, KafkaAway, "will be retried"),
    ],
)
def test_each_answer_is_named_by_situation(code: int, kind: type[ExactlyOnceError], words: str) -> None:
    error = NAMED.error(KafkaError(code), "committing")
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        (RowsNotTaken, Ending.BATCH_FAILED),
        (TransactionGone, Ending.UNREACHABLE),
        (KafkaAway, Ending.UNREACHABLE),
        (KafkaRefuses, Ending.REFUSED),
    ],
)
def test_a_record_that_does_not_fit_alone_is_a_failure_of_its_batch(
    kind: type[ExactlyOnceError], ending: Ending
) -> None:
    assert ending_of(kind("said"), in_batch=True)[0] is ending


def test_properties_that_no_producer_can_be_made_of_are_one_sentence() -> None:
    properties = {"bootstrap.servers": NAMED.brokers, "compression.type": "squeezed"}
    with pytest.raises(KafkaRefuses, match=r"No client can be made .*compression.* correct sink\.kafka\.properties"):
        KafkaTransactions(NAMED, properties, 60.0, 1_000_000)


def test_a_login_of_the_source_that_is_refused_is_corrected_at_the_source() -> None:
    reading = Named("127.0.0.1:9", "rows", "id", "source.kafka")
    problem = reading.error(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED), "asking for the cluster")
    assert "Correct the login in the secret that source.kafka.secretRef names." in str(problem)
    with pytest.raises(
        KafkaRefuses, match=r"correct source\.kafka\.properties or the secret that source\.kafka\.secretRef"
    ):
        KafkaTransactions(reading, {"bootstrap.servers": reading.brokers, "compression.type": "squeezed"}, 60.0, 1_000)


@pytest.mark.parametrize("most_bytes", [0, 2_147_483_647])
def test_a_producer_can_be_made_for_each_size_that_a_topic_may_allow(most_bytes: int) -> None:
    KafkaTransactions(NAMED, {"bootstrap.servers": NAMED.brokers}, 60.0, most_bytes)


@pytest.mark.parametrize("seconds", [10.0, 3600.0])
def test_a_producer_can_be_made_for_each_time_that_the_resource_may_ask_for(seconds: float) -> None:
    KafkaTransactions(NAMED, {"bootstrap.servers": NAMED.brokers}, seconds, 100)
