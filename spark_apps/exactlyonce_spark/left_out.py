"""Records that fail by themselves: a batch lands without them, and its landing keeps them in quarantine. No pyspark here.

A query that leaves records out does so in every batch that it runs. Whatever the number of the batch, and whatever it was that
asked for it: what lies in its ranges is written down in the transaction that moves the positions past it. docs/adr/0045.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.errors import Refused
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.room import counted_failures, why_no_room
from exactlyonce.ledger.rows import FailureRow, FailureStatus, StreamRow
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.planned import LeftOut, PlannedBatch
from exactlyonce_spark.source_check import RecordNotShown, RecordsReplaced


class NotToBeQuarantined(Refused):
    """The stream may not continue without the records, so it halts as it would without a quarantine."""


@dataclass(frozen=True, slots=True)
class FailingRecords:
    """Records of one partition that failed when they were tried, and with what.

    `fingerprint` is of the last of them, read before they were tried; None where the source showed none.
    """

    partition: Partition
    offsets: OffsetRange
    error: str
    fingerprint: Fingerprint | None = None

    def within(self, offsets: OffsetRange) -> FailingRecords | None:
        """Return those of them that are in a range of their partition; None where none is."""
        first = max(self.offsets.from_offset, offsets.from_offset)
        until = min(self.offsets.until_offset, offsets.until_offset)
        if first >= until:
            return None
        kept = self.fingerprint if until == self.offsets.until_offset else None
        return replace(self, offsets=OffsetRange(first, until), fingerprint=kept)


def within(found: Collection[FailingRecords], ranges: Ranges) -> tuple[FailingRecords, ...]:
    """Return those of the records that are in these ranges."""
    parts = (one.within(ranges[one.partition]) for one in found if one.partition in ranges)
    return tuple(part for part in parts if part is not None)


def spots_of(found: Collection[FailingRecords]) -> tuple[tuple[Partition, OffsetRange], ...]:
    """Return where the records are, as a query leaves them out."""
    return tuple((one.partition, one.offsets) for one in found)


def last_of_each(source: SourceCheck, offsets: Sequence[tuple[Partition, OffsetRange]]) -> list[Fingerprint | None]:
    """Return the fingerprint of the last record of each range; several ranges may be of one partition."""
    found: list[Fingerprint | None] = [None] * len(offsets)
    left = list(range(len(offsets)))
    while left:
        now: dict[Partition, int] = {}
        for place in left:
            now.setdefault(offsets[place][0], place)
        read: Mapping[Partition, Fingerprint] = source.last_records(
            Ranges({key: offsets[place][1] for key, place in now.items()})
        ).result()
        for key, place in now.items():
            found[place] = read.get(key)
        left = [place for place in left if place not in now.values()]
    return found


def failures_left_out(
    source: SourceCheck, batch: PlannedBatch, found: Sequence[FailingRecords]
) -> tuple[FailureRow, ...]:
    """Return what the landing of a batch records of what it leaves out, if it still is what failed.

    Raises:
        RecordsReplaced: if another record stands where one has failed: it is to be tried, and not to be left out.
        RecordNotShown: if the source did not show what stands there now, in time or at all: that tells nothing of the records,
            and is no fault of the batch; the next driver looks again.
    """
    fingerprints = last_of_each(source, [(one.partition, one.offsets) for one in found])
    failures = []
    for one, fingerprint in zip(found, fingerprints, strict=True):
        if one.fingerprint is not None and fingerprint is None:
            raise RecordNotShown(
                f"The source did not show the record at the end of {one.partition} {one.offsets}, which failed and is to be "
                f"left out; nothing of batch {batch.number} was landed."
            )
        difference = None if one.fingerprint is None else one.fingerprint.difference(fingerprint)
        if difference is not None:
            raise RecordsReplaced(
                f"Another record stands at the end of {one.partition} {one.offsets} than the one that failed there "
                f"({difference}); nothing of batch {batch.number} was landed."
            )
        failures.append(
            FailureRow(
                batch.number,
                one.partition,
                one.offsets.from_offset,
                one.offsets.until_offset,
                FailureStatus.QUARANTINED,
                source.address,
                one.error,
                origin_id=batch.origin_ids.get(one.partition.origin, ""),
                fingerprint=fingerprint,
            )
        )
    return tuple(failures)


def require_room(
    transaction: LedgerTransaction, stream_id: str, failures: Sequence[FailureRow], most: int, batch: BatchNumber
) -> None:
    """Require that there is room for the failures of a batch, with at most so many offsets in quarantine.

    Raises:
        NotToBeQuarantined: if there is none.
    """
    kept = counted_failures(transaction, stream_id)
    why = why_no_room(kept, (*kept, *failures), most, transaction.room)
    if why is not None:
        raise NotToBeQuarantined(
            f"Batch {batch} failed too often and is not quarantined: {why}; or fix what fails. Then start the stream again. "
            f"The last error: {failures[-1].error}"
        )


def keep_left_out(transaction: LedgerTransaction, stream: StreamRow, batch: BatchNumber, left_out: LeftOut) -> None:
    """Record in quarantine what a landing leaves out, in the very transaction that moves the positions past it.

    Raises:
        NotToBeQuarantined: if too much would be in quarantine.
    """
    failures = left_out.failures
    if not failures:
        return
    require_room(transaction, stream.stream_id, failures, left_out.most, batch)
    transaction.write_failures(stream.stream_id, tuple(replace(row, life=stream.life) for row in failures))
    reached("land.left-out-kept", batch)


@rerun_after_lost_race
def left_out_of_decided(ledger: Ledger, permit: Permit) -> tuple[tuple[Partition, OffsetRange], ...]:
    """Return the records that the decided batch of a sink of two phases is to land without, whatever became of them since.

    Rows that the sink has aborted are made again without them.

    Raises:
        Fenced: if this process may not land any more.
    """
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
        decided = transaction.read_decided(permit.stream_id)
        if decided is None:
            return ()
        statuses = (*HELD, FailureStatus.REPLAYED, FailureStatus.LOST, FailureStatus.GIVEN_UP)
        rows = [row for status in statuses for row in transaction.read_failures(permit.stream_id, status)]
    return tuple(
        (row.partition, OffsetRange(row.from_offset, row.until_offset)) for row in rows if row.batch == decided.batch
    )
