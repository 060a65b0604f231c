"""A batch that failed too often is quarantined by the next driver, whole or by its failing records: docs/adr/0038, 0045.

Performs no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from exactlyonce.api.recovery import OnPoisonBatch, Recovery
from exactlyonce.api.status import PoisonBatch
from exactlyonce.launch.port import Quarantine
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, Positions
from exactlyonce.reconcile.verdicts import Evidence, FinishBatch, ReplayBatch

LONGEST_ERROR = 2000
"""Characters of the last error that are kept with the ranges."""


@dataclass(frozen=True, slots=True)
class NotQuarantined:
    """The stream halts, although its resource asks for a quarantine; `message` says why."""

    message: str


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The ledger no longer knows the batch: it was restored, dropped or moved on, which reconciliation finds out."""


def after_too_many_failures(
    poison: BatchNumber,
    view: LedgerView | None,
    before: PoisonBatch | None,
    recovery: Recovery,
    error: str,
    now: datetime,
) -> PoisonBatch | NotQuarantined | RunAgain | None:
    """Return the batch that the next driver quarantines, or why it does not; None where the resource does not ask for it.

    With Bisect only its failing records are at first, and all of it once it has failed as often again.
    """
    if not recovery.on_poison_batch.continues:
        return None
    row = None if view is None else view.batch(poison)
    again = before if before is not None and before.batch == poison else None
    if again is not None and row is not None and Positions.from_json(again.until) != row.ranges.ends:
        again = None  # somebody wrote over Spark's plan, so the driver had another batch of this number before it
    if again is not None and not again.bisect:
        return NotQuarantined("It was to be quarantined, and that has failed as well.")
    if view is None or row is None or row.status not in (BatchStatus.IN_PROGRESS, BatchStatus.FAILED):
        return RunAgain()
    if view.stream.stateful:
        return NotQuarantined("It cannot be quarantined: the query keeps state, which would lack its records for good.")
    bisect = recovery.on_poison_batch is OnPoisonBatch.BISECT and again is None
    until = row.ranges.ends.to_json()
    return PoisonBatch(batch=poison, until=until, error=error[:LONGEST_ERROR], bisect=bisect, since=now)


def still_to_be_quarantined(
    order: PoisonBatch | None, view: LedgerView | None, recovery: Recovery
) -> PoisonBatch | None:
    """Return the order until the stream has continued after the batch, and as long as the resource asks for a quarantine."""
    if order is None or not recovery.on_poison_batch.continues:
        return None
    if order.bisect and recovery.on_poison_batch is not OnPoisonBatch.BISECT:
        order = order.model_copy(update={"bisect": False})
    if view is None or view.stream.landed_batch is None:
        return order
    until = Positions.from_json(order.until).without(view.retired.positions)
    return None if view.landed.positions.have_reached(until) else order


def quarantine_of(order: PoisonBatch | None) -> Quarantine | None:
    """Return the order as a driver is told it."""
    return None if order is None else Quarantine(order.batch, order.until, order.error, order.bisect)


def quarantine_words(order: PoisonBatch, failures: int, error: str, *, again: bool) -> tuple[str, str]:
    """Return the name of the event and the sentence that tell of an order; `again`: its records were looked for in vain."""
    if order.bisect:
        return "BatchBisected", (
            f"Batch {order.batch} has failed {failures} times, so the next driver looks for the records that fail by "
            f"themselves and quarantines those; the last error: {error}"
        )
    still = " although the records that fail by themselves were to be left out," if again else ""
    return "BatchQuarantined", (
        f"Batch {order.batch} has failed {failures} times{still} and is quarantined; the last error: {error}"
    )


def to_blame(in_progress: BatchNumber | None, order: PoisonBatch | None) -> BatchNumber | None:
    """Return the batch that a driver without a last message failed on: not one that it only was to continue after.

    Whoever looks for failing records reads them, and what they do to it is their fault.
    """
    return None if order is not None and order.batch == in_progress and not order.bisect else in_progress


def bisects(order: PoisonBatch | None) -> bool:
    """Whether only the failing records of the batch are quarantined: all of it is once those were looked for in vain."""
    return order is not None and order.bisect


def number_of(order: PoisonBatch | None) -> int | None:
    """Return the number of the batch, as a decision sees it."""
    return None if order is None else order.batch


def passed_over(
    poison: int | None, verdict: ReplayBatch | FinishBatch, *, bisects: bool = False
) -> ReplayBatch | FinishBatch:
    """Return the verdict for the batch that was planned, with a message that says what the driver does with a poison batch."""
    if verdict.batch != poison:
        return verdict
    words = f"batch {poison} failed too often and is quarantined"
    what = "the records that fail by themselves, or the whole batch if none does" if bisects else "the whole batch"
    message = (
        f"{verdict.message.split(';')[0]}; it failed too often, so the driver leaves out {what}, and quarantines what it "
        "leaves out."
    )
    return replace(verdict, message=message, evidence=(*verdict.evidence, Evidence(words, {"poisonBatch": poison})))
