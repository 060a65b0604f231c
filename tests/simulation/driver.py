"""What a driver process does, from its claim to its last message."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Orders
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import Fenced, Permit, claim_epoch, release
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable
from exactlyonce_spark.failures import is_too_large
from exactlyonce_spark.finish_only import SparkWhenNeeded, Unattended, WithSpark, finish_only
from exactlyonce_spark.landing import record_failure
from exactlyonce_spark.latest_loads import LedgerBehindSink
from exactlyonce_spark.left_out import left_out_of_decided
from exactlyonce_spark.manifest_landing import recover_manifests
from exactlyonce_spark.old_generations import remove_superseded
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.target import ManifestTarget, Target, TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsAgain, RowsNotThere, finish_decided
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.simulation.launcher import Driver
from tests.simulation.poison import failing_records
from tests.simulation.resource import KEEPS_NO_GENERATION, KEEPS_NOTHING, STREAM_ID, RequestedSpec
from tests.simulation.scheduler import Process
from tests.simulation.spark import Query
from tests.simulation.spark_errors import BatchTooLarge, PoisonRecord, SparkFailed
from tests.simulation.state import StateMissing

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


def drive(world: SimulatedWorld, driver: Driver, attempt: Epoch, requested: RequestedSpec, orders: Orders) -> None:
    """Claim, take the path from the ledger, run the query."""
    ledger = world.ledger()
    try:
        permit, row = claim_epoch(
            ledger,
            STREAM_ID,
            attempt,
            driver.process.name,
            orders.ticket,
            orders.checkpoint_path,
            world.sink_of_drivers,
            writes=orders.task is DriverTask.RUN_QUERY,
        )
        assert row.checkpoint_path is not None
        if orders.task is DriverTask.FINISH_ONLY:
            driver.words = _finish(world, driver, ledger, permit, row)
            if orders.writer_is_dead:
                release(ledger, permit)
            return
        _note_writer(world, driver.process, row.checkpoint_path)
        world.delivery_of[driver.process] = requested.delivery
        settings = BatchSettings(
            requested.delivery,
            requested.commit,
            small_batch_records=1000 if world.scenario.small_batches else 0,
            positions_count_records=world.positions_count_records,
            quarantine=orders.quarantine,
            dead_letters=world.keeps_letters,
        )
        target: Target | ManifestTarget | TwoPhaseTarget = world.target(attempt)
        if world.scenario.manifest:
            target = world.manifest_target(row)
            recover_manifests(ledger, permit, target)
        if isinstance(target, TwoPhaseTarget):
            again = RowsAgain(world.source_check(), functools.partial(_run_again, world, driver, ledger, permit))
            finish_decided(ledger, permit, target, again)
        is_to_end = world.draining or attempt in world.drained
        left_out = failing_records(world, ledger, permit, target, orders.quarantine, is_to_end)
        settings = replace(settings, left_out=left_out)
        loop = BatchLoop(ledger, permit, target, world.source_check(), settings)
        query = world.query_type(
            world,
            driver.process,
            row.checkpoint_path,
            loop,
            lambda: world.draining or attempt in world.drained,
            requested.named,
            lambda: _keep_house(world, ledger, permit),
            orders.limit,
        )
        query.left_out = left_out
        driver.words = _run(world, driver, ledger, permit, loop, query)
        if world.scenario.manifest and driver.words.ending is Ending.DRAINED:
            release(ledger, permit)  # elsewhere nothing depends on it: how the process ended is known
    except Fenced as problem:
        driver.problem, driver.words = problem, LastMessage(Ending.FENCED, str(problem))
    except (
        StateMissing, LogUnfit, FilesLost, LedgerBehindTable, LedgerBehindSink, LoadsInDoubt, RowsNotThere, RowsPartlyLoaded
    ) as problem:  # fmt: skip
        # exactlyonce_spark.failures refuses what Spark says then: STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY; and what
        # is refused of the sink's folder.
        driver.problem = problem
        driver.words = LastMessage(Ending.REFUSED, str(problem), case=type(problem).__name__)
    except ExactlyOnceError as problem:
        driver.problem = problem
        ending = Ending.REFUSED if isinstance(problem, world.refused) else Ending.FAILED
        driver.words = LastMessage(ending, f"{type(problem).__name__}: {problem}")
    except Exception as problem:  # what a query fails with is the driver's last message
        driver.problem, driver.words = problem, LastMessage(Ending.FAILED, repr(problem))


def _finish(world: SimulatedWorld, driver: Driver, ledger: Ledger, permit: Permit, row: StreamRow) -> LastMessage:
    """Do what a driver without a query does; rows are made again as by one with a query."""
    target: ManifestTarget | TwoPhaseTarget | None = None
    if world.scenario.manifest:
        target = world.manifest_target(row)
        target.writes = False
    elif isinstance(sink := world.target(permit.epoch), TwoPhaseTarget):
        target = sink

    def with_spark() -> WithSpark:
        assert isinstance(target, TwoPhaseTarget), "rows are made again for a sink of two phases alone"
        return WithSpark(target, functools.partial(_run_again, world, driver, ledger, permit))

    return finish_only(Unattended(ledger, permit, world.source_check(), target, SparkWhenNeeded(with_spark)))


def _run_again(
    world: SimulatedWorld, driver: Driver, ledger: Ledger, permit: Permit, ranges: Ranges, job: tasks.Job
) -> list[tasks.TaskReport]:
    """Run a job over rows that the sink has aborted, without the records that the decided batch was to land without."""
    return world.run_again(driver.process, left_out_of_decided(ledger, permit), ranges, job)


def _keep_house(world: SimulatedWorld, ledger: Ledger, permit: Permit) -> None:
    """Remove what is not kept, as a driver does beside its batches."""
    delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1)
    if world.collects_generations:
        remove_superseded(ledger, permit, world.store, KEEPS_NO_GENERATION, datetime.now(UTC))


def _run(
    world: SimulatedWorld, driver: Driver, ledger: Ledger, permit: Permit, loop: BatchLoop, query: Query
) -> LastMessage:
    """Run the query; a batch that fails is recorded as failed, where that is still possible."""
    try:
        query.run()
    except BatchTooLarge as problem:
        planned = _record_failure(world, ledger, permit, loop, problem)
        driver.problem = problem
        return LastMessage(
            Ending.BATCH_FAILED, str(problem), planned.number, planned.ranges.to_json(), is_too_large(problem)
        )
    except SparkFailed as problem:
        if not _is_poison(world, problem):
            raise
        planned = _record_failure(world, ledger, permit, loop, problem)
        if not world.scenario.quarantine:
            raise
        driver.problem = problem
        return LastMessage(Ending.BATCH_FAILED, str(problem), planned.number, planned.ranges.to_json())
    return LastMessage(Ending.DRAINED, "drained")


def _is_poison(world: SimulatedWorld, problem: SparkFailed) -> bool:
    """Whether a record has failed the batch, in the driver itself; or in a task, where a stream continues without it alone."""
    return isinstance(problem, PoisonRecord) or (world.scenario.bisect and isinstance(problem.__cause__, PoisonRecord))


def _record_failure(
    world: SimulatedWorld, ledger: Ledger, permit: Permit, loop: BatchLoop, problem: Exception
) -> PlannedBatch:
    planned = loop.in_hand
    assert planned is not None, "a record is read in a batch"
    with suppress(ExactlyOnceError):
        record_failure(ledger, permit, planned, world.topic.address, str(problem))
    return planned


def _note_writer(world: SimulatedWorld, process: Process, path: str) -> None:
    """A directory belongs to one process at a time, unless state ties the stream to it."""
    before = world.writers.setdefault(path, [])
    alive = [other.name for other in before if not other.ended]
    # A ledger that was restored has forgotten who wrote last: then the fence alone keeps them apart (docs/adr/0006).
    if alive and not world.stateful and not world.journal.has_struck({"restore"}):
        world.wrong.append(f"{process.name} writes {path}, and {', '.join(alive)} may still write it")
    before.append(process)
