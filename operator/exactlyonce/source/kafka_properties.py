"""Turn a Kafka source's spec and secret into the properties of the two clients. Performs no I/O.

The spec has Java's names, as Spark's users know them; librdkafka has its own for some, and takes credentials as
properties where Java takes a JAAS line.
"""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.source import KAFKA_SECRET_KEYS, KafkaSource
from exactlyonce.errors import SecretMissing

ISOLATION = "isolation.level"
READ_COMMITTED = "read_committed"

_SHARED = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def librdkafka_properties(spec: KafkaSource, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a librdkafka client.

    Raises:
        SecretMissing: if a SASL mechanism is asked for and the secret has no login.
    """
    properties = {"bootstrap.servers": spec.bootstrap_servers}
    for key, value in spec.properties.items():
        if key in _SHARED:
            properties[_SHARED[key]] = value
    mechanism = spec.properties.get("sasl.mechanism")
    if mechanism is not None:
        properties["sasl.username"], properties["sasl.password"] = _login(spec, secret)
    for key, name in (("ca.crt", "ssl.ca.pem"), ("tls.crt", "ssl.certificate.pem"), ("tls.key", "ssl.key.pem")):
        if key in secret:
            properties[name] = secret[key]
    return properties


def java_properties(spec: KafkaSource, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of Spark's Kafka consumers, without the prefix `kafka.`.

    Raises:
        SecretMissing: as `librdkafka_properties`; also for a SASL mechanism that is not supported.
    """
    properties = {ISOLATION: READ_COMMITTED, **spec.properties, "bootstrap.servers": spec.bootstrap_servers}
    mechanism = spec.properties.get("sasl.mechanism")
    if mechanism is not None:
        if mechanism not in _LOGIN_MODULES:
            known = ", ".join(_LOGIN_MODULES)
            raise SecretMissing(
                f"source.kafka.properties asks for the SASL mechanism {mechanism}; supported are {known}."
            )
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


def _login(spec: KafkaSource, secret: Mapping[str, str]) -> tuple[str, str]:
    missing = [key for key in ("username", "password") if not secret.get(key)]
    if missing:
        name = spec.secret_ref.name if spec.secret_ref else "(none is named in source.kafka.secretRef)"
        raise SecretMissing(
            f"Secret {name} lacks {', '.join(missing)}, which a SASL login needs; its keys may be "
            f"{', '.join(KAFKA_SECRET_KEYS)}."
        )
    return secret["username"], secret["password"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
