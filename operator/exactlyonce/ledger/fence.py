"""Who may land: raise, claim, fence and release of a stream's epoch.

The stream's row is the only authority. A raise locks it exclusively, so it waits for every transaction that holds the
row shared; after it no such transaction of an older epoch can begin, because each one checks epoch and claim under the
same lock first. docs/adr/0004 tells why a plain read would not do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.rows import DatabaseIdentity, Owner, StreamRow
from exactlyonce.positions.ranges import Epoch


@dataclass(frozen=True, slots=True)
class Permit:
    """Proof that this process claimed this epoch; whoever lands anything shows it to the fence."""

    stream_id: str
    epoch: Epoch
    claim: str


class Fenced(ExactlyOnceError):
    """This process may not land any more: its epoch was raised, or another process claimed it."""


class EpochOvertaken(ExactlyOnceError):
    """Another pass has raised the epoch meanwhile; start over and look again."""


@dataclass(frozen=True, slots=True)
class Raised:
    """A raise that took effect: the row as it is now, and as it was before (None when the raise made it)."""

    row: StreamRow
    before: StreamRow | None


@dataclass(frozen=True, slots=True)
class NewStream:
    """What a stream's row says when a raise has to make it."""

    stream_id: str
    token: str
    owner: Owner
    database: DatabaseIdentity


@rerun_after_lost_race
def raise_epoch(ledger: Ledger, stream: NewStream, epoch: Epoch, ticket: str) -> Raised:
    """Make `epoch` the stream's epoch, unclaimed. From here on nothing of an older epoch can land.

    `ticket` is a random text of this very raise: who claims the epoch has to have it.

    Raises:
        EpochOvertaken: if the row holds this epoch or a newer one already.
        CommitOutcomeUnknown: the next pass chooses a greater epoch, so nothing needs to be settled.
    """
    with ledger.transaction(evicting=True) as transaction:
        row = transaction.lock_stream(stream.stream_id, Lock.UPDATE)
        if row is None:
            row = StreamRow(stream.stream_id, stream.token, stream.owner, stream.database, epoch, ticket)
            if not transaction.insert_stream(row):
                raise EpochOvertaken(f"Another pass made the ledger's row of {stream.stream_id} at this moment.")
            return Raised(row, None)
        if row.epoch >= epoch:
            raise EpochOvertaken(f"The ledger holds epoch {row.epoch} of {stream.stream_id}; {epoch} is not newer.")
        raised = row.raised_to(epoch, ticket)
        transaction.update_stream(raised)
        return Raised(raised, row)


@rerun_while_unknown
def claim_epoch(
    ledger: Ledger,
    stream_id: str,
    epoch: Epoch,
    claim: str,
    ticket: str,
    checkpoint_path: str | None = None,
    sink: str | None = None,
    *,
    writes: bool = True,
) -> tuple[Permit, StreamRow]:
    """Take `epoch` for the process that made the random token `claim`, and return its permit and the stream's row.

    Safe to repeat with the same token.

    `ticket` is the one of the raise that started the process. `checkpoint_path` is the checkpoint that was decided on: a
    failover between the publication of a generation and the claim brings the former one back, which nobody has decided to
    continue. `sink` is what the process lands into, where replays may be asked for: one that was asked for with another sink is
    refused. A process that never `writes` the checkpoint leaves it to the one that the row names, which may still live.

    Raises:
        Fenced: if the stream has no row, another epoch, ticket or claim, or not the checkpoint that was decided on.
        CommitOutcomeUnknown: if the outcome stayed unknown.
    """
    return _claim_once(ledger, stream_id, epoch, claim, ticket, checkpoint_path, sink, writes=writes)


@rerun_after_lost_race
def _claim_once(
    ledger: Ledger,
    stream_id: str,
    epoch: Epoch,
    claim: str,
    ticket: str,
    decided: str | None,
    sink: str | None,
    *,
    writes: bool,
) -> tuple[Permit, StreamRow]:
    with ledger.transaction() as transaction:
        row = transaction.lock_stream(stream_id, Lock.UPDATE)
        if row is None:
            raise Fenced(f"The ledger has no row of {stream_id}, so epoch {epoch} cannot be claimed.")
        if row.epoch != epoch:
            raise Fenced(f"Epoch {epoch} of {stream_id} cannot be claimed: the ledger is at epoch {row.epoch}.")
        _require_ticket(row, ticket)
        if row.claim not in (None, claim):
            raise Fenced(f"Epoch {epoch} of {stream_id} was claimed by another process.")
        if row.checkpoint_path is None:
            raise Fenced(f"Epoch {epoch} of {stream_id} has no published checkpoint.")
        if decided not in (None, row.checkpoint_path):
            raise Fenced(
                f"Epoch {epoch} of {stream_id} was started for the checkpoint {decided}, and the ledger names "
                f"{row.checkpoint_path}, as after a failover that lost what was published."
            )
        claimed = replace(row, claim=claim)
        if writes:
            claimed = replace(claimed, writer=epoch, writer_released=False)
        transaction.update_stream(claimed)
        if sink is not None:
            transaction.write_sink(stream_id, epoch, sink)
        return Permit(stream_id, epoch, claim), claimed


def holds_ticket(row: StreamRow, ticket: str) -> bool:
    """Whether a process of the row's epoch that brings `ticket` was started by the raise that the ledger knows of."""
    return ticket == row.ticket


def _require_ticket(row: StreamRow, ticket: str) -> None:
    if not holds_ticket(row, ticket):
        raise Fenced(
            f"Epoch {row.epoch} of {row.stream_id} cannot be claimed by this process: it was started by another raise, in a "
            "former life of the stream."
        )


def lock_unclaimed(transaction: LedgerTransaction, stream_id: str, epoch: Epoch) -> StreamRow:
    """Lock the stream's row and return it, for what is recorded between the raise of an epoch and its claim.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
    """
    row = transaction.lock_stream(stream_id, Lock.UPDATE)
    if row is None or row.epoch != epoch or row.claim is not None:
        found = "has no row" if row is None else f"is at epoch {row.epoch}{' and claimed' if row.claim else ''}"
        raise EpochOvertaken(f"The ledger of {stream_id} {found}; this pass acts for epoch {epoch}.")
    return row


def fence(transaction: LedgerTransaction, permit: Permit, lock: Lock) -> StreamRow:
    """Lock the stream's row and return it if this permit may land; the first statement of every landing transaction.

    Raises:
        Fenced: if the row holds another epoch or claim.
    """
    row = transaction.lock_stream(permit.stream_id, lock)
    found = None if row is None else (row.epoch, row.claim)
    if row is None or found != (permit.epoch, permit.claim):
        raise Fenced(
            f"Epoch {permit.epoch} of {permit.stream_id} may not land: the ledger is at "
            f"{'no row' if row is None else f'epoch {row.epoch}'}{_claimant(row, permit)}."
        )
    return row


@rerun_after_lost_race
def release(ledger: Ledger, permit: Permit) -> None:
    """Record that the checkpoint's writer has stopped and writes nothing any more, and that all it has landed is shown.

    A process says it of itself; or, once it has shown what the writer has landed, of a writer that is known to have ended.

    Raises:
        Fenced: if it may not land any more; then there is nothing to release.
    """
    with ledger.transaction() as transaction:
        row = fence(transaction, permit, Lock.UPDATE)
        transaction.update_stream(replace(row, writer_released=True))


def _claimant(row: StreamRow | None, permit: Permit) -> str:
    same_epoch = row is not None and row.epoch == permit.epoch
    return ", claimed by another process" if same_epoch else ""
