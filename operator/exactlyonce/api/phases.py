"""The phases of a stream and every way from one to another: who may write it, and why. Performs no I/O.

`docs/phases.md` is rendered from this table. Who writes a phase asks `require_transition`: a way that is not here is a defect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from exactlyonce.api.status import Phase


class Writer(StrEnum):
    """Who writes a phase; WRITERS says when."""

    LOOP = "Loop"
    HOLD = "Hold"
    PERSON = "Person"
    ROLL_BACK = "RollBack"


WRITERS = {
    Writer.LOOP: "a pass of the loop over the stream: it looks at the driver, records an attempt, decides and launches.",
    Writer.HOLD: "the operator, for a stream whose spec is invalid or that lacks something, such as a secret: nothing is "
    "launched.",
    Writer.PERSON: "the operator, for a person who has acted since: the resource was changed, or `exactlyonce run` was called.",
    Writer.ROLL_BACK: "the operator, when it goes back to the spec that ran last.",
}


@dataclass(frozen=True, slots=True)
class Transition:
    """Ways from some phases to another one."""

    before: tuple[Phase, ...]
    after: Phase
    writer: Writer
    reason: str


_WITHOUT_DRIVER = (Phase.PENDING, Phase.BACKING_OFF, Phase.SUSPENDED)
_WITH_DRIVER = (Phase.RECONCILING, Phase.LAUNCHING, Phase.RUNNING, Phase.DRAINING)
_ACTIVE = (*_WITHOUT_DRIVER, *_WITH_DRIVER)


def _others(phases: tuple[Phase, ...], after: Phase) -> tuple[Phase, ...]:
    return tuple(phase for phase in phases if phase is not after)


def _from(phases: tuple[Phase, ...], after: Phase, writer: Writer, reason: str) -> Transition:
    return Transition(_others(phases, after), after, writer, reason)


TRANSITIONS = (
    _from(_ACTIVE, Phase.RECONCILING, Writer.LOOP, "An attempt is recorded: nothing older may land from its raise on."),
    _from(_ACTIVE, Phase.LAUNCHING, Writer.LOOP, "A verdict is recorded, and its driver is started."),
    _from(_ACTIVE, Phase.RUNNING, Writer.LOOP, "The driver of the attempt runs."),
    _from(_ACTIVE, Phase.DRAINING, Writer.LOOP, "The driver is asked to end: suspended, deleted or changed."),
    _from(
        _ACTIVE, Phase.BACKING_OFF, Writer.LOOP, "The driver has ended or cannot be started; the next attempt waits."
    ),
    _from(_ACTIVE, Phase.PENDING, Writer.LOOP, "The driver has ended as it was asked to, and the next one follows."),
    _from(_ACTIVE, Phase.SUSPENDED, Writer.LOOP, "No driver runs, and none is wanted."),
    _from(_ACTIVE, Phase.COMPLETED, Writer.LOOP, "What the source held when the driver started has landed."),
    _from(_ACTIVE, Phase.HALTED, Writer.LOOP, "A verdict, a refusal or too many failures: a person has to act."),
    _from(_ACTIVE, Phase.DRAINING, Writer.HOLD, "The spec cannot be used, the stream is to rest, and its driver runs."),
    _from(_ACTIVE, Phase.SUSPENDED, Writer.HOLD, "The spec cannot be used, the stream is to rest, and no driver runs."),
    _from(_ACTIVE, Phase.BACKING_OFF, Writer.HOLD, "Something is missing, and no driver runs."),
    _from(_ACTIVE, Phase.PENDING, Writer.HOLD, "Something is missing, and no attempt was ever made."),
    Transition(
        (Phase.HALTED, Phase.COMPLETED, Phase.BACKING_OFF, Phase.SUSPENDED),
        Phase.PENDING,
        Writer.PERSON,
        "What was changed is tried: failures are counted from the start.",
    ),
    Transition(
        (Phase.HALTED, Phase.BACKING_OFF),
        Phase.PENDING,
        Writer.ROLL_BACK,
        "The spec that ran last is in force again.",
    ),
)

_ALLOWED = {(before, it.after, it.writer) for it in TRANSITIONS for before in it.before}


class TransitionUnknown(AssertionError):
    """A phase was to be written that does not follow on the one that stands."""


def require_transition(before: Phase, after: Phase, writer: Writer) -> None:
    """Require that this writer may write this phase over that one.

    Raises:
        TransitionUnknown: if the table has no such way.
    """
    if before is not after and (before, after, writer) not in _ALLOWED:
        raise TransitionUnknown(f"{writer} may not write {after} over {before}; see docs/phases.md.")
