"""Kafka client properties that a stream may not have, each with the reason. Performs no I/O."""

from __future__ import annotations

from typing import Annotated

from exactlyonce.api.constraints import AllOf, Rule
from exactlyonce.api.model import Texts

REFUSED = {
    "key.deserializer": "Spark reads keys and values as bytes",
    "value.deserializer": "Spark reads keys and values as bytes",
    "group.id": "positions are kept in the ledger, never in a consumer group",
    "enable.auto.commit": "positions are kept in the ledger, never in a consumer group",
    "auto.offset.reset": "a missing position is a verdict, not a default; say where to start in source.kafka.start",
    "interceptor.classes": "an interceptor could change or drop records",
    "bootstrap.servers": "it has a field of its own, source.kafka.bootstrapServers",
    "sasl.jaas.config": "a password belongs in the secret that source.kafka.secretRef names (keys username, password)",
}
SECRET_WORDS = ("password", "secret", "keystore.key", "certificate.chain")
_CREDENTIALS = "credentials belong in the secret that source.kafka.secretRef names"


def _never(name: str, reason: str) -> Rule:
    return Rule(
        f"!('{name}' in self)", lambda properties: name not in properties, f"properties may not set {name}: {reason}"
    )


def _never_with(word: str) -> Rule:
    return Rule(
        f"!self.exists(name, name.contains('{word}'))",
        lambda properties: not any(word in name for name in properties),
        f"properties may not set what has {word} in its name: {_CREDENTIALS}",
    )


Properties = Annotated[
    Texts,
    AllOf(
        (
            *(_never(name, reason) for name, reason in REFUSED.items()),
            *(_never_with(word) for word in SECRET_WORDS),
        )
    ),
]
"""Kafka client properties, without those that a stream may not have."""
