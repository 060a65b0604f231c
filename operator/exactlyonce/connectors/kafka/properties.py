"""Turn a Kafka source's spec and secret into the properties of librdkafka's clients. Performs no I/O.

The spec has the names of Java's clients, which Kafka's own documentation has; librdkafka has its own for some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Protocol

from exactlyonce.connectors.kafka.client_properties import (
    AWS_MSK_IAM,
    HOST_CHECK,
    ISOLATION,
    LOGIN,
    MECHANISM,
    MSK_SERVER,
    OAUTHBEARER,
    PROTOCOL,
    READ_COMMITTED,
)
from exactlyonce.connectors.kafka.names import KAFKA_SECRET_KEYS
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, login_in
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


_OF_ONE_STREAM = ("client.id", "client.rack")
_OTHER_NAMES = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Properties of Java's clients that librdkafka has by another name."""

MSK_REGION = "exactlyonce.msk.region"
"""A property of ours among librdkafka's: the region for which a client signs its tokens (`tokens.py`). AWS' names follow it."""

_MSK_SERVER = re.compile(MSK_SERVER)
_LINE_ENDS = "\r\n"

_PEM = re.compile(r"-----BEGIN ([^-]+)-----.+?-----END \1-----", re.DOTALL)


def librdkafka_properties(spec: AtBrokers, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a librdkafka client that all streams with these brokers and this login can share.

    Nothing is among them that tells such streams apart and changes no answer: a client costs a dozen threads.

    Raises:
        SecretMissing: if a SASL mechanism is asked for that is not supported, or for which the secret has no login.
    """
    protocol = spec.properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    properties = {"bootstrap.servers": canonical_servers(spec.bootstrap_servers), PROTOCOL: protocol}
    login = _login(spec, secret)
    if protocol.startswith("SASL"):
        properties |= login
    if "SSL" in protocol:
        if HOST_CHECK in spec.properties:
            properties[HOST_CHECK] = spec.properties[HOST_CHECK]
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


def consumer_properties(spec: KafkaSource, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the librdkafka consumers that read a stream's records.

    Raises:
        SecretMissing: as `librdkafka_properties`.
    """
    own = {_OTHER_NAMES.get(key, key): value for key, value in spec.properties.items() if key not in LOGIN}
    return {ISOLATION: READ_COMMITTED, **own, **librdkafka_properties(spec, secret)}


def _login(spec: AtBrokers, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which a client says who it is; none without a SASL mechanism."""
    mechanism = spec.properties.get(MECHANISM)
    if mechanism is None:
        return {}
    if mechanism == AWS_MSK_IAM:
        login = login_in(secret, f"{spec.field}.secretRef")
        if login is None and spec.secret_ref is not None:
            raise SecretMissing(
                f"Secret {spec.secret_ref.name} lacks {ACCESS_KEY} and {SECRET_KEY}, which {MECHANISM}: {AWS_MSK_IAM} needs; "
                f"without {spec.field}.secretRef the login of the process is used, such as a web identity."
            )
        return {MECHANISM: mechanism, MSK_REGION: _msk_region(spec), **({} if login is None else login.as_secret())}
    if mechanism == OAUTHBEARER:
        client, word = _parts(spec, secret, ("clientId", "clientSecret"))
        said = {name: spec.properties[name] for name in LOGIN if "oauthbearer" in name and name in spec.properties}
        said |= {"https.ca.pem": _blocks(secret["oauth.ca.crt"])} if "oauth.ca.crt" in secret else {}
        of_client = {"sasl.oauthbearer.client.id": client, "sasl.oauthbearer.client.secret": word}
        return {MECHANISM: mechanism, "sasl.oauthbearer.method": "oidc", **of_client, **said}
    user, password = _parts(spec, secret, ("username", "password"))
    return {MECHANISM: mechanism, "sasl.username": user, "sasl.password": password}


def _msk_region(spec: AtBrokers) -> str:
    """Return the region that the names of the brokers say; a token is good for one region."""
    servers = [server.strip() for server in spec.bootstrap_servers.split(",") if server.strip()]
    regions = {found[1] if (found := _MSK_SERVER.fullmatch(server)) else None for server in servers}
    region = regions.pop() if len(regions) == 1 else None
    if region is None:
        raise SecretMissing(
            f"{spec.field}.properties asks for {MECHANISM}: {AWS_MSK_IAM}, and {spec.field}.bootstrapServers does not name the "
            "region of one MSK cluster; write its bootstrap servers as Amazon names them, such as "
            "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com:9098."
        )
    return region


def _blocks(text: str) -> str:
    """Return what PEM is read for: comments between the blocks would make two of the same."""
    found = [match.group() for match in _PEM.finditer(text.replace("\r\n", "\n"))]
    return "\n".join(found) + "\n" if found else text


def _parts(spec: AtBrokers, secret: Mapping[str, str], keys: tuple[str, str]) -> tuple[str, str]:
    """Return what a secret holds by two keys, without the line end that a file has behind it."""
    found = {key: secret.get(key, "").rstrip(_LINE_ENDS) for key in keys}
    missing = [key for key, value in found.items() if not value]
    if missing:
        name = spec.secret_ref.name if spec.secret_ref else f"({spec.field}.secretRef is missing)"
        raise SecretMissing(
            f"Secret {name} lacks {', '.join(missing)}, which a SASL login needs; its keys may be "
            f"{', '.join(KAFKA_SECRET_KEYS)}."
        )
    return found[keys[0]], found[keys[1]]
