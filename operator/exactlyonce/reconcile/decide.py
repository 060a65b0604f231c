"""The decision: from one observation to one verdict and an ordered list of actions. Performs no I/O.

Read `decide` first: it is the table of verdicts in the order in which they are looked for. docs/verdicts.md tells each
one to a person at night.
"""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.api.resource import ADOPT, FRESH
from exactlyonce.api.spec import OnCheckpointLost, OnSourceTruncated
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Readable
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus, LedgerView, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from exactlyonce.reconcile.compare import LogVerdict, checkpoint_evidence, compare_logs, sink_evidence
from exactlyonce.reconcile.identity import Identity, examine_identity
from exactlyonce.reconcile.kept_state import keeps_state, state_would_be_lost, unless_state_is_lost
from exactlyonce.reconcile.known_checks import (
    adopts_too_little,
    known_evidence,
    ledger_lost,
    telling_that_it_went_back,
    went_back,
)
from exactlyonce.reconcile.ledger_checks import ledger_contradiction
from exactlyonce.reconcile.observation import MayLive, Observation
from exactlyonce.reconcile.replan import replanned
from exactlyonce.reconcile.source_change import SourceChange, source_change, stateful_query_changed
from exactlyonce.reconcile.source_checks import cannot_tell, first_missing, source_replaced
from exactlyonce.reconcile.standing import standing_at
from exactlyonce.reconcile.verdicts import (
    Action,
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FinishBatch,
    FirstStart,
    Launch,
    RebuildFromSink,
    RebuildReason,
    RecordLost,
    RecordQuery,
    ReplanBatch,
    ReplayBatch,
    Resume,
    RewindToSink,
    SeedAndPublish,
    SkipLanded,
    SourceTruncated,
    Verdict,
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


def decide(seen: Observation) -> Decision:
    """Return what to do before the next driver starts."""
    identity = examine_identity(seen)
    if isinstance(identity, Contradiction):
        return Decision(identity)
    ledger = seen.ledger
    if ledger is None or ledger.stream.landed_batch is None or identity.fresh:
        return _first_start(seen, identity)
    problem = ledger_contradiction(ledger) or source_replaced(seen, ledger)
    if problem is not None:
        return Decision(problem)
    change = source_change(seen, ledger)
    refused = stateful_query_changed(seen, ledger, change, keeps_state=keeps_state(seen))
    if refused is not None:
        return Decision(refused)
    lost = _lost(ledger)
    missing = first_missing(seen, ledger)
    decision = _source_truncated(seen, ledger, missing, change) if missing else _by_the_logs(seen, ledger, change)
    verdict = telling_that_it_went_back(decision.verdict, went_back(seen, ledger))
    verdict = _with_evidence(verdict, (*identity.settled, *cannot_tell(seen, ledger)), lost)
    if decision.halts:
        return Decision(verdict, lost)
    return Decision(verdict, (*identity.actions, *lost, *_with_query(seen, ledger, decision.actions)))


def _with_query(seen: Observation, ledger: LedgerView, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """A seed says what it was made for; else that is written down where it has changed."""
    query = _query(seen)
    if ledger.query == query or any(isinstance(action, SeedAndPublish) for action in actions):
        return actions
    return (RecordQuery(query), *actions)


def _query(seen: Observation) -> QueryMark:
    request = seen.request
    return QueryMark(request.source, request.query, request.limit, request.shrunk)


def _first_start(seen: Observation, identity: Identity) -> Decision:
    """No batch ever landed, or a person asked to start over."""
    ledger = seen.ledger
    before = Positions() if ledger is None else ledger.landed.positions
    adopted: Positions | Contradiction | None = None
    if seen.location.ran and not identity.fresh:
        adopted = _end_of_adopted_checkpoint(seen) if identity.adopted else _restored_to_before_the_first_batch(seen)
    elif not identity.fresh:
        adopted = ledger_lost(seen)
    if isinstance(adopted, Contradiction):
        return Decision(adopted)
    start = adopted if adopted is not None else seen.start
    assert start is not None, "observe resolves the start of every stream that never started or starts over"
    number = _seed_batch(seen)
    reason = f"No batch ever landed; the stream starts at {start}."
    if identity.fresh:
        reason = f"The stream starts over at {start}, as the annotation asks."
    elif adopted is not None:
        reason = f"The stream is adopted from its checkpoint and goes on at {start}."
    if number > 0 and keeps_state(seen):
        return Decision(state_would_be_lost(reason, start, _start_evidence(seen, start)))
    seed = _seed(seen, before, start, number, reason, goes_on=None)
    lost = () if ledger is None else _lost(ledger)
    verdict = _with_evidence(FirstStart(reason, _start_evidence(seen, start)), identity.settled, lost)
    if identity.settled:
        # An annotation holds for the token that stands: once that is replaced nobody asks for a new start any more.
        return Decision(verdict, (*lost, seed, *identity.actions, Launch()))
    return Decision(verdict, (*identity.actions, *lost, seed, Launch()))


def _start_evidence(seen: Observation, start: Positions) -> tuple[Evidence, ...]:
    ledger, stream_id = seen.ledger, seen.request.stream_id
    found = Evidence(f"the ledger holds no batch of {stream_id}", {"streamId": stream_id, "landed": None})
    if ledger is not None and ledger.stream.landed_batch is not None:
        found = sink_evidence(ledger)
    return found, Evidence(f"the start is {start}", {"positions": start.to_json()})


def _end_of_adopted_checkpoint(seen: Observation) -> Positions | Contradiction:
    """Where a checkpoint without a ledger ends, when a person asked to adopt it."""
    state = seen.checkpoint
    if isinstance(state, Readable) and state.planned == state.checkpointed:
        if not adopts_too_little(seen, state.planned):
            return state.planned_end
        assert seen.known is not None, "it knows more than the checkpoint"
        return Contradiction(
            ContradictionReason.LEDGER_LOST,
            f"{seen.request.location} cannot be adopted: it ends with batch {state.planned}, and {seen.known.words}, so it is "
            f"an older one. Restore the ledger; or annotate {FRESH} in place of {ADOPT}, with a start position that fits the "
            "sink.",
            (checkpoint_evidence(state, seen.request.location), *known_evidence(seen)),
        )
    doubt = f"batch {state.planned}" if isinstance(state, Readable) else "its last batch"
    return Contradiction(
        ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
        f"{seen.request.location} cannot be adopted: without its ledger no one knows whether {doubt} landed. Compare the "
        f"sink by hand, then annotate {FRESH} in place of {ADOPT}, with a start position that fits.",
        (checkpoint_evidence(state, seen.request.location),),
    )


def _restored_to_before_the_first_batch(seen: Observation) -> Contradiction:
    """The stream's own checkpoint ran, and its ledger holds no batch: where it started is known to no one."""
    assert seen.ledger is not None, "a location that ran without a ledger is no agreed identity"
    token = seen.ledger.stream.token
    return Contradiction(
        ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
        f"{seen.request.location} has run and the ledger holds no batch of it: the database was restored to a moment before "
        f"the first one. Restore a later backup, or annotate {FRESH}={token} with a start position that fits the sink.",
        (checkpoint_evidence(seen.checkpoint, seen.request.location), *known_evidence(seen)),
    )


def _source_truncated(
    seen: Observation, ledger: LedgerView, missing: dict[Partition, tuple[int, int]], change: SourceChange | None
) -> Decision:
    """The records `[next, earliest)` of some partitions are gone from the source."""
    count = sum(earliest - wanted for wanted, earliest in missing.values())
    gone = "" if change is None else change.forgotten.sentences
    told = ", ".join(f"{key} [{wanted}, {earliest})" for key, (wanted, earliest) in missing.items())
    changed = () if change is None else change.evidence
    evidence = tuple(
        Evidence(
            f"{key}: the next record is {wanted}, the earliest held is {earliest}: {earliest - wanted} are gone",
            {"topic": key.origin, "partition": key.key, "from": wanted, "until": earliest},
        )
        for key, (wanted, earliest) in missing.items()
    )
    reason = f"{gone} The source no longer holds {count} records that have not landed: {told}".lstrip()
    if seen.request.on_source_truncated is not OnSourceTruncated.RESUME_FROM_EARLIEST:
        advice = "set recovery.onSourceTruncated to ResumeFromEarliest to go on without them"
        return Decision(SourceTruncated(False, f"{reason}; {advice}.", (*evidence, *changed)))
    reason = f"{reason}; the stream goes on without them, as the resource asks."
    moved = Positions({**_standing(ledger, change), **{key: earliest for key, (_, earliest) in missing.items()}})
    batch = _seed_batch(seen)
    given_up = tuple(
        FailureRow(
            batch, key, wanted, earliest, FailureStatus.LOST, "", "retention took the records before they landed"
        )
        for key, (wanted, earliest) in missing.items()
    )
    seed = _seed(seen, ledger.landed.positions, moved, batch, reason, ledger)
    seed = replace(seed, given_up=(*given_up, *_gone(change, batch)))
    return unless_state_is_lost(seen, ledger, SourceTruncated(True, reason, (*evidence, *changed)), seed)


def _by_the_logs(seen: Observation, ledger: LedgerView, change: SourceChange | None) -> Decision:
    """The source holds all that is needed: the logs and the ledger decide, and whether the resource reads the same."""
    verdict = compare_logs(seen, ledger)
    if change is not None:
        return _rebuild(seen, ledger, _changed(verdict, change), change)
    if isinstance(verdict, RebuildFromSink | RewindToSink):
        return _rebuild(seen, ledger, verdict)
    if isinstance(verdict, ReplayBatch):
        replan = replanned(seen, ledger, verdict, keeps_state=keeps_state(seen))
        if isinstance(replan, ReplanBatch):
            # The checkpoint is not lost, so onCheckpointLost has no say; and whoever may still write it is left alone with it.
            standing = ledger.landed.positions
            return Decision(
                replan, (_seed(seen, standing, standing, _seed_batch(seen), replan.reason, ledger), Launch())
            )
        verdict = replan
    return _unless_predecessor_may_live(seen, ledger, verdict)


def _unless_predecessor_may_live(
    seen: Observation, ledger: LedgerView, verdict: Resume | ReplayBatch | SkipLanded | FinishBatch
) -> Decision:
    """A directory that a predecessor may still write is left to it, unless state ties the stream to it."""
    if not isinstance(seen.predecessor, MayLive):
        return Decision(verdict, (Launch(),))
    why = seen.predecessor.why
    evidence = Evidence(f"the last driver may still live: {why}", {"predecessor": why})
    assert isinstance(seen.checkpoint, Readable), "compare_logs goes on with a readable checkpoint only"
    if keeps_state(seen) and seen.checkpoint.state_survives_two_writers:
        kept = Evidence(
            "its state files have unique names, so the checkpoint stays in use", {"conf": dict(seen.checkpoint.conf)}
        )
        return Decision(replace(verdict, evidence=(*verdict.evidence, evidence, kept)), (Launch(),))
    reason = (
        f"The last driver may still write its checkpoint ({why}), so a new generation goes on at "
        f"{ledger.landed.positions}."
    )
    rebuild = RebuildFromSink(RebuildReason.PREDECESSOR_MAY_LIVE, reason, (*verdict.evidence, evidence))
    return _rebuild(seen, ledger, rebuild)


def _changed(verdict: LogVerdict, change: SourceChange) -> RebuildFromSink | RewindToSink:
    """The checkpoint names other partitions than the resource, so it is no longer used; a worse reason comes first."""
    reason = change.sentences
    if isinstance(verdict, RebuildFromSink | RewindToSink):
        told, evidence = f"{verdict.reason} {reason}", (*verdict.evidence, *change.evidence)
        if isinstance(verdict, RebuildFromSink) and verdict.why is RebuildReason.PLANNED_OTHERWISE:
            # Spark plans without a topic as soon as that is gone, and then refuses to go on: no loss of the checkpoint.
            why = change.why if change.forgotten.stood else verdict.why
            return RebuildFromSink(why, told, evidence)
        return replace(verdict, reason=told, evidence=evidence)
    return RebuildFromSink(change.why, reason, (*verdict.evidence, *change.evidence))


def _standing(ledger: LedgerView, change: SourceChange | None) -> Positions:
    """Where a new generation goes on: at what has landed of all that the resource reads."""
    return ledger.landed.positions if change is None else change.standing


def _gone(change: SourceChange | None, batch: BatchNumber) -> tuple[FailureRow, ...]:
    """What is known to be lost with topics that were deleted."""
    return () if change is None else change.forgotten.failures(batch)


def _rebuild(
    seen: Observation,
    ledger: LedgerView,
    verdict: RebuildFromSink | RewindToSink,
    change: SourceChange | None = None,
) -> Decision:
    """A new generation starts where the sink stands, if the resource allows it and no state is lost."""
    is_loss = not isinstance(verdict, RebuildFromSink) or verdict.why not in _NOT_A_LOSS
    if is_loss and seen.request.on_checkpoint_lost is OnCheckpointLost.HALT:
        return Decision(
            Contradiction(
                ContradictionReason.CHECKPOINT_NOT_TO_BE_REBUILT,
                f"{verdict.reason} The resource asks to halt here: set recovery.onCheckpointLost to RebuildFromSink to go on.",
                verdict.evidence,
            )
        )
    batch = _seed_batch(seen)
    seed = _seed(seen, ledger.landed.positions, _standing(ledger, change), batch, verdict.reason, ledger)
    seed = replace(seed, given_up=_gone(change, batch))
    return unless_state_is_lost(seen, ledger, verdict, seed)


def _lost(ledger: LedgerView) -> tuple[RecordLost, ...]:
    """AtMostOnce: batches that were taken and whose driver ended before it had written them."""
    return tuple(RecordLost(row) for row in ledger.batches if row.status is BatchStatus.TAKEN)


def _with_evidence(verdict: Verdict, settled: tuple[Evidence, ...], lost: tuple[RecordLost, ...]) -> Verdict:
    gone = tuple(
        Evidence(
            f"batch {action.batch.batch} was taken and may not have been written: {action.batch.ranges} may be lost",
            {"batch": action.batch.batch, "ranges": action.batch.ranges.to_json()},
        )
        for action in lost
    )
    return replace(verdict, evidence=(*verdict.evidence, *settled, *gone))


def _highest_batch(seen: Observation) -> int:
    """The highest number planned or landed anywhere; -1 where there is none."""
    numbers: list[int] = [-1]
    numbers += [
        number for generation, number in seen.location.highest_planned.items() if generation in seen.location.ran
    ]
    if seen.ledger is not None:
        numbers += [row.batch for row in seen.ledger.batches]
        numbers += [] if seen.ledger.stream.landed_batch is None else [seen.ledger.stream.landed_batch]
    return max(numbers)


def _seed_batch(seen: Observation) -> BatchNumber:
    """The batch that a new generation starts with: one more than any that was planned or landed.

    While no more than the empty batch 0 has landed, a query that keeps state, or may, starts with that again: its state is
    made with batch 0 only, and what it has planned since was never in the sink.
    """
    highest = _highest_batch(seen)
    only_seeded = seen.ledger is not None and seen.ledger.stream.landed_batch == 0
    return BatchNumber(0 if only_seeded and (highest == 0 or keeps_state(seen)) else highest + 1)


def _seed(
    seen: Observation,
    before: Positions,
    after: Positions,
    batch: BatchNumber,
    note: str,
    goes_on: LedgerView | None,
) -> SeedAndPublish:
    """Return the action that makes a new generation at `after`; `goes_on` is the ledger, unless the stream starts over."""
    known = [generation.number for generation in seen.location.generations]
    if seen.ledger is not None and seen.ledger.stream.generation is not None:
        known.append(seen.ledger.stream.generation)
    generation = Generation(max(known, default=0) + 1, seen.epoch)
    after_all = standing_at(after, seen.source, goes_on)
    return SeedAndPublish(
        generation,
        batch,
        before,
        after_all,
        note,
        seen.request.shuffle_partitions,
        query=_query(seen),
        watermark_policy=seen.request.watermark_policy,
    )
