"""Delete what the ledger keeps longer than the resource asks for: docs/adr/0015.

Rows that a decision may need are never touched: the landed batch and everything after it, the batches before it that
FEWEST_BATCHES counts, batches that are Taken, InProgress or Failed, and failures that are Open. Nor is
what was quarantined, which is kept to be read again. Each table is one short
transaction that locks nothing but the rows that go, which no transaction that lands waits for. Done again, or never, it
changes no decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from exactlyonce.api.ledger_retention import FEWEST_BATCHES, LedgerRetention
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.rows import BatchStatus, Excess, FailureStatus
from exactlyonce.positions.ranges import BatchNumber

MOST_ROWS = 1000
"""Of one deletion."""

_MORE_ROWS = 100
"""With so many there are likely more: a deletion takes its share of each partition's dead letters."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many rows went."""

    batches: int = 0
    failures: int = 0
    dead_letters: int = 0

    @property
    def may_be_more(self) -> bool:
        """Whether one of the tables is likely to hold more rows that are not kept."""
        return max(self.batches, self.failures, self.dead_letters) >= _MORE_ROWS


def excess_of(retention: LedgerRetention, landed: BatchNumber) -> tuple[Excess, ...]:
    """Return which batches are not kept once `landed` is the latest. Performs no I/O.

    What ended as it should is bounded in number. That a generation began or a batch was given up is rare and tells more, so
    only its age counts.
    """
    batches, lost_age = retention.batches, retention.lost_failures.age
    ended_well = Excess((BatchStatus.LANDED, BatchStatus.SUPERSEDED), batches.age, BatchNumber(landed - batches.count))
    lost = () if lost_age is None else (Excess((BatchStatus.LOST,), lost_age),)
    return (ended_well, Excess((BatchStatus.SEEDED,), batches.age), *lost)


def age_of_failures(retention: LedgerRetention, status: FailureStatus) -> timedelta | None:
    """Return how long failed ranges with this status are kept; None for ever. Performs no I/O."""
    match status:
        case FailureStatus.CLOSED | FailureStatus.SUPERSEDED | FailureStatus.REPLAYED:
            return retention.closed_failures.age
        case FailureStatus.LOST | FailureStatus.GIVEN_UP:
            return retention.lost_failures.age
        case FailureStatus.OPEN | FailureStatus.QUARANTINED | FailureStatus.REPLAYING:
            return None
        case _:
            assert_never(status)


def delete_expired(
    ledger: Ledger, permit: Permit, retention: LedgerRetention, *, fewest: int = FEWEST_BATCHES
) -> Deleted:
    """Delete at most MOST_ROWS rows of each table, the oldest first; nothing once another epoch or claim is seen.

    Raises:
        LedgerUnreachable, LedgerRefused, LockHeldByOther, CommitOutcomeUnknown: some may be deleted; do it again later.
    """
    view = ledger.view(permit.stream_id)
    if view is None or (view.stream.epoch, view.stream.claim) != (permit.epoch, permit.claim):
        return Deleted()  # a successor does it, by what the resource asks for now
    landed, stream_id = view.stream.landed_batch, permit.stream_id
    assert landed is not None, "an epoch is claimed after a generation was published"
    batches = failures = letters = 0
    for excess in excess_of(retention, landed):
        batches += _delete_batches(ledger, stream_id, excess, fewest, MOST_ROWS - batches)
    for status in FailureStatus:
        age = age_of_failures(retention, status)
        if age is not None:
            failures += _delete_failures(ledger, stream_id, status, age, MOST_ROWS - failures)
    letters_age = retention.dead_letters.age
    if letters_age is not None:
        letters = _delete_dead_letters(ledger, stream_id, letters_age, MOST_ROWS)
    return Deleted(batches, failures, letters)


def make_room(ledger: Ledger, stream_id: str, retention: LedgerRetention) -> None:
    """Delete every lost or given-up range that is kept no longer, of a ledger that has room for so many only.

    A driver deletes beside its batches. This is for a stream that may not start one because the ledger is full, and needs no
    permit: what is deleted is no part of any decision.

    Raises:
        LedgerUnreachable, LedgerRefused, CommitOutcomeUnknown: some may be deleted; do it again later.
    """
    age = retention.lost_failures.age
    if ledger.room is None or age is None:
        return
    for status in (FailureStatus.LOST, FailureStatus.GIVEN_UP):
        while _delete_failures(ledger, stream_id, status, age, MOST_ROWS) == MOST_ROWS:
            pass


# Each is run again where a batch landed meanwhile in a ledger without locks.


@rerun_after_lost_race
def _delete_batches(ledger: Ledger, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
    with ledger.transaction(lasting=False) as transaction:
        return transaction.delete_batches(stream_id, excess, fewest, most)


@rerun_after_lost_race
def _delete_failures(ledger: Ledger, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
    with ledger.transaction(lasting=False) as transaction:
        return transaction.delete_failures(stream_id, status, age, most)


@rerun_after_lost_race
def _delete_dead_letters(ledger: Ledger, stream_id: str, age: timedelta, most: int) -> int:
    with ledger.transaction(lasting=False) as transaction:
        return transaction.delete_dead_letters(stream_id, age, most)
