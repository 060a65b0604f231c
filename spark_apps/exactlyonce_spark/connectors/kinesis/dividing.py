"""Ranges of shards in parts, for a replay: each ends behind a user record that was read, or where its range does.

Sequence numbers are sparse, so nobody can tell where half of a range is before it is read. A replay reads each part once to
find out where it ends, and once more to land it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import UserRecord, position_after_record, to_text
from exactlyonce.connectors.kinesis.reading import PositionExpired, RangeIncomplete, first_record, read_range
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.replay_parts import PART_BYTES, Divided, Expired, Part, Unfit

_NAME = "The record"


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found when a range was read for so many records: `ends` are the positions behind each."""

    partition: Partition
    offsets: OffsetRange
    most: int
    ends: tuple[int, ...]

    def answers(self, partition: Partition, offsets: OffsetRange, most: int) -> bool:
        """Whether nothing has to be read: a single record is looked for again, since it may have expired where it failed."""
        return (self.partition, self.offsets) == (partition, offsets) and 1 < most <= self.most


@dataclass
class ShardDivider:
    """A `RangeDivider` of one data stream, which is `named` in calls."""

    client: Callable[[], KinesisClient]
    named: str
    looked_at: int = 0
    _looked: _Looked | None = None

    def first(self, partition: Partition, offsets: OffsetRange, most: int) -> Divided:
        """Return the first user records of a range, at most so many, as far as the shard still holds them.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        shard = str(partition.key)
        try:
            if self._looked is None or not self._looked.answers(partition, offsets, most):
                self._looked = _Looked(partition, offsets, most, self._ends(shard, offsets, most))
        except PositionExpired as problem:
            return self._expired(shard, offsets, problem)
        except RangeIncomplete as problem:
            return Unfit(offsets.until_offset, str(problem), "What is left of the range")
        ends = self._looked.ends[:most]
        if not ends:
            return Part(offsets.until_offset, 0, 0, is_single=True, name=_NAME)
        return Part(ends[-1], len(ends), len(ends), len(ends) == 1, _NAME)

    def forget(self) -> None:
        """Read again where a part ends."""
        self._looked = None

    def text(self, offsets: OffsetRange) -> str:
        """Return a range by the numbers of its records."""
        return offsets.text(to_text)

    def _ends(self, shard: str, offsets: OffsetRange, most: int) -> tuple[int, ...]:
        """Return the positions behind the first user records of a range; behind its last one it is where the range ends.

        A record is known to be the last one where another follows, or the shard says so: `read_range` requires that.
        """
        ends: list[int] = []
        before: UserRecord | None = None
        size = 0
        for user in read_range(self.client(), self.named, shard, offsets.from_offset, offsets.until_offset):
            record = user.record
            self.looked_at += 1
            if before is not None:
                is_of_same = before.sequence_number == record.sequence_number
                ends.append(record.position if is_of_same else position_after_record(before.sequence_number))
                if len(ends) == most or size >= PART_BYTES:
                    return tuple(ends)
            before, size = record, size + len(user.data)
        return tuple(ends) if before is None else (*ends, offsets.until_offset)

    def _expired(self, shard: str, offsets: OffsetRange, problem: PositionExpired) -> Expired:
        """Return what of a range is gone: all that lies before the oldest record which the shard still holds.

        Raises:
            PositionExpired: if that lies before the range, so that nothing says what is gone.
        """
        oldest = first_record(self.client(), self.named, shard)
        if oldest is None:
            return Expired(offsets.until_offset, str(problem))
        until = min(offsets.until_offset, UserRecord(oldest.sequence_number).position)
        if until <= offsets.from_offset:
            raise problem
        return Expired(until, str(problem))
