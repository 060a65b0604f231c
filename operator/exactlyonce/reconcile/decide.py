"""The decision: from one observation to one verdict and an ordered list of actions. Performs no I/O.

Read `REFUSALS_AND_STARTS` and `CONTINUATIONS` first: they are the table of verdicts of docs/verdicts.md, in the order in which
the verdicts are looked for. The first check that has a decision makes it. A decision that starts no query, or starts over, is
put off while something is decided that a driver without a query can finish (`finish_first`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exactlyonce.api.recovery import OnCheckpointLost, OnSourceTruncated
from exactlyonce.checkpoint.state import Readable
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from exactlyonce.reconcile import new_generation
from exactlyonce.reconcile.behind_sink import (
    found_load_is_in_the_sink,
    ledger_is_behind_its_sink,
    settled_beside,
    sink_has_unknown_load,
)
from exactlyonce.reconcile.case import Case
from exactlyonce.reconcile.compare import LogVerdict
from exactlyonce.reconcile.decided import answered, decided_evidence
from exactlyonce.reconcile.finish_first import with_what_is_decided_first
from exactlyonce.reconcile.first_start import first_start
from exactlyonce.reconcile.kept_state import keeps_state, unless_state_is_lost
from exactlyonce.reconcile.known_checks import telling_that_it_went_back, went_back
from exactlyonce.reconcile.ledger_checks import ledger_contradiction
from exactlyonce.reconcile.lost_batches import records_lost, with_evidence
from exactlyonce.reconcile.observation import MayLive, Observation
from exactlyonce.reconcile.reset_offsets import left_behind, offsets_are_reset
from exactlyonce.reconcile.source_change import SourceChange, stateful_query_changed
from exactlyonce.reconcile.source_checks import (
    cannot_tell,
    first_missing,
    last_seen,
    missing_evidence,
    missing_words,
    source_replaced,
)
from exactlyonce.reconcile.verdicts import (
    Action,
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    RebuildFromSink,
    RebuildReason,
    RecordQuery,
    ReplanBatch,
    RewindToSink,
    SeedAndPublish,
    SourceTruncated,
)

_NOT_A_LOSS = {
    RebuildReason.PREDECESSOR_MAY_LIVE,
    RebuildReason.PARTLY_LANDED,
    RebuildReason.LOCATION_CHANGED,
    RebuildReason.SOURCE_SET_CHANGED,
    RebuildReason.PLANNED_BEYOND_SOURCE,
    RebuildReason.TOPIC_DELETED,
}
"""Reasons to rebuild that are no loss of the checkpoint, so onCheckpointLost has no say."""


Check = Callable[[Case], Decision | None]
"""Makes the decision, or leaves it to the checks that follow."""


def belongs_to_another(case: Case) -> Decision | None:
    """The ledger, the database or the location is another stream's, and no annotation settles it."""
    return Decision(case.examined) if isinstance(case.examined, Contradiction) else None


def never_landed(case: Case) -> Decision | None:
    """No batch ever landed, or a person asked to start over."""
    ledger = case.seen.ledger
    if ledger is None or ledger.stream.landed_batch is None or case.identity.fresh:
        return first_start(case.seen, case.identity)
    return None


def ledger_does_not_fit_itself(case: Case) -> Decision | None:
    """Rows of the ledger contradict each other."""
    problem = ledger_contradiction(case.ledger)
    return None if problem is None else Decision(problem)


def source_is_another(case: Case) -> Decision | None:
    """The source is not the one that was read."""
    problem = source_replaced(case.seen, case.ledger)
    return None if problem is None else Decision(problem)


def stateful_query_is_another(case: Case) -> Decision | None:
    """The resource asks something else of a query whose state was made without that."""
    keeps = keeps_state(case.seen)
    refused = stateful_query_changed(case.seen, case.ledger, case.change, keeps_state=keeps)
    return None if refused is None else Decision(refused)


def next_record_is_gone(case: Case) -> Decision | None:
    """Retention took records before they landed."""
    missing = first_missing(case.seen, case.ledger)
    return _source_truncated(case, missing) if missing else None


def other_partitions_are_read(case: Case) -> Decision | None:
    """The checkpoint names other partitions than the resource, so it is no longer used."""
    return None if case.change is None else _rebuild(case, _changed(case.by_the_logs, case.change))


def checkpoint_is_unusable(case: Case) -> Decision | None:
    """The checkpoint is lost, damaged, behind the sink or ahead of it."""
    verdict = case.by_the_logs
    return _rebuild(case, verdict) if isinstance(verdict, RebuildFromSink | RewindToSink) else None


def batch_is_planned_again(case: Case) -> Decision | None:
    """The current batch landed nothing, and something asks for another plan.

    The checkpoint is not lost, so onCheckpointLost has no say; and whoever may still write it is left alone with it.
    """
    verdict = case.with_the_checkpoint
    if not isinstance(verdict, ReplanBatch):
        return None
    seen, standing = case.seen, case.ledger.landed.positions
    number = new_generation.seed_batch(seen)
    seed = new_generation.seed_at(seen, standing, standing, number, verdict.message, case.ledger)
    return Decision(verdict, (seed, Launch()))


def predecessor_may_live(case: Case) -> Decision | None:
    """A directory that a predecessor may still write is left to it, unless state ties the stream to it."""
    predecessor, verdict = case.seen.predecessor, case.with_the_checkpoint
    if not isinstance(predecessor, MayLive):
        return None
    why = predecessor.message
    evidence = Evidence(f"the last driver may still live: {why}", {"predecessor": why})
    checkpoint = case.seen.checkpoint
    assert isinstance(checkpoint, Readable), "compare_logs continues with a readable checkpoint only"
    if keeps_state(case.seen) and checkpoint.state_survives_two_writers:
        kept = Evidence(
            "its state files have unique names, so the checkpoint stays in use", {"conf": dict(checkpoint.conf)}
        )
        return Decision(replace(verdict, evidence=(*verdict.evidence, evidence, kept)), (Launch(),))
    message = (
        f"The last driver may still write its checkpoint ({why}), so a new generation continues at "
        f"{case.seen.request.shown(case.ledger.landed.positions)}."
    )
    return _rebuild(case, RebuildFromSink(RebuildReason.PREDECESSOR_MAY_LIVE, message, (*verdict.evidence, evidence)))


def checkpoint_stays_in_use(case: Case) -> Decision:
    """Planned, checkpointed and landed agree, or differ by one batch that the next driver ends."""
    return Decision(case.with_the_checkpoint, (Launch(),))


REFUSALS_AND_STARTS: tuple[Check, ...] = (
    belongs_to_another,  # Contradiction: OtherOwner, OtherDatabase, LocationTaken, LocationNotEmpty, CheckpointWithoutLedger
    sink_has_unknown_load,  # Contradiction: LedgerBehindSink
    never_landed,  # FirstStart; Contradiction: CheckpointWithoutLedger, LedgerLost, StateWouldBeLost
    ledger_does_not_fit_itself,  # Contradiction: LedgerInconsistent
    ledger_is_behind_its_sink,  # Contradiction: LedgerBehindSink
    source_is_another,  # SourceReplaced
    stateful_query_is_another,  # Contradiction: StatefulQueryChanged
)
"""Checks before it is known that the ledger says where this stream stands."""

CONTINUATIONS: tuple[Check, ...] = (
    found_load_is_in_the_sink,  # OffsetsReset
    offsets_are_reset,  # OffsetsReset; Contradiction: ResetRefused
    next_record_is_gone,  # SourceTruncated
    other_partitions_are_read,  # RebuildFromSink: SourceSetChanged, TopicDeleted, or a worse reason; RewindToSink
    checkpoint_is_unusable,  # RebuildFromSink, RewindToSink
    batch_is_planned_again,  # ReplanBatch
    predecessor_may_live,  # RebuildFromSink: PredecessorMayLive
    checkpoint_stays_in_use,  # Resume, ReplayBatch, SkipLanded, FinishBatch, FinishCommit
)
"""Checks of where the stream continues; those that rebuild may halt as CheckpointNotToBeRebuilt or StateWouldBeLost."""


def decide(seen: Observation) -> Decision:
    """Return what to do before the next driver starts."""
    case = Case(seen)
    return with_what_is_decided_first(case, _decided(case))


def _decided(case: Case) -> Decision:
    refused_or_started = _first(REFUSALS_AND_STARTS, case)
    if refused_or_started is not None:
        return refused_or_started
    decision = _first(CONTINUATIONS, case)
    assert decision is not None, "the last check always decides"
    return _complete(case, decision)


def _first(checks: tuple[Check, ...], case: Case) -> Decision | None:
    return next((decision for check in checks if (decision := check(case)) is not None), None)


def _complete(case: Case, decision: Decision) -> Decision:
    """Add what holds whatever was decided: what the identity asks to be written, what was lost, what cannot be told."""
    seen, ledger, identity = case.seen, case.ledger, case.identity
    lost = records_lost(ledger)
    # A sink of two phases did not go back with its ledger, so nothing lands again; its driver compares first.
    gone_back = None if seen.request.two_phases else went_back(seen, ledger)
    verdict = telling_that_it_went_back(decision.verdict, gone_back)
    answers, told = answered(ledger, seen.request.settle_loads)
    loads, told_of_loads = settled_beside(case)
    reset = left_behind(seen.request, ledger)
    evidence = (
        *identity.settled, *cannot_tell(seen, ledger), *decided_evidence(ledger), *told, *told_of_loads, *reset
    )  # fmt: skip
    verdict = with_evidence(verdict, evidence, lost, seen.request)
    if decision.halts:
        return Decision(verdict, lost)
    return Decision(verdict, (*identity.actions, *lost, *answers, *loads, *_with_query(seen, ledger, decision.actions)))


def _with_query(seen: Observation, ledger: LedgerView, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """A seed says what it was made for; else that is written down where it has changed."""
    query = new_generation.query_mark(seen)
    if ledger.query == query or any(isinstance(action, SeedAndPublish) for action in actions):
        return actions
    return (RecordQuery(query), *actions)


def _source_truncated(case: Case, missing: dict[Partition, tuple[int, int]]) -> Decision:
    """The records `[next, earliest)` of some partitions are gone from the source."""
    seen, ledger, change = case.seen, case.ledger, case.change
    gone = "" if change is None else change.forgotten.sentences
    changed = () if change is None else change.evidence
    evidence = (*missing_evidence(seen.request, missing), *last_seen(seen.request, ledger, missing))
    message = f"{gone} {missing_words(seen.request, missing)}".lstrip()
    if seen.request.on_source_truncated is not OnSourceTruncated.RESUME_FROM_EARLIEST:
        advice = "set recovery.onSourceTruncated to ResumeFromEarliest to continue without them"
        return Decision(SourceTruncated(False, f"{message}; {advice}.", (*evidence, *changed)))
    message = f"{message}; the stream continues without them, as the resource asks."
    moved = Positions({**_standing(ledger, change), **{key: earliest for key, (_, earliest) in missing.items()}})
    batch = new_generation.seed_batch(seen)
    given_up = tuple(
        FailureRow(
            batch, key, wanted, earliest, FailureStatus.LOST, "", "retention took the records before they landed"
        )
        for key, (wanted, earliest) in missing.items()
    )
    seed = new_generation.seed_at(seen, ledger.landed.positions, moved, batch, message, ledger)
    seed = replace(seed, given_up=(*given_up, *_gone(change, batch)))
    return unless_state_is_lost(seen, ledger, SourceTruncated(True, message, (*evidence, *changed)), seed)


def _changed(verdict: LogVerdict, change: SourceChange) -> RebuildFromSink | RewindToSink:
    """Return why a generation for other partitions is made; a worse reason comes first."""
    message = change.sentences
    if isinstance(verdict, RebuildFromSink | RewindToSink):
        told, evidence = f"{verdict.message} {message}", (*verdict.evidence, *change.evidence)
        if isinstance(verdict, RebuildFromSink) and verdict.reason is RebuildReason.PLANNED_OTHERWISE:
            # Spark plans without a topic as soon as that is gone, and then refuses to continue: no loss of the checkpoint.
            reason = change.reason if change.forgotten.stood else verdict.reason
            return RebuildFromSink(reason, told, evidence)
        return replace(verdict, message=told, evidence=evidence)
    return RebuildFromSink(change.reason, message, (*verdict.evidence, *change.evidence))


def _standing(ledger: LedgerView, change: SourceChange | None) -> Positions:
    """Where a new generation continues: at what has landed of all that the resource reads."""
    return ledger.landed.positions if change is None else change.standing


def _gone(change: SourceChange | None, batch: BatchNumber) -> tuple[FailureRow, ...]:
    """What is known to be lost with topics that were deleted."""
    return () if change is None else change.forgotten.failures(batch)


def _rebuild(case: Case, verdict: RebuildFromSink | RewindToSink) -> Decision:
    """A new generation starts where the sink stands, if the resource allows it and no state is lost."""
    seen, ledger, change = case.seen, case.ledger, case.change
    is_loss = not isinstance(verdict, RebuildFromSink) or verdict.reason not in _NOT_A_LOSS
    if is_loss and seen.request.on_checkpoint_lost is OnCheckpointLost.HALT:
        return Decision(
            Contradiction(
                ContradictionReason.CHECKPOINT_NOT_TO_BE_REBUILT,
                f"{verdict.message} The resource asks to halt here: set recovery.onCheckpointLost to "
                "RebuildFromSink to continue.",
                verdict.evidence,
            )
        )
    batch = new_generation.seed_batch(seen)
    seed = new_generation.seed_at(
        seen, ledger.landed.positions, _standing(ledger, change), batch, verdict.message, ledger
    )
    seed = replace(seed, given_up=_gone(change, batch))
    return unless_state_is_lost(seen, ledger, verdict, seed)
