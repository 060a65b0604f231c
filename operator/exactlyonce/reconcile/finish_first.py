"""What is decided is finished first: when a driver without a query is needed. Performs no I/O.

A decided batch waits in a sink that forgets, and a batch that landed may be unknown to its readers. The next ordinary driver
finishes both before its first batch. Where none follows, because the stream halts, is suspended, deleted or starts over, a
driver that runs no query does it (docs/adr/0062).
"""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.resource import ADOPT, FRESH
from exactlyonce.api.status import DriverStatus, StreamStatus
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import Ended, Gone
from exactlyonce.ledger.rows import DatabaseIdentity, LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.case import Case
from exactlyonce.reconcile.decided import answered, contradicts_its_batches, decided_evidence
from exactlyonce.reconcile.identity import before_the_raise
from exactlyonce.reconcile.observation import Request
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FinishFirst,
    Launch,
    Verdict,
)

_LEDGER_IN_DOUBT = frozenset({ContradictionReason.LEDGER_INCONSISTENT, ContradictionReason.LEDGER_BEHIND_SINK})
"""Contradictions that say that the ledger's own record is not to be believed, so nothing is done by it."""

_ALREADY_TRIED = frozenset({"LoadsInDoubt", "RowsPartlyLoaded", "RowsNotThere", "DecidedElsewhere"})
"""Errors with which a driver ends that tried to finish what is decided; the next one would end the same."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What earlier drivers have left: the batch, and a clause that says what is to be done about it."""

    batch: BatchNumber
    clause: str


def unfinished(ledger: LedgerView, request: Request) -> Unfinished | None:
    """Return what a driver without a query would finish, as far as the ledger and the status know.

    Where readers are shown what has landed behind the ledger, nobody but the sink knows whether they are. The driver that
    landed it does, and says so by ending of its own accord; so does one without a query, of which the status knows.
    """
    row, decided = ledger.stream, ledger.decided
    if decided is not None:
        if not request.two_phases:
            return None  # another sink has it, to which no driver of this resource has a way
        return Unfinished(decided.batch, f"batch {decided.batch} is decided and not known to be committed in the sink")
    if not request.shows_landed or row.landed_batch is None or row.writer_released:
        return None
    if request.finished_by is not None and (row.writer is None or row.writer < request.finished_by):
        return None
    return Unfinished(
        row.landed_batch,
        f"readers may not be shown all that has landed, up to batch {row.landed_batch}",
    )


def with_what_is_decided_first(case: Case, decision: Decision) -> Decision:
    """Return the decision; or, where it starts no query or forgets what stands, one that finishes what is left first.

    Where it is not known whose the stream is, or the ledger is not to be believed, the decision stays.
    """
    seen = case.seen
    if isinstance(case.examined, Contradiction) or seen.ledger is None or seen.ledger.stream.landed_batch is None:
        return decision
    if case.examined.fresh:
        refused = _new_start_refused(seen.ledger, seen.database, seen.request)
        if refused is not None:
            return Decision(refused)
    elif not decision.halts or _is_in_doubt(decision.verdict):
        return decision
    left = _left(seen.ledger, seen.database, seen.request)
    if left is None:
        return decision
    return _finish(left, seen.ledger, seen.request, f"Then: {decision.verdict.message}", decision.verdict.evidence)


def finish_without_a_look(
    ledger: LedgerView | None, database: DatabaseIdentity, request: Request, why: str, *, owner_is_gone: bool
) -> Decision | None:
    """Return the decision to finish what is left, by the ledger alone; None where there is nothing, or it is another's.

    `why` is a sentence that says why no query follows. Neither source nor checkpoint is asked: nothing is read or continued.
    """
    if ledger is None or before_the_raise(request, ledger.stream, owner_is_gone) is not None:
        return None
    left = _left(ledger, database, request)
    return None if left is None else _finish(left, ledger, request, why, ())


def finished_by(status: StreamStatus) -> int | None:
    """Return the attempt of the latest driver, if that was one without a query which has finished all that it found."""
    driver = status.driver
    finished = driver is not None and finishes(driver) and driver.ended == Ending.FINISHED
    return driver.attempt if driver is not None and finished else None


def finishes(driver: DriverStatus | None) -> bool:
    """Whether a driver was started to finish what is left, and for nothing else."""
    return driver is not None and driver.task is DriverTask.FINISH_ONLY


def has_finished(ending: Ended | Gone) -> bool:
    """Whether a driver says that it ran no query and has finished what was left; a lost status may not know its task."""
    return isinstance(ending, Ended) and ending.words is not None and ending.words.ending is Ending.FINISHED


def was_tried(case: str | None) -> bool:
    """Whether a driver that ended with this error has tried to finish what is decided; another one would end the same."""
    return case in _ALREADY_TRIED


def _left(ledger: LedgerView, database: DatabaseIdentity, request: Request) -> Unfinished | None:
    """Return what is left, where the ledger is the one that the stream was made in and agrees with itself about it."""
    is_believed = ledger.stream.database == database and contradicts_its_batches(ledger) is None
    return unfinished(ledger, request) if is_believed else None


def _finish(
    left: Unfinished, ledger: LedgerView, request: Request, then: str, evidence: tuple[Evidence, ...]
) -> Decision:
    answers, told = answered(ledger, request.settle_loads)
    clause = f"{left.clause[0].upper()}{left.clause[1:]}"
    message = f"{clause}; a driver that runs no query finishes that first. {then}"
    verdict = FinishFirst(left.batch, message, (*evidence, *decided_evidence(ledger), *told))
    return Decision(verdict, (*answers, Launch(DriverTask.FINISH_ONLY)))


def _is_in_doubt(verdict: Verdict) -> bool:
    return isinstance(verdict, Contradiction) and verdict.reason in _LEDGER_IN_DOUBT


def _new_start_refused(ledger: LedgerView, database: DatabaseIdentity, request: Request) -> Contradiction | None:
    """Return why the stream may not start over: something is decided that no driver of this resource can finish."""
    decided = ledger.decided
    if decided is None:
        return None
    where = f" in {decided.sink}" if decided.sink else ""
    what = f"The stream cannot start over: batch {decided.batch} is decided, to be committed{where}"
    contradiction = contradicts_its_batches(ledger)
    if contradiction is not None:
        words = f"{what}, and the ledger contradicts itself: {contradiction}. Restore all of the ledger."
    elif not request.two_phases:
        words = (
            f"{what}, and the resource no longer names that sink. Name it again and remove {FRESH}; once the batch has landed, "
            "suspend the stream, change the sink and start over."
        )
    elif ledger.stream.database != database:
        words = (
            f"{what}, by a stream whose ledger was made in {ledger.stream.database}; this one, {database}, is a copy of it. "
            f"Annotate {ADOPT} in place of {FRESH} if this resource is to continue as that stream, and start over once the "
            "batch has landed; otherwise give the stream another streamId."
        )
    else:
        return None
    return Contradiction(ContradictionReason.NEW_START_REFUSED, words, decided_evidence(ledger))
