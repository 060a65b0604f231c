"""Brokers before 2.5 are refused by what they answer to ApiVersions; librdkafka's own mock of one is told what to answer."""

from __future__ import annotations

import pytest

from exactlyonce_spark.connectors.kafka import sink_checks
from exactlyonce_spark.connectors.kafka.broker_versions import STABLE_OFFSET_FETCH, ToldVersions
from exactlyonce_spark.connectors.kafka.sink_checks import SinkAdmin
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaAway, KafkaRefuses, Named
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from tests.kafka_mock import OFFSET_FETCH, MockKafka, mock_kafka

TOPIC = "orders"


@pytest.mark.parametrize("most", [5, 6], ids=["Kafka 2.3", "Kafka 2.4"])
def test_a_broker_that_cannot_say_what_is_stable_is_refused_by_a_sentence(most: int) -> None:
    with mock_kafka(TOPIC) as kafka:
        kafka.knows(OFFSET_FETCH, range(most + 1))
        admin = SinkAdmin(Named(kafka.bootstrap, TOPIC, "exactlyonce:x"), {"bootstrap.servers": kafka.bootstrap})
        with pytest.raises(KafkaRefuses) as caught:
            admin.topic(TOPIC)
    at = kafka.bootstrap
    assert str(caught.value) == (
        f"The broker {at} of Kafka at {at} is older than 2.5 (it supports OffsetFetch up to version {most}, and 7 is "
        "required): a committed batch could be taken for an uncommitted one and be written twice. Upgrade the brokers, or "
        "write to other ones."
    )


def test_a_broker_of_2_5_is_asked_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock does not answer what is asked then."""
    told = ToldVersions()
    monkeypatch.setattr(sink_checks, "ToldVersions", lambda: told)
    monkeypatch.setattr(sink_checks, "_ASK_SECONDS", 1.0)
    with mock_kafka(TOPIC) as kafka:
        kafka.knows(OFFSET_FETCH, range(STABLE_OFFSET_FETCH + 1))
        admin = SinkAdmin(Named(kafka.bootstrap, TOPIC, "exactlyonce:x"), {"bootstrap.servers": kafka.bootstrap})
        with pytest.raises(KafkaAway, match=f"describing topic {TOPIC}"):
            admin.topic(TOPIC)
    assert told.are_told, "the client logs versions as it is expected to"


def transactions_of(kafka: MockKafka) -> KafkaTransactions:
    named = Named(kafka.bootstrap, TOPIC, "exactlyonce:x")
    return KafkaTransactions(named, {"bootstrap.servers": kafka.bootstrap}, 60.0, 1_000_000)


def test_the_broker_that_answers_for_the_marker_is_refused_whichever_one_was_asked_for_the_topic() -> None:
    """Brokers are upgraded one after another, and another one than that may coordinate the group."""
    with mock_kafka(TOPIC) as kafka:
        kafka.knows(OFFSET_FETCH, range(STABLE_OFFSET_FETCH))
        with pytest.raises(KafkaRefuses, match=r"is older than 2\.5 \(it supports OffsetFetch up to version 6"):
            transactions_of(kafka).take()


def test_the_marker_is_asked_for_of_a_broker_of_2_5() -> None:
    with mock_kafka(TOPIC) as kafka:
        kafka.knows(OFFSET_FETCH, range(STABLE_OFFSET_FETCH + 1))
        assert transactions_of(kafka).take() is None, "the mock keeps none"
