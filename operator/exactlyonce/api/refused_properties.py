"""Kafka client properties that a stream may not have, each with the reason. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from exactlyonce.api.constraints import Rule, cel_list, cel_map, cel_text
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


def refusal(name: str) -> str | None:
    """Return why a stream may not set a property, or None where it may."""
    if name in REFUSED:
        return REFUSED[name]
    if any(word in name for word in SECRET_WORDS):
        return _CREDENTIALS
    return None


def _properties_told(properties: Mapping[str, str]) -> str:
    refused = {name: reason for name in properties if (reason := refusal(name)) is not None}
    return "; ".join(f"properties may not set {name}: {reason}" for name, reason in refused.items())


_IS_SECRET = f"{cel_list(SECRET_WORDS)}.exists(word, name.contains(word))"

Properties = Annotated[
    Texts,
    Rule(
        f"self.all(name, !(name in {cel_list(REFUSED)}) && !{_IS_SECRET})",
        lambda properties: not any(refusal(name) for name in properties),
        "properties may set nothing that is kept elsewhere, such as positions and credentials",
        told=_properties_told,
        told_cel=(
            f"self.map(name, name).filter(name, name in {cel_list(REFUSED)} || {_IS_SECRET}).map(name, "
            f"'properties may not set ' + name + ': ' + (name in {cel_list(REFUSED)} ? "
            f"{cel_map(REFUSED)}[name] : {cel_text(_CREDENTIALS)})).join('; ')"
        ),
    ),
]
