"""What a driver refuses of a topic before Spark starts: each by one sentence that names what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from exactlyonce.api.resource import parse_stream
from exactlyonce.ledger.known_loads import digest_of
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.kafka import sink_checks
from exactlyonce_spark.connectors.kafka.sink import KafkaSinkConnector, PreparedKafka
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaAway, KafkaRefuses
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from testbed.kafka import Kafka
from testbed.processes import free_port
from tests.conftest import SASL_PASSWORD, SASL_USER
from tests.ledgers import STREAM, started
from tests.resource_documents import document
from tests.rig import eventually
from tests.simulation.database import MemoryDatabase, MemoryLedger

NOTHING = ""
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def prepared(
    kafka: Kafka, topic: str, changes: Mapping[str, Any] | None = None, *, password: str = SASL_PASSWORD
) -> PreparedKafka:
    """Prepare a stream whose life has the topic's name, so that no other test has its transactional id."""

    def secrets(reference: SecretRef | None) -> Mapping[str, str]:
        return {} if reference is None else {"username": SASL_USER, "password": password}

    sink = {
        "bootstrapServers": f"{kafka.host}:{kafka.sasl_port}",
        "topic": topic,
        "properties": SASL,
        "secretRef": {"name": "kafka"},
    }
    given = {
        "spec.source.kafka.bootstrapServers": kafka.bootstrap_servers,
        "spec.sink": {"kafka": sink},
        **(changes or {}),
    }
    spec = parse_stream(document(given), "the test").spec
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    return KafkaSinkConnector().prepare(spec, secrets, ledger, permit, replace(view.stream, token=topic))


def granted(kafka: Kafka, kind: ResourceType, name: str, *operations: AclOperation, user: str = SASL_USER) -> None:
    """Grant a user these operations on what has no ACL yet, and with that nobody else any."""
    admin: AdminClient = kafka.admin()
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for answer in admin.create_acls(bindings).values():
        answer.result(30)


def test_a_topic_that_is_not_there_is_not_created(kafka: Kafka, name: str) -> None:
    with pytest.raises(KafkaRefuses, match=f"Create the topic {name}; sink.kafka creates none"):
        prepared(kafka, name)


def test_a_wrong_password_is_one_sentence_without_the_password(
    kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_checks, "_ASK_SECONDS", 2.0)
    with pytest.raises(
        KafkaRefuses, match=r"Correct the login in the secret that sink\.kafka\.secretRef names"
    ) as told:
        prepared(kafka, name, password="canary")
    assert "canary" not in str(told.value)


def test_brokers_that_do_not_answer_are_waited_for(kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_checks, "_ASK_SECONDS", 1.0)
    nowhere = {"kafka": {"bootstrapServers": f"127.0.0.1:{free_port()}", "topic": name}}
    with pytest.raises(KafkaAway, match="does not answer"):
        prepared(kafka, name, {"spec.sink": nowhere})


def test_each_right_that_is_lacking_is_named(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 1)
    reads = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ)
    granted(kafka, ResourceType.TOPIC, name, *reads)
    says(kafka, name, f"The login of sink.kafka lacks WRITE on the topic {name}")
    granted(kafka, ResourceType.TOPIC, name, AclOperation.WRITE)
    says(kafka, name, NOTHING)
    own = prepared(kafka, name).written.transactional_id
    granted(kafka, ResourceType.TRANSACTIONAL_ID, own, AclOperation.WRITE, user="somebody")
    says(kafka, name, f"Grant the login DESCRIBE and WRITE on the transactional id {own}")
    granted(kafka, ResourceType.TRANSACTIONAL_ID, own, AclOperation.WRITE)
    granted(kafka, ResourceType.GROUP, own, AclOperation.READ, user="somebody")
    says(kafka, name, f"Grant the login READ on the consumer group {own}")
    granted(kafka, ResourceType.GROUP, own, AclOperation.READ)
    says(kafka, name, NOTHING)
    one = prepared(kafka, name).written.transactions
    one.begin()
    one.send(None, b"row", ())
    one.mark(Marker())
    one.commit()


def says(kafka: Kafka, topic: str, words: str) -> None:
    """Wait until a driver is refused by these words, or by none: brokers hear of an ACL a moment after it is made."""

    def refusal() -> str:
        try:
            prepared(kafka, topic)
        except KafkaRefuses as problem:
            return str(problem)
        return NOTHING

    eventually(lambda: (found := refusal()) == words or bool(words and words in found), f"it says {words!r}")


def test_a_pattern_that_selects_the_sinks_own_topic_is_refused(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 1)
    source = {"bootstrapServers": kafka.bootstrap_servers, "topicPattern": f"{name}.*"}
    with pytest.raises(KafkaRefuses, match="each row would be read as a record again"):
        prepared(kafka, name, {"spec.source.kafka": source})


def test_brokers_keep_the_records_of_the_latest_load_in_its_marker_as_many_as_fit(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 1)
    fits = tuple((Partition("orders", number), OffsetRange(10**9, 10**9 + 5_000)) for number in range(100))
    for batch, spans in ((41, fits), (42, (*fits, *((Partition("payments", key.key), span) for key, span in fits)))):
        one = prepared(kafka, name).written.transactions
        one.begin()
        one.mark(Marker("a label", BatchNumber(batch), 7, spans))
        one.commit()
        found = prepared(kafka, name).written.latest(None)
        assert found is not None
        assert (found.label, found.batch, found.rows) == ("a label", batch, 7)
        assert (found.spans, found.digest) == ((spans, "") if spans is fits else (None, digest_of(spans)))
