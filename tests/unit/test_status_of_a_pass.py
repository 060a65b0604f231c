"""What a pass shows in the status: the checkpoint in use, how far the stream has come, the driver's pod."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from exactlyonce.api.status import CheckpointStatus, Phase, Progress
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import DriverPod, Ended, Gone, Running
from exactlyonce.reconcile.loop import Done, Waiting, Wanted, Watching
from exactlyonce.reconcile.progress import LOOK_SECONDS, RateLimit
from tests.unit.passes import FIRST, SECOND, STREAM, Machine, ended, started

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = DriverPod("orders-driver-1", "spark:1", NOON)


def landed_at(machine: Machine, moment: datetime) -> None:
    """Let the database say when the latest batch landed."""
    key = ("batch", STREAM, machine.view().stream.landed_batch)
    machine.database.tables.rows[key] = replace(machine.database.tables.rows[key], landed_at=moment)


def test_the_checkpoint_in_use_is_the_generation_that_was_published() -> None:
    machine = Machine()
    machine.run_pass()
    path = machine.view().stream.checkpoint_path
    assert path == "/checkpoints/orders/generation-000001-a1"
    assert machine.statuses.status.checkpoint == CheckpointStatus(generation=1, location=path)


def test_the_checkpoint_of_a_stream_that_resumes_is_the_one_it_had() -> None:
    machine = ended()
    machine.run_until_a_driver_runs()
    assert machine.statuses.status.checkpoint == CheckpointStatus(
        generation=1, location="/checkpoints/orders/generation-000001-a1"
    )


def test_a_rebuilt_checkpoint_is_shown_as_the_new_generation() -> None:
    machine = ended()
    for path in [path for path in machine.store.files if path != "stream.json"]:
        del machine.store.files[path]
    machine.run_until_a_driver_runs()
    shown = machine.statuses.status.checkpoint
    assert shown is not None
    assert shown.location == machine.view().stream.checkpoint_path


def test_how_far_a_stream_has_come_is_shown_when_a_view_is_due_and_written_only_when_it_changed() -> None:
    machine = started()
    landed_at(machine, NOON)
    machine.run_pass()
    assert machine.effects == [], "no look was due"
    machine.looks = True
    for _ in range(3):
        assert machine.run_pass() == Watching(FIRST)
    assert machine.effects == ["record Running"]
    assert machine.statuses.status.progress == Progress(batch=1, landed_at=NOON)


def test_what_others_know_of_the_progress_is_kept() -> None:
    machine = started()
    lag = Progress(lag_records=7, lag_seconds=3)
    machine.statuses.status = machine.statuses.status.model_copy(update={"progress": lag})
    machine.looks = True
    machine.run_pass()
    assert machine.statuses.status.progress == lag.model_copy(update={"batch": 1})


def test_a_pass_over_a_driver_that_runs_asks_the_ledger_once() -> None:
    machine = started()
    machine.looks = True
    asked: list[str] = []
    machine.database.hooks.step = asked.append
    machine.run_pass()
    assert asked == ["view"]


def test_a_ledger_that_does_not_answer_leaves_a_driver_that_runs_as_it_is() -> None:
    machine = started()
    before = machine.statuses.status
    machine.looks, machine.database.up = True, False
    assert machine.run_pass() == Watching(FIRST)
    assert (machine.statuses.status, machine.reports) == (before, [])


def test_the_end_of_a_driver_shows_how_far_the_stream_had_come() -> None:
    machine = started()
    landed_at(machine, NOON)
    machine.end(FIRST)
    machine.run_pass()
    assert machine.statuses.status.progress == Progress(batch=1, landed_at=NOON)


def test_a_drivers_pod_is_shown_and_stays_when_it_has_ended() -> None:
    machine = started()
    machine.drivers.states[FIRST] = Running("on node1", pod=POD)
    machine.run_pass()
    shown = machine.statuses.status.driver
    assert shown is not None
    assert (shown.pod_name, shown.image, shown.started_at) == ("orders-driver-1", "spark:1", NOON)
    gone = DriverPod("orders-driver-1", "spark:1")
    machine.drivers.states[FIRST] = Gone("its node is lost", pod=gone)
    machine.run_pass()
    shown = machine.statuses.status.driver
    assert shown is not None
    assert (shown.pod_name, shown.image, shown.started_at) == ("orders-driver-1", "spark:1", NOON)
    assert (shown.ended, shown.message) == ("Lost", "its node is lost")


def test_a_driver_that_ended_before_it_was_seen_to_run_is_shown_with_its_pod() -> None:
    machine = Machine()
    machine.run_pass()
    machine.drivers.states[FIRST] = Ended("the kubelet said so", None, "it was killed", pod=POD)
    machine.run_pass()
    shown = machine.statuses.status.driver
    assert shown is not None
    assert (shown.pod_name, shown.started_at) == ("orders-driver-1", NOON)


def test_a_stream_runs_only_once_its_driver_does() -> None:
    machine = Machine()
    machine.run_pass()
    machine.drivers.states[FIRST] = Running("No node takes pod orders-driver-1.", started=False)
    machine.run_pass()
    status = machine.statuses.status
    assert (status.phase, status.message) == (Phase.LAUNCHING, "No node takes pod orders-driver-1.")
    machine.drivers.states[FIRST] = Running("on node1")
    machine.run_pass()
    status = machine.statuses.status
    assert (status.phase, status.message) == (Phase.RUNNING, "Attempt 1 runs.")


@pytest.mark.parametrize(
    ("wanted", "plan", "phase"),
    [(Wanted.RUN, "b", Phase.PENDING), (Wanted.REST, "b", Phase.SUSPENDED), (Wanted.RUN, "a", Phase.SUSPENDED)],
)
def test_a_driver_drained_for_its_successor_does_not_make_the_stream_suspended(
    wanted: Wanted, plan: str, phase: Phase
) -> None:
    machine = Machine()
    machine.run_pass(plan="a")
    machine.run_pass(wanted, plan)
    machine.end(FIRST, Ending.DRAINED)
    result = machine.run_pass(wanted, plan)
    assert machine.statuses.status.phase is phase
    assert result == (Waiting(machine.now, "it Drained.") if phase is Phase.PENDING else Done(completed=False))
    if phase is Phase.PENDING:
        assert machine.run_pass(wanted, plan) == Watching(SECOND)


def test_a_pace_says_once_in_a_while_for_each_key_that_something_is_due() -> None:
    moment = NOON
    pace = RateLimit(lambda: (moment - NOON) / timedelta(seconds=1))
    assert [pace.is_due("a"), pace.is_due("a"), pace.is_due("b")] == [True, False, True]
    moment += timedelta(seconds=LOOK_SECONDS - 0.1)
    assert not pace.is_due("a")
    moment += timedelta(seconds=0.1)
    assert [pace.is_due("a"), pace.is_due("a")] == [True, False]


def test_a_pace_forgets_what_is_due_anyway_before_it_grows_without_bound() -> None:
    moment = 0.0
    pace = RateLimit(lambda: moment)
    for number in range(30_000):
        moment = number / 100
        assert pace.is_due(str(number))
    assert len(pace._next) <= 10_000
