"""How a driver's pod is, from records as API servers and kubelets write them: a table, and what no record may do."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.launch.last_message import MAX_BYTES, Ending, LastMessage
from exactlyonce.launch.pod_endings import Reason, state_of
from exactlyonce.launch.pod_nodes import NodeState, needs_node, node_state
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, DriverState, Ended, Gone, Running
from tests.unit.pod_ending_cases import (
    ABSENT,
    CASES,
    HEALTHY,
    LOST,
    NOW,
    PATIENCE,
    RUNNING,
    UNSCHEDULABLE,
    Case,
    ago,
    pod,
    terminated,
    unscheduled,
    waiting,
)

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


def observed(case: Case) -> DriverState:
    return state_of(case.pod, case.node, PATIENCE, NOW)


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_read_as_the_table_says(name: str) -> None:
    case = CASES[name]
    state = observed(case)
    assert type(state) is case.kind, state
    match state:
        case Running(where=told, started=started):
            assert case.started in (None, started)
        case Gone(message=told, reason=reason):
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
    words = LastMessage(Ending.BATCH_FAILED, "x" * 3500, 42, '{"orders":{"0":[1,2]}}').render()
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
    record = pod(terminated(1, message="first\n" + "x" * 3000 + "\nlast line of a log"), phase="Failed")
    state = state_of(record, HEALTHY, PATIENCE, NOW)
    assert isinstance(state, Ended)
    assert state.detail.endswith("last line of a log")
    assert len(state.detail) < 600


def test_every_reason_is_told_in_the_page_about_pods() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pods.md").read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
