"""Decided loads whose rows wait in files: submitted once, settled by their label and their file. No pyspark here.

What keeps a row from counting twice: the ledger says that a load is submitted before its statement is sent, and whoever finds
that there sends none, so each label has at most one statement. A driver may be frozen between the two, and its statement may
come when the sink has forgotten the label. So nobody concludes that a load has come to nothing while its file is there: the
file is removed first, and a statement that comes later finds no rows. docs/adr/0037 has the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import assert_never

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.errors import Refused
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch, StagedFile
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.two_phase import replace_decided
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.staged_loads import (
    REMEMBERED_MILLISECONDS,
    Cancelled,
    End,
    Finished,
    NotTakenNow,
    Outcome,
    StagedLoads,
)
from exactlyonce_spark.target import LoadState, TwoPhaseTarget


class RowsPartlyLoaded(Refused):
    """The sink has finished a decided load with another number of rows than it has: a person makes the table whole.

    `loads` are all of that kind that are known; the message is of the first.
    """

    def __init__(self, message: str, loads: tuple[Committable, ...]) -> None:
        super().__init__(message)
        self.loads = loads

    def after(self, first: RowsPartlyLoaded | None) -> RowsPartlyLoaded:
        """Return what is raised of both."""
        return self if first is None else RowsPartlyLoaded(str(first), (*first.loads, *self.loads))


class RowsRefused(Refused):
    """The sink has cancelled a decided load for a reason that a person has to mend: none of its rows counts."""


class NoStagedLoads(Refused):
    """The decided batch has loads that wait in files, and this sink submits none."""


def submit_decided(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch) -> DecidedBatch:
    """Submit the loads that wait in files and were not submitted, each recorded first; return the record.

    One by one, so that a driver that dies leaves at most one load of which it is not known whether its statement was sent. A
    sink may take so many loads at a time and no more; then one that was submitted is waited on before the next one is.

    Raises:
        Fenced, DecisionDiffers: nothing was submitted that is not recorded.
        Refused: by the sink, or before anything was sent to it; the record says that the load was not submitted.
        Unreachable, CommitOutcomeUnknown: the next driver finds out.
    """
    over: set[str] = set()
    while (one := next(filter(_waits, decided.committables), None)) is not None:
        loads = staged_loads_of(target)
        decided, problem = _submitted(ledger, permit, loads, decided, one)
        if problem is not None:
            under_way = next((load for load in decided.committables if _is_under_way(load, over)), None)
            if under_way is None:
                raise problem
            loads.outcome_of(under_way)
            over.add(under_way.label)
    return decided


def _waits(committable: Committable) -> bool:
    return committable.staged is not None and committable.staged.submitted_at_milliseconds is None


def _is_under_way(committable: Committable, over: Collection[str]) -> bool:
    return committable.staged is not None and not _waits(committable) and committable.label not in over


def _submitted(
    ledger: Ledger, permit: Permit, loads: StagedLoads, decided: DecidedBatch, committable: Committable
) -> tuple[DecidedBatch, NotTakenNow | None]:
    """Submit a load, and return the record; and the problem, if the record says that the load still waits."""
    staged = committable.staged
    assert staged is not None, "it waits in a file"
    submitted = replace(staged, submitted_at_milliseconds=loads.now_milliseconds())
    decided, recorded = _replaced(ledger, permit, decided, committable, replace(committable, staged=submitted))
    reached("submit.recorded", decided.batch)
    try:
        loads.submit(recorded)
    except (Refused, NotTakenNow) as problem:
        again = _relabelled(loads, decided, recorded, staged)
        decided, _ = _replaced(ledger, permit, decided, recorded, again)
        if isinstance(problem, NotTakenNow):
            return decided, problem
        raise
    reached("submit.sent", decided.batch)
    return decided, None


def submitted_state(target: TwoPhaseTarget, committable: Committable) -> LoadState:
    """Return what the sink says of a load that was submitted: COMMITTED, ABORTED or UNKNOWN.

    Raises:
        RowsPartlyLoaded: if it is neither committed nor aborted, and no person has said what was made of it.
    """
    return _state(committable, staged_loads_of(target).outcome_of(committable))


def _state(committable: Committable, outcome: Outcome) -> LoadState:
    match outcome:
        case Finished(rows) if rows == committable.rows:
            return LoadState.COMMITTED
        case Finished(0) | Cancelled():
            return LoadState.ABORTED
        case End.NOT_FOUND | End.IN_DOUBT:
            return LoadState.UNKNOWN
        case Finished(rows):
            return _as_mended(committable, rows)
        case _:
            assert_never(outcome)


def _as_mended(committable: Committable, rows: int) -> LoadState:
    """Return what a person has made of a load that the sink has finished with so many rows."""
    answer = committable.answer
    if answer is not None and answer.is_of_a_part:
        return LoadState.COMMITTED if answer.says_rows_are_there else LoadState.ABORTED
    label = committable.answered_as
    raise RowsPartlyLoaded(
        f"The sink has finished {committable} with {rows} rows, and these count. Nothing more is written. Either remove from "
        f"the table what it has of the rows of this load, and annotate the stream {SETTLE_LOADS} with "
        f"{label}={Answer.REMOVED}: all of them are then written again. Or see to it that each of them is in the table once, "
        f"and annotate {label}={Answer.COMPLETED}. `exactlyonce settle-loads` writes either answer.",
        (committable,),
    )


def settled(target: TwoPhaseTarget, committable: Committable, state: LoadState) -> LoadState:
    """Return what became of a decided load for good, where the sink did not find one that was submitted.

    Once its file is gone, its statement can load nothing any more. It did before only if the label says so, or was forgotten;
    and it is not forgotten within `REMEMBERED_MILLISECONDS` of the record.
    """
    staged = committable.staged
    if state is not LoadState.UNKNOWN or staged is None:
        return state
    loads = staged_loads_of(target)
    loads.remove(staged)
    reached("submit.file-removed")
    outcome = loads.outcome_of(committable)
    if outcome is End.NOT_FOUND and _is_remembered(staged, loads.now_milliseconds()):
        return LoadState.ABORTED
    return _state(committable, outcome)


def why_cancelled(target: TwoPhaseTarget, committable: Committable) -> str:
    """Return the sink's own words for why it has cancelled a load that waits in a file; empty for any other load.

    Raises:
        RowsRefused: if it would cancel the same rows again.
    """
    if committable.staged is None:
        return ""
    outcome = staged_loads_of(target).outcome_of(committable)
    if not isinstance(outcome, Cancelled):
        return ""
    if outcome.is_refused:
        raise RowsRefused(
            f"The sink has cancelled {committable}, which is decided: {outcome.reason}. None of its rows counts. Alter the "
            "table or mend what the reason names; the next driver submits the same rows again, under another label."
        )
    return outcome.reason


def under_another_label(target: TwoPhaseTarget, decided: DecidedBatch, aborted: Committable) -> Committable | None:
    """Return a load of the file of one that was cancelled, to be recorded in its place; None where its file is gone.

    The label is another one: a statement of the former is not taken for one of this load. A file that was loaded in part is
    not used again, whatever was wrong with it.
    """
    if aborted.staged is None:
        return None
    if aborted.answer is Answer.REMOVED:
        staged_loads_of(target).remove(aborted.staged)
        return None
    if not staged_loads_of(target).is_there(aborted):
        return None
    return _relabelled(staged_loads_of(target), decided, aborted, aborted.staged)


def remove_files(target: TwoPhaseTarget, committed: Collection[Committable]) -> None:
    """Remove the files of loads that are committed, once the ledger's record no longer names them."""
    for committable in committed:
        if committable.staged is not None:
            staged_loads_of(target).remove(committable.staged)
            reached("submit.file-removed")


def leave_out_files(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch) -> None:
    """Leave committed loads out of the record and remove their files, before the batch lands.

    Raises:
        Fenced, DecisionDiffers, CommitOutcomeUnknown, Unreachable: the next driver removes the files.
    """
    if any(committable.staged is not None for committable in decided.committables):
        replace_decided(ledger, permit, decided, replace(decided, committables=()))
        reached("submit.left-out", decided.batch)
        remove_files(target, decided.committables)


def leave_out_others(
    ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch, left: tuple[Committable, ...]
) -> None:
    """Leave out of the record all but these loads: the others are committed, and a label may be forgotten until a person acts.

    Raises:
        Fenced, DecisionDiffers, CommitOutcomeUnknown, Unreachable: the next driver asks about all of them again.
    """
    if left != decided.committables:
        replace_decided(ledger, permit, decided, replace(decided, committables=left))
        reached("submit.left-out", decided.batch)
        remove_files(target, [one for one in decided.committables if one not in left])


def remove_undecided_files(target: TwoPhaseTarget, permit: Permit) -> None:
    """Remove the files of earlier epochs, once no decision names any of them: their drivers decide nothing any more."""
    loads = target.staged_loads
    if loads is None:
        return
    for file in loads.waiting():
        if file.epoch < permit.epoch:
            loads.remove(file.file)
            reached("submit.file-removed")


def staged_loads_of(target: TwoPhaseTarget) -> StagedLoads:
    """Return what submits loads.

    Raises:
        NoStagedLoads: if the sink has no such thing.
    """
    loads = target.staged_loads
    if loads is None:
        raise NoStagedLoads(
            "The decided batch has loads whose rows wait in files, and the sink as it is now submits none: give it back the "
            "place of the files, until the batch has landed."
        )
    return loads


def _relabelled(loads: StagedLoads, decided: DecidedBatch, one: Committable, staged: StagedFile) -> Committable:
    """Return a load of the same file that was not submitted; what a person has said was said of the former label."""
    return replace(
        one,
        label=loads.another_label(decided.batch),
        answer=None,
        staged=replace(staged, submitted_at_milliseconds=None),
    )


def _is_remembered(staged: StagedFile, now_milliseconds: int) -> bool:
    submitted = staged.submitted_at_milliseconds
    # A clock that went back, as after a failover of the sink, says nothing.
    return submitted is not None and 0 <= now_milliseconds - submitted < REMEMBERED_MILLISECONDS


def _replaced(
    ledger: Ledger, permit: Permit, decided: DecidedBatch, one: Committable, by: Committable
) -> tuple[DecidedBatch, Committable]:
    committables = tuple(by if found == one else found for found in decided.committables)
    after = replace(decided, committables=committables)
    replace_decided(ledger, permit, decided, after)
    return after, by
