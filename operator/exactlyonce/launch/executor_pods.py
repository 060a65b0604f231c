"""Whether a driver has executors to work with, from the records of their pods. Performs no I/O.

Spark waits for executors without an end, so a driver on a full cluster runs and lands nothing. One executor is enough to
land batches: a driver that has fewer than it asked for is slow, not idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Manifest = Mapping[str, Any]

PATIENCE = timedelta(seconds=90)
"""How long a driver may run without an executor, and an executor's pod may wait, before that is told."""

_TOLD_MOST = 400


def why_idle(executors: Sequence[Manifest], started_at: datetime | None, now: datetime) -> str | None:
    """Return why a driver that has run since `started_at` has no executor, as one sentence; None where it has one.

    None, too, while the first executors are still on their way.
    """
    if started_at is None or now - started_at < PATIENCE or any(map(_runs, executors)):
        return None
    waiting = [pod for pod in executors if pod["status"].get("phase") == "Pending"]
    if any(now - _created(pod) < PATIENCE for pod in waiting):
        return None
    unplaced = [pod for pod in waiting if _unschedulable(pod) is not None]
    if unplaced:
        return (
            f"The driver has no executor: no node takes pod {unplaced[0]['metadata']['name']} "
            f"({_cut(_unschedulable(unplaced[0]) or '')}); make room in the cluster, or let executors ask for less."
        )
    if waiting:
        why = _held_back(waiting[0]) or "its containers are still being created"
        return f"The driver has no executor: pod {waiting[0]['metadata']['name']} does not start ({_cut(why)})."
    return (
        "The driver has no executor and none is on its way; its log says why Spark does not get their pods, such as a quota "
        "or a right that its service account lacks."
    )


def _runs(pod: Manifest) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _unschedulable(pod: Manifest) -> str | None:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no node takes it")
    return None


def _held_back(pod: Manifest) -> str | None:
    """What keeps the containers of a pod that has a node from starting, such as an image that cannot be pulled."""
    for container in [*pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())]:
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return str(waiting.get("message") or waiting["reason"])
    return None


def _created(pod: Manifest) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _cut(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _TOLD_MOST else text[: _TOLD_MOST - 1] + "…"
