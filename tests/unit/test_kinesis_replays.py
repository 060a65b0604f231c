"""Replays of a data stream over a ledger in memory: parts end behind records that were read, and what has expired is lost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges
from exactlyonce_spark.connectors.kinesis.dividing import ShardDivider
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_parts import Divided
from exactlyonce_spark.replay_records import RecordsFailed
from exactlyonce_spark.target import DeadLetter
from tests.kinesis_api import SHARD, STREAM, KinesisApi, bounds_of, client_of, range_of
from tests.kinesis_in_memory import aggregated
from tests.ledgers import STREAM as STREAM_ID
from tests.ledgers import started
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.target import MemoryTarget

ALL = [b"a0", b"a1", b"a2", b"b", b"c", b"d0", b"d1", b"e"]


@dataclass
class Stream:
    """A stream over a shard of which a range is in quarantine; `failing` is data that fails."""

    api: KinesisApi
    failing: set[bytes] = field(default_factory=set)
    reads: list[int] = field(default_factory=list)
    before_read: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.database = MemoryDatabase(Hooks(lambda _: None, lambda _label, may_go: None, lambda: "answered"))
        self.source = bounds_of(self.api)
        self.client = client_of(self.api, self.api.time)
        texts = [aggregated(["a0", "a1", "a2"]), b"b", b"c", aggregated(["d0", "d1"]), b"e"]
        (self.first, *_) = self.api.put(b"landed")
        self.numbers = self.api.put(*texts)
        self.ledger = MemoryLedger(self.database)
        started(self.ledger)
        self.quarantine(position_after_record(self.first), position_after_record(self.numbers[-1]))

    def quarantine(self, start: int, end: int) -> None:
        view = self.ledger.view(STREAM_ID)
        assert view is not None
        key = Partition(STREAM, SHARD)
        mark = None if end == SHARD_END else Fingerprint(UserRecord(self.numbers[-1]).position, "")
        row = FailureRow(
            BatchNumber(3), key, start, end, FailureStatus.QUARANTINED, "kinesis", "it failed", fingerprint=mark,
            origin_id=self.source.origin_ids([STREAM])[STREAM], life=view.stream.life,
        )  # fmt: skip
        with self.ledger.transaction() as transaction:
            transaction.write_failures(STREAM_ID, (row,))

    def rows(self, ranges: Ranges) -> Sequence[Hashable]:
        (span,) = ranges.values()
        self.before_read()
        found = range_of(self.client, span.from_offset, span.until_offset)  # a task raises PositionExpired as it is
        self.reads.append(len(found))
        if self.failing.intersection(found):
            raise RecordsFailed("a record fails")
        return found

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        return ()

    def replay(self, *, most: int = 100) -> ReplayOutcome:
        replay = Replay(
            self.ledger, ReplayClaim(STREAM_ID, "mine"), MemoryTarget(self.database, 0), self.source, self, ReplayPace(most),
            ShardDivider(lambda: self.client, STREAM),
        )  # fmt: skip
        return replay.run([RangeKey.of(row) for row in self.with_status(FailureStatus.QUARANTINED)])

    def with_status(self, status: FailureStatus) -> list[FailureRow]:
        rows = self.database.tables.rows.values()
        return [row for row in rows if isinstance(row, FailureRow) and row.status is status]

    @property
    def landed(self) -> list[bytes]:
        """The records in the table, as often as they are there."""
        return sorted(self.database.tables.target.elements())  # type: ignore[arg-type]


@pytest.fixture
def stream() -> Stream:
    return Stream(KinesisApi())


@pytest.mark.parametrize(("most", "reads"), [(100, [8]), (3, [3, 3, 2]), (2, [2, 2, 2, 2]), (1, [1] * 8)])
def test_parts_have_so_many_records_also_where_they_end_inside_aggregates_and_each_lands_once(
    stream: Stream, most: int, reads: list[int]
) -> None:
    outcome = stream.replay(most=most)
    assert (outcome.landed, outcome.told) == (len(ALL), [])
    assert stream.landed == sorted(ALL)
    assert stream.reads == reads
    assert not stream.with_status(FailureStatus.QUARANTINED)


def test_a_record_inside_an_aggregate_that_fails_costs_itself_and_no_other(stream: Stream) -> None:
    stream.failing = {b"a1"}
    outcome = stream.replay()
    assert (outcome.landed, outcome.failed) == (len(ALL) - 1, 1)
    assert stream.landed == sorted(set(ALL) - {b"a1"})
    (left,) = stream.with_status(FailureStatus.QUARANTINED)
    assert (left.from_offset, left.until_offset) == tuple(UserRecord(stream.numbers[0], n).position for n in (1, 2))
    stream.failing = set()
    assert stream.replay().landed == 1
    assert stream.landed == sorted(ALL)


def test_what_has_expired_is_lost_without_a_number_and_what_is_left_lands(stream: Stream) -> None:
    stream.api.expire(3)  # the record that landed, the aggregate and b
    outcome = stream.replay()
    assert (outcome.landed, outcome.lost, outcome.uncounted) == (4, 0, 1)
    assert stream.landed == sorted([b"c", b"d0", b"d1", b"e"])
    (lost,) = stream.with_status(FailureStatus.LOST)
    assert lost.until_offset == UserRecord(stream.numbers[2]).position
    (words,) = outcome.told
    assert "are lost, how many is not known, and it may be none" in words


def test_where_nothing_is_left_all_of_it_is_lost(stream: Stream) -> None:
    stream.api.expire(6)
    outcome = stream.replay()
    assert (outcome.landed, outcome.uncounted, stream.landed) == (0, 1, [])
    assert len(stream.with_status(FailureStatus.LOST)) == 1


def test_what_expires_between_looking_and_reading_is_not_landed_as_if_it_had_been_empty(stream: Stream) -> None:
    expires = iter([4])
    stream.before_read = lambda: stream.api.expire(next(expires, 0))
    outcome = stream.replay(most=3)
    assert stream.landed == sorted([b"d0", b"d1", b"e"])
    assert outcome.landed == 3
    assert (outcome.failed, outcome.uncounted) == (0, 1)


def test_a_stream_that_was_deleted_and_created_again_is_refused_and_nothing_is_given_up(stream: Stream) -> None:
    stream.api.expire(6)
    stream.api.created += timedelta(days=1)
    outcome = stream.replay()
    assert (outcome.landed, outcome.uncounted) == (0, 0)
    assert "deleted and recreated" in outcome.told[0]
    assert len(stream.with_status(FailureStatus.QUARANTINED)) == 1


def test_a_stream_that_is_created_again_while_a_part_is_looked_for_is_refused_too(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ShardDivider.first

    def created_again(divider: ShardDivider, *asked: Any) -> Divided:
        stream.api.expire(6)
        stream.api.created += timedelta(days=1)
        return look(divider, *asked)

    monkeypatch.setattr(ShardDivider, "first", created_again)
    outcome = stream.replay()
    assert (outcome.landed, outcome.uncounted) == (0, 0)
    assert "deleted and recreated" in outcome.told[0]
    assert len(stream.with_status(FailureStatus.QUARANTINED)) == 1


def test_a_range_up_to_the_end_of_a_shard_lands_whole_and_one_without_records_lands_none() -> None:
    stream = Stream(KinesisApi())
    stream.api.close_shard()
    (before,) = stream.with_status(FailureStatus.QUARANTINED)
    with stream.ledger.transaction() as transaction:
        transaction.write_failures(STREAM_ID, (FailureRow(
            before.batch, before.partition, before.from_offset, SHARD_END, FailureStatus.QUARANTINED, "kinesis", "it failed",
            origin_id=before.origin_id, life=before.life,
        ),))  # fmt: skip
    stream.quarantine(TRIM_HORIZON, UserRecord(stream.first).position)
    outcome = stream.replay(most=3)
    assert (outcome.landed, outcome.told) == (len(ALL), [])
    assert stream.landed == sorted(ALL)
    assert {row.status for row in stream.with_status(FailureStatus.REPLAYED)} == {FailureStatus.REPLAYED}
