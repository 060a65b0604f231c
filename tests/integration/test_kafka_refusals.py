"""What the source says when it cannot be asked: unreachable, refused, never an empty answer and never a secret."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.properties import consumer_properties
from exactlyonce.connectors.kafka.reading import RangeReader
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import SecretMissing, SourceRefused, SourceUnreachable
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce.source.port import Bounds
from testbed.kafka import Kafka
from testbed.processes import free_port
from tests.conftest import QUOTING_PASSWORD, QUOTING_USER
from tests.rig import eventually
from tests.topics import made, produced, source

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
LIMIT_SECONDS = 1.5


@pytest.fixture(params=["nobody listens", "something listens and stays silent"])
def unreachable(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker that does not answer."""
    if request.param == "nobody listens":
        yield f"127.0.0.1:{free_port()}"
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "selection", [{"topics": ["orders"]}, {"topicPattern": ".*"}, {"assign": [{"topic": "orders", "partitions": [0]}]}]
)
def test_an_unreachable_broker_is_an_error_and_never_an_empty_answer(
    unreachable: str, selection: dict[str, Any]
) -> None:
    asked = source(unreachable, timeout=LIMIT_SECONDS, **selection)
    with pytest.raises(SourceUnreachable, match=rf"Kafka at {unreachable} does not answer \(.+\); nothing was decided"):
        asked.view()
    with pytest.raises(SourceUnreachable, match=rf"Kafka at {unreachable} does not answer"):
        asked.now([Partition("orders", 0)])


@pytest.mark.timeout(120)
def test_a_broker_that_freezes_is_unreachable_until_it_goes_on(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 3)
    asked = source(kafka.bootstrap_servers, timeout=LIMIT_SECONDS, topics=[name])
    before = asked.view()
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        eventually(lambda: psutil.Process(kafka.pid).status() == psutil.STATUS_STOPPED, "the broker is frozen")
        with pytest.raises(SourceUnreachable, match=f"Kafka at {kafka.bootstrap_servers} does not answer"):
            asked.view()
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    eventually(lambda: reached_again(asked), "the same source answers again")
    assert asked.view() == before


def reached_again(asked: KafkaBounds) -> bool:
    try:
        asked.view()
    except SourceUnreachable:
        return False
    return True


def login(password: str) -> dict[str, str]:
    return {"username": QUOTING_USER, "password": password}


def test_a_login_with_quotes_and_backslashes_in_its_password_is_taken(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 3)
    brokers = f"127.0.0.1:{kafka.sasl_port}"
    assert '"' in QUOTING_PASSWORD
    assert "\\" in QUOTING_PASSWORD
    view = source(brokers, topics=[name], properties=SASL, secret=login(QUOTING_PASSWORD)).view()
    assert view.bounds == {Partition(name, 0): Bounds(0, 3)}


def test_the_same_login_reads_records(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 3)
    brokers = f"127.0.0.1:{kafka.sasl_port}"
    document = {"bootstrapServers": brokers, "topics": [name], "properties": SASL, "secretRef": {"name": "k"}}
    reader = RangeReader(consumer_properties(KafkaSource.model_validate(document), login(QUOTING_PASSWORD)))
    read = [it.value() for _, them in reader.read(Ranges({Partition(name, 0): OffsetRange(0, 3)})) for it in them]
    assert read == [b"0", b"1", b"2"]
    reader.close()


@pytest.mark.parametrize("selection", [{"topics": ["orders"]}, {"topicPattern": ".*"}])
def test_a_wrong_password_is_one_sentence_without_the_password(kafka: Kafka, selection: dict[str, Any]) -> None:
    brokers, wrong = f"127.0.0.1:{kafka.sasl_port}", "a-wrong-password"
    asked = source(brokers, properties=SASL, secret=login(wrong), timeout=6.0, **selection)
    with pytest.raises(SourceRefused) as caught:
        asked.view()
    said = str(caught.value)
    assert said.startswith(f"Kafka at {brokers} refuses the login (")
    assert said.endswith("correct source.kafka.secretRef.")
    assert "\n" not in said
    assert wrong not in said
    assert QUOTING_PASSWORD not in said


def test_a_login_without_a_password_in_the_secret_is_refused_before_anything_is_asked(kafka: Kafka) -> None:
    with pytest.raises(SecretMissing, match="Secret kafka-client lacks password, which a SASL login needs"):
        source(kafka.bootstrap_servers, topics=["orders"], properties=SASL, secret={"username": "reader"})


def test_a_mechanism_that_is_not_supported_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ValidationError, match=r"sasl\.mechanism is one of PLAIN, SCRAM-SHA-256"):
        source("127.0.0.1:1", topics=["orders"], properties={**SASL, "sasl.mechanism": "GSSAPI"}, secret=login("x"))


@pytest.mark.parametrize(
    ("properties", "secret", "said"),
    [
        ({"security.protocol": "PIGEON"}, {}, "security.protocol"),
        ({"security.protocol": "SSL"}, {"ca.crt": "no certificate"}, "ssl.ca.pem"),
    ],
)
def test_properties_that_no_client_can_be_made_of_are_one_sentence(
    kafka: Kafka, properties: dict[str, str], secret: dict[str, str], said: str
) -> None:
    with pytest.raises(SourceRefused) as caught:
        source(kafka.bootstrap_servers, topics=["orders"], properties=properties, secret=secret)
    assert str(caught.value).startswith(f"No client can be made for Kafka at {kafka.bootstrap_servers} (")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
