"""A batch that was too large is made smaller at once, says so, and grows back when its records have landed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.recovery import Recovery
from exactlyonce.api.status import BatchLimit, ConditionStatus, Phase, StreamStatus
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, ShrunkLimit
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.batch_limit import still_needed
from exactlyonce.reconcile.loop import Halted, Waiting, Watching
from exactlyonce_spark.landing import begin_batch, record_failure
from exactlyonce_spark.planned import PlannedBatch
from tests.unit.passes import KEYS, STREAM, Died, Machine, ended
from tests.unit.test_reconcile_in_pod import in_pods, run_init_container

IDS = {"orders": "id-1"}


def plan(machine: Machine, attempt: Epoch, *ends: int, fails: bool = True) -> int:
    """Be the driver of an attempt that plans a batch up to these ends and cannot land it; return its number."""
    permit, row = claim_epoch(machine.ledger, STREAM, attempt, f"claim {attempt}", machine.drivers.ticket(attempt))
    assert row.checkpoint_path is not None
    assert row.landed_batch is not None
    number = BatchNumber(row.landed_batch + 1)
    end = Positions(dict(zip(machine.keys, ends, strict=True)))
    folder = row.checkpoint_path.rsplit("/", 1)[-1]
    machine.store.files.setdefault(f"{folder}/commits/{number - 1}", files.render_commit())
    machine.store.files[f"{folder}/offsets/{number}"] = files.render_offsets(CODEC.render_entry(end), 8)
    batch = PlannedBatch(number, machine.view().landed.positions.ranges_until(end), IDS)
    begin_batch(machine.ledger, permit, batch)
    if fails:
        record_failure(machine.ledger, permit, batch, "brokers", "it was too large")
    return number


def fail(machine: Machine, attempt: Epoch, batch: int, *, too_large: bool = True) -> None:
    """End the driver of an attempt on a batch."""
    words = LastMessage(Ending.BATCH_FAILED, "It took too long.", batch, None, too_large)
    machine.drivers.states[attempt] = Ended("the process is gone", words, "it failed")


def kill_for_memory(machine: Machine, attempt: Epoch) -> None:
    """End the driver of an attempt as the kubelet reports it."""
    machine.drivers.states[attempt] = Ended(
        "the kubelet said so", None, "It needed more than 1Gi.", "OutOfMemory", out_of_memory=True
    )


def status(machine: Machine) -> StreamStatus:
    return machine.statuses.status


def limit_of(machine: Machine) -> int | None:
    return None if status(machine).batch_limit is None else status(machine).batch_limit.records  # type: ignore[union-attr]


def too_large() -> Machine:
    """A stream whose batch of 40 records, after the landed 70, failed because it was too large."""
    machine = ended()
    attempt = machine.run_until_a_driver_runs()
    fail(machine, attempt, plan(machine, attempt, 60, 50))
    machine.reports.clear()
    machine.effects.clear()
    return machine


def out_of_memory() -> Machine:
    machine = ended()
    attempt = machine.run_until_a_driver_runs()
    plan(machine, attempt, 60, 50, fails=False)
    kill_for_memory(machine, attempt)
    machine.reports.clear()
    machine.effects.clear()
    return machine


@pytest.mark.parametrize("prepare", [too_large, out_of_memory])
def test_the_limit_is_halved_before_the_next_attempt_which_plans_again_at_once(prepare: object) -> None:
    machine: Machine = prepare()  # type: ignore[operator]
    assert isinstance(machine.run_pass(), Waiting)
    limit = status(machine).batch_limit
    assert limit is not None
    assert (limit.records, limit.until) == (20, '{"orders":{"0":60,"1":50}}')
    assert "Batch 2 of 40 records was too large" in limit.message
    assert "BatchShrunk" in [kind for kind, _ in machine.reports]
    now = machine.now
    assert machine.run_pass() == Watching(Epoch(3)), "no wait is due"
    assert machine.now == now
    verdict = status(machine).verdict
    assert verdict is not None
    assert verdict.kind == "ReplanBatch"
    assert machine.drivers.orders[Epoch(3)].limit == ShrunkLimit(20, limit.until)
    machine.assert_launched_as_published()
    assert machine.stands() == (40, 30)


def test_a_batch_that_is_given_up_leaves_no_failure_open() -> None:
    machine = too_large()
    assert {row.status for row in failures(machine)} == {FailureStatus.OPEN}
    machine.run_until_a_driver_runs()
    assert {row.status for row in failures(machine)} == {FailureStatus.SUPERSEDED}


def failures(machine: Machine) -> list[FailureRow]:
    return [row for row in machine.database.tables.rows.values() if isinstance(row, FailureRow)]


def test_a_batch_is_halved_down_to_one_record_and_then_counts_as_failed_until_the_stream_halts() -> None:
    machine = ended()
    machine.spec = {"recovery": {"maxFailuresPerBatch": 3}}
    limits = []
    for _ in range(20):
        result = machine.run_pass()
        if isinstance(result, Halted):
            break
        if isinstance(result, Waiting):
            machine.now = max(machine.now, result.until)
            continue
        attempt = Epoch(status(machine).attempt)
        limits.append(limit_of(machine))
        most = limits[-1] or 40
        fail(machine, attempt, plan(machine, attempt, 40 + most // 2, 30 + most - most // 2))
    assert limits[:6] == [None, 20, 10, 5, 2, 1]
    assert len(limits) == 8, "with a limit of 1 it is tried as often as any batch that fails"
    assert isinstance(result, Halted)
    assert "has failed 3 times" in result.message
    assert "a limit of one record was not small enough" in result.message


def test_the_limit_grows_back_when_the_records_of_the_batch_have_landed() -> None:
    machine = too_large()
    attempt = machine.run_until_a_driver_runs()
    machine.looks = True
    machine.land(attempt, 60, 40)
    machine.run_pass()
    assert limit_of(machine) == 20, "one partition has not come as far"
    machine.drivers.states.pop(attempt)
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].limit == ShrunkLimit(20, '{"orders":{"0":60,"1":50}}')
    machine.land(attempt, 61, 50)
    machine.run_pass()
    assert limit_of(machine) is None
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].limit is None
    assert status(machine).verdict.kind == "Resume"  # type: ignore[union-attr]


@pytest.mark.parametrize("prepare", [lambda machine: machine, in_pods], ids=["by the operator", "in the pod"])
def test_a_new_start_forgets_the_limit_of_the_life_before(prepare: Callable[[Machine], Machine]) -> None:
    machine = prepare(too_large())
    machine.run_pass()
    assert limit_of(machine) == 20
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token}
    attempt = machine.run_until_a_driver_runs()
    if machine.drivers.orders[attempt].brief is not None:
        assert run_init_container(machine, attempt).kind == "FirstStart"
        machine.run_pass()
    assert status(machine).verdict.kind == "FirstStart"  # type: ignore[union-attr]
    assert limit_of(machine) is None, "its end is a position of the life before, which may never come again"
    if machine.drivers.orders[attempt].brief is None:
        assert machine.drivers.orders[attempt].limit is None


def test_a_batch_that_is_too_large_after_the_limit_grew_back_within_one_driver_is_planned_again_too() -> None:
    machine = too_large()
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 60, 50)  # and this driver continues with the whole limit
    machine.database.tables.rows[("stream", STREAM)] = replace(machine.view().stream, claim=None)
    fail(machine, attempt, plan(machine, attempt, 85, 75))
    attempt = machine.run_until_a_driver_runs()
    assert limit_of(machine) == 25, "more than the limit before, which had held the mark"
    assert status(machine).verdict.kind == "ReplanBatch"  # type: ignore[union-attr]
    assert machine.drivers.orders[attempt].limit == ShrunkLimit(25, '{"orders":{"0":85,"1":75}}')


def test_a_driver_that_died_after_the_records_landed_is_followed_by_one_with_the_whole_limit() -> None:
    machine = too_large()
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 60, 50)
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert limit_of(machine) is None
    assert machine.drivers.orders[attempt].limit is None


def test_a_lost_status_only_means_shrinking_again() -> None:
    machine = too_large()
    attempt = machine.run_until_a_driver_runs()
    machine.statuses.status = StreamStatus()
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].limit is None
    fail(machine, attempt, plan(machine, attempt, 60, 50))
    machine.run_until_a_driver_runs()
    assert limit_of(machine) == 20


def test_a_stream_that_asks_to_retry_runs_the_batch_again_as_it_is() -> None:
    machine = too_large()
    machine.spec = {"recovery": {"onBatchTooLarge": "Retry"}}
    machine.run_until_a_driver_runs()
    assert limit_of(machine) is None
    assert status(machine).consecutive_failures.batch_failures == 1
    assert status(machine).verdict.kind == "ReplayBatch"  # type: ignore[union-attr]


def test_a_batch_that_failed_for_another_reason_is_not_made_smaller() -> None:
    machine = ended()
    attempt = machine.run_until_a_driver_runs()
    fail(machine, attempt, plan(machine, attempt, 60, 50), too_large=False)
    machine.run_until_a_driver_runs()
    assert limit_of(machine) is None
    assert status(machine).consecutive_failures.batch_failures == 1


def test_a_query_with_state_says_that_its_batch_cannot_be_made_smaller() -> None:
    machine = too_large()
    with machine.ledger.transaction() as transaction:
        row = transaction.lock_stream(STREAM, Lock.UPDATE)
        assert row is not None
        transaction.update_stream(replace(row, stateful=True))
    machine.run_pass()
    assert limit_of(machine) is None
    assert status(machine).phase is Phase.BACKING_OFF
    assert status(machine).consecutive_failures.batch_failures == 1
    assert "The query keeps state, so the batch cannot be planned again" in status(machine).message


def test_a_batch_that_landed_in_part_runs_as_it_was_planned() -> None:
    machine = too_large()
    with machine.ledger.transaction() as transaction:
        transaction.advance_positions(STREAM, Ranges({KEYS[0]: OffsetRange(40, 60)}), IDS)
    machine.run_pass()
    assert limit_of(machine) is None
    assert "A part of the batch has landed" in status(machine).message


def test_an_operator_that_dies_between_any_two_effects_has_shrunk_the_batch_once() -> None:
    whole = too_large()
    whole.run_until_a_driver_runs()
    for place, effect in enumerate(whole.effects):
        machine = too_large()
        machine.dies_before = place
        with pytest.raises(Died):
            machine.run_until_a_driver_runs()
        attempt = machine.run_until_a_driver_runs()
        machine.assert_launched_as_published()
        assert limit_of(machine) == 20, f"it died before {effect!r}"
        assert machine.drivers.orders[attempt].limit == ShrunkLimit(20, '{"orders":{"0":60,"1":50}}')
        mark = machine.view().query
        assert mark is not None
        assert mark.shrunk == 20
        assert machine.stands() == (40, 30)


def test_a_condition_of_its_own_says_so_and_ready_is_left_alone() -> None:
    machine = too_large()
    machine.run_until_a_driver_runs()
    machine.run_pass()
    made = {it.type: it for it in conditions_of(status(machine), 1, machine.now)}
    assert made["Ready"].status is ConditionStatus.TRUE
    assert (made["BatchLimited"].status, made["BatchLimited"].reason) == (ConditionStatus.TRUE, "BatchTooLarge")
    assert "at most 20" in made["BatchLimited"].message
    grown = status(machine).model_copy(update={"batch_limit": None, "conditions": tuple(made.values())})
    later = {it.type: it for it in conditions_of(grown, 1, machine.now + timedelta(hours=1))}
    assert (later["BatchLimited"].status, later["BatchLimited"].reason) == (ConditionStatus.FALSE, "Landed")
    assert "BatchLimited" not in {it.type for it in conditions_of(StreamStatus(), 1, machine.now)}


def holds(until: dict[Partition, int], landed: dict[Partition, int], retired: dict[Partition, int]) -> bool:
    """Whether a limit holds for a stream that stands there."""
    machine = ended()
    view = machine.ledger.view(STREAM)
    assert view is not None
    view = replace(view, landed=LandedPositions(Positions(landed), {}), retired=LandedPositions(Positions(retired), {}))
    limit = BatchLimit(records=1, message="", batch=2, until=Positions(until).to_json(), since=machine.now)
    return still_needed(limit, view, Recovery()) is not None


def test_a_partition_that_is_not_read_any_more_holds_no_limit() -> None:
    gone = Partition("refunds", 0)
    assert not holds({KEYS[0]: 5, gone: 9}, {KEYS[0]: 5}, {gone: 3})
    assert holds({KEYS[0]: 5, gone: 9}, {KEYS[0]: 4}, {gone: 3})


def test_a_partition_of_which_nothing_has_landed_yet_holds_the_limit() -> None:
    """Its records are the ones that were too large; the ledger has no row of it before the first has landed."""
    new = Partition("orders", 7)
    assert holds({KEYS[0]: 5, new: 9}, {KEYS[0]: 5}, {})
    assert not holds({KEYS[0]: 5, new: 0}, {KEYS[0]: 5}, {})


def test_a_limit_holds_while_the_ledger_says_nothing_of_a_landed_batch() -> None:
    machine = ended()
    view = machine.ledger.view(STREAM)
    assert view is not None
    limit = BatchLimit(records=1, message="", batch=0, until="{}", since=machine.now)
    assert still_needed(limit, None, Recovery()) == limit
    assert still_needed(limit, replace(view, stream=replace(view.stream, landed_batch=None)), Recovery()) == limit
