"""The phases of a stream and every transition between them: from, to, reason, and who may write it. Performs no I/O.

`docs/phases.md` is rendered from this table, and every store of a status is held to it (`reconcile/phase_check.py`).
`tests/unit/test_phases_that_happen.py` finds each transition by passes over streams to which anything happens; those that it
does not meet are `rare`, and say why they are here all the same.

A pass looks at the driver and the resource, and writes what it finds whatever the phase was before: an operator may have been
down for a week, the status may be lost, or a person may have acted meanwhile. So a fact such as "the driver runs" is
written over most phases. What no fact does is take a stream out of Halted or Completed: only a person or a roll back do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from exactlyonce.api.status import Phase


class Writer(StrEnum):
    """Who writes a phase; WRITERS says when."""

    LOOP = "Loop"
    OPERATOR = "Operator"
    PERSON = "Person"
    ROLL_BACK = "RollBack"


WRITERS = {
    Writer.LOOP: "a pass of the loop over the stream: it looks at the driver, records an attempt, decides and launches.",
    Writer.OPERATOR: "the operator, for a stream whose spec cannot be used or that lacks something, such as a secret: the "
    "driver that runs is left alone or drained, and nothing is launched.",
    Writer.PERSON: "the operator, for a person who has acted since: the resource was changed, or `exactlyonce run` was called.",
    Writer.ROLL_BACK: "the operator, when it goes back to the spec that ran last.",
}


class TransitionReason(StrEnum):
    """Why a phase is written, as a code; each is used by one writer."""

    ATTEMPT_RECORDED = "AttemptRecorded"
    VERDICT_RECORDED = "VerdictRecorded"
    VERDICT_HALTS = "VerdictHalts"
    NOT_RECONCILED = "NotReconciled"
    DRIVER_STARTS = "DriverStarts"
    DRIVER_RUNS = "DriverRuns"
    DRIVER_HANGS = "DriverHangs"
    DRAIN_REQUESTED = "DrainRequested"
    DRIVER_DRAINED = "DriverDrained"
    DRIVER_COMPLETED = "DriverCompleted"
    DRIVER_FINISHED = "DriverFinished"
    DRIVER_FAILED = "DriverFailed"
    NO_ANSWER = "NoAnswer"
    REFUSED = "Refused"
    AT_REST = "AtRest"
    SPEC_UNUSABLE = "SpecUnusable"
    SOMETHING_MISSING = "SomethingMissing"
    PERSON_ACTED = "PersonActed"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True)
class Transition:
    """Transitions from some phases to another one, for one reason.

    `rare` are those of `before` that no test has met.
    """

    before: tuple[Phase, ...]
    after: Phase
    reason: TransitionReason
    writer: Writer
    message: str
    rare: tuple[Phase, ...] = ()


RARE = (
    "Needs two accidents at once: the phase is that of a stream without such a driver, because the status or the trace of "
    "the driver was lost, or its spec could not be used for a while; and this transition happened before the next pass."
)
"""Why a transition may happen that no test has met."""

PENDING, RECONCILING, LAUNCHING, RUNNING = Phase.PENDING, Phase.RECONCILING, Phase.LAUNCHING, Phase.RUNNING
DRAINING, BACKING_OFF, SUSPENDED = Phase.DRAINING, Phase.BACKING_OFF, Phase.SUSPENDED
HALTED, COMPLETED = Phase.HALTED, Phase.COMPLETED
_ACTIVE = (PENDING, BACKING_OFF, SUSPENDED, RECONCILING, LAUNCHING, RUNNING, DRAINING)
_NOT_DRAINING = tuple(phase for phase in _ACTIVE if phase is not DRAINING)
_R = TransitionReason


def _transition(  # a row of the table reads as a sentence
    before: tuple[Phase, ...],
    after: Phase,
    reason: TransitionReason,
    message: str,
    rare: tuple[Phase, ...] = (),
    writer: Writer = Writer.LOOP,
) -> Transition:
    return Transition(tuple(phase for phase in before if phase is not after), after, reason, writer, message, rare)


def _by_operator(
    before: tuple[Phase, ...], after: Phase, reason: TransitionReason, message: str, rare: tuple[Phase, ...] = ()
) -> Transition:
    return _transition(before, after, reason, message, rare, Writer.OPERATOR)


TRANSITIONS = (
    _transition(
        _ACTIVE, RECONCILING, _R.ATTEMPT_RECORDED, "An attempt is recorded: nothing older may land from its raise on."
    ),
    _transition((RECONCILING,), LAUNCHING, _R.VERDICT_RECORDED, "The verdict of the attempt is recorded."),
    _transition(_ACTIVE, HALTED, _R.VERDICT_HALTS, "The verdict is one that halts: a person has to act."),
    _transition(
        _ACTIVE,
        BACKING_OFF,
        _R.NOT_RECONCILED,
        "The reconciliation in the driver's pod could not be finished; the next attempt waits.",
        rare=(PENDING, SUSPENDED, LAUNCHING),
    ),
    _transition(
        (PENDING, BACKING_OFF, SUSPENDED, RUNNING),
        RECONCILING,
        _R.DRIVER_STARTS,
        "The driver's pod exists, has not started, and reconciles first.",
        rare=(PENDING, BACKING_OFF, SUSPENDED),
    ),
    _transition(
        (PENDING, BACKING_OFF, SUSPENDED, RUNNING),
        LAUNCHING,
        _R.DRIVER_STARTS,
        "The driver for the recorded verdict exists and has not started.",
        rare=(PENDING, SUSPENDED),
    ),
    _transition(_NOT_DRAINING, RUNNING, _R.DRIVER_RUNS, "The driver of the attempt runs.", rare=(SUSPENDED,)),
    _transition(
        _ACTIVE,
        RUNNING,
        _R.DRIVER_HANGS,
        "The driver shows no progress, and is killed.",
        rare=(PENDING, SUSPENDED, DRAINING),
    ),
    _transition(
        _ACTIVE,
        DRAINING,
        _R.DRAIN_REQUESTED,
        "The driver is asked to end: the stream was suspended, deleted or changed.",
    ),
    _transition(
        _ACTIVE,
        PENDING,
        _R.DRIVER_DRAINED,
        "The driver has ended as requested, and the next one follows.",
        rare=(BACKING_OFF, SUSPENDED, RECONCILING),
    ),
    _transition(
        _ACTIVE,
        SUSPENDED,
        _R.DRIVER_DRAINED,
        "The driver has ended as requested, and no other is to run.",
        rare=(PENDING, BACKING_OFF, RECONCILING, LAUNCHING, RUNNING, DRAINING),
    ),
    _transition(
        _ACTIVE,
        PENDING,
        _R.DRIVER_FINISHED,
        "A driver without a query has finished what was decided, and the stream is decided again.",
        rare=(BACKING_OFF, SUSPENDED, RECONCILING, RUNNING, DRAINING),
    ),
    _transition(
        _ACTIVE,
        COMPLETED,
        _R.DRIVER_COMPLETED,
        "Everything that the source held when the driver started has landed.",
        rare=(PENDING, BACKING_OFF, SUSPENDED, RECONCILING, LAUNCHING),
    ),
    _transition(
        _ACTIVE,
        BACKING_OFF,
        _R.DRIVER_FAILED,
        "The driver has ended; the next attempt waits.",
        rare=(PENDING, SUSPENDED),
    ),
    _transition(
        _ACTIVE,
        HALTED,
        _R.DRIVER_FAILED,
        "The driver has ended too often, or will again: a person has to act.",
        rare=(PENDING, BACKING_OFF, SUSPENDED, RECONCILING),
    ),
    _transition(
        _ACTIVE,
        BACKING_OFF,
        _R.NO_ANSWER,
        "A store or the API server did not answer, so nothing is known.",
        rare=(RUNNING,),
    ),
    _transition(
        _ACTIVE,
        HALTED,
        _R.REFUSED,
        "A store or the API server has refused something, and retrying will not help.",
    ),
    _transition(
        _ACTIVE, SUSPENDED, _R.AT_REST, "No driver runs, and no driver is to run.", rare=(RECONCILING, LAUNCHING)
    ),
    _by_operator(
        _ACTIVE,
        DRAINING,
        _R.SPEC_UNUSABLE,
        "The stream is to be suspended, and its driver runs.",
        rare=(PENDING, RECONCILING, LAUNCHING),
    ),
    _by_operator(
        _ACTIVE,
        SUSPENDED,
        _R.SPEC_UNUSABLE,
        "The stream is to be suspended, and no driver runs.",
    ),
    _by_operator(_ACTIVE, BACKING_OFF, _R.SPEC_UNUSABLE, "No driver runs."),
    _by_operator((BACKING_OFF, SUSPENDED), PENDING, _R.SPEC_UNUSABLE, "No attempt was ever made.", rare=(BACKING_OFF,)),
    _by_operator(_ACTIVE, BACKING_OFF, _R.SOMETHING_MISSING, "No driver runs.", rare=(RECONCILING, LAUNCHING, RUNNING)),
    _by_operator(
        (BACKING_OFF, SUSPENDED), PENDING, _R.SOMETHING_MISSING, "No attempt was ever made.", rare=(BACKING_OFF,)
    ),
    _transition(
        (HALTED, COMPLETED, BACKING_OFF, SUSPENDED),
        PENDING,
        _R.PERSON_ACTED,
        "The change is tried, and failures are counted from zero again.",
        writer=Writer.PERSON,
    ),
    _transition(
        (HALTED, BACKING_OFF),
        PENDING,
        _R.ROLLED_BACK,
        "The spec that ran last is in force again.",
        writer=Writer.ROLL_BACK,
    ),
)

_TABLE = {(before, it.after, it.reason) for it in TRANSITIONS for before in it.before}


def is_known(before: Phase, after: Phase, reason: TransitionReason | None) -> bool:
    """Whether the table has this transition; a phase that stays as it is needs no reason."""
    return before is after or (before, after, reason) in _TABLE
