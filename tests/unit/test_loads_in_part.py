"""A decided load that its sink has finished with some of its rows halts the stream, until a person has made the table whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from contextlib import nullcontext

import pytest

from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.ledgers import P0
from tests.staged_stream import StagedWorld
from tests.two_phase_stream import ALL, READS, Killed, Watch, killed_at


def partly_loaded(world: StagedWorld) -> tuple[str, set[Hashable]]:
    """The sink has read one record less of the first load than it has; return its label and what it has read."""
    loses = iter([True])
    world.files.loses_file = lambda: next(loses, False)
    for land in (world.land, world.next_driver):
        with pytest.raises(RowsPartlyLoaded, match=r"\(staged, 5 rows of orders-0 \[0, 5\)\) with 4 rows"):
            land()
        assert [one.ranges for one in world.decided().committables] == [Ranges({P0: READS[P0]})], (
            "the other is committed"
        )
        assert len(world.files.files) == 0
    assert world.status() is BatchStatus.DECIDED
    (load,) = world.decided().committables
    assert load.ranges == Ranges({P0: READS[P0]}), (
        "of the other load it is known that it is committed, and that is kept"
    )
    return load.label, set(world.files.jobs[load.label].rows)


def missing(world: StagedWorld) -> list[Hashable]:
    return [one for one in ALL if not world.visible[one]]


@pytest.mark.parametrize(
    "dies_at", [None, "commit.answered", "submit.file-removed", "finish.written-again", "finish.recorded"]
)
def test_a_load_in_part_is_written_again_once_a_person_has_removed_what_there_was_of_it(
    dies_at: str | None, passed: Watch
) -> None:
    world = StagedWorld()
    label, read = partly_loaded(world)
    world.visible.subtract(read)
    if dies_at is not None:
        killed_at(dies_at, passed)
    with nullcontext() if dies_at is None else pytest.raises(Killed):
        world.answered({label: Answer.REMOVED})
    if dies_at is not None:
        world.next_driver()
    assert {one for ranges in world.read_again for one in ranges} == {P0}
    assert world.landed_once()


def test_a_load_in_part_counts_as_landed_once_a_person_has_added_what_it_lacked(passed: Watch) -> None:
    world = StagedWorld()
    label, _ = partly_loaded(world)
    world.visible.update(missing(world))
    world.answered({label: Answer.COMPLETED})
    assert not world.read_again
    assert world.landed_once()


@pytest.mark.parametrize("answer", [Answer.COMMITTED, Answer.ABORTED])
def test_an_answer_for_a_load_that_is_forgotten_says_nothing_of_one_in_part(answer: Answer, passed: Watch) -> None:
    """It may have been given before anybody knew of the part."""
    world = StagedWorld()
    label, _ = partly_loaded(world)
    before = Counter(world.visible)
    with pytest.raises(RowsPartlyLoaded):
        world.answered({label: answer})
    assert (world.visible, world.status()) == (before, BatchStatus.DECIDED)
    assert not world.read_again


@pytest.mark.parametrize(("answer", "read_again"), [(Answer.REMOVED, True), (Answer.COMPLETED, False)])
def test_what_a_person_has_made_of_a_part_counts_once_the_sink_has_forgotten_it(
    answer: Answer, read_again: bool, passed: Watch
) -> None:
    world = StagedWorld()
    label, read = partly_loaded(world)
    world.forget()
    world.visible.subtract(read) if answer is Answer.REMOVED else world.visible.update(missing(world))
    world.answered({label: answer})
    assert bool(world.read_again) == read_again
    assert world.landed_once()
