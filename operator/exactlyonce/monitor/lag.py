"""The arithmetic of lag. Performs no I/O and reads no clock.

Lag in records is counted in offsets, from where the ledger says that a stream has landed to where the source ends now.
Lag in seconds is told as a moment, the timestamp of the oldest record that has not landed: the age of it grows by
itself, whatever is down. Where a source does not tell where it ends, and its positions count no records (`PARTITION_END` is
latest), lag in records is not known, and the oldest record is looked for each time. All moments are seconds since 1970, as
Prometheus' are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from exactlyonce.positions.ranges import PARTITION_END, Partition
from exactlyonce.source.port import Bounds

_MARKS = 16
_WINDOW_SECONDS = 86_400.0


class PartitionState(StrEnum):
    """Whether records of a partition wait to be landed, as far as is known."""

    BEHIND = "behind"
    CAUGHT_UP = "caught_up"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Oldest:
    """The timestamp of the first record at or after a position; None where there is no record before `latest`.

    Between two offsets there need not be a record: transactions leave markers, and compaction leaves gaps.
    """

    position: int
    timestamp: float | None
    latest: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a partition began at a moment."""

    at: float
    earliest: int


@dataclass(frozen=True, slots=True)
class Movement:
    """How a partition's earliest offset has moved: the moments at which another one was seen, first sight included.

    Retention deletes whole segments, so it moves by jumps; a day of them tells its speed.
    """

    marks: tuple[Mark, ...] = ()

    def seen(self, earliest: int, at: float) -> Movement:
        """Return the movement after another look."""
        if self.marks and earliest < self.marks[-1].earliest:
            return Movement((Mark(at, earliest),))  # a topic recreated starts over
        kept = tuple(mark for mark in self.marks[:-1] if at - mark.at <= _WINDOW_SECONDS) + self.marks[-1:]
        if kept and kept[-1].earliest == earliest:
            return Movement(kept) if len(kept) != len(self.marks) else self
        return Movement((*kept, Mark(at, earliest))[-_MARKS:])

    def offsets_per_second(self, at: float) -> float:
        """Return how fast the earliest offset has moved; 0.0 where it has not been seen to move."""
        if len(self.marks) < 2 or at <= self.marks[0].at:
            return 0.0
        return (self.marks[-1].earliest - self.marks[0].earliest) / (at - self.marks[0].at)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of one stream at one moment."""

    landed: int
    bounds: Bounds
    movement: Movement = Movement()
    oldest: Oldest | None = None

    @property
    def is_counted(self) -> bool:
        """Whether it is known how many offsets have not landed."""
        return self.bounds.latest != PARTITION_END or self.landed == PARTITION_END

    @property
    def lag_records(self) -> int | None:
        """How many offsets have not landed; None where it is not known.

        Those that retention took before they landed count: they have not landed.
        """
        return max(self.bounds.latest - self.landed, 0) if self.is_counted else None

    @property
    def may_wait(self) -> bool:
        """Whether records wait to be landed, as far as positions tell."""
        return self.lag_records != 0

    @property
    def is_held_back(self) -> bool:
        """Whether the stream has landed all that it may read, and an open transaction holds back what follows."""
        return self.bounds.held_back > 0 and self.landed >= self.bounds.latest - self.bounds.held_back

    @property
    def is_beyond_source(self) -> bool:
        """Whether more has landed than the source holds: it is another topic than the one that was read, or was cut."""
        return self.landed > self.bounds.latest

    @property
    def is_caught_up(self) -> bool:
        """Whether it is known that no record waits."""
        if self.is_counted:
            return not self.may_wait
        return self.oldest is not None and self.oldest.position == self.landed and self.oldest.timestamp is None

    @property
    def state(self) -> PartitionState:
        """Whether records wait in it; a shard that was read to its end is ended, whether or not it is still listed."""
        if self.landed == PARTITION_END:
            return PartitionState.ENDED
        if self.is_caught_up:
            return PartitionState.CAUGHT_UP
        return PartitionState.BEHIND if self.is_counted or self.oldest_timestamp is not None else PartitionState.UNKNOWN

    @property
    def oldest_timestamp(self) -> float | None:
        """The timestamp of the oldest record that has not landed; None where none waits or it is not known."""
        return None if self.oldest is None or not self.may_wait else self.oldest.timestamp

    @property
    def must_be_dated(self) -> bool:
        """Whether a record must be fetched to know how old the oldest one is: only where records wait, once a position.

        Where nobody knows whether records wait, the next look may find one, unless the source tells nobody but its driver.
        """
        if not self.may_wait or not self.bounds.tells_ages:
            return False
        known = self.oldest
        if known is None or known.position != self.landed:
            return True
        if not self.is_counted:
            return known.timestamp is None
        return known.timestamp is None and known.latest != self.bounds.latest

    def retention_seconds(self, at: float) -> float | None:
        """Return how long retention needs to reach the landed position; None where nothing waits or it does not move.

        A source that tells how long it keeps a record takes the oldest one when it is that old.
        """
        if self.bounds.retention_seconds is not None:
            oldest = self.oldest_timestamp
            return None if oldest is None else max(oldest + self.bounds.retention_seconds - at, 0)
        speed = self.movement.offsets_per_second(at)
        if not self.may_wait or speed <= 0:
            return None
        return max(self.landed - self.bounds.earliest, 0) / speed


PartitionLags = Mapping[Partition, PartitionLag]


def measured(
    landed: Mapping[Partition, int], bounds: Mapping[Partition, Bounds], before: PartitionLags, at: float
) -> dict[Partition, PartitionLag]:
    """Return the lag of each partition in `bounds`, with what was known of it before.

    A partition that the ledger does not know stands at 0, as it does for who lands. The timestamp of an older position
    stays until the record at the new one was fetched: it is too old then, never too young.
    """
    found = {}
    for partition, edges in bounds.items():
        known = before.get(partition)
        lag = PartitionLag(
            landed.get(partition, 0),
            edges,
            (Movement() if known is None else known.movement).seen(edges.earliest, at),
            None if known is None else known.oldest,
        )
        found[partition] = lag if lag.may_wait else replace(lag, oldest=None)
    return found


def with_landed(lags: PartitionLags, landed: Mapping[Partition, int]) -> dict[Partition, PartitionLag]:
    """Return what is known when the ledger was looked at again and the source did not answer."""
    return {partition: replace(lag, landed=landed.get(partition, lag.landed)) for partition, lag in lags.items()}


def dated(lags: PartitionLags, found: Mapping[Partition, float | None]) -> dict[Partition, PartitionLag]:
    """Return the lags with the timestamps that were fetched; None stands for a partition without a record that waits."""
    return {
        partition: replace(lag, oldest=Oldest(lag.landed, found[partition], lag.bounds.latest))
        if partition in found
        else lag
        for partition, lag in lags.items()
    }


def positions_to_date(lags: PartitionLags) -> dict[Partition, int]:
    """Return the positions whose record must be fetched for its timestamp; never before what the source holds."""
    return {partition: max(lag.landed, lag.bounds.earliest) for partition, lag in lags.items() if lag.must_be_dated}


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of a whole stream. `oldest_timestamp` is None where no record waits, or its age is not known.

    `records` is None where some partition does not tell how many records wait; `is_caught_up` says that none does.
    `held_back_records` of them no reader at read_committed sees yet; `held_back_since` is the timestamp of the first one, in
    the partitions where nothing else waits.
    """

    records: int | None
    oldest_timestamp: float | None
    retention_seconds: float | None
    is_caught_up: bool
    held_back_records: int = 0
    held_back_since: float | None = None


def total(lags: PartitionLags, at: float) -> StreamLag:
    """Return the lag of a stream from that of its partitions."""
    timestamps = [lag.oldest_timestamp for lag in lags.values() if lag.oldest_timestamp is not None]
    remaining = [seconds for lag in lags.values() if (seconds := lag.retention_seconds(at)) is not None]
    counted = [lag.lag_records for lag in lags.values() if lag.lag_records is not None]
    is_caught_up = all(lag.is_caught_up for lag in lags.values())
    records = sum(counted) if len(counted) == len(lags) else 0 if is_caught_up else None
    since = [lag.oldest_timestamp for lag in lags.values() if lag.is_held_back and lag.oldest_timestamp is not None]
    return StreamLag(
        records,
        min(timestamps, default=None),
        min(remaining, default=None),
        is_caught_up,
        sum(lag.bounds.held_back for lag in lags.values()),
        min(since, default=None),
    )
