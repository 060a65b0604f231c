"""A driver without a single executor is told from one that works, and the stream says so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.status import ConditionStatus, Phase
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.executor_pods import PATIENCE, why_idle
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_names import DRIVER, EXECUTOR, labels_of
from exactlyonce.launch.port import Running
from exactlyonce.positions.ranges import Epoch
from scripts.make_golden_pods import OWNER_UID
from tests.unit.passes import FIRST, Machine, started
from tests.unit.test_draining_pods import made

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu."


def executor(
    phase: str = "Pending", created: datetime = LONG_AGO, attempt: Epoch = FIRST, **status: Any
) -> dict[str, Any]:
    """Return the record of an executor's pod."""
    metadata = {
        "name": f"orders-{attempt}-exec-1",
        "namespace": "shop",
        "labels": labels_of("orders", attempt, EXECUTOR),
        "creationTimestamp": created.isoformat(),
    }
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, **status}}


def unschedulable(created: datetime = LONG_AGO) -> dict[str, Any]:
    """Return an executor's pod that no node takes."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}
    return executor(created=created, conditions=[condition])


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """Return an executor's pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return executor(containerStatuses=[{"name": EXECUTOR, "state": state}])


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ([unschedulable()], r"no node takes pod orders-1-exec-1 \(0/3 nodes are available: 3 Insufficient cpu\)"),
        ([waiting("ImagePullBackOff", "no such image")], r"orders-1-exec-1 does not start \(no such image\)"),
        ([waiting("ContainerCreating")], "its containers are still being created"),
        ([], "no pod of one is on its way"),
        ([executor("Failed"), executor("Succeeded")], "no pod of one is on its way"),
    ],
)
def test_a_driver_without_an_executor_says_what_its_executors_wait_for(pods: list[dict[str, Any]], told: str) -> None:
    assert re.search(told, why_idle(pods, LONG_AGO, NOW) or "")


def test_one_executor_is_enough_to_land() -> None:
    assert why_idle([unschedulable(), executor("Running")], LONG_AGO, NOW) is None


def test_an_executor_that_is_being_deleted_is_none() -> None:
    leaving = executor("Running")
    leaving["metadata"]["deletionTimestamp"] = NOW.isoformat()
    assert why_idle([leaving], LONG_AGO, NOW) is not None


@pytest.mark.parametrize("started_at", [None, NOW - PATIENCE + timedelta(seconds=1)])
def test_the_first_executors_are_waited_for(started_at: datetime | None) -> None:
    assert why_idle([], started_at, NOW) is None


def test_an_executor_that_was_just_asked_for_again_is_waited_for() -> None:
    assert why_idle([unschedulable(created=NOW - timedelta(seconds=5))], LONG_AGO, NOW) is None


@dataclass
class Server:
    """An API server with the pods of a stream."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    lists: int = 0

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return a pod; its node reports."""
        if kind == "Node":
            return {"status": {"conditions": []}}
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    def list(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods with the labels of a selector."""
        self.lists += 1
        wanted = dict(part.split("=") for part in selector.split(","))
        return [pod for pod in self.pods if wanted.items() <= pod["metadata"]["labels"].items()]


def running_driver(started_at: datetime = LONG_AGO) -> dict[str, Any]:
    """Return the record of a driver's pod that has run for an hour, or since another moment."""
    pod: dict[str, Any] = made("5m").pod
    running = {"running": {"startedAt": started_at.isoformat()}}
    status = {"phase": "Running", "containerStatuses": [{"name": DRIVER, "state": running}]}
    metadata = {**pod["metadata"], "creationTimestamp": LONG_AGO.isoformat()}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "node1"}, "status": status}


def looked(*executors: dict[str, Any]) -> Running:
    """Return how a running driver is that has these executors."""
    return observed(Server([running_driver(), *executors]))


def observed(server: Server) -> Running:
    """Return how the driver of an API server is."""
    launcher = KubernetesLauncher(
        cast(ApiServer, server), "shop", "orders", OWNER_UID, lambda attempt, orders: made("5m"), now=lambda: NOW
    )
    state = launcher.state_of(FIRST)
    assert isinstance(state, Running)
    return state


def test_a_look_at_a_driver_that_runs_sees_whether_it_has_executors() -> None:
    assert looked(executor("Running")).idle_message is None
    assert NO_ROOM[:-1] in (looked(unschedulable()).idle_message or "")


def test_a_driver_that_has_just_started_costs_no_list_of_its_executors() -> None:
    for started_at, lists in ((NOW - PATIENCE + timedelta(seconds=1), 0), (NOW - PATIENCE, 1)):
        server = Server([running_driver(started_at)])
        observed(server)
        assert server.lists == lists


def test_executors_of_another_attempt_do_not_count() -> None:
    assert looked(executor("Running", attempt=Epoch(2))).idle_message is not None


def ready(machine: Machine) -> tuple[str, str, str]:
    """Return the Ready condition of a stream: status, reason and message."""
    found = next(it for it in conditions_of(machine.statuses.status, 1, NOW) if it.type == "Ready")
    return found.status, found.reason, found.message


def test_a_stream_whose_driver_has_no_executor_is_not_ready_until_it_has_one() -> None:
    machine = started()
    assert ready(machine)[0] == ConditionStatus.TRUE
    machine.drivers.states[FIRST] = Running("it runs", idle_message="No node takes it.")
    for _ in range(3):
        machine.run_pass()
    assert ready(machine) == (ConditionStatus.FALSE, "NoExecutor", "No node takes it.")
    assert machine.statuses.status.phase is Phase.RUNNING
    assert machine.reports == [("NoExecutor", "No node takes it.")], "an event once"
    machine.drivers.states[FIRST] = Running("it runs")
    machine.run_pass()
    assert ready(machine) == (ConditionStatus.TRUE, "Running", "Attempt 1 runs.")


def test_what_kept_a_driver_idle_is_forgotten_with_it() -> None:
    machine = started()
    machine.drivers.states[FIRST] = Running("it runs", idle_message="No node takes it.")
    machine.run_pass()
    machine.end(FIRST)
    machine.run_pass()
    assert machine.statuses.status.driver is not None
    assert machine.statuses.status.driver.idle_message is None
