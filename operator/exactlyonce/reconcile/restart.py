"""After a driver has ended: start the next one, wait, halt, or be done. Performs no I/O.

The first restart after a landed batch is immediate; the wait doubles only while nothing lands. A batch that fails
`maxFailuresPerBatch` times halts the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from exactlyonce.api.recovery import Recovery
from exactlyonce.api.status import ConsecutiveFailures
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Gone
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber


@dataclass(frozen=True, slots=True)
class Restart:
    """Reconcile and start the next driver at `at`."""

    at: datetime
    consecutive_failures: ConsecutiveFailures


@dataclass(frozen=True, slots=True)
class HaltStream:
    """Stop until a person has acted; `message` says on what. `poison` is the batch that has failed too often, if one has."""

    message: str
    consecutive_failures: ConsecutiveFailures
    poison: BatchNumber | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The stream is done: it drained, or it landed all that `availableNow` asked for."""

    completed: bool


NextStep = Restart | HaltStream | Finished


def after_ending(
    ending: Ended | Gone,
    landed_at_start: BatchNumber | None,
    landed_now: BatchNumber | None,
    in_progress: BatchNumber | None,
    consecutive_failures: ConsecutiveFailures,
    recovery: Recovery,
    now: datetime,
    note: str = "",
) -> NextStep:
    """Return the step that follows the end of a driver. `note` is told beside its last message where the stream halts.

    `in_progress` is the batch that the ledger says was begun and has not landed; it is what a driver that left no words
    failed on. `landed_at_start` and `landed_now` are the landed batch when the driver was started and now.
    """
    words = ending.words if isinstance(ending, Ended) else None
    if words is not None and words.ending in (Ending.DRAINED, Ending.COMPLETED):
        return Finished(completed=words.ending is Ending.COMPLETED)
    landed = landed_now is not None and landed_now != landed_at_start
    refused_rows = None if words is None else words.refused_rows
    counted = _count(consecutive_failures, landed, _failed_batch(words, ending, in_progress), refused_rows)
    if words is not None and words.ending is Ending.REFUSED:
        return HaltStream(words.message, counted)
    if counted.batch_failures >= recovery.max_failures_per_batch:
        said = words.message if words is not None else "the driver ended without a word"
        said = f"{said.rstrip('.')}. {note}" if note else said
        return HaltStream(
            f"Batch {counted.batch} has failed {counted.batch_failures} times; the last error: {said} Fix the cause, "
            "then start the stream again.",
            counted,
            None if counted.batch is None else BatchNumber(counted.batch),
        )
    wait = timedelta(0)
    if counted.endings > 1:
        wait = min(recovery.backoff.initial * 2 ** min(counted.endings - 2, 20), recovery.backoff.max)
    if words is not None and words.ending is Ending.UNREACHABLE:
        wait = max(wait, recovery.backoff.initial)
    return Restart(now + wait, counted.model_copy(update={"retry_at": now + wait}))


def with_another_batch(consecutive_failures: ConsecutiveFailures, now: datetime) -> Restart:
    """Return the step that follows a batch which is made smaller, or quarantined: at once, and nothing counts as failed."""
    return Restart(
        now,
        consecutive_failures.model_copy(
            update={"batch": None, "batch_failures": 0, "refused_rows": None, "retry_at": now}
        ),
    )


def still_failing(consecutive_failures: ConsecutiveFailures, view: LedgerView | None) -> ConsecutiveFailures:
    """Return what is counted of a batch that failed while a driver runs: nothing once that batch has landed.

    The attempts are counted until that driver has ended. Positions have passed a decided batch before it has landed.
    """
    batch, landed = consecutive_failures.batch, None if view is None else view.stream.landed_batch
    if view is None or batch is None or landed is None or landed < batch:
        return consecutive_failures
    if view.decided is not None and view.decided.batch == batch:
        return consecutive_failures
    return consecutive_failures.model_copy(update={"batch": None, "batch_failures": 0, "refused_rows": None})


def after_failure(consecutive_failures: ConsecutiveFailures, recovery: Recovery, now: datetime) -> Restart:
    """Return when to try again after a pass that could not do its work because a store did not answer."""
    counted = consecutive_failures.model_copy(update={"endings": consecutive_failures.endings + 1})
    wait = min(recovery.backoff.initial * 2 ** min(counted.endings - 1, 20), recovery.backoff.max)
    return Restart(now + wait, counted.model_copy(update={"retry_at": now + wait}))


def _failed_batch(
    words: LastMessage | None, ending: Ended | Gone, in_progress: BatchNumber | None
) -> BatchNumber | None:
    """The batch whose failure this ending is; None when the batch is not to blame."""
    if isinstance(ending, Gone):
        return None
    if words is None:
        return in_progress if ending.blames_batch else None
    if words.ending is Ending.BATCH_FAILED and words.batch is not None:
        return BatchNumber(words.batch)
    return None


def _count(
    consecutive_failures: ConsecutiveFailures, landed: bool, failed: BatchNumber | None, refused_rows: int | None
) -> ConsecutiveFailures:
    endings = 1 if landed else consecutive_failures.endings + 1
    if failed is None:
        kept = ConsecutiveFailures() if landed else consecutive_failures
        return kept.model_copy(update={"endings": endings, "retry_at": None})
    failures = consecutive_failures.batch_failures + 1 if consecutive_failures.batch == failed else 1
    return ConsecutiveFailures(endings=endings, batch=failed, batch_failures=failures, refused_rows=refused_rows)
