"""The node that a driver's pod is on, as far as its ending depends on it. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from exactlyonce.launch.pod_facts import (
    terminated_state,
)
from exactlyonce.launch.pod_records import Manifest, condition, moment


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is known of a pod's node: whether it exists, whether its kubelet reports, and since when."""

    exists: bool
    silent_since: datetime | None = None


def needs_node(pod: Manifest) -> bool:
    """Whether `state_of` wants to know the pod's node: its record alone does not say that the driver runs."""
    if terminated_state(pod) is not None or not pod["spec"].get("nodeName"):
        return False
    return condition(pod, "Ready").get("status") != "True" or "deletionTimestamp" in pod["metadata"]


def node_state(node: Manifest | None) -> NodeState:
    """Return what a node's record says, None being a node that does not exist.

    Source: the node lifecycle controller sets Ready to Unknown when a kubelet has not renewed its lease for
    node-monitor-grace-period.
    """
    if node is None:
        return NodeState(exists=False)
    ready = next((entry for entry in node["status"].get("conditions", ()) if entry["type"] == "Ready"), None)
    if ready is None or ready["status"] != "Unknown":
        return NodeState(exists=True)
    return NodeState(exists=True, silent_since=moment(ready["lastTransitionTime"]))
