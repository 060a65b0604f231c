"""How a driver's pod is, from records as API servers and kubelets write them: a table, and what no record may do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.launch.last_words import MAX_BYTES, Ending, LastWords
from exactlyonce.launch.pod_endings import Patience, Reason, state_of
from exactlyonce.launch.pod_nodes import NodeState, needs_node, node_state
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, DriverState, Ended, Gone, Running

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
    return LastWords(ending, message, batch, None if batch is None else '{"orders":{"0":[1,2]}}').render()


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
    "it is gated for hours": Case(unscheduled(GATED, 90_000), Running, told="gated", started=False),
    # It is given up before it ran.
    "its image never comes": Case(
        pod(waiting("ImagePullBackOff", "Back-off pulling image"), phase="Pending", age=200),
        Gone,
        "ImageNotPullable",
        "spark:1 cannot be pulled: Back-off pulling image; it was given up after 200 s",
    ),
    "its image's name is none": Case(
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
        "was killed (status 137) without last words",
        blames=True,
    ),
    "it crashed with a log": Case(
        pod(terminated(1, message="Traceback ...\nKeyError: 'x'\n"), phase="Failed"),
        Ended,
        "Crashed",
        "ended (status 1) without last words; the last it wrote: Traceback ... KeyError: 'x'",
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


HALTED = PodVerdict(Outcome.HALTS, "The source is gone.", "SourceReplaced", landed=4)


@pytest.mark.parametrize(
    ("record", "kind", "word"),
    [
        pytest.param(
            pod(waiting("PodInitializing"), phase="Pending", age=20,
                initContainerStatuses=[{"name": "reconcile", "state": RUNNING}]),
            Running, None, id="it reconciles",
        ),
        pytest.param(
            pod(RUNNING, ready="True",
                initContainerStatuses=[{"name": "reconcile", "state": terminated(0, "Completed", HALTED.render())}]),
            Running, HALTED, id="it has",
        ),
        pytest.param(
            pod(waiting("PodInitializing"), phase="Failed",
                initContainerStatuses=[{"name": "proxy", "state": RUNNING},
                                       {"name": "reconcile", "state": terminated(2, message=HALTED.render())}]),
            Gone, HALTED, id="its word lets no driver start",
        ),
        pytest.param(
            pod(waiting("PodInitializing"), phase="Failed",
                initContainerStatuses=[{"name": "reconcile", "state": terminated(137, "OOMKilled")}]),
            Gone, None, id="it was killed before it had said anything",
        ),
        pytest.param(
            pod(waiting("PodInitializing"), phase="Failed",
                initContainerStatuses=[{"name": "check", "state": terminated(2, message=HALTED.render())}]),
            Gone, None, id="another container says something like it",
        ),
    ],
)  # fmt: skip
def test_the_word_of_the_reconciliation_in_a_pod_is_taken_from_its_own_container_once_it_has_ended(
    record: dict[str, Any], kind: type, word: PodVerdict | None
) -> None:
    state = state_of(record, HEALTHY, PATIENCE, NOW)
    assert isinstance(state, kind)
    assert isinstance(state, Running | Gone)
    assert state.pod is not None
    assert (state.pod.name, state.pod.image, state.pod.word) == ("orders-driver-17", "spark:1", word)


def test_a_drivers_pod_shows_since_when_it_runs_and_still_does_when_it_has_ended() -> None:
    for found in ({"running": {"startedAt": ago(100)}}, {"terminated": {"exitCode": 1, "startedAt": ago(100)}}):
        state = state_of(pod(found), HEALTHY, PATIENCE, NOW)
        assert isinstance(state, Running | Ended)
        assert state.pod == DriverPod("orders-driver-17", "spark:1", NOW - timedelta(seconds=100))


def look(case: Case) -> DriverState:
    return state_of(case.pod, case.node, PATIENCE, NOW)


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_read_as_the_table_says(name: str) -> None:
    case = CASES[name]
    state = look(case)
    assert type(state) is case.kind, state
    match state:
        case Running(where=told, started=started):
            assert case.started in (None, started)
        case Gone(why=told, reason=reason):
            assert reason == case.reason
        case Ended(words=words, detail=told, reason=reason):
            assert reason == case.reason
            assert (None if words is None else words.ending) == case.ending
            assert case.blames in (None, state.blames_batch)
            told += "" if words is None else words.message
            assert (
                "node1 reported the container of pod orders-driver-17 terminated at 2026-01-02T11:59:55Z" in state.proof
            )
    assert case.told in told
    assert told[0].isupper()
    assert not told.endswith(".."), "a sentence"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind is not Ended])
def test_nothing_but_a_terminated_container_proves_an_end(name: str) -> None:
    """Whatever else the control plane writes: phases, reasons, conditions, deletions."""
    for phase in ("Failed", "Succeeded", "Unknown", "Pending", "Running"):
        for reason in (None, "Evicted", "NodeLost", "Terminated", "DeadlineExceeded"):
            record = copy.deepcopy(CASES[name].pod)
            record["status"] |= {"phase": phase, "reason": reason}
            record["metadata"]["deletionTimestamp"] = ago(1)
            for node in (HEALTHY, LOST, ABSENT, None):
                assert not isinstance(state_of(record, node, PATIENCE, NOW), Ended)


def test_another_containers_end_is_not_the_drivers() -> None:
    record = pod(RUNNING, ready="True")
    record["status"]["containerStatuses"].append({"name": "sidecar", "state": terminated(137)})
    assert isinstance(state_of(record, HEALTHY, PATIENCE, NOW), Running)


@pytest.mark.parametrize("containers", [4, 6, 12])
def test_words_that_a_kubelet_has_cut_still_say_how_it_ended(containers: int) -> None:
    """With more than three containers each one's message is cut to its share of 12 KiB."""
    words = LastWords(Ending.BATCH_FAILED, "x" * 3500, 42, '{"orders":{"0":[1,2]}}').render()
    assert len(words) <= MAX_BYTES
    state = state_of(pod(terminated(1, message=words[: 12 * 1024 // containers]), phase="Failed"), None, PATIENCE, NOW)
    assert isinstance(state, Ended)
    assert state.words is not None
    assert (state.words.ending, state.words.batch, state.words.ranges) == (Ending.BATCH_FAILED, 42, None)


@pytest.mark.parametrize(
    ("record", "needed"),
    [
        (pod(RUNNING, ready="True"), False),
        (pod(RUNNING, ready="False"), True),
        (pod(RUNNING, ready="True", deleted=-100), True),
        (pod(waiting("ContainerCreating"), phase="Pending", ready="False"), True),
        (unscheduled(UNSCHEDULABLE, 10), False),
        (pod(terminated(0), ready="False"), False),
    ],
)
def test_a_node_is_asked_for_only_when_the_pod_does_not_say_that_it_runs(record: dict[str, Any], needed: bool) -> None:
    assert needs_node(record) is needed


def test_a_nodes_record_tells_whether_its_kubelet_reports() -> None:
    def node(status: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": ago(60)}]}}

    assert node_state(None) == NodeState(exists=False)
    assert node_state({"status": {}}) == NodeState(exists=True), "a node that has just joined"
    assert node_state(node("True")) == NodeState(exists=True)
    assert node_state(node("False")) == NodeState(exists=True), "it is not well, and says so itself"
    assert node_state(node("Unknown")) == NodeState(exists=True, silent_since=NOW - timedelta(seconds=60))


def test_a_node_that_has_just_fallen_silent_is_waited_for() -> None:
    just = NodeState(exists=True, silent_since=NOW - timedelta(seconds=2))
    state = state_of(pod(RUNNING, ready="False"), just, PATIENCE, NOW)
    assert isinstance(state, Running)
    assert state.gives_up_at is not None
    assert isinstance(state_of(pod(RUNNING, ready="False"), just, PATIENCE, state.gives_up_at), Gone)
    almost = state.gives_up_at - timedelta(milliseconds=1)
    assert isinstance(state_of(pod(RUNNING, ready="False"), just, PATIENCE, almost), Running)


@pytest.mark.parametrize("record", [pod(None, age=1), pod(waiting("ErrImagePull", "no"), age=1)])
def test_what_has_not_started_says_when_it_will_be_given_up(record: dict[str, Any]) -> None:
    state = state_of(record, HEALTHY, PATIENCE, NOW)
    assert isinstance(state, Running)
    assert state.gives_up_at is not None
    assert isinstance(state_of(record, HEALTHY, PATIENCE, state.gives_up_at), Gone)


def test_a_driver_that_runs_on_a_node_that_reports_is_never_given_up() -> None:
    state = state_of(pod(RUNNING), HEALTHY, PATIENCE, NOW)
    assert isinstance(state, Running)
    assert state.gives_up_at is None


def test_a_log_is_told_in_part_and_its_end_is_the_part() -> None:
    record = pod(terminated(1, message="first\n" + "x" * 3000 + "\nlast words of a log"), phase="Failed")
    state = state_of(record, HEALTHY, PATIENCE, NOW)
    assert isinstance(state, Ended)
    assert state.detail.endswith("last words of a log")
    assert len(state.detail) < 600


def test_every_reason_is_told_in_the_page_about_pods() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pods.md").read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
