"""What a driver's pod says of itself, in the fields that its endings are told from. Performs no I/O."""

from __future__ import annotations

from exactlyonce.launch.pod_names import DRIVER, RECONCILE
from exactlyonce.launch.pod_records import TOLD_MOST, Manifest, condition, cut
from exactlyonce.launch.pod_verdict import PodVerdict, parse_pod_verdict


def terminated_state(pod: Manifest) -> Manifest | None:
    """Return how its container ended, where its kubelet has said so."""
    found: Manifest | None = driver_status(pod).get("state", {}).get("terminated")
    return found


def driver_status(pod: Manifest) -> Manifest:
    """The status of the driver's container; empty before the kubelet has one."""
    statuses = pod["status"].get("containerStatuses", ())
    return next((entry for entry in statuses if entry["name"] == DRIVER), {})


def driver_spec(pod: Manifest) -> Manifest:
    """Return its container as it was asked for."""
    return next((entry for entry in pod["spec"].get("containers", ()) if entry["name"] == DRIVER), {})


def name_of(pod: Manifest) -> str:
    """Return what a sentence calls it."""
    return f"pod {pod['metadata']['name']}"


def sentence(text: str) -> str:
    """Return a text that begins as a sentence does."""
    return text[0].upper() + text[1:]


def note_of(pod: Manifest) -> str:
    """Return what the cluster says of it, in brackets; nothing where it says nothing."""
    message = pod["status"].get("message") or condition(pod, "DisruptionTarget").get("message")
    return f" ({cut(message).rstrip('.')})" if message else ""


def words_of(terminated: Manifest) -> str:
    """The end of what the kubelet has of the container's message or log, as the end of a sentence."""
    message = (terminated.get("message") or "").strip()
    return f"; the last it wrote: {cut(message[-TOLD_MOST:])}" if message else "."


def word_of(pod: Manifest) -> PodVerdict | None:
    """What the reconciliation in the pod has said; the kubelet reports it when its container has ended."""
    statuses = pod["status"].get("initContainerStatuses", ())
    found: Manifest = next((entry for entry in statuses if entry["name"] == RECONCILE), {})
    terminated = found.get("state", {}).get("terminated") or {}
    return parse_pod_verdict(terminated.get("message") or "")
