"""The conditions of a stream, made from its status alone, in the way that kstatus reads them. Performs no I/O.

Ready: what the latest spec asks for is so. Reconciling: the operator is on the way there. Stalled: it will not get there until
a person has acted. Exactly one of these is True. kstatus, and with it Flux and Helm's --wait, calls the first Current, the
second InProgress and the third Failed; docs/argocd/health.lua tells Argo CD the same.

Measured stands beside them, and decides nothing: whether the lag that the status shows is that of now. It is there once the
stream has been measured, or could not be.

HeldBack stands beside them as well: a transaction that is open holds records back, so that nobody may read them. It is there as
long as one does.

BatchLimited stands beside them, too: whether batches are held smaller than the resource says, because one was too large. It is
there once that has happened.

LandedShown stands beside them as well: whether the lease table or the consumer group that the stream names shows where it has
landed, and if not, why. It is there once that was looked at, for as long as the resource names one.

Source: the conditions of sigs.k8s.io/cli-utils, pkg/kstatus/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from exactlyonce.api.status import Condition, ConditionStatus, Phase, StreamStatus

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
MEASURED = "Measured"
HELD_BACK = "HeldBack"
BATCH_LIMITED = "BatchLimited"
LANDED_SHOWN = "LandedShown"

SPEC_INVALID = "SpecInvalid"
NO_EXECUTOR = "NoExecutor"
"""The driver runs and has no executor, so that nothing lands."""
ROLLED_BACK = "RolledBack"
NO_PROGRESS = "NoProgress"
"""The driver runs and shows no progress: it hangs, and is being replaced."""

_MESSAGE_MAX_LENGTH = 32_768
"""metav1.Condition's own bound of a message."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Which condition holds, and the reason and the sentence where the status has none of its own."""

    holds: str
    reason: str
    message: str


STANDINGS: Mapping[Phase, Standing] = {
    Phase.PENDING: Standing(RECONCILING, "Pending", "The stream waits for its turn."),
    Phase.RECONCILING: Standing(RECONCILING, "Reconciling", "Checkpoint, ledger and source are being compared."),
    Phase.LAUNCHING: Standing(RECONCILING, "Launching", "The driver is being started."),
    Phase.RUNNING: Standing(READY, "Running", "The driver runs."),
    Phase.DRAINING: Standing(RECONCILING, "Draining", "The driver ends after the current batch."),
    Phase.BACKING_OFF: Standing(RECONCILING, "BackingOff", "The stream waits before its next attempt."),
    Phase.HALTED: Standing(STALLED, "Refused", "The stream has stopped until a person has acted."),
    Phase.SUSPENDED: Standing(READY, "Suspended", "The stream is suspended, as requested."),
    Phase.COMPLETED: Standing(
        READY, "Completed", "Everything that the source held when the driver started has landed."
    ),
}
"""What each phase means to who waits for a stream."""


_AT_REST = (Phase.HALTED, Phase.SUSPENDED, Phase.COMPLETED)
"""Phases that tell a person more than that an update was rolled back."""


def conditions_of(status: StreamStatus, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions that fit a status; those it has already tell since when one has held."""
    standing = standing_of(status)
    wanted = [
        (kind, kind == standing.holds, standing.reason, standing.message) for kind in (READY, RECONCILING, STALLED)
    ]
    since = {condition.type: condition for condition in status.conditions}
    made = []
    beside = [*_measured(status), *_held_back(status), *_batch_limited(status), *_landed_shown(status)]
    for kind, holds, reason, message in [*wanted, *beside]:
        so = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
        before = since.get(kind)
        unchanged = before is not None and before.status is so
        made.append(
            Condition(
                type=kind,
                status=so,
                reason=reason,
                message=message[:_MESSAGE_MAX_LENGTH],
                last_transition_time=before.last_transition_time
                if unchanged and before
                else now.replace(microsecond=0),
                observed_generation=generation,
            )
        )
    return tuple(made)


def standing_of(status: StreamStatus) -> Standing:
    """Return which condition holds and why, as told by the status."""
    if status.spec_problem is not None:
        # The last valid spec is kept to, and its driver may run; but what the latest one asks for is not so.
        return Standing(STALLED, SPEC_INVALID, status.spec_problem)
    rolled_back = rolled_back_words(status)
    if rolled_back is not None and status.phase not in _AT_REST:
        # The last good spec is in force, and its driver may run; but what the latest one asks for is not so.
        return Standing(STALLED, ROLLED_BACK, rolled_back)
    driver = status.driver
    if status.phase is Phase.RUNNING and driver is not None and driver.no_progress_message is not None:
        return Standing(RECONCILING, NO_PROGRESS, driver.no_progress_message)
    if status.phase is Phase.RUNNING and driver is not None and driver.idle_message is not None:
        return Standing(RECONCILING, NO_EXECUTOR, driver.idle_message)
    general = STANDINGS[status.phase]
    return Standing(general.holds, _reason(status) or general.reason, status.message or general.message)


def rolled_back_words(status: StreamStatus) -> str | None:
    """Return what a person should know of a stream that was rolled back, or None where it was not."""
    bad, good = status.bad_update, status.last_good
    if bad is None or good is None or not bad.rolled_back:
        return None
    image = "" if good.image is None else f" and its image {good.image}"
    which = "the latest try" if bad.attempt is None else f"attempt {bad.attempt}"
    times = "" if bad.failures == 1 else f"{bad.failures} times in a row; "
    return (
        f"The changed resource could not be started ({times}{which}: {bad.reason}, {bad.message.rstrip('.')}). The "
        f"stream was rolled back to the spec of attempt {good.attempt}{image}. Correct the resource, or change "
        "spec.restartNonce to "
        "try it again as it is."
    )


def rendered(status: StreamStatus, resource: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the status as it is stored in a resource, with the conditions that fit it."""
    generation = int(resource["metadata"]["generation"])
    complete = status.model_copy(
        update={
            "observed_generation": generation,
            "conditions": conditions_of(status, generation, now),
            "halt_reason": halt_reason_of(status),
        }
    )
    return complete.to_document()


def halt_reason_of(status: StreamStatus) -> str | None:
    """Return the precise case of a halt as a code, None where the stream has not halted.

    What the status has itself was written by a pass that ended with an error, and every other write leaves it as it was: it
    counts where neither the verdict nor the driver tells of the halt.
    """
    if status.phase is not Phase.HALTED:
        return None
    if status.verdict is not None and status.verdict.message == status.message:
        return status.verdict.reason or status.verdict.kind
    ended = _ending_told(status)
    if ended is not None:
        return (None if status.driver is None else status.driver.case) or ended
    return status.halt_reason or STANDINGS[Phase.HALTED].reason


def _measured(status: StreamStatus) -> list[tuple[str, bool, str, str]]:
    """Return whether the lag is known now, as a condition; none where no one has looked."""
    progress = status.progress
    if progress is None or (progress.lag_records, progress.lag_seconds, progress.lag_problem) == (None, None, None):
        return []
    if progress.lag_problem is not None:
        in_part = progress.lag_files is not None
        return [(MEASURED, False, "MeasuredInPart" if in_part else "NotMeasured", progress.lag_problem)]
    return [(MEASURED, True, "Measured", "The lag is measured from the source and the ledger.")]


def _held_back(status: StreamStatus) -> list[tuple[str, bool, str, str]]:
    """Return that an open transaction holds records back, as a condition; none where none does."""
    progress = status.progress
    if progress is None or progress.held_back_since is None:
        return []
    said = (
        f"{progress.held_back_records} records are held back by a transaction that has been open since "
        f"{progress.held_back_since.isoformat()}: no reader at read_committed sees them. They land once its producer, or the "
        "source by its time limit, ends it; see the source's own tools for transactions."
    )
    return [(HELD_BACK, True, "OpenTransaction", said)]


def _batch_limited(status: StreamStatus) -> list[tuple[str, bool, str, str]]:
    """Return whether batches are held smaller than the resource says, as a condition; none where they never were."""
    limit = status.batch_limit
    if limit is not None:
        return [(BATCH_LIMITED, True, "BatchTooLarge", limit.message)]
    if any(condition.type == BATCH_LIMITED for condition in status.conditions):
        return [
            (BATCH_LIMITED, False, "Landed", "What was too large has landed; the resource's own limit applies again.")
        ]
    return []


def _landed_shown(status: StreamStatus) -> list[tuple[str, bool, str, str]]:
    """Return whether what has landed is shown where the resource asks for it, as a condition; none where no one has looked."""
    shown = status.landed_shown
    if shown is None:
        return []
    if shown.reason is not None:
        return [(LANDED_SHOWN, False, shown.reason, shown.message or "")]
    return [(LANDED_SHOWN, True, "Shown", "The place that the resource names shows where the stream has landed.")]


def _reason(status: StreamStatus) -> str | None:
    """Return what lies behind a halt or a wait: the verdict, the driver's ending, or neither."""
    match status.phase:
        case Phase.HALTED:
            if status.verdict is not None and status.verdict.message == status.message:
                return status.verdict.kind
            return _ending_told(status)
        case Phase.BACKING_OFF:
            return _ending_told(status)
        case _:
            return None


def _ending_told(status: StreamStatus) -> str | None:
    """Return how the latest driver ended, if that is what the status's message tells of."""
    driver, batch = status.current_driver, status.consecutive_failures.batch
    if driver is None or driver.ended is None:
        return None
    tells = driver.message == status.message or (batch is not None and status.message.startswith(f"Batch {batch} has"))
    return driver.ended if tells else None
