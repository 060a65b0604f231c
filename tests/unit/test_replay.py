"""The order of a replay's acts over ledger, source and target in memory: what it does where something does not fit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from exactlyonce.errors import OriginMissing, SourceUnreachable, TransactionTooLong
from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.planned_backfills import plan_backfill
from exactlyonce.ledger.replay import ReplayClaim, SinkChanged, claim_ranges, land_pieces
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Ranges
from exactlyonce_spark import replay as module
from exactlyonce_spark.replay import MOST_FAILURES, Replay
from exactlyonce_spark.replay_outcome import ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed
from exactlyonce_spark.target import DeadLetter
from tests.ledgers import P0, P1, STREAM, new_stream, started
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic
from tests.simulation.target import MemoryTarget

CLAIM = ReplayClaim(STREAM, "mine")


@dataclass
class Reader:
    """Reads the topic; `poison` are offsets that fail, `most` is how many records fit into one read."""

    topic: MemoryTopic
    poison: frozenset[int] = frozenset()
    most: int = 1_000_000
    letters: int = 0
    reads: list[Ranges] = field(default_factory=list)

    def rows(self, ranges: Ranges) -> Sequence[Hashable]:
        self.reads.append(ranges)
        rows = [record for key, span in ranges.items() for record in self.topic.read(key, span)]
        if len(rows) > self.most or any(record[2] in self.poison for record in rows):
            raise ValueError("a record fails")
        return rows

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        return [
            DeadLetter(key, span.from_offset, None, None, b"{", "malformed") for key, span in ranges.items()
        ] * self.letters


@dataclass
class World:
    database: MemoryDatabase
    topic: MemoryTopic
    reader: Reader

    def replay(self, *, most: int = 100, is_to_end: object = lambda: False, claim: ReplayClaim = CLAIM) -> Replay:
        ledger, target = MemoryLedger(self.database), MemoryTarget(self.database, 0)
        pace = ReplayPace(most, is_to_end=is_to_end)  # type: ignore[arg-type]
        return Replay(ledger, claim, target, self.topic, self.reader, pace)

    def rows(self, status: FailureStatus) -> list[tuple[str, int, int]]:
        found = [
            row for row in self.database.tables.rows.values() if isinstance(row, FailureRow) and row.status is status
        ]
        return sorted((str(row.partition), row.from_offset, row.until_offset) for row in found)

    def put(self, partition: Partition, start: int, until: int) -> None:
        """Put one more range into quarantine, of an earlier batch."""
        row = next(row for row in self.database.tables.rows.values() if isinstance(row, FailureRow))
        mark = Fingerprint(until - 1, f"id-1 {until - 1}", None, 0)
        more = replace(
            row, batch=BatchNumber(2), partition=partition, from_offset=start, until_offset=until, fingerprint=mark
        )
        with MemoryLedger(self.database).transaction() as transaction:
            transaction.write_failures(STREAM, (more,))

    @property
    def landed(self) -> list[tuple[int, int]]:
        """Partition and offset of each row of the table, as often as it is there."""
        return sorted((row[1], row[2]) for row in self.database.tables.target.elements())  # type: ignore[index]


KEYS = (RangeKey(BatchNumber(3), P0, 10), RangeKey(BatchNumber(3), P1, 10))


@pytest.fixture
def world() -> World:
    """A stream with two ranges of ten records in quarantine."""
    database = MemoryDatabase(Hooks(lambda _: None, lambda _label, may_go: None, lambda: "answered"))
    topic = MemoryTopic({P0: 40, P1: 40})
    ledger = MemoryLedger(database)
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    row = FailureRow(
        BatchNumber(3), P0, 10, 20, FailureStatus.QUARANTINED, "memory", "it failed",
        origin_id="id-1", fingerprint=Fingerprint(19, "id-1 19", None, 0), life=view.stream.life,
    )  # fmt: skip
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (row, replace(row, partition=P1)))
    return World(database, topic, Reader(topic))


def both(offsets: range) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (0, 1) for offset in offsets]


def test_all_of_it_lands_once_and_is_marked(world: World) -> None:
    outcome = world.replay(most=7).run(KEYS)
    assert (outcome.landed, outcome.told) == (20, [])
    assert world.landed == both(range(10, 20))
    assert world.rows(FailureStatus.REPLAYED)
    assert not world.rows(FailureStatus.REPLAYING)
    assert all(ranges.record_count <= 7 for ranges in world.reader.reads)


def test_a_replay_for_the_sink_that_a_stream_has_left_writes_nothing_there(world: World) -> None:
    """Nor does it say that the rows do not fit, where the former sink's table has changed since."""
    ledger = MemoryLedger(world.database)
    claim = replace(CLAIM, sink="table orders")
    piece = Piece(claim_ranges(ledger, claim, KEYS).rows[0], 20)
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket", sink="table orders_new")
    with pytest.raises(SinkChanged, match="lands into table orders_new"):
        land_pieces(ledger, claim, [piece], lambda _: pytest.fail("it was written"))


def test_a_record_that_fails_again_costs_itself_and_no_other(world: World) -> None:
    world.reader.poison = frozenset({13})
    outcome = world.replay().run(KEYS)
    assert (outcome.landed, outcome.failed) == (18, 2)
    assert world.landed == [(partition, offset) for partition, offset in both(range(10, 20)) if offset != 13]
    assert world.rows(FailureStatus.QUARANTINED) == [("orders-0", 13, 14), ("orders-1", 13, 14)]
    assert all("a record fails" in words for words in outcome.told)
    world.reader.poison = frozenset()
    left = [RangeKey(BatchNumber(3), partition, 13) for partition in (P0, P1)]
    assert world.replay().run(left).landed == 2
    assert world.landed == both(range(10, 20))


def test_a_record_of_a_backfill_fails_and_in_its_next_run_it_fails_again(world: World) -> None:
    world.reader.poison = frozenset({13})
    part = FailureRow(
        OF_NO_BATCH, P0, 10, 20, FailureStatus.QUARANTINED, "memory", "",
        origin_id="id-1", fingerprint=Fingerprint(19, "id-1 19", None, 0),
    )  # fmt: skip
    plan_backfill(MemoryLedger(world.database), STREAM, Backfill("january", "table v2", "asked", (part,)))
    first, second = (world.replay(claim=ReplayClaim(STREAM, token, "table v2", "january")).run(()) for token in "ab")
    assert (first.landed, first.told) == (9, ["The record 0/orders-0/13 failed: a record fails"])
    assert (second.landed, second.told) == (0, ["The record 0/orders-0/13 failed again: a record fails"])


def test_where_every_record_fails_the_replay_ends_and_all_of_it_is_in_quarantine(world: World) -> None:
    world.reader.poison = frozenset(range(100))
    outcome = world.replay().run(KEYS)
    assert (outcome.landed, outcome.failed) == (0, MOST_FAILURES + 1)
    assert "The range 3/orders-1/11 of 9 records is left untried, since too many failed." in outcome.told
    assert world.landed == []
    held = world.rows(FailureStatus.QUARANTINED)
    assert sum(end - start for _, start, end in held) == 20
    assert not world.rows(FailureStatus.REPLAYING)


def test_ranges_that_fail_again_keep_none_behind_them_from_landing_and_each_is_named(world: World) -> None:
    row = next(it for it in world.database.tables.rows.values() if isinstance(it, FailureRow))
    # Each of one record, and older than the range: so is what a bisection has left out, or a replay has put back.
    singles = tuple(replace(row, from_offset=at, until_offset=at + 1, fingerprint=None) for at in range(20, 36))
    with MemoryLedger(world.database).transaction() as transaction:
        transaction.write_failures(STREAM, singles)
    world.reader.poison = frozenset(range(20, 35))
    wanted = [RangeKey.of(it) for it in singles]
    outcome = world.replay().run([*wanted, *KEYS])
    assert len(world.reader.poison) > MOST_FAILURES
    assert world.landed == sorted([*both(range(10, 20)), (0, 35)]), "the last of all is behind those that fail"
    assert [words.partition(" failed")[0] for words in outcome.told] == [f"The record {it}" for it in wanted[:-1]]


def test_a_range_in_which_everything_fails_is_left_for_the_next_one_which_lands(world: World) -> None:
    world.put(P0, 20, 40)
    world.reader.poison = frozenset(range(20, 40))
    outcome = world.replay().run([*KEYS, RangeKey(BatchNumber(2), P0, 20)])
    assert world.landed == both(range(10, 20)), "the range of the earlier batch failed first"
    assert outcome.failed == MOST_FAILURES


def test_where_every_record_fails_each_further_range_costs_one_read(world: World) -> None:
    for number in range(10):
        world.put(P0, 20 + 2 * number, 22 + 2 * number)
    wanted = [RangeKey(BatchNumber(2), P0, 20 + 2 * number) for number in range(10)]
    world.reader.poison = frozenset(range(40))
    world.replay(most=64).run([*wanted, *KEYS])
    sizes = [ranges.record_count for ranges in world.reader.reads]
    halvings = sizes.index(1)
    first_nine, others = 2 * (MOST_FAILURES - 1), 1 + len(KEYS)
    assert sizes[halvings:] == [1] * (first_nine + others), "the first nine both records, each other range one"


def test_of_many_records_that_fail_among_good_ones_no_more_than_a_bound_are_looked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FAILURES_IN_ALL", 4)
    world.reader.poison = frozenset(range(10, 20, 2))
    outcome = world.replay().run(KEYS)
    assert outcome.failed == 5, "four of the first range, and the first one of the second"
    assert world.landed == [(0, offset) for offset in (11, 13, 15)]


def test_records_that_the_transform_leaves_out_have_no_row_and_their_range_is_not_in_quarantine_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.reader, "rows", lambda _ranges: [])
    outcome = world.replay().run(KEYS)
    assert (outcome.landed, outcome.rows, world.landed) == (20, 0, [])
    assert not world.rows(FailureStatus.QUARANTINED)
    assert world.rows(FailureStatus.REPLAYED) == [("orders-0", 10, 20), ("orders-1", 10, 20)]


def test_rows_that_are_too_many_for_one_read_land_in_smaller_parts(world: World) -> None:
    world.reader.most = 3
    assert world.replay().run(KEYS).landed == 20
    assert world.landed == both(range(10, 20))


def test_what_retention_took_is_lost_by_its_number_and_the_rest_lands(world: World) -> None:
    world.topic.starts[P0] = 14
    outcome = world.replay().run(KEYS)
    assert (outcome.lost, outcome.landed) == (4, 16)
    assert world.rows(FailureStatus.LOST) == [("orders-0", 10, 14)]
    assert "4 records of the range 3/orders-0/10 are lost" in outcome.told[0]
    assert len(world.landed) == 16


def test_records_of_another_topic_of_the_same_name_do_not_land(world: World) -> None:
    world.topic.recreate("orders")
    world.topic.ends.update({P0: 40, P1: 40})
    outcome = world.replay().run(KEYS)
    assert world.landed == []
    assert [words for words in outcome.told if "id-1-recreated" in words] == outcome.told
    assert len(world.rows(FailureStatus.QUARANTINED)) == 2


def test_a_topic_that_is_gone_leaves_its_ranges_in_quarantine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_partitions: object) -> object:
        raise OriginMissing("The topic orders does not exist.")

    monkeypatch.setattr(world.topic, "now", missing)
    outcome = world.replay().run(KEYS)
    assert outcome.told == ["The topic orders does not exist."]
    assert len(world.rows(FailureStatus.QUARANTINED)) == 2


def test_a_transaction_that_takes_too_long_is_tried_with_fewer_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(ledger: object, claim: object, pieces: Sequence[object], write: object) -> object:
        if sum(piece.offsets.record_count for piece in pieces) > 5:  # type: ignore[attr-defined]
            raise TransactionTooLong("it took longer than 15 minutes")
        return land_pieces(ledger, claim, pieces, write)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "land_pieces", slow)
    assert world.replay().run(KEYS).landed == 20
    assert world.landed == both(range(10, 20))


def test_a_replay_that_is_ended_puts_the_rest_back(world: World) -> None:
    ends = iter([False, True])
    outcome = world.replay(most=5, is_to_end=lambda: next(ends)).run(KEYS)
    assert outcome.landed == 5
    assert world.rows(FailureStatus.QUARANTINED) == [("orders-0", 15, 20), ("orders-1", 10, 20)]


def test_a_store_that_does_not_answer_ends_the_replay_and_the_ranges_are_put_back(world: World) -> None:
    world.topic.up = False
    with pytest.raises(SourceUnreachable):
        world.replay().run(KEYS)
    assert len(world.rows(FailureStatus.QUARANTINED)) == 2
    assert world.landed == []


def test_an_error_of_a_store_is_not_taken_for_one_of_the_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_ranges: Ranges) -> Sequence[Hashable]:
        raise SourceUnreachable("the brokers do not answer")

    monkeypatch.setattr(world.reader, "rows", unreachable)
    with pytest.raises(SourceUnreachable):
        world.replay().run(KEYS)
    assert not issubclass(SourceUnreachable, RecordsFailed)
    assert sum(end - start for _, start, end in world.rows(FailureStatus.QUARANTINED)) == 20


def test_malformed_records_become_dead_letters_in_the_transaction_that_lands_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, list[int], dict[str, str]]] = []

    def write(
        _target: object, _transaction: object, batch: int, letters: Sequence[DeadLetter], ids: dict[str, str]
    ) -> int:
        written.append((batch, [letter.offset for letter in letters], ids))
        if len(written) == 1:
            raise ValueError("a letter does not fit")
        return len(letters)

    monkeypatch.setattr(MemoryTarget, "write_dead_letters", write)
    world.reader.letters = 1
    assert world.replay().run(KEYS).landed == 20
    assert written[0] == (3, [10, 10], {"orders": "id-1"})
    assert len(written) > 2, "the rows that stood beside the first ones were rolled back with them, and landed later"
    assert world.landed == both(range(10, 20))
