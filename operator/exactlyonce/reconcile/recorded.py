"""What a pass writes into the status and tells, made from what it saw. Performs no I/O."""

from __future__ import annotations

from datetime import datetime

from exactlyonce.api.conditions import NO_PROGRESS
from exactlyonce.api.status import CheckpointStatus, DriverStatus, Progress, StreamStatus, VerdictStatus
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile.progress import checkpoint_of, progress_decided, progress_forgotten
from exactlyonce.reconcile.verdicts import Decision, FirstStart, SeedAndPublish, batch_of, kind_of, reason_of


def verdict_of(decision: Decision, attempt: Epoch, now: datetime) -> VerdictStatus:
    """Return a verdict as the status shows it."""
    verdict = decision.verdict
    return VerdictStatus(
        kind=kind_of(verdict),
        reason=reason_of(verdict),
        message=verdict.message,
        attempt=attempt,
        at=now,
        batch=batch_of(verdict),
        evidence=tuple({"words": item.words, **item.data} for item in verdict.evidence),
    )


def changes_by_word(status: StreamStatus, word: PodVerdict, now: datetime) -> dict[str, object]:
    """Return what changes in the status with the word of a reconciliation in the driver's pod."""
    changes: dict[str, object] = {}
    driver = status.current_driver
    if word.kind is not None:
        changes["verdict"] = VerdictStatus(
            kind=word.kind,
            reason=word.reason,
            message=word.message,
            attempt=status.attempt,
            at=now,
            batch=word.batch,
            evidence=tuple(dict(item) for item in word.evidence),
        )
    if word.kind == FirstStart.__name__ and word.outcome is Outcome.LAUNCHES:
        changes |= {
            "batch_limit": None,
            "poison_batch": None,
            "took_over": None if driver is None else driver.takes_over,
        }
    if word.landed is not None and word.outcome is Outcome.LAUNCHES:
        known = status.progress or Progress()
        at = known.landed_at if known.batch == word.landed else None
        changes["progress"] = known.model_copy(update={"batch": word.landed, "landed_at": at})
    if word.generation is not None and word.location is not None:
        changes["checkpoint"] = CheckpointStatus(generation=word.generation, location=word.location)
    if driver is not None and word.landed is not None:
        changes["driver"] = driver.model_copy(update={"landed_at_start": word.landed})
    return changes


def life_after(
    decision: Decision, ledger: LedgerView | None, status: StreamStatus, takes_over: str | None
) -> dict[str, object]:
    """Return what changes in the status of what is known of the stream's life; `takes_over` is what a new start takes over.

    A new start forgets its numbers and positions before it is made: once it is, nothing tells them from its own.
    """
    if isinstance(decision.verdict, FirstStart):
        forgotten = {"progress": progress_forgotten(status.progress), "batch_limit": None, "poison_batch": None}
        return {**forgotten, "took_over": takes_over}
    return {"progress": progress_decided(ledger, status.progress)}


def has_verdict(status: StreamStatus) -> bool:
    """Return whether the verdict of the latest attempt is known."""
    return status.verdict is not None and status.verdict.attempt == status.attempt


def in_progress_of(view: LedgerView | None) -> BatchNumber | None:
    """Return the batch that was begun and has not landed."""
    if view is None:
        return None
    waiting = (BatchStatus.IN_PROGRESS, BatchStatus.FAILED)
    return next((row.batch for row in view.batches if row.status in waiting), None)


def landed_after(decision: Decision, ledger: LedgerView | None) -> int | None:
    """Return the landed batch when the driver starts: a seed's number where one was published."""
    for action in decision.actions:
        if isinstance(action, SeedAndPublish):
            return action.seed_batch
    return None if ledger is None else ledger.stream.landed_batch


def checkpoint_after(decision: Decision, ledger: LedgerView | None, location: str) -> CheckpointStatus | None:
    """Return the checkpoint that the driver is started on: a seed where one was published."""
    for action in decision.actions:
        if isinstance(action, SeedAndPublish):
            return CheckpointStatus(generation=action.generation.number, location=action.generation.path(location))
    return checkpoint_of(ledger)


def is_replaced(status: StreamStatus, plan: str | None) -> bool:
    """Return whether the latest driver was made of something else than the next one would be."""
    made_of = None if status.current_driver is None else status.current_driver.plan
    return None not in (plan, made_of) and plan != made_of


def with_pod(driver: DriverStatus, pod: DriverPod | None) -> DriverStatus:
    """Return the driver with what its pod's record shows; what was known of it stays."""
    if pod is None:
        return driver
    return driver.model_copy(
        update={"pod_name": pod.name, "image": pod.image, "started_at": pod.started_at or driver.started_at}
    )


def newer_epoch(stream_id: str, known: Epoch, attempt_known: int, attempt: Epoch) -> str:
    """Return what is told when the ledger is ahead of the status."""
    return (
        f"The ledger holds epoch {known} of {stream_id} and this status knows attempt {attempt_known}: it was lost or "
        f"restored, or another operator runs the stream too. This one takes attempt {attempt} and nothing older can land; if "
        "there is another operator, stop one of the two."
    )


def hang_of(ending: Ended | Gone, driver: DriverStatus) -> str:
    """Return what is told of a driver that was killed because it hung; nothing for any other."""
    if not isinstance(ending, Ended) or ending.words is not None:
        return ""
    return driver.no_progress_message or (ending.detail if ending.reason == NO_PROGRESS else "")


def told_of(ending: Ended | Gone, driver: DriverStatus) -> tuple[str, str]:
    """Return a word and a sentence for how a driver ended; one that was killed because it hung says that."""
    match ending:
        case Ended(words=None) if driver.no_progress_message is not None:
            return NO_PROGRESS, driver.no_progress_message  # its pod's record would say that it was deleted
        case Gone(message=message, reason=reason):
            return reason, message
        case Ended(words=None, detail=detail, reason=reason):
            return reason or "Died", detail
        case Ended(words=words):
            assert words is not None
            return str(words.ending), words.message
