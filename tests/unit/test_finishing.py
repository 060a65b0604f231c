"""The passes of a stream that has a decided batch and no query: a driver without one finishes it, once, and then it rests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.resource import FRESH, SETTLE_LOADS
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.errors import SourceUnreachable, Unreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone, NeverStarted, Running
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import claim_epoch, release
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import land_decided
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted, Waiting, Wanted, Watching
from tests.unit.decided_streams import FIRST_BATCH, decide, running
from tests.unit.passes import FIRST, KEYS, SECOND, STREAM, Died, Machine

THIRD, FOURTH = Epoch(3), Epoch(4)
FILES = {"sink": {"files": {"path": "/output"}}, "ledger": {"objectLog": {"location": "/ledger"}}}


def decided() -> Machine:
    """Return a stream whose first driver decided batch 1, and was killed."""
    machine = running()
    decide(machine)
    machine.end(FIRST)
    return machine


def finish(machine: Machine, attempt: Epoch) -> None:
    """Be the driver without a query: claim, land what is decided, and end by its own word."""
    orders = machine.drivers.orders[attempt]
    assert orders.task is DriverTask.FINISH_ONLY
    before = machine.view().stream
    permit, row = claim_epoch(
        machine.ledger, STREAM, attempt, f"claim {attempt}", orders.ticket, orders.checkpoint_path, writes=False
    )
    assert (row.writer, row.writer_released) == (before.writer, before.writer_released)
    if machine.view().decided is not None:
        land_decided(machine.ledger, permit, FIRST_BATCH)
    if orders.writer_is_dead:
        release(machine.ledger, permit)
    machine.end(attempt, Ending.FINISHED)


def lose_records(machine: Machine) -> None:
    """Retention takes what the stream reads next."""
    machine.topic.ends[KEYS[0]] = 200
    machine.topic.starts[KEYS[0]] = 150


def phases(machine: Machine) -> list[str]:
    return [effect.removeprefix("record ") for effect in machine.effects if effect.startswith("record ")]


def test_a_stream_that_is_suspended_with_a_decided_batch_finishes_it_and_then_rests() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)  # writes down how the driver ended
    machine.effects.clear()
    assert machine.run_pass(Wanted.REST) == Watching(SECOND)
    assert "FinishFirst" in [kind for kind, _ in machine.reports]
    assert machine.run_pass(Wanted.REST) == Watching(SECOND), "it is not drained"
    assert machine.drivers.drained == []
    assert machine.statuses.status.phase is Phase.LAUNCHING, "the stream does not run by it"
    finish(machine, SECOND)
    assert isinstance(machine.run_pass(Wanted.REST), Waiting)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert phases(machine) == ["Reconciling", "Launching", "Launching", "Pending", "Suspended"]
    assert machine.view().decided is None
    for _ in range(3):
        assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.drivers.latest() == SECOND, "with nothing decided no driver is started"


def test_a_stream_that_halts_with_a_decided_batch_finishes_it_first() -> None:
    machine = decided()
    lose_records(machine)
    machine.run_pass()
    assert machine.run_pass() == Watching(SECOND)
    assert "SourceTruncated" not in [kind for kind, _ in machine.reports]
    finish(machine, SECOND)
    machine.run_pass()
    assert isinstance(machine.run_pass(), Halted)
    assert machine.statuses.status.verdict is not None
    assert machine.statuses.status.verdict.kind == "SourceTruncated"
    assert machine.view().decided is None
    assert machine.drivers.states.keys() == {FIRST, SECOND}


def test_a_new_start_settles_what_was_decided_before_it_forgets_it() -> None:
    machine = decided()
    machine.annotations = {FRESH: machine.view().stream.token}
    machine.run_pass()
    assert machine.run_pass() == Watching(SECOND)
    assert machine.view().stream.token == machine.annotations[FRESH], "nothing is forgotten yet"
    finish(machine, SECOND)
    machine.run_pass()
    assert machine.run_pass() == Watching(THIRD)
    assert machine.drivers.orders[THIRD].task is DriverTask.RUN_QUERY
    assert machine.stands() == (0, 0)
    assert machine.view().stream.token != machine.annotations[FRESH]


def test_the_driver_after_it_continues_on_the_checkpoint_of_the_one_before_whose_end_was_proven() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    del machine.drivers.states[FIRST]  # its record is cleaned up, and the status alone has the proof
    machine.run_pass(Wanted.REST)
    assert machine.drivers.orders[SECOND].writer_is_dead
    machine.end(SECOND)  # it dies before it has done anything
    machine.run_pass(Wanted.REST)
    machine.now += timedelta(hours=1)
    machine.run_pass(Wanted.REST)
    assert machine.drivers.orders[THIRD].writer_is_dead, "the proof outlives it"
    finish(machine, THIRD)
    machine.run_pass()
    path = machine.view().stream.checkpoint_path
    machine.run_pass()
    assert machine.view().stream.checkpoint_path == path


def test_a_driver_that_may_live_keeps_its_checkpoint_to_itself_whatever_was_finished_since() -> None:
    machine = running()
    decide(machine)
    machine.drivers.states[FIRST] = Gone("its node is lost")
    machine.run_pass(Wanted.REST)
    machine.run_pass(Wanted.REST)
    assert not machine.drivers.orders[SECOND].writer_is_dead
    finish(machine, SECOND)
    assert not machine.view().stream.writer_released
    machine.run_pass()
    before = machine.view().stream.checkpoint_path
    machine.run_pass()
    assert machine.view().stream.checkpoint_path != before, "a new generation leaves the former one to it"
    assert machine.statuses.status.verdict is not None
    assert machine.statuses.status.verdict.reason == "PredecessorMayLive"


def test_one_that_fails_is_started_again_after_the_ordinary_backoff_and_one_that_is_in_doubt_halts() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    machine.run_pass(Wanted.REST)
    machine.end(SECOND, Ending.UNREACHABLE)
    later = machine.run_pass(Wanted.REST)
    assert isinstance(later, Waiting)
    assert later.until > machine.now
    assert machine.run_pass(Wanted.REST) == Waiting(later.until, machine.statuses.status.message)
    machine.now = later.until
    assert machine.run_pass(Wanted.REST) == Watching(THIRD)
    words = LastMessage(Ending.REFUSED, "The sink no longer knows.", case="LoadsInDoubt")
    machine.drivers.states[THIRD] = Ended("the process is gone", words, "it ended")
    assert machine.run_pass(Wanted.REST) == Halted("The sink no longer knows.")

    known = machine.statuses.status
    machine.statuses.status = known.model_copy(update={"phase": Phase.PENDING})
    view = machine.view()
    assert view.decided is not None
    machine.annotations = {SETTLE_LOADS: f"{view.decided.committables[0].answered_as}=Committed"}
    assert machine.run_pass(Wanted.REST) == Watching(FOURTH)
    view = machine.view()
    assert view.decided is not None
    assert view.decided.committables[0].answer is Answer.COMMITTED


@pytest.mark.parametrize("ending", [Ending.REFUSED, Ending.FAILED])
def test_a_query_that_cannot_run_halts_once_what_is_decided_is_finished(ending: Ending) -> None:
    """Its columns do not fit any more: it ends before it has come to what is decided, however often it is started."""
    machine = decided()
    machine.run_pass()
    assert machine.run_pass() == Watching(SECOND)
    machine.end(SECOND, ending)
    following = machine.run_pass()
    if ending is Ending.FAILED:
        assert isinstance(following, Waiting)
        machine.now += timedelta(hours=1)
        machine.run_pass()
        assert machine.drivers.orders[THIRD].task is DriverTask.RUN_QUERY
        return
    assert isinstance(following, Waiting)
    assert machine.run_pass() == Watching(THIRD)
    finish(machine, THIRD)
    machine.run_pass()
    assert machine.run_pass() == Watching(FOURTH)
    assert machine.drivers.orders[FOURTH].task is DriverTask.RUN_QUERY
    machine.end(FOURTH, Ending.REFUSED)
    assert machine.run_pass() == Halted("it Refused.")


def test_what_is_decided_is_finished_while_the_source_cannot_be_looked_at() -> None:
    machine = decided()
    machine.run_pass()
    silent = SourceUnreachable("The brokers do not answer.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.topic, "view", lambda *_: (_ for _ in ()).throw(silent))
        assert machine.run_pass() == Watching(SECOND)
        finish(machine, SECOND)
        machine.run_pass()
        assert isinstance(machine.run_pass(), Waiting)
        assert machine.drivers.latest() == SECOND, "with nothing decided it waits for the source as ever"
    assert machine.statuses.status.phase is Phase.BACKING_OFF


def test_a_status_that_was_lost_meanwhile_does_not_take_it_for_a_query_that_has_completed() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    machine.run_pass(Wanted.REST)
    finish(machine, SECOND)
    machine.statuses.status = StreamStatus(attempt=2)
    machine.run_pass()
    assert machine.statuses.status.phase is Phase.PENDING


def test_a_ledger_that_does_not_answer_leaves_a_stream_at_rest_and_is_asked_again() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    machine.asks_again = True
    silent = Unreachable("The ledger does not answer.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.ledger, "view", lambda *_: (_ for _ in ()).throw(silent))
        later = machine.run_pass(Wanted.REST)
        assert isinstance(later, Waiting)
        assert machine.statuses.status.phase is Phase.SUSPENDED
        machine.asks_again = False
        assert machine.run_pass(Wanted.REST) == Done(completed=False), "nobody waits at a terminal"
    assert machine.run_pass(Wanted.REST) == Watching(SECOND)


def test_a_stream_of_another_resource_is_left_alone() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    machine.owner = replace(machine.owner, uid="uid-2")
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.view().stream.epoch == FIRST


def test_where_only_the_pod_reaches_the_checkpoint_it_asks_for_such_a_driver_which_needs_none() -> None:
    machine = decided()
    machine.run_pass()
    machine.in_pod = True
    machine.run_pass()
    assert machine.drivers.orders[SECOND].brief is not None
    word = PodVerdict(Outcome.FINISHES, "Batch 1 is decided.", "FinishFirst", 1)
    machine.drivers.states[SECOND] = Gone("it did not start", pod=DriverPod("orders-2", None, word=word))
    machine.run_pass()
    assert machine.run_pass() == Watching(THIRD)
    assert machine.drivers.orders[THIRD].brief is None
    finish(machine, THIRD)
    machine.run_pass()
    assert machine.run_pass() == Watching(FOURTH)
    assert machine.drivers.orders[FOURTH].brief is not None


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNREACHABLE])
def test_a_pod_that_cannot_decide_does_not_keep_what_is_decided_waiting(outcome: Outcome) -> None:
    machine = decided()
    machine.run_pass()
    machine.in_pod = True
    for number in (2, 4):
        machine.run_pass()
        word = PodVerdict(outcome, "The brokers do not answer.")
        state = Gone("it did not start", pod=DriverPod(f"orders-{number}", None, word=word))
        machine.drivers.states[Epoch(number)] = state
        machine.run_pass()
        machine.now += timedelta(hours=1)
        if number == 2:
            assert machine.run_pass() == Watching(THIRD)
            finish(machine, THIRD)
            machine.run_pass()
    assert machine.statuses.status.phase is (Phase.HALTED if outcome is Outcome.REFUSED else Phase.BACKING_OFF)


def test_readers_of_a_folder_are_shown_what_has_landed_once_before_the_stream_rests() -> None:
    machine = Machine()
    machine.spec = FILES
    assert machine.run_until_a_driver_runs() == FIRST
    machine.land(FIRST, 40, 30)
    machine.drivers.states[FIRST] = Gone("its node is lost")  # so nothing in the ledger can say that it has ended
    machine.run_pass(Wanted.REST)
    assert machine.run_pass(Wanted.REST) == Watching(SECOND)
    finish(machine, SECOND)
    machine.run_pass(Wanted.REST)
    for _ in range(3):
        assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.drivers.latest() == SECOND
    assert machine.view().batch(FIRST_BATCH) is not None


def let_the_driver_finish(machine: Machine) -> None:
    """Let the latest driver come to its end; the operator does not die of what that one does."""
    latest, before, dies_before = machine.drivers.latest(), len(machine.effects), machine.dies_before
    machine.dies_before = None
    if isinstance(machine.drivers.state_of(latest), Running):
        if machine.view().stream.epoch == latest:
            finish(machine, latest)
        else:
            machine.end(latest, Ending.FENCED)
    machine.dies_before = None if dies_before is None else dies_before + len(machine.effects) - before


def test_an_operator_may_die_at_any_moment_and_the_batch_is_finished_once() -> None:
    dies_at, done = 0, False
    while not done:
        machine = decided()
        lose_records(machine)
        start = len(machine.effects)
        machine.dies_before = start + dies_at
        for _ in range(30):
            try:
                result = machine.run_pass()
            except Died:
                continue
            if isinstance(result, Halted):
                break
            machine.now += timedelta(hours=1)
            let_the_driver_finish(machine)
        done = machine.dies_before is not None  # it never came so far
        machine.dies_before = None
        assert isinstance(result, Halted), (dies_at, machine.statuses.status)
        assert machine.view().decided is None
        row = machine.view().batch(FIRST_BATCH)
        assert row is not None
        assert row.status is BatchStatus.LANDED
        dies_at += 1
    assert dies_at > 10


def test_a_driver_that_has_left_no_trace_is_not_looked_for_twice() -> None:
    machine = decided()
    machine.run_pass(Wanted.REST)
    machine.drivers.broken = True
    assert isinstance(machine.run_pass(Wanted.REST), Waiting)
    machine.drivers.broken = False
    assert isinstance(machine.drivers.state_of(SECOND), NeverStarted)
    machine.now += timedelta(hours=1)
    assert machine.run_pass(Wanted.REST) == Watching(THIRD)
