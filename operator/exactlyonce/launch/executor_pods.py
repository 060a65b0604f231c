"""Whether a driver has executors to work with, from the records of their pods. Performs no I/O.

Spark waits for executors without an end, so a driver on a full cluster runs and lands nothing. One executor is enough to
land batches: a driver that has fewer than it asked for is slow, not idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from exactlyonce.launch.pod_records import Manifest, condition, cut, held_back, moment

PATIENCE = timedelta(seconds=90)
"""How long a driver may run without an executor, and an executor's pod may wait, before that is told."""


def has_just_started(started_at: datetime | None, now: datetime) -> bool:
    """Whether the first executors of a driver may still be on their way, so that nobody needs to look for them."""
    return started_at is None or now - started_at < PATIENCE


def why_idle(executors: Sequence[Manifest], started_at: datetime | None, now: datetime) -> str | None:
    """Return why a driver that has run since `started_at` has no executor, as one sentence; None where it has one.

    None, too, while the first executors are still on their way.
    """
    if has_just_started(started_at, now) or any(map(_runs, executors)):
        return None
    waiting = [pod for pod in executors if pod["status"].get("phase") == "Pending"]
    if any(now - moment(pod["metadata"]["creationTimestamp"]) < PATIENCE for pod in waiting):
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
        "The driver has no executor, and no pod of one is on its way; its log says why Spark does not get their pods, such as "
        "a quota or a right that its service account lacks."
    )


def _runs(pod: Manifest) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _unschedulable(pod: Manifest) -> str | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    return str(scheduled.get("message") or scheduled.get("reason") or "no node takes it")


def _held_back(pod: Manifest) -> str | None:
    """What keeps the containers of a pod that has a node from starting, such as an image that cannot be pulled."""
    status = pod["status"]
    waiting = held_back([*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())])
    return str(waiting.get("message") or waiting["reason"]) if waiting else None


def _cut(text: str) -> str:
    """A text as the cluster says it, as a part of a sentence."""
    return cut(text.strip().rstrip("."))
