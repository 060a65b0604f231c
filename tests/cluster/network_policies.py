"""Whether NetworkPolicies let one pod connect to another, by the rules of Kubernetes; the test cluster does not enforce them.

Source of the rules: kubernetes.io/docs/concepts/services-networking/network-policies. Policies only add up, a pod that none
selects takes part in everything, and an empty list of peers means everybody. Blocks of addresses match no pod here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """A pod as policies see it; its namespace has the label that every namespace has."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The labels of its namespace."""
        return {"kubernetes.io/metadata.name": self.namespace}


def may_connect(policies: Iterable[Mapping[str, Any]], source: Place, target: Place, port: int) -> bool:
    """Whether `source` may open a TCP connection to `port` of `target`."""
    given = list(policies)
    return _lets(given, "Ingress", target, source, port) and _lets(given, "Egress", source, target, port)


def may_leave(policies: Iterable[Mapping[str, Any]], source: Place, port: int) -> bool:
    """Whether `source` may open a TCP connection to `port` of every address there is."""
    return _lets(list(policies), "Egress", source, None, port)


def _lets(policies: list[Mapping[str, Any]], direction: str, of: Place, peer: Place | None, port: int) -> bool:
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == of.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], of.labels)
    ]
    if not selecting:
        return True
    side = "from" if direction == "Ingress" else "to"
    return any(
        _has_port(rule, port) and _has_peer(rule.get(side), peer, of.namespace)
        for spec in selecting
        for rule in spec.get(direction.lower()) or ()
    )


def _has_port(rule: Mapping[str, Any], port: int) -> bool:
    ports = rule.get("ports") or [{}]
    return any(entry.get("protocol", "TCP") == "TCP" and entry.get("port") in (None, port) for entry in ports)


def _has_peer(peers: list[Mapping[str, Any]] | None, place: Place | None, namespace: str) -> bool:
    if not peers:
        return True
    return place is not None and any(_is_peer(peer, place, namespace) for peer in peers)


def _is_peer(peer: Mapping[str, Any], place: Place, namespace: str) -> bool:
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        in_namespace = _selects(peer["namespaceSelector"], place.namespace_labels)
    else:
        in_namespace = place.namespace == namespace
    return in_namespace and _selects(peer.get("podSelector") or {}, place.labels)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    plain = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return plain and all(_matches(entry, labels) for entry in selector.get("matchExpressions") or ())


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case _:
            return value is None
