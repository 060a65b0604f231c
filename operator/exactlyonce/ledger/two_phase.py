"""The transactions of a batch whose sink commits in two phases: Decided, what is left to commit, Landed.

Written once over the ledger's port, under the fence of the epoch that acts. A stream has at most one decided batch, so what
is to be committed of it is one record beside the stream's row, which no generation and no retention of batches takes away.
"""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.bounded_json import MOST_VALUES, values_in
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit, fence, lock_unclaimed
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.publish import settled_loads
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.replay_decisions import ReplayDecision, decisions_in
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.positions.ranges import BatchNumber, Epoch


class DecisionDiffers(ExactlyOnceError):
    """The ledger's decided batch is another one than was expected; nothing was changed."""


class DecisionTooLarge(Refused):
    """A batch has more loads than a ledger that records them could be read with; nothing was decided."""


def require_none_decided(transaction: LedgerTransaction, stream_id: str) -> None:
    """Require that the batch before has landed: there is one record of what is to be committed, and rows keep their order.

    Raises:
        DecisionDiffers: if a decided batch has not landed.
    """
    decided = transaction.read_decided(stream_id)
    if decided is not None:
        raise DecisionDiffers(
            f"Batch {decided.batch} of {stream_id} is decided and has not landed, so nothing that follows may be decided; the "
            "next driver finishes it first."
        )


def record_decided(transaction: LedgerTransaction, stream_id: str, decided: DecidedBatch) -> None:
    """Record what is to be committed, in the transaction that moves the positions past the batch.

    Raises:
        DecisionDiffers: if a decided batch has not landed.
        DecisionTooLarge: if the record, with an answer and the time of submission for each load, could not be read again by
            any driver or operator.
    """
    require_none_decided(transaction, stream_id)
    answers = len(decided.committables)  # a person may give one for each load, and the ledger has to be readable then
    submissions = sum(committable.staged is not None for committable in decided.committables)
    if values_in(decided.to_json(), MOST_VALUES) + answers + submissions > MOST_VALUES:
        raise DecisionTooLarge(
            f"Batch {decided.batch} of {stream_id} cannot be decided: with {len(decided.committables)} loads and "
            f"{len(decided.fingerprints)} fingerprints its record could grow beyond the {MOST_VALUES} values of JSON that the "
            "ledger is read with. Set a smaller batch limit, so that a batch reads fewer partitions, or give some of the "
            "topics to another stream."
        )
    transaction.write_decided(stream_id, decided)


@rerun_after_lost_race
def read_decided(ledger: Ledger, permit: Permit) -> DecidedBatch | None:
    """Return the decided batch under the fence: no earlier epoch decides anything after that.

    Raises:
        Fenced: if this process may not land any more.
    """
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
        return transaction.read_decided(permit.stream_id)


@rerun_after_lost_race
def read_all_decided(ledger: Ledger, permit: Permit) -> tuple[DecidedBatch | None, tuple[ReplayDecision, ...]]:
    """Return the decided batch as `read_decided` does, and what replays have decided.

    Raises:
        Fenced: if this process may not land any more.
    """
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
        decided = transaction.read_decided(permit.stream_id)
        return decided, decisions_in(transaction.read_replayed(permit.stream_id))


@rerun_after_lost_race
def replace_decided(ledger: Ledger, permit: Permit, before: DecidedBatch, after: DecidedBatch) -> None:
    """Record what is left to be committed of a decided batch, before any of what is new in it is.

    Raises:
        Fenced, DecisionDiffers: nothing was changed.
        CommitOutcomeUnknown: the next driver finds out which of the two it is.
    """
    with ledger.transaction(evicting=True) as transaction:
        stream = fence(transaction, permit, Lock.UPDATE)
        found = transaction.read_decided(permit.stream_id)
        if found != before:
            raise DecisionDiffers(
                f"The ledger's record of the decided batch {before.batch} of {permit.stream_id} was changed meanwhile; the "
                "next driver looks again."
            )
        transaction.write_decided(permit.stream_id, after)
        latest = stream.loads.latest
        if latest is not None:
            replaced = latest.replaced(*([load.label for load in record.committables] for record in (before, after)))
            if replaced != latest:
                transaction.update_stream(replace(stream, loads=replace(stream.loads, latest=replaced)))


@rerun_while_unknown
@rerun_after_lost_race
def record_found(ledger: Ledger, permit: Permit, found: FoundLoad | None) -> None:
    """Record a load that the sink has committed and the ledger does not know; None where there is none after all.

    Raises:
        Fenced: if this process may not land any more.
        CommitOutcomeUnknown: if the outcome stayed unknown.
    """
    with ledger.transaction(evicting=True) as transaction:
        stream = fence(transaction, permit, Lock.UPDATE)
        if stream.loads.found != found:
            transaction.update_stream(replace(stream, loads=replace(stream.loads, found=found)))


@rerun_after_lost_race
def record_loads(ledger: Ledger, stream_id: str, epoch: Epoch, found: Settlement | FoundLoad) -> None:
    """Record what a person says of a load of which no position follows, or that the sink is to be asked; safe to repeat.

    What a driver has found says more than that the sink is to be asked, and stays.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
        PositionsMoved: if the ledger has another load to settle.
    """
    with ledger.transaction(evicting=True) as transaction:
        row = lock_unclaimed(transaction, stream_id, epoch)
        if isinstance(found, FoundLoad):
            loads = row.loads if row.loads.found is not None else replace(row.loads, found=found)
        else:
            is_settled = row.loads.found is None and row.loads.names(found.found, found.found.place)
            loads = row.loads if is_settled else settled_loads(row, found)
        if loads != row.loads:
            transaction.update_stream(replace(row, loads=loads))


@rerun_while_unknown
@rerun_after_lost_race
def land_decided(ledger: Ledger, permit: Permit, batch: BatchNumber) -> None:
    """Record that everything of a decided batch is committed; safe to repeat.

    Raises:
        Fenced, DecisionDiffers: nothing was changed.
        CommitOutcomeUnknown: if the outcome stayed unknown.
    """
    with ledger.transaction(evicting=True) as transaction:
        fence(transaction, permit, Lock.UPDATE)
        decided, row = transaction.read_decided(permit.stream_id), transaction.read_batch(permit.stream_id, batch)
        if decided is None and row is not None and row.status is BatchStatus.LANDED:
            return
        if decided is None or decided.batch != batch or row is None or row.status is not BatchStatus.DECIDED:
            raise DecisionDiffers(
                f"Batch {batch} of {permit.stream_id} is committed in the sink, and the ledger's record of it is "
                f"{'gone' if row is None else row.status}, while {'no batch' if decided is None else f'batch {decided.batch}'} "
                "is to be committed: the ledger went back or was changed by hand. The next attempt compares what it holds."
            )
        transaction.write_batch(permit.stream_id, replace(row, status=BatchStatus.LANDED))
        transaction.write_decided(permit.stream_id, None)
