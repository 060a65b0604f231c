"""A release from before dead letters were replayed publishes a generation beside newer tables, and records nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest

from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.letter_generations import is_note, life_and_generation, life_in_generation, note_of
from exactlyonce.ledger.letters import LetterStatus
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce_spark.target import DeadLetter
from tests.ledgers import IDS, P0, P1, STREAM, new_stream
from tests.simulation.database import MemoryTransaction
from tests.unit.test_replay_letters import World, world

__all__ = ["world"]

REFUSED = "was kept by an earlier release, or before one published a generation of the stream"


def published(world: World, position: int, generation: int) -> None:
    """A new generation, at this position in both partitions."""
    raise_epoch(world.ledger, new_stream(world.ledger), Epoch(generation))
    before = world.ledger.view(STREAM)
    assert before is not None
    after = LandedPositions(Positions({P0: position, P1: position}), IDS)
    seed = BatchNumber(10 * generation)
    path, epoch = f"/c/{generation}", Epoch(generation)
    publish(world.ledger, STREAM, Publication(epoch, generation, path, seed, before.landed.positions, after, "made"))


def published_by_the_release_before(world: World, position: int, generation: int) -> None:
    """As above, by a release that knows of no set-backs; nothing else in its publication is about letters."""
    with mock.patch.object(MemoryTransaction, "write_set_backs", lambda *_: None):
        published(world, position, generation)


def keep(world: World, offset: int, batch: int) -> None:
    with world.ledger.transaction() as transaction:
        letter = DeadLetter(P0, offset, None, None, b"{", "no JSON")
        transaction.keep_letters(STREAM, BatchNumber(batch), [letter], IDS)


@pytest.mark.parametrize("position", [4, 10], ids=["set back", "where it stood, which nobody can tell"])
@pytest.mark.parametrize(
    "afterwards",
    [lambda _: None, lambda world: published(world, 10, 3), lambda world: published(world, 2, 3)],
    ids=["at once", "after another generation", "after a setting back that is recorded"],
)
def test_letters_of_before_such_a_generation_are_not_landed_but_told(
    world: World, position: int, afterwards: Callable[[World], None]
) -> None:
    published_by_the_release_before(world, position, 2)
    afterwards(world)
    outcome = world.run()
    assert world.landed == []
    assert len(outcome.told) == 3
    assert all(REFUSED in words or "is Superseded" in words for words in outcome.told)


def test_a_replay_that_holds_letters_meanwhile_lands_none_of_them(world: World) -> None:
    world.reader.meanwhile = lambda: published_by_the_release_before(world, 4, 2)
    outcome = world.run()
    assert world.landed == []
    assert all("is not held by this replay any more" in words for words in outcome.told)


def test_letters_that_are_kept_afterwards_are_replayed(world: World) -> None:
    published_by_the_release_before(world, 10, 2)
    keep(world, 12, batch=21)
    assert world.run().landed == 1
    assert world.landed == [12]


def test_generations_that_are_recorded_leave_letters_as_they_are_but_for_those_that_are_read_again(
    world: World,
) -> None:
    published(world, 10, 2)
    published(world, 4, 3)
    assert world.statuses() == [LetterStatus.KEPT, LetterStatus.SUPERSEDED, LetterStatus.SUPERSEDED]
    assert world.run().landed == 1
    assert world.landed == [3]


def test_a_letter_names_its_generation_behind_its_life_unless_an_earlier_release_has_written_it() -> None:
    assert life_and_generation(life_in_generation("a1b2", 7)) == ("a1b2", 7)
    assert life_and_generation("a1b2") == ("a1b2", None)
    assert life_and_generation("") == ("", None)


def test_a_note_is_of_no_partition_that_a_source_has() -> None:
    note = note_of(7, 6, BatchNumber(9))
    assert is_note(note)
    assert note.partition.origin == ""


def test_a_note_without_a_generation_before_it_is_kept_as_earlier_releases_have_kept_it() -> None:
    assert note_of(1, None, BatchNumber(0)).position == -1
