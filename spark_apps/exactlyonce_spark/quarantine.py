"""A batch that failed too often is passed over: its positions move, its rows do not, its ranges are kept. No pyspark here.

It is a landing like any other, under the fence and behind the check of the source, with failures in the place of rows: so the
fingerprints of what was passed over are kept, and the next driver recognises the batch by its ranges. docs/adr/0038. Where
single records failed, the batch lands without those: docs/adr/0045.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from exactlyonce.launch.port import Quarantine
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.publish import failures_of
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus, StreamRow
from exactlyonce.positions.ranges import Positions, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import advance, close
from exactlyonce_spark.landing_checks import require_next, require_start
from exactlyonce_spark.left_out import NotToBeQuarantined, failures_left_out, require_room, within
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import NOTHING_LEFT_OUT, Begun, LeftOut, PlannedBatch, Written, planned_row
from exactlyonce_spark.settling import settled


def is_to_be_quarantined(order: Quarantine, batch: PlannedBatch, begun: Begun) -> bool:
    """Whether this is the very batch that failed too often, with the same ranges, and something of it has not landed."""
    if (order.batch, Positions.from_json(order.until)) != (batch.number, batch.ranges.ends):
        return False
    return any(key not in begun.finished for key in batch.ranges.non_empty())


@dataclass(frozen=True)
class Quarantines:
    """Passes over the batch that one driver is told to, if it is told to, or over the records that its query leaves out."""

    ledger: Ledger
    permit: Permit
    source: SourceCheck
    settings: BatchSettings

    def take(self, batch: PlannedBatch, begun: Begun, log: LogWatch) -> PlannedBatch | None:
        """Pass over this batch where it is the one (None), or return it with the records that it is to land without.

        Nothing is read of a batch that is passed over but the last record of each range. By those it is noticed later when the
        source is replaced.

        Raises:
            what `quarantine_batch` raises; RecordsLost, RecordsReplaced, OriginReplaced, LeaderChanged: nothing was changed.
        """
        order = self.settings.quarantine
        if order is None or order.bisect or not is_to_be_quarantined(order, batch, begun):
            return replace(batch, left_out=self._left_out(batch, not_landed(batch, begun)))
        unread = not_landed(batch, begun)
        log.require(batch.number, unread, batch.origin_ids)
        marked = replace(batch, fingerprints=log.fingerprints(unread))
        reached("quarantine.source-checked", batch.number)
        most = self.settings.most_quarantined
        quarantine_batch(self.ledger, self.permit, marked, begun, self.source.address, order.error, most)
        reached("batch.landed", batch.number)
        return None

    def _left_out(self, batch: PlannedBatch, unread: Ranges) -> LeftOut:
        """Return the records of these ranges that the query leaves out.

        With `commit: Partition` each task records those of its partition, and does not see what the others record meanwhile: so
        it is asked here whether there is room for all of them. Nobody else adds to the quarantine while this driver may land.
        """
        found = within(self.settings.left_out, unread)
        if not found:
            return NOTHING_LEFT_OUT
        if batch.stateful:
            raise NotToBeQuarantined(
                f"Records of batch {batch.number} fail and cannot be quarantined: the query keeps state, which would lack them "
                f"for good. The last error: {found[-1].error}"
            )
        failures, most = failures_left_out(self.source, batch, found), self.settings.most_quarantined
        with self.ledger.transaction() as transaction:
            require_room(transaction, self.permit.stream_id, failures, most, batch.number)
        return LeftOut(failures, most)


def not_landed(batch: PlannedBatch, begun: Begun) -> Ranges:
    """Return the ranges of which no row has landed: with `commit: Partition` some partitions may have."""
    return Ranges({key: offsets for key, offsets in batch.ranges.items() if key not in begun.finished})


def _recognisable(failure: FailureRow, batch: PlannedBatch, stream: StreamRow) -> FailureRow:
    """Return the failure with what tells its records from those of another source, or of another life of the stream."""
    return replace(
        failure,
        origin_id=batch.origin_ids.get(failure.partition.origin, ""),
        fingerprint=batch.fingerprints.get(failure.partition),
        life=stream.life,
    )


def quarantine_batch(
    ledger: Ledger, permit: Permit, batch: PlannedBatch, begun: Begun, address: str, error: str, most: int
) -> None:
    """Move the positions past a batch and record what had not landed of it as quarantined, in one transaction.

    `most` bounds the offsets that the stream has in quarantine, these included.

    Raises:
        NotToBeQuarantined: if the query keeps state, or there is no room; nothing was changed.
        Fenced, LandingRefused: nothing was changed.
        CommitOutcomeUnknown: if the outcome could not be settled.
    """
    if batch.stateful:
        raise NotToBeQuarantined(
            f"Batch {batch.number} failed too often and cannot be quarantined: the query keeps state, which would lack its "
            f"records for good. The last error: {error}"
        )
    row = replace(planned_row(permit, batch, BatchStatus.QUARANTINED, Written(0), None), note=error)
    missing = replace(row, ranges=not_landed(batch, begun))
    failures = failures_of(missing, FailureStatus.QUARANTINED, address, error)

    def once() -> None:
        with ledger.transaction(evicting=True) as transaction:
            stream = fence(transaction, permit, Lock.UPDATE)
            reached("land.fenced", batch.number)
            require_next(stream, batch)
            require_room(transaction, permit.stream_id, failures, most, batch.number)
            landed = transaction.read_positions(permit.stream_id)
            require_start(landed, batch, except_for=begun.finished)
            advance(transaction, permit.stream_id, batch, landed)
            reached("land.positions-advanced", batch.number)
            close(transaction, permit, stream, row, stateful=False)
            transaction.write_failures(permit.stream_id, tuple(_recognisable(row, batch, stream) for row in failures))
            reached("land.before-commit", batch.number)

    settled(ledger, permit, batch, once)
