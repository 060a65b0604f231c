"""A batch as it is planned and written, and what its landing may be refused for. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges


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
class PlannedBatch:
    """A batch as Spark's executed plan has it: its number, all of its ranges, and the ids of its topics.

    `stateful` tells whether its query keeps state in the checkpoint. `fingerprints` are of the last record of each range, as
    far as they were read.
    """

    number: BatchNumber
    ranges: Ranges
    origin_ids: Mapping[str, str]
    stateful: bool = False
    fingerprints: Mapping[Partition, Fingerprint] = field(default_factory=dict)


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
    )
