"""Kafka client properties that a stream may have, and the reasons for the best-known of the others. Performs no I/O.

They are properties of the driver's consumers. The operator's clients take the few of them that say how brokers are reached
(`connectors.kafka.properties`), so that streams with the same brokers and login share one client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from exactlyonce.schema.constraints import AllOf, Rule, cel_list
from exactlyonce.schema.model import Texts

ISOLATION = "isolation.level"
READ_COMMITTED = "read_committed"

ALLOWED = (
    "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "default.api.timeout.ms", "fetch.max.bytes",
    "fetch.max.wait.ms", "fetch.min.bytes", "heartbeat.interval.ms", "isolation.level", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.mechanism",
    "security.protocol", "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms", "ssl.cipher.suites", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.protocol",
)  # fmt: skip
"""Every other one is refused: it would read a file, load a class, or change what is read."""

_A_CERTIFICATE = (
    "a certificate belongs in the secret that source.kafka.secretRef names, as PEM (keys ca.crt, tls.crt, tls.key)"
)

REFUSED = {
    "key.deserializer": "Spark reads keys and values as bytes",
    "value.deserializer": "Spark reads keys and values as bytes",
    "group.id": "positions are kept in the ledger, never in a consumer group",
    "enable.auto.commit": "positions are kept in the ledger, never in a consumer group",
    "auto.offset.reset": "a missing position is a verdict, not a default; say where to start in source.kafka.start",
    "interceptor.classes": "an interceptor could change or drop records",
    "bootstrap.servers": "it has a field of its own, source.kafka.bootstrapServers",
    "sasl.jaas.config": "a password belongs in the secret that source.kafka.secretRef names (keys username, password)",
    "ssl.truststore.location": _A_CERTIFICATE,
    "ssl.keystore.location": _A_CERTIFICATE,
    "ssl.ca.location": _A_CERTIFICATE,
    "ssl.certificate.location": _A_CERTIFICATE,
    "ssl.key.location": _A_CERTIFICATE,
    "plugin.library.paths": "it loads code from a file",
    "sasl.kerberos.keytab": "it reads a file; the supported logins are PLAIN and SCRAM",
}
SECRET_WORDS = ("password", "secret", "keystore.key", "certificate.chain")


def _never(name: str, reason: str) -> Rule:
    return Rule(
        f"!('{name}' in self)", lambda properties: name not in properties, f"properties may not set {name}: {reason}"
    )


def _never_with(word: str, part: str) -> Rule:
    return Rule(
        f"!self.exists(name, name.contains('{word}'))",
        lambda properties: not any(word in name for name in properties),
        f"properties may not set what has {word} in its name: credentials belong in the secret that {part}.kafka.secretRef "
        "names",
    )


_WITH_WORD = " || ".join(f"name.contains('{word}')" for word in SECRET_WORDS)


def rules_of_properties(allowed: Collection[str], refused: Mapping[str, str], part: str) -> AllOf:
    """Return the rules of the client properties of `part`, which is `source` or `sink`.

    What is refused for a reason of its own is told by that rule alone.
    """

    def is_known(name: str) -> bool:
        return name in allowed or name in refused or any(word in name for word in SECRET_WORDS)

    nothing_else = Rule(
        f"self.all(name, name in {cel_list((*allowed, *refused))} || {_WITH_WORD})",
        lambda properties: all(is_known(name) for name in properties),
        f"properties may set nothing but {', '.join(allowed)}; whoever may change the stream has to remove the others",
    )
    own = (_never(name, reason) for name, reason in refused.items())
    return AllOf((*own, *(_never_with(word, part) for word in SECRET_WORDS), nothing_else))


Properties = Annotated[Texts, rules_of_properties(ALLOWED, REFUSED, "source")]
"""Kafka client properties, without those that a stream may not have."""
