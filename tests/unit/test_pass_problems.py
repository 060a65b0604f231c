"""Passes that meet a store, a server or another pass that lets nothing follow."""

from __future__ import annotations

from datetime import timedelta

import pytest

from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.errors import OriginMissing, SourceUnreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Running
from exactlyonce.ledger.fence import NewStream, raise_epoch
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Halted, Waiting, Watching
from tests.unit.passes import FIRST, ME, SECOND, STREAM, Machine, ended, started


def unreachable(*_: object) -> None:
    raise SourceUnreachable("The brokers do not answer.")


def missing(*_: object) -> None:
    raise OriginMissing("There is no topic orders; create it.")


def test_a_source_that_does_not_answer_decides_nothing() -> None:
    machine = ended()
    machine.topic.view = unreachable  # type: ignore[method-assign,assignment] # what a broker may do
    for seconds in (10, 20):
        due = machine.now + timedelta(seconds=seconds)
        assert machine.run_pass() == Waiting(due, "The brokers do not answer.")
        machine.now = due
    assert machine.statuses.status.phase is Phase.BACKING_OFF
    assert machine.statuses.status.verdict is not None
    assert machine.statuses.status.verdict.kind == "FirstStart", "the one of the first attempt"
    assert machine.reports == [("BackingOff", "The brokers do not answer.")] * 2


def test_what_only_a_person_can_mend_halts_the_stream_with_that_sentence() -> None:
    machine = ended()
    machine.topic.view = missing  # type: ignore[method-assign,assignment] # what a broker may do
    assert machine.run_pass() == Halted("There is no topic orders; create it.")
    assert machine.statuses.status.phase is Phase.HALTED
    assert machine.reports == [("Halted", "There is no topic orders; create it.")]


def test_a_resource_that_names_anothers_stream_halts_and_fences_nobody() -> None:
    machine = started()
    before = machine.view()
    copy = Machine()
    copy.ledger, copy.owner, copy.owner_is_gone = machine.ledger, Owner("cluster-2", "uid-9"), False
    copy.topic.view = missing  # type: ignore[method-assign,assignment] # it does not even reach the brokers
    assert isinstance(copy.run_pass(), Halted)
    status = copy.statuses.status
    assert status.verdict is not None
    assert (status.phase, status.verdict.kind) == (Phase.HALTED, "Contradiction")
    assert "belongs to the resource" in status.message
    assert machine.view() == before, "neither its epoch nor its claim has changed"


def test_a_driver_that_somebody_else_has_drained_is_followed_by_another_and_never_at_rest() -> None:
    machine = started()
    machine.asks_again = True
    machine.drivers.states[FIRST] = Ended("reaped", LastMessage(Ending.DRAINED, "as asked"), "it ended")
    assert isinstance(machine.run_pass(), Waiting)
    assert machine.statuses.status.phase is Phase.PENDING
    machine.run_until_a_driver_runs()


def test_what_a_server_refuses_is_asked_again_where_nobody_waits_for_the_answer() -> None:
    machine = ended()
    machine.asks_again = True
    view = machine.topic.view
    machine.topic.view = missing  # type: ignore[method-assign,assignment] # what a broker may do
    result = machine.run_pass()
    assert isinstance(result, Waiting)
    assert result.message == "There is no topic orders; create it."
    assert machine.statuses.status.phase is Phase.BACKING_OFF
    machine.topic.view = view  # type: ignore[method-assign] # it is there again
    machine.run_until_a_driver_runs()


def test_a_ledger_that_does_not_answer_when_a_driver_has_ended_loses_no_ending() -> None:
    machine = started()
    machine.end(FIRST)
    machine.database.up = False
    assert isinstance(machine.run_pass(), Waiting)
    assert machine.statuses.status.phase is Phase.BACKING_OFF, (
        "a driver that has ended is not said to run, or to be ready"
    )
    machine.database.up = True
    machine.run_pass()
    assert [kind for kind, _ in machine.reports] == ["BackingOff", "Died"]


def test_a_driver_that_cannot_be_started_is_tried_again_as_the_next_attempt() -> None:
    machine = Machine()
    machine.drivers.broken = True
    result = machine.run_pass()
    assert isinstance(result, Waiting)
    assert result.message == "There is no room for a driver."
    machine.drivers.broken = False
    assert machine.run_until_a_driver_runs() == SECOND


@pytest.mark.parametrize("writes_before", range(2))
def test_a_pass_that_meets_another_one_starts_over_and_starts_nothing(writes_before: int) -> None:
    machine = ended()
    left = writes_before

    def meet() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            machine.statuses.version += 1

    machine.statuses.meanwhile = meet
    assert machine.run_pass() == Waiting(machine.now, "the status was written meanwhile")
    assert not any(effect.startswith("start") for effect in machine.effects)
    machine.run_until_a_driver_runs()
    machine.assert_launched_as_published()


def test_a_pass_that_was_overtaken_in_the_ledger_starts_over_with_a_newer_attempt() -> None:
    machine = ended()

    def overtake() -> None:
        machine.statuses.meanwhile = lambda: None
        new = NewStream(STREAM, "t", ME, machine.database.identity)
        raise_epoch(machine.ledger, new, Epoch(9), "ticket")

    machine.statuses.meanwhile = overtake
    assert machine.run_pass() == Waiting(
        machine.now, "The ledger holds epoch 9 of shop/orders; 2 is not newer."
    )  # fmt: skip
    assert machine.run_until_a_driver_runs() == Epoch(10)
    assert machine.reports[0][0] == "NewerEpoch"
    assert "epoch 9" in machine.reports[0][1]


def test_a_lost_status_goes_on_after_the_ledgers_epoch_and_never_from_the_start() -> None:
    machine = ended()
    machine.statuses.status = StreamStatus()
    assert machine.run_pass() == Watching(SECOND)
    assert machine.stands() == (40, 30)
    # Whether the driver of attempt 1 still writes is in the lost status: the launcher is asked again, live.
    assert [kind for kind, _ in machine.reports] == ["NewerEpoch", "Resume"]


def test_an_attempt_that_has_left_a_trace_is_not_taken_again_when_status_and_ledger_have_forgotten_it() -> None:
    """Its last message would be taken for those of the new driver, which would never be started."""
    machine = ended()
    machine.drivers.states[Epoch(7)] = Ended("its process is gone", LastMessage(Ending.COMPLETED, "all has landed"), "")
    machine.statuses.status = StreamStatus()
    assert machine.run_pass() == Watching(Epoch(8))
    assert isinstance(machine.drivers.state_of(Epoch(8)), Running)
