"""The order of acts of a replay of dead letters, over ledger and table in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import pytest

from exactlyonce.errors import CommitOutcomeUnknown, LedgerUnreachable
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterKey, LetterStatus
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_letters import LettersNotHeld, claim_letters, settle_letters
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce_spark.replay import MOST_FAILURES
from exactlyonce_spark.replay_letters import LetterReplay, LettersRead
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.target import DeadLetter
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, new_stream, started
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.letters import letters_in
from tests.simulation.target import MemoryTarget

CLAIM, OTHER = ReplayClaim(STREAM, "mine"), ReplayClaim(STREAM, "another")


@dataclass
class Reader:
    """Makes a row of each letter, which is its position; `malformed` and `fails` are positions of letters that are no rows."""

    malformed: frozenset[int] = frozenset()
    fails: frozenset[int] = frozenset()
    reads: list[int] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def read(self, letters: Sequence[RecordedLetter]) -> LettersRead:
        self.reads.append(len(letters))
        self.meanwhile()
        if any(letter.row.position in self.fails for letter in letters):
            raise ValueError("division by zero")
        wrong = {it.row.key: "no number yet" for it in letters if it.row.position in self.malformed}
        return LettersRead([it.row.position for it in letters if it.row.key not in wrong], wrong)


@dataclass
class World:
    database: MemoryDatabase
    reader: Reader = field(default_factory=Reader)

    @property
    def ledger(self) -> MemoryLedger:
        return MemoryLedger(self.database)

    def run(self, *, most: int = 100, is_to_end: Callable[[], bool] = lambda: False) -> ReplayOutcome:
        pace = ReplayPace(most, is_to_end=is_to_end)
        replay = LetterReplay(self.ledger, CLAIM, MemoryTarget(self.database, 0), self.reader, pace)
        return replay.run(self.keys)

    @property
    def keys(self) -> list[LetterKey]:
        return [letter.row.key for letter in self.letters]

    @property
    def letters(self) -> tuple[RecordedLetter, ...]:
        return letters_in(self.database.tables.rows, STREAM)

    def statuses(self) -> list[LetterStatus]:
        return [letter.status for letter in self.letters]

    @property
    def landed(self) -> list[Hashable]:
        return sorted(self.database.tables.target.elements(), key=str)

    def set_back(self, position: int) -> None:
        """A new generation from which both partitions are read again."""
        raise_epoch(self.ledger, new_stream(self.ledger), Epoch(2), "ticket")
        before = self.ledger.view(STREAM)
        assert before is not None
        after = LandedPositions(Positions({P0: position, P1: position}), IDS)
        publish(
            self.ledger,
            STREAM,
            Publication(Epoch(2), 2, "/c/2", BatchNumber(9), before.landed.positions, after, "set back", QUERY),
        )


@pytest.fixture
def world() -> World:
    """A stream that stands at 10, and has kept the letters 3, 4 and 5 of the batch 2."""
    database = MemoryDatabase(Hooks(lambda _: None, lambda _label, may_go: None, lambda: "answered"))
    ledger = MemoryLedger(database)
    started(ledger)
    letters = [DeadLetter(P0, offset, None, None, b"{", "no JSON") for offset in (3, 4, 5)]
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 10, P1: 10}), IDS))
        transaction.keep_letters(STREAM, BatchNumber(2), letters, IDS)
    return World(database)


def test_each_letter_that_is_well_formed_now_lands_once_and_the_others_stay_with_their_new_error(world: World) -> None:
    world.reader.malformed = frozenset({4})
    outcome = world.run()
    assert (outcome.landed, outcome.failed) == (2, 1)
    assert outcome.told == ["The dead letter orders-0/4 failed again: no number yet"]
    assert world.landed == [3, 5]
    assert world.statuses() == [LetterStatus.REPLAYED, LetterStatus.KEPT, LetterStatus.REPLAYED]
    assert [letter.row.error for letter in world.letters] == ["no JSON", "no number yet", "no JSON"]
    world.reader.malformed = frozenset()
    outcome = world.run()
    assert outcome.landed == 1
    assert [words.split(":")[0] for words in outcome.told] == [
        "The dead letter orders-0/3 is Replayed",
        "The dead letter orders-0/5 is Replayed",
    ]
    assert world.landed == [3, 4, 5]


def test_a_letter_for_which_the_transform_fails_costs_itself_and_no_other(world: World) -> None:
    world.reader.fails = frozenset({4})
    outcome = world.run()
    assert (outcome.landed, outcome.failed) == (2, 1)
    assert world.landed == [3, 5]
    assert "division by zero" in world.letters[1].row.error


def test_where_the_transform_fails_for_all_the_replay_ends_and_all_stay_letters(world: World) -> None:
    with world.ledger.transaction() as transaction:
        more = [DeadLetter(P1, offset, None, None, b"{", "no JSON") for offset in range(10, 10 + MOST_FAILURES)]
        transaction.keep_letters(STREAM, BatchNumber(3), more, IDS)
    world.reader.fails = frozenset(range(100))
    outcome = world.run()
    assert (outcome.landed, outcome.failed) == (0, MOST_FAILURES)
    assert outcome.told[-1] == f"The transform failed for {MOST_FAILURES} letters, so the replay ended."
    assert world.landed == []
    assert set(world.statuses()) == {LetterStatus.KEPT}


def test_the_latest_replay_holds_a_letter_and_the_former_lands_nothing_of_it(world: World) -> None:
    mine = claim_letters(world.ledger, CLAIM, [letter.row for letter in world.letters]).rows
    claim_letters(world.ledger, OTHER, [letter.row for letter in world.letters][:1])
    with pytest.raises(LettersNotHeld) as refused:
        settle_letters(world.ledger, CLAIM, mine, mine)
    assert refused.value.keys == {mine[0].key}
    assert len(world.run().told) == 0, "the next one takes all"
    assert world.landed == [3, 4, 5]


def test_what_another_replay_takes_while_the_rows_are_made_is_left_to_it_and_the_rest_lands(world: World) -> None:
    def taken_once() -> None:
        world.reader.meanwhile = lambda: None
        claim_letters(world.ledger, OTHER, [world.letters[1].row])

    world.reader.meanwhile = taken_once
    outcome = world.run()
    assert world.landed == [3, 5]
    assert len(outcome.told) == 1
    assert "orders-0/4 is not held by this replay any more" in outcome.told[0]
    assert world.statuses()[1] is LetterStatus.REPLAYING


def test_what_the_stream_reads_again_is_landed_by_no_replay_not_by_one_that_has_claimed_it_either(world: World) -> None:
    world.reader.meanwhile = lambda: world.set_back(4) if world.reader.reads == [3] else None
    outcome = world.run()
    assert world.landed == [3]
    assert world.statuses() == [LetterStatus.REPLAYED, LetterStatus.SUPERSEDED, LetterStatus.SUPERSEDED]
    assert len(outcome.told) == 2
    assert len([words for words in world.run().told if "is Superseded" in words]) == 2
    assert world.landed == [3]


def test_a_letter_that_landed_again_after_the_setting_back_is_a_letter_again(world: World) -> None:
    world.set_back(4)
    with world.ledger.transaction() as transaction:
        again = [DeadLetter(P0, 5, None, None, b"{", "no JSON, again")]
        transaction.keep_letters(STREAM, BatchNumber(10), again, IDS)
    assert world.statuses() == [LetterStatus.KEPT, LetterStatus.SUPERSEDED, LetterStatus.KEPT]
    world.run()
    assert world.landed == [3, 5]


@pytest.mark.parametrize("fate", ["lost", "applied"])
def test_a_commit_without_an_answer_is_looked_for_and_lands_once(
    world: World, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fates = iter(["answered", fate])
    monkeypatch.setattr(world.database.hooks, "commit_fate", lambda: next(fates, "answered"))
    outcome = world.run()
    assert outcome.landed == 3
    assert world.landed == [3, 4, 5]
    assert set(world.statuses()) == {LetterStatus.REPLAYED}


def test_letters_that_are_gone_are_counted_and_the_replay_ends(world: World) -> None:
    keys = world.keys
    gone = [("orders", "id-1", 0, 1000 + number) for number in range(3)]
    replay = LetterReplay(world.ledger, CLAIM, MemoryTarget(world.database, 0), world.reader, ReplayPace(2))
    outcome = replay.run([*gone, *keys])
    assert outcome.landed == 3
    assert sum(int(words.split()[0]) for words in outcome.told) == 3
    assert all("are not there any more" in words for words in outcome.told)


def test_a_replay_that_is_to_end_lands_the_chunk_in_hand_and_leaves_the_rest(world: World) -> None:
    outcome = world.run(most=1, is_to_end=lambda: len(world.landed) == 2)
    assert outcome.landed == 2
    assert world.statuses().count(LetterStatus.KEPT) == 1


def test_a_store_that_stays_away_ends_the_replay_and_leaves_no_letter_claimed(world: World) -> None:
    def away() -> None:
        raise LedgerUnreachable("the session was ended")

    world.reader.meanwhile = away
    with pytest.raises(LedgerUnreachable):
        world.run()
    assert set(world.statuses()) == {LetterStatus.KEPT}
    assert world.landed == []


def test_an_outcome_that_stays_unknown_is_told_as_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = claim_letters(world.ledger, CLAIM, [letter.row for letter in world.letters]).rows
    monkeypatch.setattr(world.database.hooks, "commit_fate", lambda: "lost")
    with pytest.raises(CommitOutcomeUnknown):
        settle_letters(world.ledger, CLAIM, rows, rows)


def test_of_many_letters_that_fail_again_the_first_are_told_and_that_there_are_more(world: World) -> None:
    with world.ledger.transaction() as transaction:
        more = [DeadLetter(P1, offset, None, None, b"{", "no JSON") for offset in range(150)]
        transaction.keep_letters(STREAM, BatchNumber(3), more, IDS)
    world.reader.malformed = frozenset(range(200))
    outcome = world.run(most=40)
    assert outcome.failed == 153
    assert len(outcome.told) == 101
    assert outcome.told[-1].startswith("More letters were not landed")
