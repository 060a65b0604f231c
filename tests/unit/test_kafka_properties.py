"""What the operator's Kafka clients are made of: brokers and login, and nothing that only tells one stream from another."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import ValidationError

from exactlyonce.connectors.kafka import bounds
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.client_properties import ALLOWED, LOGIN
from exactlyonce.connectors.kafka.connector import KafkaAddress
from exactlyonce.connectors.kafka.properties import (
    consumer_properties,
    librdkafka_properties,
    own_librdkafka_properties,
)
from exactlyonce.connectors.kafka.reading import consumer_of
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.control.shared_clients import SharedClients

SECRET = {"username": "reads", "password": "canary"}
CLIENT = {"clientId": "reads", "clientSecret": "canary"}
OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
TLS = {"security.protocol": "SSL"}
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


def spec(servers: str = "a:9092,b:9092", **properties: Any) -> KafkaSource:
    given: dict[str, Any] = {"bootstrapServers": servers, "topics": ["orders"], "secretRef": {"name": "login"}}
    return KafkaSource.model_validate({**given, "properties": properties})


def shared(servers: str = "a:9092,b:9092", secret: Any = None, **properties: Any) -> dict[str, str]:
    return librdkafka_properties(spec(servers, **properties), secret or {})


def test_forty_streams_with_ids_and_racks_of_their_own_share_one_client() -> None:
    clients = SharedClients()
    sources = [
        clients.source(
            KafkaAddress(spec("127.0.0.1:1", **{"client.id": f"stream-{number}", "client.rack": f"rack-{number}"}), {})
        )
        for number in range(40)
    ]
    assert len({id(cast("KafkaBounds", source)._admin) for source in sources}) == 1


@pytest.mark.parametrize("key", sorted({*ALLOWED} - {*LOGIN}))
def test_no_property_that_only_splits_clients_reaches_the_operators(key: str) -> None:
    assert shared(**{key: "x"}) == shared()


@pytest.mark.parametrize("servers", ["b:9092,a:9092", " a:9092 , b:9092,", "A:9092,b:9092,a:9092"])
def test_the_same_brokers_are_the_same_however_they_are_written(servers: str) -> None:
    assert shared(servers) == shared()


def test_what_the_protocol_does_not_use_splits_no_clients() -> None:
    assert shared(secret={**SECRET, "ca.crt": PEM}) == shared(secret={"ca.crt": "another"}) == shared()
    assert shared(secret=SECRET, **{"sasl.mechanism": "PLAIN"}) == shared()
    assert shared(secret={"ca.crt": f"# mine\r\n{PEM}\r\n"}, **TLS) == shared(secret={"ca.crt": PEM}, **TLS)
    assert shared(**{"security.protocol": "plaintext"}) == shared()


def test_what_decides_who_is_asked_and_as_whom_is_kept_apart() -> None:
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    made = [
        shared(),
        shared("a:9092"),
        shared(**TLS),
        shared(secret={"ca.crt": PEM}, **TLS),
        shared(secret=SECRET, **sasl),
        shared(secret={**SECRET, "password": "other"}, **sasl),
        shared(secret={**SECRET, "username": "other"}, **sasl),
        shared(**TLS, **{"ssl.endpoint.identification.algorithm": "none"}),
        shared(secret=CLIENT, **{**sasl, **OAUTH}),
        shared(secret={**CLIENT, "clientSecret": "other"}, **{**sasl, **OAUTH}),
    ]
    assert len({tuple(sorted(each.items())) for each in made}) == len(made)
    assert shared(secret={"ca.crt": PEM}, **TLS)["ssl.ca.pem"] == PEM + "\n"


def test_a_mechanism_that_would_log_in_as_the_pod_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"sasl\.mechanism is one of PLAIN"):
        shared(secret=SECRET, **{"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})


def test_the_line_end_behind_a_secret_is_none_of_its_own() -> None:
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    ended = {key: f"{value}\r\n" for key, value in SECRET.items()}
    assert shared(secret=ended, **sasl) == shared(secret=SECRET, **sasl)
    assert shared(secret={**SECRET, "password": " a "}, **sasl)["sasl.password"] == " a ", "a space may be one"


def test_a_consumer_is_made_of_every_property_that_a_stream_may_set() -> None:
    """The oracle is librdkafka, which refuses a name or a value that it does not know."""
    values = {"client.dns.lookup": "use_all_dns_ips", "isolation.level": "read_committed", "ssl.cipher.suites": "ALL"}
    given = {name: values.get(name, "100000") for name in ALLOWED if name not in LOGIN}
    consumer_of(consumer_properties(spec("127.0.0.1:1", **given), {})).close()


def test_the_driver_has_its_id_and_rack_and_all_that_it_may_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given = spec(**{"client.id": "mine", "client.rack": "a", "fetch.min.bytes": "7"})
    assert own_librdkafka_properties(given, {}).items() >= {"client.id": "mine", "client.rack": "a"}.items()
    assert consumer_properties(given, {}).items() >= given.properties.items()
    made: list[dict[str, str]] = []
    monkeypatch.setattr(bounds, "KafkaAdmin", lambda brokers, properties, seconds: made.append(properties))
    bounds.KafkaBounds(given, {})
    assert made[0]["client.id"] == "mine"


def test_no_property_of_a_stream_names_a_file() -> None:
    """The oracle is the name: of librdkafka's and Java's properties those that take a path say so."""
    words = ("location", "path", "keytab", "file", "library", "class", "config")
    assert not [name for name in ALLOWED if any(word in name for word in words)]
