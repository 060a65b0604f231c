"""Pods as tests need them, written out: what the product's own manifests have is not used to check the product."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.cluster import Cluster, KubectlFailed
from tests.rig import TookTooLong, eventually

POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""With that of the pod: what the Pod Security level `restricted` asks for, and a root that nobody writes."""

SCRATCH = {"name": "scratch", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "scratch", "mountPath": "/tmp"}


def pod(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod that runs `command` once; `environment` holds plain values, `spec` more fields of the pod's spec."""
    container = {
        "name": "main",
        "image": image,
        "command": list(command),
        "env": [
            *({"name": key, "value": value} for key, value in (environment or {}).items()),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "volumeMounts": [SCRATCH_MOUNT],
        "securityContext": CONTAINER_SECURITY,
    }
    whole = {
        "restartPolicy": "Never",
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [SCRATCH],
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def apply(cluster: Cluster, namespace: str, *objects: Mapping[str, Any]) -> None:
    """Send objects to a namespace as `kubectl apply` does."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=json.dumps(items))


def wait_until_ended(cluster: Cluster, namespace: str, name: str, timeout_seconds: float = 180) -> str:
    """Wait until a pod has succeeded and return its log; a pod that failed fails the test with what it said."""

    def phase() -> str:
        return cluster.kubectl("get", "pod", name, *chosen, "--output=jsonpath={.status.phase}")

    chosen = ("--namespace", namespace)
    try:
        eventually(lambda: phase() in ("Succeeded", "Failed"), f"the pod {name} has ended", timeout_seconds)
    except TookTooLong as problem:
        raise AssertionError(_story(cluster, name, *chosen)) from problem
    assert phase() == "Succeeded", _story(cluster, name, *chosen)
    return cluster.kubectl("logs", name, *chosen)


def _story(cluster: Cluster, name: str, *chosen: str) -> str:
    """What a person would look at: the namespace's pods, the pod's events and the end of its log."""
    told = []
    for command in (("get", "pods"), ("describe", "pod", name), ("logs", name, "--tail=60")):
        with contextlib.suppress(KubectlFailed):
            told.append(cluster.kubectl(*command, *chosen))
    return "\n".join(told)
