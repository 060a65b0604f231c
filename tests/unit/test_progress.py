"""Whether a driver makes progress: frozen processes, long batches, batches that hang, and what is done about them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.resource import parse_stream
from exactlyonce.launch.driver_document import PROGRESS_VARIABLE
from exactlyonce.launch.driver_progress import progress_file, progress_limit, with_progress_probe
from exactlyonce.launch.pod_endings import Patience, state_of
from exactlyonce.launch.pod_names import DRIVER
from exactlyonce.launch.pod_nodes import NodeState
from exactlyonce.launch.port import Ended, Gone, Running
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce.reconcile.loop import Halted, Waiting, Wanted, Watching
from exactlyonce_spark.progress import ProgressFile, Signs, has_progressed
from tests.resource_documents import document
from tests.unit.passes import FIRST, KEYS, STREAM, Machine, started
from tests.unit.test_draining_pods import made

AT_REST = Signs(points=9, batch=None, in_trigger=False, triggers="12:00:00", executors=2, tasks=0, counts="")
IN_BATCH = Signs(
    points=12, batch=3, in_trigger=True, triggers="12:00:00", executors=2, tasks=5, counts="7: Map(1 -> 4,000)"
)
STARTED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = STARTED_AT + timedelta(hours=2)


def test_a_query_at_rest_makes_progress_by_answering() -> None:
    assert has_progressed(AT_REST, AT_REST)


@pytest.mark.parametrize("sign", [{"points": 13}, {"tasks": 6}, {"counts": "7: Map(1 -> 4,001)"}], ids=str)
def test_a_long_batch_makes_progress_with_each_point_task_and_row(sign: dict[str, Any]) -> None:
    assert has_progressed(IN_BATCH, replace(IN_BATCH, **sign))


def test_a_batch_without_any_sign_makes_none() -> None:
    assert not has_progressed(IN_BATCH, IN_BATCH)


def test_a_query_that_plans_for_ever_makes_none() -> None:
    planning = replace(AT_REST, in_trigger=True)
    assert not has_progressed(planning, planning)


def test_a_query_without_data_makes_progress_with_each_trigger_however_long_its_source_takes_to_answer() -> None:
    """Each look may find it in the middle of a trigger."""
    planning = replace(AT_REST, in_trigger=True)
    assert has_progressed(planning, replace(planning, triggers="12:00:10"))


def test_a_batch_that_waits_for_an_executor_does_not_hang() -> None:
    waiting = replace(IN_BATCH, executors=0)
    assert has_progressed(waiting, waiting)


def test_a_batch_that_hangs_in_the_driver_itself_is_told_from_one_without_executors() -> None:
    alone = replace(IN_BATCH, executors=None)
    assert not has_progressed(alone, alone)


def test_the_file_is_touched_by_progress_alone(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    progress = ProgressFile(file)
    progress.seen(IN_BATCH)
    os.utime(file, (1, 1))
    progress.seen(IN_BATCH)
    assert file.stat().st_mtime == 1
    progress.seen(replace(IN_BATCH, tasks=6))
    assert file.stat().st_mtime > 1


def test_points_before_the_query_runs_are_progress(tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path / "progress")
    progress.passed("driver.session-started")
    assert progress.path is not None
    assert progress.path.exists()


@pytest.mark.parametrize(
    ("spec", "minutes"),
    [
        ({}, 30),
        ({"spec.driver": {"progressTimeout": "5m"}}, 16),
        ({"spec.driver": {"progressTimeout": "5m"}, "spec.sink.postgres.transactionTimeout": "1m"}, 5),
        ({"spec.sink.postgres.transactionTimeout": "2h"}, 121),
    ],
)
def test_a_landing_may_always_take_the_time_that_a_transaction_may(spec: dict[str, Any], minutes: int) -> None:
    assert progress_limit(parse_stream(document(spec), "the test").spec) == timedelta(minutes=minutes)


def test_signs_that_cannot_be_had_hold_nothing_against_a_driver(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    progress = ProgressFile(file)
    progress.blind(RuntimeError("no such method"))
    os.utime(file, (1, 1))
    progress.blind(RuntimeError("no such method"))
    assert file.stat().st_mtime > 1


def test_a_driver_that_nobody_asks_for_its_progress_touches_nothing() -> None:
    progress = ProgressFile.of({})
    progress.seen(IN_BATCH)
    progress.passed("batch.planned")
    assert progress.path is None


def probe_of(pod: dict[str, Any]) -> list[str]:
    """Return the command of the probe in a driver's pod."""
    (container,) = pod["spec"]["containers"]
    command: list[str] = container["readinessProbe"]["exec"]["command"]
    return command


def probed(file: Path, limit: timedelta) -> bool:
    """Return what the kubelet would see if the driver's file were this one."""
    spec = {"containers": [{"name": DRIVER}]}
    pod = with_progress_probe({"metadata": {"name": "orders-driver-1"}, "spec": spec}, limit)
    command = [str(file) if word == progress_file("orders-driver-1") else word for word in probe_of(pod)]
    assert str(file) in command
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_the_probe_succeeds_while_the_file_is_younger_than_half_of_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    assert not probed(file, timedelta(hours=1)), "before the driver has touched it"
    file.touch()
    assert probed(file, timedelta(hours=1))
    an_hour_ago = file.stat().st_mtime - 3600
    os.utime(file, (an_hour_ago, an_hour_ago))
    assert not probed(file, timedelta(hours=1, minutes=59))
    assert probed(file, timedelta(hours=2, minutes=2))


def test_the_driver_touches_the_very_file_that_its_probe_reads_and_no_other_pods() -> None:
    pod = made("5m").pod
    (container,) = pod["spec"]["containers"]
    touched = next(it["value"] for it in container["env"] if it["name"] == PROGRESS_VARIABLE)
    assert touched == probe_of(pod)[-2] == progress_file("orders-driver-1")
    assert progress_file("orders-driver-1") != progress_file("orders-driver-2")


HALF = timedelta(minutes=15)


def pod(ready: str, since: datetime, *, probe: dict[str, Any] | None = None, is_ready: bool = False) -> dict[str, Any]:
    """Return the record of a driver's pod that has run since STARTED_AT; its limit is twice HALF."""
    given: dict[str, Any] = made("5m").pod
    if probe is not None:
        given = {**given, "spec": {**given["spec"], "containers": [{"name": DRIVER, "readinessProbe": probe}]}}
    running = {"running": {"startedAt": STARTED_AT.isoformat()}}
    status = {
        "containerStatuses": [{"name": DRIVER, "state": running, "ready": is_ready}],
        "conditions": [{"type": "ContainersReady", "status": ready, "lastTransitionTime": since.isoformat()}],
    }
    return {**given, "status": status}


def looked_at(found: dict[str, Any], now: datetime) -> Running:
    """Return how the driver of a pod is, its node being well."""
    state = state_of(found, NodeState(exists=True), Patience(), now)
    assert isinstance(state, Running)
    return state


def test_a_driver_whose_probe_has_failed_for_half_of_the_limit_hangs() -> None:
    found = pod("False", LATER)
    assert looked_at(found, LATER + HALF).hangs is not None


def test_a_probe_that_fails_for_some_minutes_makes_no_driver_hang() -> None:
    """A node that is too busy to run it fails it, too; somebody looks again when it would be too long."""
    state = looked_at(pod("False", LATER), LATER + HALF - timedelta(seconds=1))
    assert (state.hangs, state.gives_up_at) == (None, LATER + HALF)
    assert looked_at(pod("True", LATER, is_ready=True), LATER + 2 * HALF).hangs is None


def test_a_driver_that_has_never_been_ready_is_not_judged() -> None:
    """Its image may lack what the probe runs."""
    assert looked_at(pod("False", STARTED_AT - timedelta(seconds=3)), LATER).hangs is None


def test_a_container_beside_the_driver_that_is_not_ready_says_nothing_of_the_driver() -> None:
    assert looked_at(pod("False", LATER, is_ready=True), LATER + HALF).hangs is None


def test_a_readiness_probe_of_a_template_says_nothing_of_progress() -> None:
    found = pod("False", LATER, probe={"exec": {"command": ["/bin/sh", "-c", "test -e /ready"]}})
    assert looked_at(found, LATER + HALF).hangs is None


def test_a_driver_that_is_being_deleted_has_a_deadline_already() -> None:
    found = pod("False", LATER)
    found = {**found, "metadata": {**found["metadata"], "deletionTimestamp": (LATER + HALF).isoformat()}}
    assert looked_at(found, LATER + HALF).hangs is None


def test_a_lost_node_is_told_as_such_whether_its_driver_was_ready_or_not() -> None:
    """The control plane sets Ready alone to False; only a kubelet sets ContainersReady."""
    found = pod("True", STARTED_AT, is_ready=True)
    unheard = {"type": "Ready", "status": "False", "lastTransitionTime": LATER.isoformat()}
    spec = {**found["spec"], "nodeName": "node1"}
    found = {
        **found,
        "spec": spec,
        "status": {**found["status"], "conditions": [*found["status"]["conditions"], unheard]},
    }
    lost = state_of(found, None, Patience(), LATER + timedelta(days=1))
    assert isinstance(lost, Gone)
    assert lost.reason == "NodeLost"


def no_progress(machine: Machine) -> tuple[str, str, str]:
    """Return the Ready condition of a stream: status, reason and message."""
    ready = next(it for it in conditions_of(machine.statuses.status, 1, LATER) if it.type == "Ready")
    return ready.status, ready.reason, ready.message


def test_a_driver_that_hangs_is_told_before_it_is_killed_and_replaced_as_one_that_died() -> None:
    machine = started()
    machine.drivers.states[FIRST] = Running("it runs", hangs="It has shown no progress.")
    for _ in range(3):
        machine.run_pass()
    assert machine.drivers.killed == [FIRST, FIRST, FIRST], "doing it again is harmless"
    told = machine.effects.index("kill driver 1")
    assert machine.effects.index("record Running") < told
    assert no_progress(machine) == ("False", "NoProgress", "It has shown no progress.")
    machine.drivers.states[FIRST] = Ended("the kubelet reported it", None, "It was killed.", "KilledAtDeadline")
    machine.run_pass()
    assert [kind for kind, _ in machine.reports].count("NoProgress") == 2, "once when it was seen, once as its ending"
    assert machine.reports[-1] == ("NoProgress", "Attempt 1 ended: It has shown no progress.")
    machine.run_until_a_driver_runs()
    machine.assert_launched_as_published()


def test_a_driver_that_was_said_to_hang_is_killed_whatever_it_shows_by_then() -> None:
    """The operator may die between the record and the act; nobody is left who remembers, but the record."""
    machine = started()
    machine.drivers.states[FIRST] = Running("it runs", hangs="It has shown no progress.")
    machine.drivers.broken_kill = True
    machine.run_pass()
    assert machine.drivers.killed == []
    machine.drivers.broken_kill = False
    machine.drivers.states[FIRST] = Running("it runs")
    machine.run_pass()
    assert machine.drivers.killed == [FIRST]
    assert no_progress(machine)[1] == "NoProgress"


def test_a_driver_that_hangs_while_the_stream_is_to_rest_is_drained_by_its_deadline() -> None:
    machine = started()
    machine.drivers.states[FIRST] = Running("it runs", hangs="It has shown no progress.")
    machine.run_pass(Wanted.REST)
    assert (machine.drivers.drained, machine.drivers.killed) == ([FIRST], [])


def test_a_batch_that_hangs_every_time_halts_the_stream_and_the_sentence_says_that_it_hung() -> None:
    """It does not continue for ever: each such driver counts against the current batch, as one that was killed does."""
    machine = started()
    machine.spec = {"recovery": {"maxFailuresPerBatch": 2}}
    with machine.ledger.transaction() as transaction:
        ranges = Ranges({KEYS[0]: OffsetRange(40, 50)})
        transaction.write_batch(STREAM, BatchRow(BatchNumber(2), FIRST, BatchStatus.IN_PROGRESS, ranges))
    hangs, why = Running("it runs", hangs="Give progressTimeout more."), "Give progressTimeout more."
    attempt, result = FIRST, None
    for _ in range(2):
        machine.drivers.states[attempt] = hangs
        assert isinstance(machine.run_pass(), Watching)
        machine.drivers.states[attempt] = Ended("the kubelet reported it", None, "It was killed.", "KilledAtDeadline")
        result = machine.run_pass()
        attempt = machine.run_until_a_driver_runs() if isinstance(result, Waiting) else attempt
    assert isinstance(result, Halted)
    assert result.message.startswith("Batch 2 has failed 2 times; ")
    assert why in result.message
