"""Records of drivers' pods, and what each says of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_endings import Patience
from exactlyonce.launch.pod_nodes import NodeState
from exactlyonce.launch.port import Ended, Gone, Running

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
PATIENCE = Patience()
HEALTHY = NodeState(exists=True)
LOST = NodeState(exists=True, silent_since=NOW - timedelta(seconds=60))
ABSENT = NodeState(exists=False)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    state: Mapping[str, Any] | None,
    *,
    phase: str = "Running",
    node: str | None = "node1",
    ready: str | None = None,
    age: float = 3600,
    deleted: float | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return a pod whose driver's container has `state`; `deleted` is how long ago its grace period ended."""
    conditions = [{"type": "PodScheduled", "status": "True"}, *status.pop("conditions", [])]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready, "lastTransitionTime": ago(status.pop("ready_for", 60))})
    metadata: dict[str, Any] = {"name": "orders-driver-17", "creationTimestamp": ago(age)}
    if deleted is not None:
        metadata["deletionTimestamp"] = ago(deleted)
    made: dict[str, Any] = {"phase": phase, "conditions": conditions, "startTime": ago(age), **status}
    if state is not None:
        made["containerStatuses"] = [{"name": "driver", "state": dict(state)}]
    limits = {"memory": "1433Mi"}
    spec: dict[str, Any] = {"containers": [{"name": "driver", "image": "spark:1", "resources": {"limits": limits}}]}
    if node is not None:
        spec["nodeName"] = node
    return {"metadata": metadata, "spec": spec, "status": made}


def terminated(status: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": status, "reason": reason, "message": message, "finishedAt": ago(5)}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def said(ending: Ending, message: str = "it said so", batch: int | None = None) -> str:
    return LastMessage(ending, message, batch, None if batch is None else '{"orders":{"0":[1,2]}}').render()


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]}


RUNNING = {"running": {"startedAt": ago(100)}}
UNKNOWN = {
    "terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None, "message": "not located"}
}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient memory.",
}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "waits"}


def unscheduled(condition: Mapping[str, Any], age: float, **more: Any) -> dict[str, Any]:
    made = pod(None, phase="Pending", node=None, age=age, **more)
    made["status"]["conditions"] = [condition]
    del made["status"]["startTime"]
    return made


@dataclass(frozen=True)
class Case:
    """A record, and what is to be made of it."""

    pod: dict[str, Any]
    kind: type
    reason: str | None = None
    told: str = ""
    node: NodeState | None = HEALTHY
    ending: Ending | None = None
    blames: bool | None = None
    started: bool | None = None


CASES: dict[str, Case] = {
    # It runs.
    "it runs": Case(pod(RUNNING, ready="True"), Running, told="runs on node node1.", started=True),
    "it drains": Case(pod(RUNNING, ready="True", deleted=-200), Running, told="was asked to end", started=True),
    "its node was slow for a moment": Case(pod(RUNNING, ready="False", ready_for=3), Running),
    "its node came back": Case(pod(RUNNING, ready="False", ready_for=600), Running, node=HEALTHY),
    # It is being started.
    "it was just made": Case(pod(None, phase="Pending", age=1), Running, told="is being started", started=False),
    "it makes its container": Case(pod(waiting("ContainerCreating"), phase="Pending", age=20), Running, started=False),
    "it waits for its init container": Case(
        pod(waiting("PodInitializing"), phase="Pending", age=20), Running, started=False
    ),
    "its image is being tried": Case(
        pod(waiting("ErrImagePull", "pull access denied"), phase="Pending", age=20),
        Running,
        told="image spark:1 cannot be pulled: pull access denied",
        started=False,
    ),
    "no node takes it yet": Case(unscheduled(UNSCHEDULABLE, 30), Running, told="2 Insufficient memory", started=False),
    "it is gated for hours": Case(unscheduled(GATED, 90_000), Running, told="scheduling gate", started=False),
    # It is given up before it ran.
    "its image never comes": Case(
        pod(waiting("ImagePullBackOff", "Back-off pulling image"), phase="Pending", age=200),
        Gone,
        "ImageNotPullable",
        "spark:1 cannot be pulled: Back-off pulling image; it was given up after 200 s",
    ),
    "its image's name is not valid": Case(
        pod(waiting("InvalidImageName", "couldn't parse"), phase="Pending", age=2), Gone, "ImageNotPullable"
    ),
    "its image may not be pulled": Case(
        pod(waiting("ErrImageNeverPull", "not present"), phase="Pending", age=2), Gone, "ImageNotPullable"
    ),
    "an init container's image never comes": Case(
        pod(
            waiting("PodInitializing"),
            phase="Pending",
            age=700,
            initContainerStatuses=[{"name": "i", "state": waiting("ImagePullBackOff", "Back-off")}],
        ),
        Gone,
        "ImageNotPullable",
    ),
    "no node ever takes it": Case(
        unscheduled(UNSCHEDULABLE, 700), Gone, "Unschedulable", "0/2 nodes are available: 2 Insufficient memory"
    ),
    "a key of its configuration is missing": Case(
        pod(waiting("CreateContainerConfigError", 'secret "warehouse" not found'), phase="Pending", age=700),
        Gone,
        "CannotStart",
        'secret "warehouse" not found',
    ),
    "its volumes never come": Case(
        pod(waiting("ContainerCreating"), phase="Pending", age=700), Gone, "StartTimedOut", "is being started"
    ),
    "it was deleted before it had a node": Case(
        unscheduled(UNSCHEDULABLE, 30, deleted=1), Gone, "Deleted", "before it was given a node"
    ),
    "its node refused it": Case(
        pod(None, phase="Failed", reason="OutOfmemory", message="Node didn't have enough resource: memory"),
        Gone,
        "RejectedByNode",
        "enough resource: memory",
    ),
    "its init container failed": Case(
        pod(
            waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[{"name": "check", "state": terminated(3, message="no right")}],
        ),
        Gone,
        "CannotStart",
        "init container check of pod orders-driver-17 ended with status 3; the last it wrote: no right",
    ),
    # It has ended by itself.
    "it finished": Case(
        pod(terminated(0, "Completed", said(Ending.COMPLETED)), phase="Succeeded"), Ended, ending=Ending.COMPLETED
    ),
    "it drained": Case(
        pod(terminated(0, "Completed", said(Ending.DRAINED)), phase="Succeeded", deleted=10),
        Ended,
        ending=Ending.DRAINED,
    ),
    "it was fenced": Case(pod(terminated(3, message=said(Ending.FENCED)), phase="Failed"), Ended, ending=Ending.FENCED),
    "its batch failed": Case(
        pod(terminated(1, message=said(Ending.BATCH_FAILED, batch=7)), phase="Failed"),
        Ended,
        ending=Ending.BATCH_FAILED,
        blames=True,
    ),
    "it was killed": Case(
        pod(terminated(137), phase="Failed"),
        Ended,
        "Crashed",
        "was killed (status 137) without a last message",
        blames=True,
    ),
    "it crashed with a log": Case(
        pod(terminated(1, message="Traceback ...\nKeyError: 'x'\n"), phase="Failed"),
        Ended,
        "Crashed",
        "ended (status 1) without a last message; the last it wrote: Traceback ... KeyError: 'x'",
    ),
    "it ended beside a container that runs on": Case(
        pod(terminated(0, "Completed", said(Ending.COMPLETED)), phase="Running"), Ended, ending=Ending.COMPLETED
    ),
    # Its node or the cluster ended it.
    "it was out of memory": Case(
        pod(terminated(137, "OOMKilled"), phase="Failed"), Ended, "OutOfMemory", "needed more than 1433Mi", blames=True
    ),
    "its JVM was out of memory": Case(
        pod(terminated(1, "OOMKilled", said(Ending.BATCH_FAILED, "the JVM is gone", 7)), phase="Failed"),
        Ended,
        told="needed more than 1433Mi",
        ending=Ending.BATCH_FAILED,
        blames=True,
    ),
    "it was evicted by its node": Case(
        pod(terminated(137), phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
        Ended,
        "Evicted",
        "The node was low on resource: memory",
        blames=False,
    ),
    "its node was drained": Case(
        pod(terminated(0, "Completed", said(Ending.DRAINED)), deleted=3, **disrupted("EvictionByEvictionAPI")),
        Ended,
        told="as by draining its node",
        ending=Ending.DRAINED,
    ),
    "its node was drained and it took too long": Case(
        pod(terminated(137), phase="Failed", deleted=3, **disrupted("EvictionByEvictionAPI")),
        Ended,
        "Evicted",
        blames=False,
    ),
    "a greater one took its place": Case(
        pod(terminated(137), phase="Failed", deleted=3, **disrupted("PreemptionByScheduler")),
        Ended,
        "Preempted",
        blames=False,
    ),
    "its node was shut down": Case(
        pod(terminated(137), phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent"),
        Ended,
        "NodeShutDown",
        blames=False,
    ),
    "it did not drain in time": Case(
        pod(terminated(137), phase="Failed", deleted=3),
        Ended,
        "KilledAtDeadline",
        "give drainTimeout more",
        blames=True,
    ),
    "it was deleted in its first moment": Case(
        pod(terminated(143), phase="Failed", deleted=3), Ended, "Deleted", "before its driver had begun", blames=False
    ),
    "its program is not in the image": Case(
        pod(terminated(128, "StartError", 'exec: "driver": executable file not found'), phase="Failed"),
        Ended,
        "CannotStart",
        "executable file not found",
        blames=False,
    ),
    # It is lost.
    "its node is silent": Case(pod(RUNNING, ready="False"), Gone, "NodeLost", "has not reported for 60 s", node=LOST),
    "its node is gone": Case(pod(RUNNING, ready="True"), Gone, "NodeLost", "does not exist any more", node=ABSENT),
    "its node is silent and cannot be looked at": Case(
        pod(RUNNING, ready="False", ready_for=60), Gone, "NodeLost", "is not ready since", node=None
    ),
    "its node went silent while it was started": Case(
        pod(waiting("ContainerCreating"), phase="Pending", ready="False", age=100), Gone, "NodeLost", node=LOST
    ),
    "it was deleted and its node says nothing": Case(
        pod(RUNNING, ready="True", deleted=120), Gone, "NodeLost", "has not said that it has"
    ),
    "the cluster gave its node up": Case(
        pod(RUNNING, phase="Failed", ready="False", **disrupted("DeletionByPodGC", "node is gone")), Gone, "NodeLost"
    ),
    "its container was not found": Case(pod(UNKNOWN, phase="Failed"), Gone, "RecordLost", "does not say how"),
    "it was deleted while its image was pulled": Case(
        pod(UNKNOWN, phase="Failed", deleted=5), Gone, "Deleted", "nothing says that its driver had begun"
    ),
    "it was evicted and its container not found": Case(
        pod(UNKNOWN, phase="Failed", reason="Evicted", message="ephemeral local storage usage exceeds"), Gone, "Evicted"
    ),
}
