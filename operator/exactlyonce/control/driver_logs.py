"""The logs of a stream's drivers on a cluster, with the rights of the person who asks: which pod, and its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.control.cluster_reader import ClusterReader, LogNotYet
from exactlyonce.errors import Refused
from exactlyonce.launch.pod_names import ATTEMPT_LABEL, DRIVER, RECONCILE, ROLE_LABEL, selector_of

CONTAINERS = (DRIVER, RECONCILE)
DRIVERS_OWN = f"{ROLE_LABEL}={DRIVER}"


class PodGone(Refused):
    """There is no pod of the attempt that was asked for."""


@dataclass(frozen=True, slots=True, order=True)
class DriverPod:
    """The pod of one attempt's driver."""

    attempt: int
    name: str
    phase: str
    has_node: bool = True

    def __str__(self) -> str:
        return f"attempt {self.attempt}: {self.name} ({self.phase})"


def driver_pods(cluster: ClusterReader, stream: Mapping[str, Any]) -> list[DriverPod]:
    """Return the pods of a stream's drivers that are still there, the oldest attempt first.

    A pod of an earlier stream of the same name is not one of them.

    Raises:
        ReadRefused, ClusterSilent: if pods cannot be listed.
    """
    metadata = stream["metadata"]
    pods = cluster.pods(metadata["namespace"], f"{selector_of(metadata['name'])},{DRIVERS_OWN}")
    return sorted(_driver_pod(pod) for pod in pods if _is_owned_by(pod, metadata["uid"]))


def chosen_pod(
    stream: Mapping[str, Any], pods: Sequence[DriverPod], attempt: int | None = None, *, previous: bool = False
) -> tuple[DriverPod, str | None]:
    """Return the pod of an attempt, of the one before the latest, or of the latest; and what has to be said of the choice.

    Performs no I/O.

    Raises:
        PodGone: if it is not there; the sentence says which are.
    """
    status, key = stream.get("status") or {}, f"{stream['metadata']['namespace']}/{stream['metadata']['name']}"
    latest = int(status.get("attempt") or 0)
    if not latest and not pods:
        raise PodGone(f"{key} has had no driver yet (it is {status.get('phase', 'Pending')}).")
    if attempt is None and previous:
        earlier = [pod for pod in pods if pod.attempt < max(latest, pods[-1].attempt if pods else 0)]
        if not earlier:
            raise PodGone(f"No pod of an attempt before {latest} of {key} is there{_kept(stream, pods)}")
        return earlier[-1], None
    if attempt is None:
        if not pods:
            raise PodGone(
                f"The pod of attempt {latest} of {key} is gone{_kept(stream, pods)}{_words_of_the_last(status)}"
            )
        newest = pods[-1]
        if newest.attempt < latest:
            return newest, f"Attempt {latest} has no pod; this is attempt {newest.attempt}."
        return newest, None
    found = next((pod for pod in pods if pod.attempt == attempt), None)
    if found is None and attempt > latest:
        raise PodGone(f"{key} has had no attempt {attempt} yet; the latest is {latest}.")
    if found is None:
        raise PodGone(f"The pod of attempt {attempt} of {key} is gone{_kept(stream, pods)}")
    return found, None


def log_lines(
    cluster: ClusterReader, namespace: str, pod: DriverPod, container: str, *, follow: bool, tail: int | None
) -> Iterator[bytes]:
    """Yield the log of a driver's pod in pieces as they come, until its end, or for ever.

    Raises:
        LogNotYet: if its container has not started.
        ReadRefused, ClusterSilent: if it cannot be read.
    """
    if not pod.has_node:  # the API server answers an empty log
        raise LogNotYet(f"Pod {namespace}/{pod.name} has no such log yet: it waits for a node.")
    query: dict[str, Any] = {"container": container}
    if follow:
        query["follow"] = "true"
    if tail is not None:
        query["tailLines"] = tail
    yield from cluster.log(namespace, pod.name, query)


def _driver_pod(pod: Mapping[str, Any]) -> DriverPod:
    metadata = pod["metadata"]
    phase = (
        "Terminating" if metadata.get("deletionTimestamp") else str((pod.get("status") or {}).get("phase", "Pending"))
    )
    has_node = bool((pod.get("spec") or {}).get("nodeName"))
    return DriverPod(int(metadata["labels"][ATTEMPT_LABEL]), metadata["name"], phase, has_node)


def _is_owned_by(pod: Mapping[str, Any], uid: str) -> bool:
    return any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())


def _kept(stream: Mapping[str, Any], pods: Sequence[DriverPod]) -> str:
    history = stream["spec"].get("history", "no number")
    there = f"; there are {'; '.join(str(pod) for pod in pods)}" if pods else "; no other is there"
    return f": spec.history ({history}) says how many ended pods are kept{there}."


def _words_of_the_last(status: Mapping[str, Any]) -> str:
    driver = status.get("driver") or {}
    return f" Its last message: {driver['message']}" if driver.get("ended") and driver.get("message") else ""
