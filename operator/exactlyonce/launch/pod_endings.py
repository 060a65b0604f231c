"""How a driver's pod is, from its record and its node's: lives, has ended, or is given up. Performs no I/O.

Only a terminated container state, which its kubelet reports, proves that a driver has ended: the kubelet writes it after the
container runtime has reaped the process. A pod's phase is no proof: the control plane sets it to Failed for a node that is
lost, whose containers may keep running. Each ending has a reason, one CamelCase word, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from exactlyonce.launch.driver_progress import hangs_from
from exactlyonce.launch.last_message import Ending, LastMessage, parse_cut_message, parse_last_message
from exactlyonce.launch.pod_facts import (
    driver_spec,
    driver_status,
    name_of,
    note_of,
    sentence,
    terminated_state,
    word_of,
    words_of,
)
from exactlyonce.launch.pod_nodes import NodeState
from exactlyonce.launch.pod_records import Manifest, condition, cut, held_back, moment
from exactlyonce.launch.port import DriverPod, Ended, Gone, Running


class Reason(StrEnum):
    """Why a driver ended or was given up, where its own last message does not say it."""

    CRASHED = "Crashed"
    OUT_OF_MEMORY = "OutOfMemory"
    KILLED_AT_DEADLINE = "KilledAtDeadline"
    """It was asked to end and did not within `drainTimeout`."""
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_SHUT_DOWN = "NodeShutDown"
    CANNOT_START = "CannotStart"
    NODE_LOST = "NodeLost"
    REJECTED_BY_NODE = "RejectedByNode"
    IMAGE_NOT_PULLABLE = "ImageNotPullable"
    UNSCHEDULABLE = "Unschedulable"
    START_TIMED_OUT = "StartTimedOut"
    DELETED = "Deleted"
    """Its pod was deleted before it had begun."""
    RECORD_LOST = "RecordLost"
    """Its pod's record is gone, or says nothing of how it ended."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited before a driver is given up.

    `lost_node` is counted from the moment at which the control plane noticed that a node is silent, which takes it 40 to 50 s.
    `silent_kubelet` is counted from the end of the grace period of a pod that was deleted.
    """

    start: timedelta = timedelta(minutes=10)
    image: timedelta = timedelta(minutes=3)
    lost_node: timedelta = timedelta(seconds=15)
    silent_kubelet: timedelta = timedelta(seconds=60)


_PULL_FAILURES = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
_HOPELESS_PULLS = {"ErrImageNeverPull", "InvalidImageName"}
_CANNOT_START = {"StartError", "ContainerCannotRun"}
_UNKNOWN = "ContainerStatusUnknown"  # the kubelet found no such container: it does not say how, or whether, it ended
_DISRUPTIONS = {
    "EvictionByEvictionAPI": (Reason.EVICTED, "it was evicted, as by draining its node"),
    "PreemptionByScheduler": (Reason.PREEMPTED, "it was preempted by a pod of higher priority"),
    "DeletionByTaintManager": (Reason.EVICTED, "its node was tainted NoExecute"),
    "TerminationByKubelet": (Reason.EVICTED, "its node ran short of a resource or was shut down"),
    "DeletionByPodGC": (Reason.NODE_LOST, "its node is gone"),
}
_PHASE_REASONS = {
    "Evicted": (Reason.EVICTED, "it was evicted by its node"),
    "Terminated": (Reason.NODE_SHUT_DOWN, "its node was shut down"),
    "NodeShutdown": (Reason.NODE_SHUT_DOWN, "its node was shut down"),
    "Shutdown": (Reason.NODE_SHUT_DOWN, "its node was shut down"),
    "NodeLost": (Reason.NODE_LOST, "its node is lost"),
}
_NOT_ITS_FAULT = {Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_SHUT_DOWN, Reason.CANNOT_START, Reason.DELETED}
_KILLED, _TERMINATED = 137, 143  # 128 + SIGKILL, 128 + SIGTERM


def is_over(pod: Manifest) -> bool:
    """Whether the pod will not run any more; its phase may follow the end of the driver's container a moment later."""
    return terminated_state(pod) is not None or pod["status"].get("phase") in ("Failed", "Succeeded")


def state_of(pod: Manifest, node: NodeState | None, patience: Patience, now: datetime) -> Running | Ended | Gone:
    """Return how the driver of a pod is, with what the record shows of the pod.

    `node` is None where it is not needed or may not be read; then the pod's Ready condition, which the control plane sets
    to False when a node falls silent, stands for it.
    """
    return replace(_state_of(pod, node, patience, now), pod=_shown(pod))


def _state_of(pod: Manifest, node: NodeState | None, patience: Patience, now: datetime) -> Running | Ended | Gone:
    terminated = terminated_state(pod)
    if terminated is not None and terminated.get("reason") != _UNKNOWN:
        return _ended(pod, terminated)
    if is_over(pod):
        return _without_proof(pod)
    lost = _lost(pod, node, patience, now)
    if isinstance(lost, Gone):
        return lost
    state = _living(pod, patience, now)
    if isinstance(state, Gone) or lost is None:
        return state
    return replace(state, gives_up_at=min(lost, state.gives_up_at or lost))


def _living(pod: Manifest, patience: Patience, now: datetime) -> Running | Gone:
    if "running" in driver_status(pod).get("state", {}):
        leaving = ", and was asked to end after the current batch" if "deletionTimestamp" in pod["metadata"] else ""
        where = sentence(f"{name_of(pod)} runs on node {pod['spec'].get('nodeName')}{leaving}.")
        return _if_it_progresses(pod, Running(where), now)
    return _starting(pod, patience, now)


def _if_it_progresses(pod: Manifest, state: Running, now: datetime) -> Running:
    """Tell a driver that hangs; a pod that is being deleted has a deadline already."""
    given_up_at = None if "deletionTimestamp" in pod["metadata"] else hangs_from(pod)
    if given_up_at is None:
        return state
    if now < given_up_at:
        return replace(state, gives_up_at=given_up_at)
    return replace(
        state,
        hangs=f"The driver of {name_of(pod)} has shown no progress for all of driver.progressTimeout and is replaced; "
        "if its batch is merely slow, give driver.progressTimeout more.",
    )


def _shown(pod: Manifest) -> DriverPod:
    state = driver_status(pod).get("state", {})
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    image, moment_started = driver_spec(pod).get("image"), None if not started else moment(started)
    return DriverPod(pod["metadata"]["name"], image, moment_started, word_of(pod))


def _ended(pod: Manifest, terminated: Manifest) -> Ended:
    """The kubelet reported the driver's container as terminated: nothing of it runs any more."""
    node = pod["spec"].get("nodeName", "?")
    proof = f"the kubelet of node {node} reported the container of {name_of(pod)} terminated"
    if terminated.get("finishedAt"):
        proof += f" at {terminated['finishedAt']}"
    message = terminated.get("message") or ""
    words = parse_last_message(message) or parse_cut_message(message)
    reason, told = _why(pod, terminated, words)
    why = sentence(told)
    if words is not None and words.ending in (Ending.DRAINED, Ending.COMPLETED, Ending.FINISHED, Ending.FENCED):
        return Ended(proof, words, why)
    if words is not None and reason is Reason.OUT_OF_MEMORY:
        words = replace(words, message=f"{why} It said: {words.message}")
    return Ended(
        proof,
        words,
        why,
        str(reason) if words is None else None,
        blames_batch=reason not in _NOT_ITS_FAULT,
        out_of_memory=reason is Reason.OUT_OF_MEMORY,
    )


def _why(pod: Manifest, terminated: Manifest, words: LastMessage | None) -> tuple[Reason, str]:
    status, said = terminated.get("exitCode"), words_of(terminated)
    if terminated.get("reason") in _CANNOT_START:
        return Reason.CANNOT_START, f"The container of {name_of(pod)} could not be started{said}"
    if terminated.get("reason") == "OOMKilled":
        limit = driver_spec(pod).get("resources", {}).get("limits", {}).get("memory", "its limit")
        return Reason.OUT_OF_MEMORY, (
            f"{name_of(pod)} needed more than {limit} of memory and was killed; give it more by driver.memory, or by "
            "driver.memoryOverhead where the heap was not the cause."
        )
    disrupted = _disruption(pod)
    if disrupted is not None:
        reason, told = disrupted
        return reason, f"{name_of(pod)} ended because {told}{note_of(pod)}."
    if "deletionTimestamp" in pod["metadata"] and words is None and status == _TERMINATED:
        return Reason.DELETED, f"{name_of(pod)} was deleted before its driver had begun."
    if "deletionTimestamp" in pod["metadata"] and words is None and status == _KILLED:
        return Reason.KILLED_AT_DEADLINE, (
            f"{name_of(pod)} was deleted and did not end after the current batch within its grace period, so it was "
            "killed; give drainTimeout more than a batch takes."
        )
    ended = "was killed" if status == _KILLED else "ended"
    return Reason.CRASHED, f"{name_of(pod)} {ended} (status {status}) without a last message{said}"


def _without_proof(pod: Manifest) -> Gone:
    """The pod is over, and its kubelet has not reported that the driver's container terminated."""
    disrupted = _disruption(pod)
    if disrupted is not None:
        reason, told = disrupted
        return Gone(sentence(f"{name_of(pod)} is over because {told}{note_of(pod)}."), str(reason))
    for container in pod["status"].get("initContainerStatuses", ()):
        failed = container.get("state", {}).get("terminated")
        if failed is not None and failed.get("exitCode") and failed.get("reason") != _UNKNOWN:
            why = f"The init container {container['name']} of {name_of(pod)} ended with status {failed['exitCode']}"
            return Gone(f"{why}{words_of(failed)}", str(Reason.CANNOT_START))
    reason = pod["status"].get("reason")
    if reason is not None and not driver_status(pod):
        return Gone(f"Its node refused {name_of(pod)} ({reason}){note_of(pod)}.", str(Reason.REJECTED_BY_NODE))
    if "deletionTimestamp" in pod["metadata"] and not _has_been_seen_to_run(pod):
        told = f"{name_of(pod)} was deleted, and nothing says that its driver had begun{note_of(pod)}."
        return Gone(sentence(told), str(Reason.DELETED))
    told = f"{name_of(pod)} is over, and its record does not say how its container ended{note_of(pod)}."
    return Gone(sentence(told), str(Reason.RECORD_LOST))


def _has_been_seen_to_run(pod: Manifest) -> bool:
    terminated = terminated_state(pod) or {}
    return bool(terminated.get("startedAt")) or "running" in driver_status(pod).get("state", {})


def _lost(pod: Manifest, node: NodeState | None, patience: Patience, now: datetime) -> Gone | datetime | None:
    """The pod's node is gone or silent: the driver may run on there, out of reach.

    Returns when it will be given up while there is patience left, and None where nothing speaks for a loss.
    """
    name = pod["spec"].get("nodeName")
    if not name:
        return None
    if node is not None and not node.exists:
        return Gone(f"Node {name} of {name_of(pod)} does not exist any more.", str(Reason.NODE_LOST))
    losses: list[tuple[datetime, str]] = []
    if node is not None and node.silent_since is not None:
        silent = f"{(now - node.silent_since).total_seconds():.0f} s"
        told = f"Node {name} has not reported for {silent}, so {name_of(pod)} may still run there."
        losses.append((node.silent_since + patience.lost_node, told))
    deadline = pod["metadata"].get("deletionTimestamp")
    if deadline is not None:
        told = f"{name_of(pod)} was to have ended by {deadline}, and node {name} has not said that it has."
        losses.append((moment(deadline) + patience.silent_kubelet, told))
    ready = condition(pod, "Ready")
    since = ready.get("lastTransitionTime")
    # The kubelet sets both conditions; the control plane, for a node that is silent, sets Ready alone.
    kubelet_agrees = condition(pod, "ContainersReady").get("status") == "False"
    seen_to_run = "running" in driver_status(pod).get("state", {}) and not kubelet_agrees
    if node is None and seen_to_run and ready.get("status") == "False" and since is not None:
        told = f"{name_of(pod)} is not ready since {since}: node {name} does not report."
        losses.append((moment(since) + patience.lost_node, told))
    for at, told in losses:
        if at <= now:
            return Gone(sentence(told), str(Reason.NODE_LOST))
    return min((at for at, _ in losses), default=None)


def _starting(pod: Manifest, patience: Patience, now: datetime) -> Running | Gone:
    """The driver has not run yet: say what it waits for, and give it up after a while."""
    metadata, name = pod["metadata"], name_of(pod)
    waited = now - moment(pod["status"].get("startTime") or metadata["creationTimestamp"])
    if "deletionTimestamp" in metadata and not pod["spec"].get("nodeName"):
        return Gone(sentence(f"{name} was deleted before it was given a node."), str(Reason.DELETED))
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "SchedulingGated":
        return Running(sentence(f"{name} is held back by a scheduling gate."), started=False)
    if scheduled.get("status") == "False":
        said = scheduled.get("message", "no node takes it")
        return _waiting(f"No node takes {name}: {cut(said)}", Reason.UNSCHEDULABLE, waited, patience.start, now)
    waiting = held_back([*pod["status"].get("initContainerStatuses", ()), driver_status(pod)])
    why, said = waiting.get("reason", ""), waiting.get("message", "")
    if why in _PULL_FAILURES:
        image = driver_spec(pod).get("image")
        limit = timedelta(0) if why in _HOPELESS_PULLS else min(patience.image, patience.start)
        return _waiting(
            f"The image {image} cannot be pulled: {cut(said or why)}", Reason.IMAGE_NOT_PULLABLE, waited, limit, now
        )
    if said:
        return _waiting(f"{name} cannot start: {cut(said)}", Reason.CANNOT_START, waited, patience.start, now)
    return _waiting(f"{name} is being started", Reason.START_TIMED_OUT, waited, patience.start, now)


def _waiting(told: str, reason: Reason, waited: timedelta, limit: timedelta, now: datetime) -> Running | Gone:
    told = sentence(told.rstrip("."))
    if waited < limit:
        return Running(f"{told}.", started=False, gives_up_at=now + (limit - waited))
    return Gone(f"{told}; it was given up after {waited.total_seconds():.0f} s.", str(reason))


def _disruption(pod: Manifest) -> tuple[Reason, str] | None:
    """Why the cluster ended the pod, if it did: the pod's own reason first, which is the more precise one."""
    reason = pod["status"].get("reason")
    if reason in _PHASE_REASONS:
        return _PHASE_REASONS[reason]
    target = condition(pod, "DisruptionTarget")
    if target.get("status") == "True":
        return _DISRUPTIONS.get(target.get("reason", ""), (Reason.EVICTED, "the cluster ended it"))
    return None
