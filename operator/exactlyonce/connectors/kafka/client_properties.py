"""Kafka client properties that a stream may have, and the reasons for the best-known of the others. Performs no I/O.

They have the names of Java's clients, which Kafka's own documentation has. They are properties of the driver's consumers. The
operator's clients take the few of them that say how brokers are reached (`connectors.kafka.properties`), so that streams with
the same brokers and login share one client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated

from exactlyonce.schema.constraints import AllOf, Rule, cel_list, cel_text
from exactlyonce.schema.model import Texts

ISOLATION = "isolation.level"
READ_COMMITTED = "read_committed"

LOGIN = (
    "sasl.mechanism", "sasl.oauthbearer.extensions", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
    "security.protocol", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
"""How brokers are reached, and as whom; a source and a sink say it alike."""

ALLOWED = tuple(sorted((
    "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "fetch.max.bytes", "fetch.max.wait.ms",
    "fetch.min.bytes", "isolation.level", "max.partition.fetch.bytes", "metadata.max.age.ms", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms",
    "send.buffer.bytes", "socket.connection.setup.timeout.ms", "ssl.cipher.suites", *LOGIN,
)))  # fmt: skip
"""Every other one is refused: it would read a file, load a class, or change what is read."""

_A_CERTIFICATE = (
    "a certificate belongs in the secret that source.kafka.secretRef names, as PEM (keys ca.crt, tls.crt, tls.key)"
)

REFUSED = {
    "key.deserializer": "keys and values are read as bytes",
    "value.deserializer": "keys and values are read as bytes",
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
    "sasl.kerberos.keytab": "it reads a file; the supported logins are PLAIN, SCRAM, OAUTHBEARER and AWS_MSK_IAM",
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


def _one_of(name: str, values: Collection[str], sentence: str) -> Rule:
    return Rule(
        f"!('{name}' in self) || self['{name}'] in {cel_list(values)}",
        lambda properties: properties.get(name) is None or properties[name] in values,
        sentence,
    )


PLAIN_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER, AWS_MSK_IAM = "OAUTHBEARER", "AWS_MSK_IAM"
MECHANISMS = (*PLAIN_MECHANISMS, OAUTHBEARER, AWS_MSK_IAM)
MECHANISM, PROTOCOL, HOST_CHECK = "sasl.mechanism", "security.protocol", "ssl.endpoint.identification.algorithm"
TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
_OAUTHBEARER_ALONE = (TOKEN_ENDPOINT, "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions")

_OF_THE_LOGIN = (
    _one_of(MECHANISM, MECHANISMS, f"sasl.mechanism is one of {', '.join(MECHANISMS)}; no other login is supported"),
    _one_of(
        HOST_CHECK,
        ("https", "none"),
        "ssl.endpoint.identification.algorithm is https, or none, which switches off the check that the certificate of a "
        "broker is for its host",
    ),
    Rule(
        f"('{MECHANISM}' in self && self['{MECHANISM}'] == '{OAUTHBEARER}') == ('{TOKEN_ENDPOINT}' in self)",
        lambda properties: (properties.get(MECHANISM) == OAUTHBEARER) == (TOKEN_ENDPOINT in properties),
        "sasl.oauthbearer.token.endpoint.url belongs to sasl.mechanism: OAUTHBEARER, which needs it to fetch tokens",
    ),
    Rule(
        f"('{MECHANISM}' in self && self['{MECHANISM}'] == '{OAUTHBEARER}') || "
        f"!self.exists(name, name in {cel_list(_OAUTHBEARER_ALONE[1:])})",
        lambda properties: (
            properties.get(MECHANISM) == OAUTHBEARER or not {*_OAUTHBEARER_ALONE[1:]} & properties.keys()
        ),
        "sasl.oauthbearer.scope and sasl.oauthbearer.extensions belong to sasl.mechanism: OAUTHBEARER",
    ),
    Rule(
        f"!('{TOKEN_ENDPOINT}' in self) || self['{TOKEN_ENDPOINT}'].matches('^https?://[!-~]+$')",
        lambda properties: re.fullmatch("https?://[!-~]+", properties.get(TOKEN_ENDPOINT, "https://-")) is not None,
        "write sasl.oauthbearer.token.endpoint.url as https://host/path",
    ),
    Rule(
        f"!('{MECHANISM}' in self) || self['{MECHANISM}'] != '{AWS_MSK_IAM}' || "
        f"('{PROTOCOL}' in self && self['{PROTOCOL}'] == 'SASL_SSL')",
        lambda properties: properties.get(MECHANISM) != AWS_MSK_IAM or properties.get(PROTOCOL) == "SASL_SSL",
        "sasl.mechanism: AWS_MSK_IAM needs security.protocol: SASL_SSL; MSK offers no other",
    ),
)
"""Whether a login is whole, as far as properties tell."""

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
    return AllOf((*own, *(_never_with(word, part) for word in SECRET_WORDS), *_OF_THE_LOGIN, nothing_else))


def _mechanism_is(mechanisms: Collection[str]) -> str:
    said = f"self.properties['{MECHANISM}'] in {cel_list(mechanisms)}"
    return f"has(self.properties) && '{MECHANISM}' in self.properties && {said}"


MSK_SERVER = r"[A-Za-z0-9.-]+[.]kafka(?:-serverless)?[.]([a-z0-9-]+)[.]amazonaws[.]com(?:[.]cn)?(?::[0-9]+)?"
"""A bootstrap server of Amazon MSK, which names its region."""


def rules_of_login(part: str) -> tuple[Rule, ...]:
    """Return the rules of `part`, which is `source` or `sink`, that say whether its login is whole."""
    with_secret = (*PLAIN_MECHANISMS, OAUTHBEARER)
    servers = re.compile(f"{MSK_SERVER}(?: *, *{MSK_SERVER})*")
    return (
        Rule(
            f"!({_mechanism_is(with_secret)}) || has(self.secretRef)",
            lambda it: it.properties.get(MECHANISM) not in with_secret or it.secret_ref is not None,
            f"sasl.mechanism needs secretRef: name a secret with username and password, or clientId and clientSecret for "
            f"{OAUTHBEARER}",
        ),
        Rule(
            f"!({_mechanism_is((AWS_MSK_IAM,))}) || self.bootstrapServers.matches({cel_text(f'^{servers.pattern}$')})",
            lambda it: (
                it.properties.get(MECHANISM) != AWS_MSK_IAM or servers.fullmatch(it.bootstrap_servers) is not None
            ),
            f"sasl.mechanism: {AWS_MSK_IAM} needs {part}.kafka.bootstrapServers as Amazon names them, which says the region: "
            "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com:9098",
        ),
    )


Properties = Annotated[Texts, rules_of_properties(ALLOWED, REFUSED, "source")]
"""Kafka client properties, without those that a stream may not have."""
