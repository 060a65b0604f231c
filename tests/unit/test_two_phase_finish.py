"""What a driver finds before its first batch is finished: decided loads take effect once, the others are aborted."""

from __future__ import annotations

import pytest

from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Epoch, Ranges
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import (
    DecidedElsewhere,
    LoadsInDoubt,
    RowsNotThere,
    finish_decided,
    is_undecided,
    require_nothing_decided,
)
from tests.ledgers import P1, STREAM, new_stream
from tests.two_phase_stream import (
    ALL,
    OF_A_FINISH,
    READS,
    Killed,
    Watch,
    World,
    aborted_after_the_decision,
    aborted_by_the_sink,
    killed_at,
)


@pytest.mark.parametrize("point", OF_A_FINISH)
def test_a_driver_that_dies_while_it_finishes_is_followed_by_one_that_does(point: str, passed: Watch) -> None:
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land(runs=(2, 1))
    aborted_by_the_sink(world, 2)
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.next_driver()
    world.next_driver()
    world.land()
    assert world.visible == ALL
    assert LoadState.PREPARED not in world.states()


def test_a_decided_batch_keeps_a_stream_from_another_sink_until_its_own_has_committed_it(passed: Watch) -> None:
    """The ledger stays where it is when only the sink of a suspended stream is changed."""
    world = World()
    require_nothing_decided(world.ledger, world.permit)
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    passed(lambda point: None)
    before = world.visible
    with pytest.raises(
        DecidedElsewhere, match=r"^Batch 1 is decided, and its loads \(.+\) are to be committed by the sink"
    ):
        require_nothing_decided(world.ledger, world.permit)
    assert world.visible == before
    world.next_driver()
    assert world.visible == ALL
    require_nothing_decided(world.ledger, world.permit)


def test_what_a_second_run_of_a_task_prepared_is_aborted_and_never_committed() -> None:
    world = World()
    world.land(runs=(3, 1))
    assert world.visible == ALL
    assert world.states().count(LoadState.PREPARED) == 2
    world.finish()
    assert world.states().count(LoadState.PREPARED) == 2, "a driver does not judge what its own tasks prepare"
    world.next_driver()
    assert world.states().count(LoadState.ABORTED) == 2
    assert world.visible == ALL


def test_rows_that_the_sink_aborts_after_the_decision_are_written_again_from_exactly_their_range(passed: Watch) -> None:
    world = World()
    passed(lambda point: aborted_by_the_sink(world, 2) if point == "batch.decided" else None)
    with pytest.raises(NotCommitted, match=r"is aborted; the next driver finishes the batch"):
        world.land()
    passed(lambda point: None)
    world.next_driver()
    assert world.visible == ALL
    assert world.read_again == [Ranges({P1: READS[P1]})]
    labels = [load.label for load in world.store.loads.values() if load.state is LoadState.COMMITTED]
    assert [LoadLabels(STREAM, "token-1").epoch_of(label) for label in labels] == [1, 2]


def test_rows_that_the_sink_aborts_again_and_again_are_left_to_the_next_driver(passed: Watch) -> None:
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()

    def abort_all(point: str) -> None:
        if point in ("finish.read", "finish.recorded"):
            world.store.abort_by_itself(lambda: True)

    passed(abort_all)
    with pytest.raises(NotCommitted, match=r"batch 1 each of the 3 times that this driver committed them\."):
        world.next_driver()
    passed(lambda point: None)
    world.store.abort_by_itself(lambda: True)
    world.next_driver()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)


def test_a_load_in_doubt_is_told_also_where_of_those_that_were_aborted_no_row_is_left_to_be_written(
    passed: Watch,
) -> None:
    """Such as where all of their records have been left out by a bisection."""
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    passed(lambda point: None)
    aborted_by_the_sink(world, 1)
    del world.store.labels[world.store.loads.pop(2).label]  # the sink has forgotten it
    with pytest.raises(LoadsInDoubt):
        finish_decided(world.ledger, world.permit, world.target(), lambda *_: ())
    assert world.status() is BatchStatus.DECIDED
    assert len(world.decided_labels()) == 1, "the one that a person has to look for"


def test_rows_whose_records_are_gone_halt_the_stream(passed: Watch) -> None:
    world = World()
    aborted_after_the_decision(world, 2, passed)
    world.topic.starts[P1] = 1
    with pytest.raises(RowsNotThere, match=r"orders-1 \[0, 3\).*of the decided batch 1.*Retention took records"):
        world.next_driver()
    assert world.visible.total() == 5
    assert not world.read_again


def test_rows_are_not_made_of_other_records_that_stand_where_the_decided_ones_did(passed: Watch) -> None:
    world = World()
    aborted_after_the_decision(world, 2, passed)
    world.topic.truncate(P1, 1)
    world.topic.ends[P1] = 9
    with pytest.raises(RowsNotThere, match=r"of the decided batch 1.*others may stand in their place"):
        world.next_driver()
    assert world.visible.total() == 5
    assert not world.read_again


def test_a_driver_that_was_forgotten_leaves_the_loads_of_its_successor_alone(passed: Watch) -> None:
    world = World()
    forgotten = world.permit
    raise_epoch(world.ledger, new_stream(world.ledger), Epoch(2), "ticket")
    world.permit = claim_epoch(world.ledger, STREAM, Epoch(2), "claim-2", "ticket")[0]
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    for load in world.target(forgotten).open_loads():
        assert not is_undecided(load, (), forgotten)
    assert world.states() == [LoadState.PREPARED, LoadState.PREPARED]
