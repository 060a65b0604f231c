"""What the records of pods and nodes say: conditions, moments, what a container waits for. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

Manifest = Mapping[str, Any]

TOLD_MOST = 400
"""How much of what the cluster says is told."""

_ON_ITS_WAY = (None, "PodInitializing", "ContainerCreating")


def condition(record: Manifest, kind: str) -> Manifest:
    """Return a condition of a pod or a node; empty where it has none of that kind."""
    return next((entry for entry in record["status"].get("conditions", ()) if entry["type"] == kind), {})


def held_back(containers: Iterable[Manifest]) -> Manifest:
    """Return what the first container waits for that is not simply being created, such as its image; empty without one."""
    for container in containers:
        waiting: Manifest = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in _ON_ITS_WAY:
            return waiting
    return {}


def moment(text: str) -> datetime:
    """Return a time of the API server's as a moment."""
    return datetime.fromisoformat(text)


def cut(text: str) -> str:
    """Return a text on one line, as much of it as is told."""
    text = " ".join(text.split())
    return text if len(text) <= TOLD_MOST else text[: TOLD_MOST - 1] + "…"
