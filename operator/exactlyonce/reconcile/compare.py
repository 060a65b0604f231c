"""Compare what Spark's two logs believe with what landed. Performs no I/O.

Planned is the latest batch of the offset log, checkpointed the latest of the commit log, landed the ledger's.
"""

from __future__ import annotations

from typing import assert_never

from exactlyonce.api.sink import Commit
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Absent, Damaged, Readable
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.offsets import BatchNumber, OffsetRange, Positions, Ranges
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Evidence,
    FinishBatch,
    RebuildFromSink,
    RebuildReason,
    ReplayBatch,
    Resume,
    RewindToSink,
    SkipLanded,
)

LogVerdict = Resume | ReplayBatch | SkipLanded | FinishBatch | RebuildFromSink | RewindToSink


def compare_logs(seen: Observation, ledger: LedgerView) -> LogVerdict:
    """Return the verdict that the logs and the ledger give, before predecessor, state and policy are asked."""
    landed_batch = ledger.stream.landed_batch
    assert landed_batch is not None, "a stream that never started is decided before"
    if not _is_below(ledger.stream.checkpoint_path, seen.request.location):
        words = f"the last checkpoint is {ledger.stream.checkpoint_path}, the resource names {seen.request.location}"
        return _rebuild(RebuildReason.LOCATION_CHANGED, words, ledger)
    later = _later_generation_that_ran(seen, ledger)
    if later is not None:
        words = f"{later.folder} ran, and the ledger knows generation {ledger.stream.generation} as the latest"
        return _rewind(words, ledger)
    match seen.checkpoint:
        case Absent():
            words = f"there is no checkpoint at {ledger.stream.checkpoint_path}"
            return _rebuild(RebuildReason.CHECKPOINT_LOST, words, ledger)
        case Damaged(damage=damage, words=what):
            return _rebuild(RebuildReason.CHECKPOINT_DAMAGED, f"the checkpoint is damaged ({damage}: {what})", ledger)
        case Readable():
            return _compare(seen.checkpoint, seen.request.commit, ledger, landed_batch)
        case _:
            assert_never(seen.checkpoint)


def _compare(logs: Readable, commit: Commit, ledger: LedgerView, landed_batch: BatchNumber) -> LogVerdict:
    checkpointed = logs.checkpointed
    if checkpointed is not None and checkpointed > landed_batch:
        return _rewind(f"Spark has committed batch {checkpointed}, the sink holds up to batch {landed_batch}", ledger)
    if logs.planned < landed_batch:
        words = f"the offset log ends at batch {logs.planned}, the sink holds batch {landed_batch}"
        return _rebuild(RebuildReason.CHECKPOINT_OLDER, words, ledger)
    if logs.planned == landed_batch:
        return _compare_landed(logs, ledger, landed_batch)
    if logs.planned == landed_batch + 1:
        return _compare_planned(logs, commit, ledger)
    return _rewind(f"Spark has planned batch {logs.planned}, the sink holds up to batch {landed_batch}", ledger)


def _compare_landed(logs: Readable, ledger: LedgerView, landed_batch: BatchNumber) -> LogVerdict:
    """The latest planned batch is the latest landed one: both must have read the same records."""
    if logs.planned_end != ledger.landed.positions:
        words = f"batch {landed_batch} was planned up to {logs.planned_end} and landed up to {ledger.landed.positions}"
        return _rebuild(RebuildReason.PLANNED_OTHERWISE, words, ledger)
    evidence = _evidence(logs, ledger)
    if logs.checkpointed == landed_batch:
        reason = f"Batch {landed_batch} is planned, checkpointed and landed; Spark goes on with {landed_batch + 1}."
        return Resume(landed_batch, reason, evidence)
    row = ledger.batch(landed_batch)
    assert row is not None, "ledger_contradiction has looked"
    if not _same_ranges(logs, row.ranges):
        words = f"batch {landed_batch} was planned from {logs.planned_start} and landed with {row.ranges}"
        return _rebuild(RebuildReason.PLANNED_OTHERWISE, words, ledger)
    reason = (
        f"Batch {landed_batch} landed with the ranges that were planned and Spark did not commit it; "
        "Spark runs it again and the sink recognises it."
    )
    return SkipLanded(landed_batch, reason, evidence)


def _compare_planned(logs: Readable, commit: Commit, ledger: LedgerView) -> LogVerdict:
    """One batch is planned beyond the landed one: none, some or all of its partitions may have landed."""
    planned, landed = logs.planned, ledger.landed.positions
    start = logs.planned_start
    plan = None if start is None else _plan(start, logs.planned_end)
    if plan is None:
        words = f"batch {planned} was planned from {start} to {logs.planned_end}"
        return _rebuild(RebuildReason.PLANNED_OTHERWISE, words, ledger)
    unknown = [key for key in landed if key not in plan]
    places = {key: _place(landed.get(key, 0), offsets) for key, offsets in plan.items()}
    if unknown or "elsewhere" in places.values():
        words = f"batch {planned} was planned as {plan} and the sink stands at {landed}"
        return _rebuild(RebuildReason.PLANNED_OTHERWISE, words, ledger)
    evidence = _evidence(logs, ledger)
    finished = [str(key) for key, place in places.items() if place == "end"]
    if not finished:
        reason = f"Batch {planned} was planned and has not landed; Spark runs it again with the same ranges."
        return ReplayBatch(planned, reason, evidence)
    told = f"batch {planned} landed for {', '.join(finished)} only"
    if commit is not Commit.PARTITION:
        return _rebuild(RebuildReason.PARTLY_LANDED, f"{told} and the sink now commits whole batches", ledger)
    reason = f"{told[0].upper()}{told[1:]}; the rest lands, that part is recognised."
    return FinishBatch(planned, reason, (*evidence, Evidence(told, {"batch": planned, "partitions": finished})))


def _plan(start: Positions, end: Positions) -> Ranges | None:
    """Return the ranges of a plan; a partition that appeared in this batch starts at 0. None if the plan goes backwards."""
    if any(key not in end or end[key] < offset for key, offset in start.items()):
        return None
    return start.ranges_until(end)


def _place(landed: int, planned: OffsetRange) -> str:
    if landed == planned.from_offset:
        return "start"
    return "end" if landed == planned.until_offset else "elsewhere"


def _same_ranges(logs: Readable, landed: Ranges) -> bool:
    """Whether the plan read what landed; the logs do not hold the start of a partition that appeared in the batch."""
    if logs.planned_end != landed.ends:
        return False
    start = logs.planned_start
    return start is not None and all(start.get(key, 0) == offsets.from_offset for key, offsets in landed.items())


def _later_generation_that_ran(seen: Observation, ledger: LedgerView) -> Generation | None:
    published = ledger.stream.generation or 0
    return next((generation for generation in sorted(seen.location.ran) if generation.number > published), None)


def _is_below(path: str | None, location: str) -> bool:
    return path is not None and path.startswith(location.rstrip("/") + "/")


def _rebuild(why: RebuildReason, words: str, ledger: LedgerView) -> RebuildFromSink:
    reason = (
        f"{words[0].upper()}{words[1:]}; a new generation goes on where the sink stands: {ledger.landed.positions}."
    )
    return RebuildFromSink(why, reason, (Evidence(words), _sink_evidence(ledger)))


def _rewind(words: str, ledger: LedgerView) -> RewindToSink:
    reason = (
        f"{words[0].upper()}{words[1:]}: the sink was restored to an earlier state; a new generation goes on where it "
        f"stands: {ledger.landed.positions}."
    )
    return RewindToSink(reason, (Evidence(words), _sink_evidence(ledger)))


def _evidence(logs: Readable, ledger: LedgerView) -> tuple[Evidence, ...]:
    checkpointed = "no batch" if logs.checkpointed is None else f"batch {logs.checkpointed}"
    return (
        Evidence(
            f"the offset log ends with batch {logs.planned} at {logs.planned_end}",
            {"planned": logs.planned, "end": logs.planned_end.to_json()},
        ),
        Evidence(f"the commit log ends with {checkpointed}", {"checkpointed": logs.checkpointed}),
        _sink_evidence(ledger),
    )


def _sink_evidence(ledger: LedgerView) -> Evidence:
    landed = ledger.landed.positions
    words = f"the sink holds batch {ledger.stream.landed_batch} and stands at {landed}"
    return Evidence(words, {"landed": ledger.stream.landed_batch, "positions": landed.to_json()})
