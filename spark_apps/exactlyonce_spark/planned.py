"""A batch as it is planned and written, and what its landing may be refused for. Performs no I/O; no pyspark here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges
from exactlyonce_spark.target import DeadLetter


class LandingRefused(ExactlyOnceError):
    """What the batch would land does not follow on what has landed; nothing was written."""


class BatchPlannedOtherwise(LandingRefused):
    """A batch of this number landed with other ranges."""


class PositionsDiffer(LandingRefused):
    """The batch does not start where the sink stands."""


class BatchNotRecorded(LandingRefused):
    """The ledger does not know the batch in progress that a partition is of: a failover lost its record."""


class OriginReplaced(LandingRefused):
    """An origin was deleted and recreated since the stream first read it."""


class StagedRowsLost(ExactlyOnceError):
    """Fewer or more staged rows are there than the tasks wrote: the database crashed in between. The batch is run again."""


def require_staged(batch: BatchNumber, expected: int, found: int) -> None:
    """Require that all rows that the tasks staged are there.

    Raises:
        StagedRowsLost: if they are not.
    """
    if found != expected:
        raise StagedRowsLost(
            f"Batch {batch} staged {expected} rows and {found} are there; it was rolled back and runs again."
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records of which a batch makes no row, because they fail by themselves; its landing keeps them in quarantine.

    `failures` are without the life of the stream, which the landing knows; `most` bounds the offsets that may be in quarantine.
    """

    failures: tuple[FailureRow, ...] = ()
    most: int = 0

    @property
    def note(self) -> str:
        """What the batch's row says of them; empty where there are none."""
        count = sum(row.offset_count for row in self.failures)
        return f"It landed without {count} of its records, which are in quarantine." if count else ""

    def without(self, letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        """Return the malformed records that are not left out: one that is in quarantine is no dead letter as well.

        A part that could not be divided may hold some. Of each record one of both tells, or it would be replayed from either.
        """
        spans: dict[Partition, list[tuple[int, int]]] = {}
        for row in sorted(self.failures, key=lambda row: row.from_offset):
            spans.setdefault(row.partition, []).append((row.from_offset, row.until_offset))
        return [letter for letter in letters if not _holds(spans.get(letter.partition, []), letter.offset)]

    def of(self, partition: Partition) -> LeftOut:
        """Return what is left out of one partition."""
        return replace(self, failures=tuple(row for row in self.failures if row.partition == partition))


def _holds(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether one of the spans, which are in order and do not overlap, holds an offset."""
    place = bisect_right(spans, offset, key=lambda span: span[0])
    return place > 0 and offset < spans[place - 1][1]


NOTHING_LEFT_OUT = LeftOut()


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as Spark's executed plan has it: its number, all of its ranges, and the ids of its topics.

    `stateful` tells whether its query keeps state in the checkpoint. `fingerprints` are of the last record of each range, as
    far as they were read. `left_out` are records of the ranges that its query does not read.
    """

    number: BatchNumber
    ranges: Ranges
    origin_ids: Mapping[str, str]
    stateful: bool = False
    fingerprints: Mapping[Partition, Fingerprint] = field(default_factory=dict)
    left_out: LeftOut = NOTHING_LEFT_OUT


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch's writer wrote, as far as it is known."""

    rows: int | None
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class AlreadyLanded:
    """The batch, or the partition, landed before with identical ranges; nothing is to be written."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The batch has not landed. `finished` are the partitions that have landed already (`commit: Partition`).

    `fingerprints` are of the last landed record of each partition.
    """

    finished: frozenset[Partition] = frozenset()
    fingerprints: Mapping[Partition, Fingerprint] = field(default_factory=dict)


def planned_row(
    permit: Permit, batch: PlannedBatch, status: BatchStatus, written: Written, records_read: int | None
) -> BatchRow:
    """Return the row of a batch as this permit writes it. Performs no I/O."""
    return BatchRow(
        batch=batch.number,
        epoch=permit.epoch,
        status=status,
        ranges=batch.ranges,
        records_read=records_read,
        rows_written=written.rows,
        dead_letters=written.dead_letters,
        note=batch.left_out.note,
    )
