"""Turn a Kafka source's spec and secret into the properties of the two clients. Performs no I/O.

The spec has Java's names, as Spark's users know them; librdkafka has its own for some, and takes credentials as
properties where Java takes a JAAS line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Protocol

from exactlyonce.connectors.kafka.client_properties import ISOLATION, READ_COMMITTED
from exactlyonce.connectors.kafka.names import KAFKA_SECRET_KEYS
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.model import SecretRef


class AtBrokers(Protocol):
    """What a source and a sink say alike of brokers and of the login; `field` is where in the resource they say it."""

    field: ClassVar[str]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of some brokers."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Client properties by Java's names."""
        ...

    @property
    def secret_ref(self) -> SecretRef | None:
        """The secret with the login, if there is one."""
        ...


_PROTOCOL, _MECHANISM = "security.protocol", "sasl.mechanism"
_CHECK = "ssl.endpoint.identification.algorithm"
_OF_ONE_STREAM = ("client.id", "client.rack")

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


_PEM = re.compile(r"-----BEGIN ([^-]+)-----.+?-----END \1-----", re.DOTALL)


def librdkafka_properties(spec: AtBrokers, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a librdkafka client that all streams with these brokers and this login can share.

    Nothing is among them that tells such streams apart and changes no answer: a client costs a dozen threads.

    Raises:
        SecretMissing: if a SASL mechanism is asked for that is not supported, or for which the secret has no login.
    """
    protocol = spec.properties.get(_PROTOCOL, "PLAINTEXT").strip().upper()
    properties = {"bootstrap.servers": canonical_servers(spec.bootstrap_servers), _PROTOCOL: protocol}
    mechanism = _mechanism(spec)
    if mechanism is not None:
        user, password = _login(spec, secret)
        if protocol.startswith("SASL"):
            properties |= {_MECHANISM: mechanism, "sasl.username": user, "sasl.password": password}
    if "SSL" in protocol:
        if _CHECK in spec.properties:
            properties[_CHECK] = spec.properties[_CHECK]
        for key, name in (("ca.crt", "ssl.ca.pem"), ("tls.crt", "ssl.certificate.pem"), ("tls.key", "ssl.key.pem")):
            if key in secret:
                properties[name] = _blocks(secret[key])
    return properties


def own_librdkafka_properties(spec: AtBrokers, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a librdkafka client of one stream alone, as a driver has it: quotas go by its client.id.

    Raises:
        SecretMissing: as `librdkafka_properties`.
    """
    own = {key: spec.properties[key] for key in _OF_ONE_STREAM if key in spec.properties}
    return {**librdkafka_properties(spec, secret), **own}


def canonical_servers(servers: str) -> str:
    """Return bootstrap servers as one text for all ways of writing the same ones."""
    return ",".join(sorted({server.strip().lower() for server in servers.split(",")} - {""})) or servers


def java_properties(spec: KafkaSource, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of Spark's Kafka consumers, without the prefix `kafka.`.

    Raises:
        SecretMissing: as `librdkafka_properties`.
    """
    properties = {ISOLATION: READ_COMMITTED, **spec.properties, "bootstrap.servers": spec.bootstrap_servers}
    mechanism = _mechanism(spec)
    if mechanism is not None:
        user, password = (_quoted(part) for part in _login(spec, secret))
        properties["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    if "ca.crt" in secret:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.certificates"] = secret["ca.crt"]
    if "tls.crt" in secret and "tls.key" in secret:
        properties["ssl.keystore.type"] = "PEM"
        properties["ssl.keystore.certificate.chain"] = secret["tls.crt"]
        properties["ssl.keystore.key"] = secret["tls.key"]
    return properties


def _mechanism(spec: AtBrokers) -> str | None:
    mechanism = spec.properties.get(_MECHANISM)
    if mechanism is not None and mechanism not in _LOGIN_MODULES:
        known = ", ".join(_LOGIN_MODULES)
        raise SecretMissing(f"{spec.field}.properties asks for the SASL mechanism {mechanism}; supported are {known}.")
    return mechanism


def _blocks(text: str) -> str:
    """Return what PEM is read for: comments between the blocks would make two of the same."""
    found = [match.group() for match in _PEM.finditer(text.replace("\r\n", "\n"))]
    return "\n".join(found) + "\n" if found else text


def _login(spec: AtBrokers, secret: Mapping[str, str]) -> tuple[str, str]:
    missing = [key for key in ("username", "password") if not secret.get(key)]
    if missing:
        name = spec.secret_ref.name if spec.secret_ref else f"({spec.field}.secretRef is missing)"
        raise SecretMissing(
            f"Secret {name} lacks {', '.join(missing)}, which a SASL login needs; its keys may be "
            f"{', '.join(KAFKA_SECRET_KEYS)}."
        )
    return secret["username"], secret["password"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
