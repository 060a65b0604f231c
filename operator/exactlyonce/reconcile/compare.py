"""Compare what Spark's two logs believe with what landed. Performs no I/O.

Planned is the latest batch of the offset log, checkpointed the latest of the commit log, landed the ledger's.
"""

from __future__ import annotations

from collections.abc import Collection

from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Absent, CheckpointState, Damaged, Readable
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.deleted_topics import forgotten
from exactlyonce.reconcile.observation import Observation, Request
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
    path, location = ledger.stream.checkpoint_path, seen.request.location
    if not _is_below(path, location):
        words = f"the last checkpoint is {path}, the resource names {location}"
        found = Evidence(words, {"checkpoint": path, "location": location})
        return _rebuild(RebuildReason.LOCATION_CHANGED, found, seen.request, ledger)
    later = _later_generation_that_ran(seen, ledger)
    if later is not None:
        words = f"{later.folder} ran, and the ledger knows generation {ledger.stream.generation} as the latest"
        found = Evidence(words, {"ran": later.folder, "generation": ledger.stream.generation})
        return _rewind(found, seen.request, ledger)
    state = seen.checkpoint
    if isinstance(state, Readable):
        verdict = _compare(state, seen.request, ledger, landed_batch)
        beyond = _planned_beyond_the_source(seen, state, ledger)
        if isinstance(verdict, ReplayBatch | FinishBatch) and beyond is not None:
            return _rebuild(RebuildReason.PLANNED_BEYOND_SOURCE, beyond, seen.request, ledger)
        return verdict
    reason = RebuildReason.CHECKPOINT_LOST if isinstance(state, Absent) else RebuildReason.CHECKPOINT_DAMAGED
    return _rebuild(reason, checkpoint_evidence(state, str(path)), seen.request, ledger)


def checkpoint_evidence(state: CheckpointState, where: str) -> Evidence:
    """Return what was found of a checkpoint at `where`."""
    if isinstance(state, Absent):
        return Evidence(f"there is no checkpoint at {where}", {"checkpoint": where})
    if isinstance(state, Damaged):
        words = f"the checkpoint at {where} is damaged ({state.damage}: {state.words})"
        return Evidence(
            words, {"checkpoint": where, "damage": str(state.damage), "highestPlanned": state.highest_planned}
        )
    words = f"the checkpoint at {where} has planned batch {state.planned} and committed {_told(state.checkpointed)}"
    return Evidence(words, {"checkpoint": where, "planned": state.planned, "checkpointed": state.checkpointed})


def _compare(logs: Readable, request: Request, ledger: LedgerView, landed_batch: BatchNumber) -> LogVerdict:
    checkpointed = logs.checkpointed
    if checkpointed is not None and checkpointed > landed_batch:
        words = f"Spark has committed batch {checkpointed}, the sink holds up to batch {landed_batch}"
        return _rewind(Evidence(words, {"checkpointed": checkpointed}), request, ledger)
    if logs.planned < landed_batch:
        words = f"the offset log ends at batch {logs.planned}, the sink holds batch {landed_batch}"
        return _rebuild(RebuildReason.CHECKPOINT_OLDER, Evidence(words, {"planned": logs.planned}), request, ledger)
    if logs.planned == landed_batch:
        return _compare_landed(logs, request, ledger, landed_batch)
    if logs.planned == landed_batch + 1:
        return _compare_planned(logs, request, ledger)
    words = f"Spark has planned batch {logs.planned}, the sink holds up to batch {landed_batch}"
    return _rewind(Evidence(words, {"planned": logs.planned}), request, ledger)


def _compare_landed(logs: Readable, request: Request, ledger: LedgerView, landed_batch: BatchNumber) -> LogVerdict:
    """The latest planned batch is the latest landed one: both must have read the same records."""
    landed, shown = ledger.landed.positions, request.shown
    if logs.planned_end != _without_ended(landed, logs.planned_end):
        words = f"batch {landed_batch} was planned up to {shown(logs.planned_end)} and landed up to {shown(landed)}"
        return _planned_otherwise(logs, words, request, ledger)
    evidence = _evidence(logs, request, ledger)
    if logs.checkpointed == landed_batch:
        message = f"Batch {landed_batch} is planned, checkpointed and landed; Spark continues with {landed_batch + 1}."
        return Resume(landed_batch, message, evidence)
    row = ledger.batch(landed_batch)
    assert row is not None, "ledger_contradiction has looked"
    if not _same_ranges(logs, row.ranges):
        words = (
            f"batch {landed_batch} was planned from {_start(logs, request)} to {shown(logs.planned_end)} and landed with "
            f"{shown(row.ranges)}"
        )
        return _planned_otherwise(logs, words, request, ledger)
    message = (
        f"Batch {landed_batch} landed with the ranges that were planned and Spark did not commit it; "
        "Spark runs it again and the sink recognises it."
    )
    return SkipLanded(landed_batch, message, evidence)


def _compare_planned(logs: Readable, request: Request, ledger: LedgerView) -> LogVerdict:
    """One batch is planned beyond the landed one: none, some or all of its partitions may have landed."""
    planned, landed = logs.planned, ledger.landed.positions
    plan = planned_ranges(logs)
    if plan is None:
        end = request.shown(logs.planned_end)
        words = f"batch {planned} was planned from {_start(logs, request)} to {end}, which is not a range"
        return _planned_otherwise(logs, words, request, ledger)
    unknown = _without_ended(landed, plan).keys() - plan.keys()
    places = {key: _place(landed.get(key, 0), offsets) for key, offsets in plan.items()}
    if unknown or "elsewhere" in places.values():
        words = f"batch {planned} was planned as {request.shown(plan)} and the sink stands at {request.shown(landed)}"
        return _planned_otherwise(logs, words, request, ledger)
    evidence = _evidence(logs, request, ledger)
    finished = [str(key) for key, place in places.items() if place == "end"]
    if not finished:
        message = f"Batch {planned} was planned and has not landed; Spark runs it again with the same ranges."
        return ReplayBatch(planned, message, evidence)
    told, data = f"batch {planned} landed for {', '.join(finished)} only", {"batch": planned, "partitions": finished}
    if not request.lands_by_partition:
        found = Evidence(f"{told} and the stream now lands whole batches", data)
        return _rebuild(RebuildReason.PARTLY_LANDED, found, request, ledger)
    message = f"{_capitalised(told)}; the rest lands, that part is recognised."
    return FinishBatch(planned, message, (*evidence, Evidence(told, data)))


def _planned_beyond_the_source(seen: Observation, logs: Readable, ledger: LedgerView) -> Evidence | None:
    """What was planned and is no longer there: the log lost its end before it landed, so those records never were."""
    bounds = seen.source.bounds
    other = forgotten(seen, ledger).topics
    short = {
        key: end
        for key, end in logs.planned_end.items()
        if key in bounds and end > bounds[key].latest and key.origin not in other
    }
    if not short:
        return None
    told = ", ".join(f"{key} up to {end} and ends at {bounds[key].latest}" for key, end in short.items())
    words = f"batch {logs.planned} was planned to read {told}: the source lost records before they landed"
    return Evidence(words, {"batch": logs.planned, "partitions": [str(key) for key in short]})


def planned_ranges(logs: Readable) -> Ranges | None:
    """Return the ranges of the latest plan; a partition that appeared in that batch starts at 0.

    None if the plan goes backwards, or no log holds its start. A partition whose end was read before may be left out of it.
    """
    start, end = logs.planned_start, logs.planned_end
    if start is None or any(end.get(key, -1) < offset for key, offset in _without_ended(start, end).items()):
        return None
    return start.ranges_until(end)


def _without_ended(positions: Positions, plan: Collection[Partition]) -> Positions:
    """Return positions without the partitions that stand at their end and that a plan leaves out."""
    return positions.without(dict.fromkeys(positions.ended.difference(plan)))


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


def _planned_otherwise(logs: Readable, words: str, request: Request, ledger: LedgerView) -> RebuildFromSink:
    start = logs.planned_start
    data = {
        "planned": logs.planned,
        "start": None if start is None else start.to_json(),
        "end": logs.planned_end.to_json(),
    }
    return _rebuild(RebuildReason.PLANNED_OTHERWISE, Evidence(words, data), request, ledger)


def _rebuild(reason: RebuildReason, found: Evidence, request: Request, ledger: LedgerView) -> RebuildFromSink:
    landed = request.shown(ledger.landed.positions)
    message = f"{_capitalised(found.words)}; a new generation continues where the sink stands: {landed}."
    return RebuildFromSink(reason, message, (found, sink_evidence(request, ledger)))


def _rewind(found: Evidence, request: Request, ledger: LedgerView) -> RewindToSink:
    message = (
        f"{_capitalised(found.words)}: the sink was restored to an earlier state; a new generation continues where it "
        f"stands: {request.shown(ledger.landed.positions)}."
    )
    return RewindToSink(message, (found, sink_evidence(request, ledger)))


def _evidence(logs: Readable, request: Request, ledger: LedgerView) -> tuple[Evidence, ...]:
    return (
        Evidence(
            f"the offset log ends with batch {logs.planned} at {request.shown(logs.planned_end)}",
            {"planned": logs.planned, "end": logs.planned_end.to_json()},
        ),
        Evidence(f"the commit log ends with {_told(logs.checkpointed)}", {"checkpointed": logs.checkpointed}),
        sink_evidence(request, ledger),
    )


def sink_evidence(request: Request, ledger: LedgerView) -> Evidence:
    """Return how far the sink has come."""
    landed = ledger.landed.positions
    words = f"the sink holds batch {ledger.stream.landed_batch} and stands at {request.shown(landed)}"
    return Evidence(words, {"landed": ledger.stream.landed_batch, "positions": landed.to_json()})


def _start(logs: Readable, request: Request) -> str:
    return "a start that no log holds" if logs.planned_start is None else request.shown(logs.planned_start)


def _told(batch: BatchNumber | None) -> str:
    return "no batch" if batch is None else f"batch {batch}"


def _capitalised(words: str) -> str:
    return words[0].upper() + words[1:]
