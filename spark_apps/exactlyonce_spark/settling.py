"""How a landing ended whose COMMIT was not answered: asked under the lock, never guessed. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, settle
from exactlyonce_spark.landing_checks import require_same
from exactlyonce_spark.planned import PlannedBatch


def settled(ledger: Ledger, permit: Permit, batch: PlannedBatch, land: Callable[[], None]) -> None:
    """Run a landing; when the outcome of its COMMIT is unknown, look under the lock, and run it again if it is not there.

    Raises:
        CommitOutcomeUnknown: if that could not be found out.
    """
    settle(rerun_after_lost_race(land), lambda: _has_landed(ledger, permit, batch))


@rerun_after_lost_race
def _has_landed(ledger: Ledger, permit: Permit, batch: PlannedBatch) -> bool:
    """Look under the stream's lock, which waits for the transaction whose outcome is unknown to end.

    Raises:
        Fenced: if the epoch was raised meanwhile; the successor finds out what landed.
    """
    with ledger.transaction(evicting=True) as transaction:
        stream = fence(transaction, permit, Lock.UPDATE)
        if stream.landed_batch != batch.number:
            return False
        require_same(batch, transaction.read_batch(permit.stream_id, batch.number))
        return True
