"""One pass over a stream: what each situation ends in, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.api.status import ConsecutiveFailures, Phase, StreamStatus
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Gone
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Fenced, claim_epoch
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce.reconcile.loop import Done, Halted, Waiting, Wanted, Watching
from exactlyonce.reconcile.restart import still_failing
from tests.simulation.server import Tables
from tests.unit.passes import FIRST, KEYS, SECOND, STREAM, Machine, ended, started


def test_a_driver_that_runs_is_left_alone() -> None:
    machine = started()
    before = machine.statuses.version
    assert machine.run_pass() == Watching(FIRST)
    assert (machine.effects, machine.statuses.version) == ([], before)


def test_an_ending_is_written_down_once_before_anything_follows() -> None:
    machine = started()
    machine.end(FIRST)
    machine.run_pass()
    assert machine.effects == ["record BackingOff"]
    assert machine.reports == [("Died", "Attempt 1 ended: it was killed")]
    status = machine.statuses.status
    assert status.driver is not None
    assert (status.driver.ended, status.driver.proof) == ("Died", "the process is gone")
    assert machine.run_pass() == Watching(SECOND)
    assert [kind for kind, _ in machine.reports] == ["Died", "Resume"]


@pytest.mark.parametrize(
    ("ending", "kind", "proof"),
    [
        (Ended("the pod is gone", None, "it was evicted", reason="Evicted"), "Evicted", "the pod is gone"),
        (Gone("it was evicted"), "Lost", None),
        (Gone("it was evicted", reason="NodeLost"), "NodeLost", None),
    ],
)
def test_an_ending_is_told_by_the_word_that_its_launcher_has_for_it(
    ending: Ended | Gone, kind: str, proof: str | None
) -> None:
    machine = started()
    machine.drivers.states[FIRST] = ending
    machine.run_pass()
    assert machine.reports == [(kind, "Attempt 1 ended: it was evicted")]
    driver = machine.statuses.status.driver
    assert driver is not None
    assert (driver.ended, driver.proof, driver.message) == (kind, proof, "it was evicted")


@pytest.mark.parametrize(
    ("known_to_spark", "kind"), [(True, "Resume"), (False, "SkipLanded")], ids=["committed", "not committed by Spark"]
)
def test_the_verdict_stands_in_the_status_with_its_evidence(known_to_spark: bool, kind: str) -> None:
    machine = Machine()
    machine.run_pass()
    machine.land(FIRST, 40, 30, known_to_spark=known_to_spark)
    machine.end(FIRST)
    machine.run_until_a_driver_runs()
    verdict = machine.statuses.status.verdict
    assert verdict is not None
    assert (verdict.kind, verdict.attempt, verdict.batch, verdict.at) == (kind, 2, 1, machine.now)
    assert verdict.evidence[-1] == {
        "words": "the sink holds batch 1 and stands at orders-0@40, orders-1@30",
        "landed": 1,
        "positions": '{"orders":{"0":40,"1":30}}',
    }


@pytest.mark.parametrize(
    ("ending", "result", "phase"),
    [
        (Ending.DRAINED, Done(completed=False), Phase.SUSPENDED),
        (Ending.COMPLETED, Done(completed=True), Phase.COMPLETED),
        (Ending.REFUSED, Halted("it Refused."), Phase.HALTED),
    ],
)
def test_a_driver_that_ended_by_its_own_word_ends_the_stream(ending: Ending, result: object, phase: Phase) -> None:
    machine = started()
    machine.end(FIRST, ending)
    assert machine.run_pass() == result
    assert machine.statuses.status.phase is phase
    assert "start driver 2" not in machine.effects


@pytest.mark.parametrize(
    ("phase", "result"), [(Phase.HALTED, Halted("mend it")), (Phase.COMPLETED, Done(completed=True))]
)
def test_a_stream_that_halted_or_completed_is_not_touched(phase: Phase, result: object) -> None:
    machine = ended()
    machine.statuses.status = machine.statuses.status.model_copy(update={"phase": phase, "message": "mend it"})
    assert machine.run_pass() == result
    assert machine.effects == []


def test_a_late_driver_of_a_stream_that_was_deleted_and_made_again_cannot_claim() -> None:
    former = Machine()
    former.run_until_a_driver_runs()
    machine = Machine()
    attempt = machine.run_until_a_driver_runs()
    assert (attempt, machine.view().stream.checkpoint_path) == (FIRST, former.view().stream.checkpoint_path)
    with pytest.raises(Fenced):
        claim_epoch(machine.ledger, STREAM, FIRST, "late", former.drivers.ticket(FIRST))
    machine.land(attempt, 40, 30)


def test_a_driver_does_not_claim_the_former_generation_when_a_failover_took_the_one_it_was_started_for() -> None:
    """Nobody has decided to continue the former one: Spark would wait in it for a record beside a batch that has not landed."""
    machine = started()
    machine.drivers.states[FIRST] = Gone("its node is lost")
    raised: list[Tables] = []

    def keep_what_was_raised(name: str) -> None:
        if machine.view().stream.epoch > FIRST:
            raised.append(machine.database.tables.copy())

    machine.statuses.step = keep_what_was_raised
    again = machine.run_until_a_driver_runs()
    orders = machine.drivers.orders[again]
    published = machine.view().stream.checkpoint_path
    assert orders.checkpoint_path == published
    machine.database.tables = raised[0]
    assert machine.view().stream.checkpoint_path not in (None, published)
    with pytest.raises(Fenced, match="a failover that lost what was published"):
        claim_epoch(machine.ledger, STREAM, again, "driver", orders.ticket, orders.checkpoint_path)
    machine.end(again, Ending.FENCED)
    assert machine.run_until_a_driver_runs() > again
    machine.assert_launched_as_published()


def test_a_lost_ledger_halts_the_stream_and_the_status_keeps_what_it_knew() -> None:
    machine = ended()
    machine.database.tables.rows.clear()
    machine.store.files.clear()
    for _ in range(2):
        result = machine.run_pass()
        assert isinstance(result, Halted)
        assert "knows that batch 1 landed" in result.message
        assert machine.store.files == {}
        assert machine.view().stream.landed_batch is None
        status = machine.statuses.status
        assert status.progress is not None
        assert status.progress.batch == 1
        machine.statuses.status = status.model_copy(update={"phase": Phase.PENDING})
    assert [kind for kind, _ in machine.reports] == ["Contradiction"] * 2


def test_a_resource_that_was_recreated_starts_on_an_empty_ledger() -> None:
    machine = ended()
    machine.database.tables.rows.clear()
    machine.store.files.clear()
    machine.statuses.status = StreamStatus()
    machine.run_until_a_driver_runs()
    assert [kind for kind, _ in machine.reports] == ["FirstStart"]


def restored_alike() -> Machine:
    """The database and the checkpoint were restored to the end of batch 1; the status knows that batch 2 landed."""
    machine = started()
    rows, files = machine.database.tables.copy(), dict(machine.store.files)
    machine.land(FIRST, 50, 40)
    machine.looks = True
    machine.run_pass()
    machine.looks = False
    machine.database.tables = rows
    machine.store.files.clear()
    machine.store.files.update(files)
    machine.end(FIRST)
    machine.run_pass()
    machine.reports.clear()
    return machine


def test_a_ledger_that_went_back_with_its_checkpoint_is_told_once_and_gone_on_with() -> None:
    machine = restored_alike()
    attempt = machine.run_until_a_driver_runs()
    assert [kind for kind, _ in machine.reports] == ["LedgerWentBack", "Resume"]
    assert "knows that batch 2 landed, and the ledger holds batch 1 as the latest" in machine.reports[1][1]
    progress = machine.statuses.status.progress
    assert progress is not None
    assert progress.batch == 1
    machine.end(attempt)
    machine.run_until_a_driver_runs()
    assert [kind for kind, _ in machine.reports[2:]] == ["Died", "Resume"]


def test_a_batch_that_fails_again_and_again_halts_the_stream() -> None:
    machine = Machine()
    machine.spec = {"recovery": {"maxFailuresPerBatch": 3}}
    for _ in range(3):
        attempt = machine.run_until_a_driver_runs()
        machine.end(attempt, Ending.BATCH_FAILED, 1)
    result = machine.run_pass()
    assert result == Halted(
        "Batch 1 has failed 3 times; the last error: it BatchFailed. Fix the cause, then start the stream again."
    )
    assert machine.statuses.status.phase is Phase.HALTED


def test_waits_grow_over_drivers_that_land_nothing_and_start_over_with_one_that_lands() -> None:
    machine, endings = Machine(), []
    for lands in (False, False, True, False):
        attempt = machine.run_until_a_driver_runs()
        if lands:
            machine.land(attempt, 40, 30)
        machine.end(attempt)
        result = machine.run_pass()
        assert isinstance(result, Waiting)
        endings.append(
            (machine.statuses.status.consecutive_failures.endings, (result.until - machine.now).total_seconds())
        )
    assert endings == [(1, 0), (2, 5), (1, 0), (2, 5)]


def test_a_driver_killed_with_a_batch_in_hand_is_a_failure_of_that_batch() -> None:
    machine = started()
    with machine.ledger.transaction() as transaction:
        begun = BatchRow(BatchNumber(2), FIRST, BatchStatus.IN_PROGRESS, Ranges({KEYS[0]: OffsetRange(40, 50)}))
        transaction.write_batch(STREAM, begun)
    machine.end(FIRST)
    machine.run_pass()
    consecutive_failures = machine.statuses.status.consecutive_failures
    assert (consecutive_failures.batch, consecutive_failures.batch_failures) == (2, 1)


def test_what_is_counted_of_a_batch_that_failed_is_over_once_it_has_landed_and_a_driver_still_runs() -> None:
    machine = started()
    refused = LastMessage(Ending.BATCH_FAILED, "It filtered rows.", 2, refused_rows=4)
    machine.drivers.states[FIRST] = Ended("the process is gone", refused, "")
    assert machine.run_until_a_driver_runs() == SECOND
    machine.looks = True
    machine.run_pass()
    failed = machine.statuses.status.consecutive_failures
    assert (failed.batch, failed.batch_failures, failed.refused_rows) == (2, 1, 4), "it has not landed"
    machine.land(SECOND, 60, 40)
    landed = machine.view()
    assert landed.stream.landed_batch == 2
    decided = replace(landed, decided=DecidedBatch(BatchNumber(2), ()))
    assert still_failing(failed, decided) == failed, "its positions have been passed, and no row of it is in the sink"
    machine.run_pass()
    over = machine.statuses.status.consecutive_failures
    assert (over.batch, over.batch_failures, over.refused_rows, over.endings) == (None, 0, None, failed.endings)


def test_nothing_is_asked_of_anyone_before_the_next_attempt_is_due() -> None:
    machine = ended()
    due = machine.now + timedelta(seconds=7)
    waiting = ConsecutiveFailures(endings=2, retry_at=due)
    machine.statuses.status = machine.statuses.status.model_copy(update={"consecutive_failures": waiting})
    machine.database.up = False
    assert machine.run_pass() == Waiting(due, "it was killed")
    machine.database.up, machine.now = True, due
    assert machine.run_pass() == Watching(SECOND)


def test_a_verdict_that_halts_starts_nothing_and_is_said_again_without_another_look() -> None:
    machine = ended()
    machine.topic.topic_id = "id-2"
    result = machine.run_pass()
    assert isinstance(result, Halted)
    assert "was recreated" in result.message
    assert machine.statuses.status.phase is Phase.HALTED
    assert machine.statuses.status.verdict is not None
    assert machine.statuses.status.verdict.kind == "SourceReplaced"
    machine.effects.clear()
    assert machine.run_pass() == result
    assert machine.effects == []


def test_a_batch_taken_at_most_once_is_recorded_as_lost_before_the_next_driver_starts() -> None:
    machine = ended()
    row = machine.view().batch(BatchNumber(1))
    assert row is not None
    with machine.ledger.transaction() as transaction:
        transaction.write_batch(STREAM, BatchRow(row.batch, row.epoch, BatchStatus.TAKEN, row.ranges))
    machine.run_until_a_driver_runs()
    recorded = machine.view().batch(BatchNumber(1))
    assert recorded is not None
    assert recorded.status is BatchStatus.LOST
    lost = [value for key, value in machine.database.tables.rows.items() if key[0] == "failure"]
    assert [(row.partition, row.from_offset, row.until_offset) for row in lost] == [(KEYS[0], 0, 40), (KEYS[1], 0, 30)]


def test_a_stream_that_is_to_rest_drains_its_driver_and_starts_no_other() -> None:
    machine = started()
    for _ in range(2):
        assert machine.run_pass(Wanted.REST) == Watching(FIRST)
    assert machine.drivers.drained == [FIRST, FIRST], "asking again is harmless, and may be needed"
    assert machine.effects == ["record Draining"]
    machine.end(FIRST, Ending.DRAINED)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.statuses.status.phase is Phase.SUSPENDED
    assert machine.run_pass() == Watching(SECOND), "until it is to run again"


def test_a_stream_that_is_to_rest_and_has_no_driver_is_at_rest() -> None:
    machine = Machine()
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.statuses.status.phase is Phase.SUSPENDED
    assert machine.effects == ["record Suspended"]


@pytest.mark.parametrize(
    ("runs_with", "next_one", "drained"),
    [("a", "a", False), ("a", "b", True), (None, "b", False), ("a", None, False)],
)
def test_a_driver_made_of_something_else_is_drained(runs_with: str | None, next_one: str | None, drained: bool) -> None:
    machine = Machine()
    machine.run_pass(plan=runs_with)
    assert machine.run_pass(plan=next_one) == Watching(FIRST)
    assert machine.drivers.drained == ([FIRST] if drained else [])
