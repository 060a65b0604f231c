"""Logins by tokens at a real broker: of an endpoint that gives them for an id and a secret, and by a call for each token.

The broker takes tokens that nobody has signed, as Kafka does where nothing says who signs them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from exactlyonce.aws.signed_addresses import Signer
from exactlyonce.connectors.kafka import properties, tokens
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.properties import consumer_properties
from exactlyonce.connectors.kafka.reading import RangeReader
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import SecretMissing, SourceRefused, SourceUnreachable
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce.source.port import Bounds
from testbed.kafka import Kafka
from testbed.processes import free_port
from tests.topics import made, produced

ID, SECRET = "orders-reader", "a-secret-word"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker with a listener for OAUTHBEARER, which holds three records."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{_MODULE} unsecuredLoginStringClaim_sub="broker";',
    }
    with Kafka(tmp_path_factory.mktemp("tokens") / "kafka", settings=settings, users={"nobody": "x"}) as started:
        made(started, "orders")
        produced(started, "orders", 3)
        yield started


def a_token(life_seconds: int = 300) -> str:
    """Return a token that nobody has signed."""
    claims = {"sub": ID, "iat": int(time.time()), "exp": int(time.time()) + life_seconds}
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    )
    return f"{'.'.join(parts)}."


@contextmanager
def endpoint() -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Give tokens to who names the client's id and secret; the list has what was asked for."""
    asked: list[Mapping[str, Any]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = self.headers["Authorization"].removeprefix("Basic ")
            asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            right = base64.b64decode(given).decode() == f"{ID}:{SECRET}"
            body = json.dumps({"access_token": a_token(), "expires_in": 300} if right else {"error": "no"}).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()


def spec(broker: Kafka, **given: str) -> KafkaSource:
    return KafkaSource.model_validate(
        {
            "bootstrapServers": f"127.0.0.1:{broker.sasl_port}",
            "topics": ["orders"],
            "secretRef": {"name": "kafka"},
            "properties": {"security.protocol": "SASL_PLAINTEXT", **given},
        }
    )


def read(source: KafkaSource, secret: Mapping[str, str]) -> list[bytes]:
    reader = RangeReader(consumer_properties(source, secret))
    try:
        ranges = Ranges({Partition("orders", 0): OffsetRange(0, 3)})
        return [message.value() for _, messages in reader.read(ranges) for message in messages]
    finally:
        reader.close()


def test_a_client_id_and_its_secret_fetch_the_tokens_of_who_asks_and_of_who_reads(broker: Kafka) -> None:
    with endpoint() as (url, asked):
        login = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url}
        source = spec(broker, **login, **{"sasl.oauthbearer.scope": "orders.read"})
        secret = {"clientId": f"{ID}\n", "clientSecret": f"{SECRET}\r\n"}
        assert KafkaBounds(source, secret, 30.0).view().bounds == {Partition("orders", 0): Bounds(0, 3)}
        assert read(source, secret) == [b"0", b"1", b"2"]
        assert asked[0] == {"grant_type": ["client_credentials"], "scope": ["orders.read"]}
        assert len(asked) >= 2
        with pytest.raises((SourceRefused, SourceUnreachable)) as caught:
            KafkaBounds(source, {**secret, "clientSecret": "another"}, 3.0).view()
        assert "another" not in str(caught.value)
        with pytest.raises(SecretMissing, match="Secret kafka lacks clientSecret"):
            KafkaBounds(source, {"clientId": ID})


def test_a_login_by_iam_asks_for_a_token_where_one_is_needed(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker of Amazon's is here: this one takes another token, made where the signed one would be."""
    made_for: list[str] = []

    def token(region: str, signer: Signer) -> tuple[str, float]:
        assert signer._own is not None
        made_for.append(f"{region} {signer._own.access_key}")
        return a_token(), time.time() + 300

    monkeypatch.setattr(tokens, "token", token)
    monkeypatch.setattr(properties, "_msk_region", lambda _spec: "eu-central-1")
    source = spec(broker).model_copy(
        update={"properties": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM"}}
    )
    secret = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "word"}
    assert KafkaBounds(source, secret, 30.0).view().bounds == {Partition("orders", 0): Bounds(0, 3)}
    assert read(source, secret) == [b"0", b"1", b"2"]
    assert made_for[:2] == ["eu-central-1 AKID"] * 2


def test_the_check_of_the_brokers_host_is_switched_off_by_none_alone_for_who_asks_and_who_reads(tmp_path: Path) -> None:
    """The certificate of this broker is for another host."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kafka.example"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    (tmp_path / "both.pem").write_text(key.read_text() + certificate.read_text())
    plain, tls, controller = (free_port() for _ in range(3))
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "both.pem"),
    }
    with Kafka(tmp_path / "kafka", port=plain, settings=settings) as started:
        made(started, "orders")
        produced(started, "orders", 3)

        def source(check: str) -> KafkaSource:
            properties = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": check}
            document = {"bootstrapServers": f"127.0.0.1:{tls}", "topics": ["orders"], "properties": properties}
            return KafkaSource.model_validate({**document, "secretRef": {"name": "kafka"}})

        secret = {"ca.crt": certificate.read_text()}
        assert KafkaBounds(source("none"), secret, 30.0).view().bounds == {Partition("orders", 0): Bounds(0, 3)}
        assert read(source("none"), secret) == [b"0", b"1", b"2"]
        with pytest.raises(SourceUnreachable, match="does not answer"):
            KafkaBounds(source("https"), secret, 5.0).view()
