"""Loads that were decided and that the sink has forgotten halt the stream, until a person says what became of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from exactlyonce.bounded_json import values_in
from exactlyonce.ledger import two_phase
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import EpochOvertaken, claim_epoch, raise_epoch
from exactlyonce.ledger.publish import record_answers
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import DecisionTooLarge
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark import two_phase_finish
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsNotThere
from tests.ledgers import P1, STREAM, new_stream
from tests.two_phase_stream import (
    ALL,
    Killed,
    Watch,
    World,
    aborted_after_the_decision,
    aborted_by_the_sink,
    decided_and_dead,
    killed_at,
)

FIRST = BatchNumber(1)


def test_a_load_that_the_sink_has_forgotten_halts_the_stream_with_its_label_and_its_range(passed: Watch) -> None:
    world = World()
    decided_and_dead(world, passed)
    world.store.forget(keep=1)
    label = next(iter(world.store.labels))
    for _ in range(2):
        with pytest.raises(LoadsInDoubt) as doubt:
            world.next_driver()
        assert "Batch 1 is decided" in str(doubt.value)
        assert "orders-0 [0, 5)" in str(doubt.value)
        assert "[0, 5)). Then annotate" in str(doubt.value), "this sink has no place where a person could look"
        assert label not in str(doubt.value), (
            "of the other load the sink has said that it is committed, and that is kept"
        )
        world.store.forget()
    assert world.visible == ALL
    assert not world.read_again


def test_of_many_loads_in_doubt_some_are_told_behind_what_to_do(passed: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase_finish, "MOST_TOLD", 1)
    world = World()
    decided_and_dead(world, passed)
    world.store.forget()
    with pytest.raises(
        LoadsInDoubt, match=r"2 of its loads.*Find out .*: exactlyonce:.*orders-0 .*; and 1 more"
    ) as doubt:
        world.next_driver()
    assert "orders-1" not in str(doubt.value)


def test_a_label_that_names_another_transaction_by_now_leaves_a_doubt(passed: Watch) -> None:
    world = World()
    decided_and_dead(world, passed)
    labels = list(world.store.labels)
    world.store.forget()
    for label in labels:
        world.store._prepare(label, ("a request that was late",))
    with pytest.raises(LoadsInDoubt):
        world.next_driver()
    assert world.visible == ALL


def claimed_with(world: World, answers: Mapping[str, Answer], batch: BatchNumber = FIRST) -> None:
    """The next driver has claimed; before, the answers were recorded, twice, as after a crash in between."""
    epoch = Epoch(world.permit.epoch + 1)
    raise_epoch(world.ledger, new_stream(world.ledger), epoch, "ticket")
    for _ in range(2):
        record_answers(world.ledger, STREAM, epoch, batch, answers)
    world.permit = claim_epoch(world.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")[0]


@pytest.mark.parametrize("dies_at", [None, "finish.written-again", "finish.recorded"])
def test_a_person_who_has_found_what_became_of_forgotten_loads_lets_the_stream_go_on(
    passed: Watch, dies_at: str | None
) -> None:
    """One was committed, the other one aborted and forgotten: each id is in the sink once, wherever the driver dies."""
    world = World()
    killed_at("commit.answered", passed)
    with pytest.raises(Killed):
        world.land()
    committed = next(load.label for load in world.store.loads.values() if load.state is LoadState.COMMITTED)
    world.store.abort_by_itself(lambda: True)
    world.store.forget()
    passed(lambda point: None)
    with pytest.raises(
        LoadsInDoubt,
        match=r"annotate the stream exactlyonce\.dev/settle-loads with LABEL=Committed where it has all of them",
    ):
        world.next_driver()
    in_doubt = world.decided_labels()
    assert committed in in_doubt
    assert len(in_doubt) == 2
    answers = {label: Answer.COMMITTED if label == committed else Answer.ABORTED for label in in_doubt}
    claimed_with(world, answers)
    if dies_at is not None:
        killed_at(dies_at, passed)
        with pytest.raises(Killed):
            world.finish()
        world.next_driver()
    else:
        world.finish()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)


def test_what_the_sink_says_of_a_load_counts_and_not_what_a_person_answered(passed: Watch) -> None:
    """The answers were hasty: one load is prepared yet, the sink has aborted the other one."""
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    passed(lambda point: None)
    labels = world.decided_labels()
    aborted_by_the_sink(world, 2)
    claimed_with(world, {labels[0]: Answer.ABORTED, labels[1]: Answer.COMMITTED})
    world.finish()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)


def test_an_answer_of_another_batch_or_label_changes_nothing(passed: Watch) -> None:
    world = World()
    decided_and_dead(world, passed)
    before = world.ledger.view(STREAM)
    answers = dict.fromkeys(world.decided_labels(), Answer.ABORTED)
    claimed_with(world, answers, BatchNumber(2))
    claimed_with(world, {"another": Answer.ABORTED})
    after = world.ledger.view(STREAM)
    assert before is not None
    assert after is not None
    assert after.decided == before.decided
    with pytest.raises(EpochOvertaken):
        record_answers(world.ledger, STREAM, world.permit.epoch, BatchNumber(1), answers)


def test_a_batch_is_decided_only_if_its_record_has_room_for_an_answer_to_each_load(
    passed: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a person's answers would make a ledger that nobody can read."""
    world = World()
    decided_and_dead(world, passed)
    claimed_with(world, dict.fromkeys(world.decided_labels(), Answer.COMMITTED))
    view = world.ledger.view(STREAM)
    assert view is not None
    assert view.decided is not None
    values = values_in(view.decided.to_json(), 1000)
    monkeypatch.setattr(two_phase, "MOST_VALUES", values - 1)
    with pytest.raises(DecisionTooLarge):
        World().land()
    monkeypatch.setattr(two_phase, "MOST_VALUES", values)
    World().land()


def test_what_is_known_to_be_committed_leaves_no_doubt_though_other_rows_cannot_be_made_again(passed: Watch) -> None:
    """Those are given up by an answer, which counts once the sink has forgotten their load."""
    world = World()
    aborted_after_the_decision(world, 2, passed)
    world.topic.starts[P1] = 1
    with pytest.raises(RowsNotThere):
        world.next_driver()
    label = world.store.loads[2].label
    claimed_with(world, {label: Answer.COMMITTED})
    with pytest.raises(RowsNotThere):
        world.finish()
    world.store.forget()
    assert world.decided_labels() == [label]
    world.next_driver()
    assert (world.visible.total(), world.status()) == (5, BatchStatus.LANDED)
