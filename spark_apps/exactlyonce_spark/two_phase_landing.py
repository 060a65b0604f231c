"""The path of a batch whose sink commits in two phases: prepared, decided in the ledger, committed, landed. No pyspark here.

The ledger's transaction that decides is the point of no return: before it nothing that was prepared may be committed, and after
it everything that it names must be, by this driver or by the next one. docs/adr/0036 tells why.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.known_loads import Span, spans_without
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay_decisions import ReplayDecision, decisions_in
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import land_decided, record_decided, require_none_decided
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark import loads_told
from exactlyonce_spark.batch_settings import PlanUnfit
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.latest_loads import latest_of
from exactlyonce_spark.load_outcome import NotCommitted, outcome
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.replay_loads import finish_beside
from exactlyonce_spark.spark_port import ExecutedPlan, SparkBatch
from exactlyonce_spark.target import LoadState, TwoPhaseTarget
from exactlyonce_spark.tasks import DRIVER, PrepareJob, committable_of
from exactlyonce_spark.two_phase_submit import (
    RowsPartlyLoaded,
    leave_out_files,
    leave_out_others,
    submit_decided,
    why_cancelled,
)


def land_two_phase(
    ledger: Ledger,
    permit: Permit,
    target: TwoPhaseTarget,
    planned: PlannedBatch,
    prepare: Callable[[], tuple[Committable, ...]],
    check: Callable[[], tuple[PlannedBatch, int | None]],
) -> int:
    """Prepare a batch, decide it, commit it and land it; return its rows.

    `check` is called once the rows are prepared: it requires that the source still is what was read, and returns the batch with
    the fingerprints of its records, and how many records were read.

    What was prepared and is not decided is left to the next driver, which alone knows that no decision can name it any more.
    What replays have decided meanwhile is finished behind the batch, because the replay may have died, and sinks forget.

    Raises:
        Fenced, LandingRefused, DecisionDiffers, DecisionTooLarge: nothing takes effect of what was prepared.
        CommitOutcomeUnknown, NotCommitted, Unreachable: the next driver finishes the batch, if it is decided.
        RowsPartlyLoaded: a person has to; what is known of the other loads is recorded.
    """
    committables = prepare()
    reached("batch.rows-written", planned.number)
    marked, records_read = check()
    rows = sum(committable.rows for committable in committables)
    decided = DecidedBatch(
        planned.number, committables, dict(planned.origin_ids), dict(marked.fingerprints), target.place
    )

    by_replays: tuple[ReplayDecision, ...] = ()

    def record(transaction: LedgerTransaction) -> Written:
        nonlocal by_replays
        by_replays = decisions_in(transaction.read_replayed(permit.stream_id))
        if committables:
            record_decided(transaction, permit.stream_id, decided)
        else:
            require_none_decided(transaction, permit.stream_id)
        return Written(rows)

    status = BatchStatus.DECIDED if committables else BatchStatus.LANDED  # without a row there is nothing to commit
    latest = latest_of(target, decided) if committables else None
    land_batch(ledger, permit, marked, record, records_read=records_read, status=status, latest=latest)
    if committables:
        loads_told.decided(len(committables))
        reached("batch.decided", planned.number)
        submitted = submit_decided(ledger, permit, target, decided)
        partly_loaded = commit_all(target, submitted)
        if partly_loaded is not None:
            leave_out_others(ledger, permit, target, submitted, partly_loaded.loads)
            raise partly_loaded
        leave_out_files(ledger, permit, target, submitted)
        reached("batch.committed", planned.number)
        land_decided(ledger, permit, planned.number)
    reached("batch.landed", planned.number)
    finish_beside(ledger, permit.stream_id, target, by_replays)
    return rows


def commit_all(target: TwoPhaseTarget, decided: DecidedBatch) -> RowsPartlyLoaded | None:
    """Commit everything that a decision names; return what is to be raised where the sink has loaded a part of something.

    Raises:
        NotCommitted: if the sink has aborted or forgotten some of it meanwhile.
        RowsRefused: if it has cancelled a load that it would cancel again.
    """
    partly_loaded: RowsPartlyLoaded | None = None
    for committable in decided.committables:
        try:
            state = loads_told.answered(outcome(target, committable))
        except RowsPartlyLoaded as problem:
            partly_loaded = problem.after(partly_loaded)
            continue
        if state is not LoadState.COMMITTED:
            why = why_cancelled(target, committable)
            raise NotCommitted(
                f"Batch {decided.batch} is decided, and the sink says that {committable} is {state.value}"
                f"{f' ({why})' if why else ''}; the next driver finishes the batch."
            )
        reached("commit.answered", decided.batch)
    return partly_loaded


def prepared(
    batch: SparkBatch, plan: ExecutedPlan, target: TwoPhaseTarget, left_out: Sequence[Span] = (), *, is_small: bool
) -> tuple[Committable, ...]:
    """Prepare the rows of a batch: a few by the driver in one load, others by the tasks that read them.

    Where only the process that prepares can commit, the driver prepares all of them. Of records that are `left_out` there are
    no rows.

    Raises:
        PlanUnfit: if rows that the sink aborts could not be written again by their ranges alone.
    """
    if plan.stateful:
        raise PlanUnfit(
            f"Batch {batch.number}: a sink of two phases may abort rows that are decided, and those of a query that keeps "
            "state cannot be made again; remove the aggregation, join or deduplication from the transform."
        )
    if is_small:
        rows = batch.collect()
        if rows is not None:
            return _by_the_driver(batch.number, plan.ranges, target, rows, left_out)
    if target.prepares_in_driver:
        return _by_the_driver(batch.number, plan.ranges, target, batch.pieces(), left_out)
    if plan.task_ranges is None:
        raise PlanUnfit(
            f"Batch {batch.number}: a sink of two phases needs a query whose every task reads exactly one range of the source "
            "and nothing else (no join, aggregation, union or repartition): rows that the sink aborts are made again from "
            "their range. Change the transform."
        )
    ranges = tuple(Ranges({task.partition: task.offsets}) for task in plan.task_ranges)
    job = PrepareJob(batch.number, ranges, left_out=tuple(left_out))
    reports = batch.run_tasks(job)
    return tuple(report.committable for report in reports if report.committable is not None)


def _by_the_driver(
    batch: BatchNumber, ranges: Ranges, target: TwoPhaseTarget, rows: object, left_out: Sequence[Span]
) -> tuple[Committable, ...]:
    part = f"{DRIVER}-{secrets.randbits(63):x}"
    load = target.prepare(batch, part, rows, spans_without(ranges, left_out))
    return () if load is None else (committable_of(load, ranges),)
