"""Publish a generation: the one act that makes a checkpoint directory the stream's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import lock_unclaimed
from exactlyonce.ledger.held import held_failures
from exactlyonce.ledger.known_loads import NO_LOADS, KnownLoads
from exactlyonce.ledger.letters import set_backs_of
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.read_again import decided_of, read_again
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.room import TooMuchInQuarantine, counted_failures, why_no_room
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    FailureRow,
    FailureStatus,
    LandedPositions,
    Owner,
    QueryMark,
    StreamRow,
)
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions, Ranges


class PositionsMoved(ExactlyOnceError):
    """The ledger is not at what was observed; look again."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A seeded generation to publish under an epoch.

    `seed_batch` is the empty batch the generation starts with; `before` is where the stream stood when the decision was
    made and `after` where the seed stands: the same, unless the verdict moves the position. `given_up` are ranges
    whose records take no effect because of the move. `note` says why the generation was made, `query` what for.
    With `goes_on` the generation starts with no batch of its own, but after the landed one, whose row stays. `resets`: a person
    set the positions, so that what was given up before is no loss where it is read again. With `most_quarantined`, no more
    offsets than that may be in quarantine then. `settlement` is of a load that the sink has and the ledger did not know.
    """

    epoch: Epoch
    generation: int
    path: str
    seed_batch: BatchNumber
    before: Positions
    after: LandedPositions
    note: str
    query: QueryMark
    given_up: tuple[FailureRow, ...] = ()
    goes_on: bool = False
    resets: bool = False
    most_quarantined: int | None = None
    settlement: Settlement | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """New facts of a stream's identity to record: its owner, its database, its token.

    A stream that `starts_over` knows nothing of what its sink has of its life before.
    """

    owner: Owner
    database: DatabaseIdentity
    token: str
    starts_over: bool = False


@rerun_after_lost_race
def publish(ledger: Ledger, stream_id: str, publication: Publication) -> None:
    """Make a seeded generation the stream's, and its seed the landed batch; safe to repeat.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
        PositionsMoved: if the ledger stands elsewhere than the decision saw, or holds a taken batch, whose loss is recorded
            before a generation is published; or a replay has decided what a reset would have the stream read again; or it
            has another load to settle than the one that a person has answered for.
        TooMuchInQuarantine: if there is no room for what is given up; nothing was changed.
    """
    with ledger.transaction(evicting=True) as transaction:
        row = lock_unclaimed(transaction, stream_id, publication.epoch)
        if row.checkpoint_path == publication.path:
            return
        landed = transaction.read_positions(stream_id)
        if landed.positions != publication.before:
            raise PositionsMoved(
                f"{stream_id} stands at {landed.positions} in the ledger, not at {publication.before} as observed."
            )
        if publication.goes_on and row.landed_batch != publication.seed_batch:
            raise PositionsMoved(
                f"{stream_id} has landed batch {row.landed_batch} in the ledger, not {publication.seed_batch} as observed."
            )
        _require_none_taken(transaction, stream_id, row.landed_batch)
        loads = row.loads if publication.settlement is None else settled_loads(row, publication.settlement)
        counts_records = publication.most_quarantined is not None
        kept = counted_failures(transaction, stream_id, counts_records=counts_records)
        if landed != publication.after:
            if row.landed_batch is not None:  # else nothing was ever quarantined
                _release_what_is_read_again(transaction, stream_id, publication, landed)
            transaction.set_positions(stream_id, publication.after)
        transaction.supersede_batches(stream_id, row.landed_batch)
        if publication.settlement is not None and publication.settlement.row is not None:
            _write_found(transaction, stream_id, publication.settlement.row)
        if not publication.goes_on:
            transaction.write_batch(stream_id, _seed_row(publication))
        transaction.write_failures(stream_id, publication.given_up)
        then = counted_failures(transaction, stream_id, counts_records=counts_records)
        why = why_no_room(kept, then, publication.most_quarantined, transaction.room)
        if why is not None:
            raise TooMuchInQuarantine(
                f"No generation of {stream_id} is published with the ranges that it would skip: {why}. Nothing was changed."
            )
        transaction.write_query(stream_id, publication.query)
        transaction.update_stream(
            replace(
                row,
                landed_batch=publication.seed_batch,
                generation=publication.generation,
                checkpoint_path=publication.path,
                writer=None,
                # Whether all that has landed is shown stays as it was: a new generation shows nothing.
                writer_released=row.writer_released or row.landed_batch is None,
                loads=loads,
            )
        )


def settled_loads(row: StreamRow, settlement: Settlement) -> KnownLoads:
    """Return what a stream's row says of its loads once one is settled that was found.

    Raises:
        PositionsMoved: if the row has another one to settle, or none.
    """
    found = row.loads.found
    if found is None or found.name != settlement.found.name:
        raise PositionsMoved(
            f"The ledger of {row.stream_id} has {'no load' if found is None else found.name} to settle, not "
            f"{settlement.found.name} as observed."
        )
    return settlement.settled(row.loads)


@rerun_after_lost_race
def adopt(ledger: Ledger, stream_id: str, epoch: Epoch, adoption: Adoption) -> None:
    """Record a new owner, database or token of a stream; safe to repeat.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
    """
    with ledger.transaction(evicting=True) as transaction:
        row = lock_unclaimed(transaction, stream_id, epoch)
        loads = NO_LOADS if adoption.starts_over else row.loads
        adopted = replace(
            row, owner=adoption.owner, database=adoption.database, token=adoption.token, loads=loads
        )  # fmt: skip
        transaction.update_stream(adopted)


@rerun_after_lost_race
def record_query(ledger: Ledger, stream_id: str, epoch: Epoch, query: QueryMark) -> None:
    """Record what the driver of this epoch is started to do; safe to repeat.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
    """
    with ledger.transaction(evicting=True) as transaction:
        lock_unclaimed(transaction, stream_id, epoch)
        transaction.write_query(stream_id, query)


@rerun_after_lost_race
def record_answers(
    ledger: Ledger, stream_id: str, epoch: Epoch, batch: BatchNumber, answers: Mapping[str, Answer]
) -> None:
    """Record what a person has found of loads of the decided batch, each by its label; safe to repeat.

    Loads that the record does not name are not of this batch, or are known to be committed meanwhile.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
    """
    with ledger.transaction(evicting=True) as transaction:
        lock_unclaimed(transaction, stream_id, epoch)
        decided = transaction.read_decided(stream_id)
        if decided is not None and decided.batch == batch:
            answered = tuple(replace(one, answer=answers.get(one.label, one.answer)) for one in decided.committables)
            transaction.write_decided(stream_id, replace(decided, committables=answered))


@rerun_after_lost_race
def record_lost(ledger: Ledger, stream_id: str, epoch: Epoch, lost: BatchRow, address: str) -> None:
    """AtMostOnce: record that a batch was taken and may never have been written; safe to repeat.

    Only a batch that is still taken under the lock becomes Lost: what has settled it since the observation is the truth.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
    """
    error = f"the driver of epoch {lost.epoch} ended after it had taken batch {lost.batch} and before it had written it"
    with ledger.transaction(evicting=True) as transaction:
        lock_unclaimed(transaction, stream_id, epoch)
        found = transaction.read_batch(stream_id, lost.batch)
        if found is None or found.status is not BatchStatus.TAKEN:
            return
        transaction.write_batch(stream_id, replace(found, status=BatchStatus.LOST, note=error))
        transaction.write_failures(stream_id, failures_of(found, FailureStatus.LOST, address, error))


def failures_of(batch: BatchRow, status: FailureStatus, address: str, error: str) -> tuple[FailureRow, ...]:
    """Return a failure for each range of a batch that holds offsets. Performs no I/O."""
    return tuple(
        FailureRow(batch.batch, partition, offsets.from_offset, offsets.until_offset, status, address, error)
        for partition, offsets in batch.ranges.non_empty().items()
    )


def _release_what_is_read_again(
    transaction: LedgerTransaction, stream_id: str, publication: Publication, landed: LandedPositions
) -> None:
    """Take out of quarantine what the stream reads again: before the positions move, so that it is told by where they were.

    After a reset what was given up is read again as well; what is gone with its topic is not. Dead letters are told by where
    the stream was set back.
    """
    transaction.write_set_backs(stream_id, set_backs_of(landed, publication.after, publication.seed_batch))
    # What a person has given up leaves its status, too: taken back later, a replay would land it a second time.
    given_up = transaction.read_failures(stream_id, FailureStatus.GIVEN_UP)
    held = [*held_failures(transaction, stream_id), *(row for row in given_up if row.passed_over)]
    if publication.resets:
        held += [row for row in transaction.read_failures(stream_id, FailureStatus.LOST) if row.passed_over]
    decided = decided_of(held, publication.after, landed.origin_ids) if publication.resets else ()
    if decided:
        raise PositionsMoved(
            f"The range {RangeKey.of(decided[0])} is decided by a replay since the reset was asked for, and its rows will be "
            "committed; nothing was changed, and the next pass looks again."
        )
    changed = read_again(held, publication.after, landed.origin_ids)
    if changed:
        transaction.write_failures(stream_id, changed)


def _require_none_taken(transaction: LedgerTransaction, stream_id: str, landed_batch: BatchNumber | None) -> None:
    """AtMostOnce: a taken batch becomes Lost, with its ranges, in a transaction of its own before this one.

    A database that has failed over in between may have forgotten that transaction. The new generation would continue behind the
    batch, and no later look would find it.
    """
    taken = [row for row in transaction.read_batches_after(stream_id, landed_batch) if row.status is BatchStatus.TAKEN]
    if taken:
        raise PositionsMoved(
            f"The ledger of {stream_id} holds batch {taken[0].batch} as taken, although this pass has recorded it as lost: "
            "the database has lost its latest transactions."
        )


def _write_found(transaction: LedgerTransaction, stream_id: str, row: BatchRow) -> None:
    """Write the row of a batch that the ledger had lost, unless it has landed another one of this number.

    Nothing is left to commit of a batch that the ledger has decided: it had landed before the next one was decided, or is this
    very batch, whose rows were written again under a label that the ledger has lost.
    """
    before, decided = transaction.read_batch(stream_id, row.batch), transaction.read_decided(stream_id)
    if decided is not None and decided.batch <= row.batch:
        transaction.write_decided(stream_id, replace(decided, committables=()))
    if before is None or not before.status.landed:
        transaction.write_batch(stream_id, row)


def _seed_row(publication: Publication) -> BatchRow:
    return BatchRow(
        batch=publication.seed_batch,
        epoch=publication.epoch,
        status=BatchStatus.SEEDED,
        ranges=Ranges.empty_at(publication.after.positions),
        records_read=0,
        rows_written=0,
        note=publication.note,
    )
