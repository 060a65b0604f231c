"""One batch from its plan to its landing: the order of acts for each delivery and commit. No pyspark here.

Before: the ranges of the executed plan are compared with the ledger and recorded. Then the rows are written where they do not
count yet, the source is asked whether it still is what was read, and one transaction lands the batch (docs/adr/0005).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from exactlyonce.api.spec import Delivery
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.publish import failures_of
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Positions, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark import tasks
from exactlyonce_spark.batch_settings import (
    BatchSettings,
    Landing,
    require_not_restored,
    require_order,
    require_partitions,
)
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import begin_batch, finish_partitions, land_batch, require_permit
from exactlyonce_spark.landing_checks import clear_staging_if_possible, require_completed
from exactlyonce_spark.landing_elsewhere import Elsewhere, land_elsewhere
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import AlreadyLanded, Begun, PlannedBatch, Written, planned_row, require_staged
from exactlyonce_spark.quarantine import Quarantines, not_landed
from exactlyonce_spark.source_check import RecordsLost, require_next_is_there
from exactlyonce_spark.spark_port import ExecutedPlan, SparkBatch
from exactlyonce_spark.target import DeadLetter, Staged, Target
from exactlyonce_spark.witnesses import complete_taken, require_witnesses, write_under_fence


class BatchLoop:
    """Lands one batch after another under one permit. `stands` is where the stream stands after the latest."""

    def __init__(
        self,
        ledger: Ledger,
        permit: Permit,
        target: Target | Elsewhere,
        source: SourceCheck,
        settings: BatchSettings,
    ) -> None:
        self._ledger = ledger
        self._permit = permit
        self._elsewhere = target if isinstance(target, Elsewhere) else None
        self._rows_target = None if isinstance(target, Elsewhere) else target
        self._source = source
        self._settings = settings
        self._log = LogWatch(source)
        self._quarantines = Quarantines(ledger, permit, source, settings)
        self._origin_ids: dict[str, str] = {}
        self._landed: BatchNumber | None = None
        self.in_hand: PlannedBatch | None = None
        self.stands = Positions()
        self._rows: int | None = None
        self._records_read: int | None = None

    @property
    def _target(self) -> Target:
        assert self._rows_target is not None, "rows that no transaction of the ledger holds land by their sink alone"
        return self._rows_target

    def check_still_valid(self) -> None:
        """Between batches: require that this process may still land, and that the ledger has not gone back.

        A driver without records to read would otherwise not notice a successor, nor a sink that was restored, nor that
        retention has taken all that it was to read: a query whose checkpoint was lost begins at what is left, and waits.

        Raises:
            Fenced: this process may not land any more.
            LedgerWentBack: the sink was restored; reconciliation rewinds to it.
            LandingRefused: the sink was restored to a moment at which a batch was taken and not yet written (AtMostOnce).
            RecordsLost, OriginReplaced: the source no longer holds the next record; reconciliation says which are gone.
        """
        view = require_permit(self._ledger, self._permit)
        landed = view.stream.landed_batch
        require_not_restored(self._landed, landed)
        if landed is not None:
            require_completed(view.batch(landed))
        if self._landed is None:  # from its first batch on, the query itself knows where it continues
            require_next_is_there(self._source, view.landed)

    def run(self, batch: SparkBatch) -> Landing | None:
        """Land a batch, or recognise that it has landed (None); any error means that it has not landed by this call.

        Raises:
            Fenced: this process may not land any more.
            ExactlyOnceError: what does not fit, by name; what Spark or the sink raises passes as it is.
        """
        plan = batch.plan()
        self._records_read = None
        reached("batch.planned", batch.number)
        epochs = self._log.request_epochs(plan.ranges)
        planned = PlannedBatch(batch.number, plan.ranges, self._ids_of(plan.ranges), plan.stateful)
        self.in_hand = planned
        if self._settings.deletes:
            require_order(batch.number, plan)
        follows_own = self._landed is not None and self._landed == planned.number - 1
        by_partition = self._settings.by_partition
        begun = begin_batch(self._ledger, self._permit, planned, by_partition=by_partition, follows_own=follows_own)
        reached("batch.begun", batch.number)
        if isinstance(begun, AlreadyLanded):
            if plan.stateful:
                batch.run_without_rows()
            self._has_landed(planned)
            return None
        self._log.begin(not_landed(planned, begun), planned.origin_ids, begun.fingerprints, epochs())
        if (taken := self._quarantines.take(planned, begun, self._log)) is None:
            self._has_landed(planned)
            return None
        self._land_rows(batch, plan, taken, begun)
        if self._elsewhere is None:  # else it has been told before readers were shown the batch
            reached("batch.landed", batch.number)
        self._has_landed(planned)
        return Landing(self._settings.records_in(planned.ranges, self._records_read), self._rows)

    def _land_rows(self, batch: SparkBatch, plan: ExecutedPlan, planned: PlannedBatch, begun: Begun) -> None:
        if self._elsewhere is not None:
            self._land_elsewhere(batch, plan, planned, self._elsewhere)
        elif self._settings.by_partition:
            require_partitions(batch.number, plan)
            # A few rows land whole, in one transaction of the driver, which is less work than a task each.
            if begun.finished or not self._landed_small(batch, planned):
                self._land_by_partition(batch, plan, planned, begun)
        elif self._settings.delivery is Delivery.AT_MOST_ONCE:
            self._land_at_most_once(batch, planned)
        elif self._landed_small(batch, planned):
            pass
        elif self._settings.delivery is Delivery.AT_LEAST_ONCE:
            self._land_at_least_once(batch, planned)
        else:
            self._land_staged(batch, planned)

    def _has_landed(self, planned: PlannedBatch) -> None:
        self._landed, self.in_hand, self.stands = planned.number, None, planned.ranges.ends

    def _landed_small(self, batch: SparkBatch, planned: PlannedBatch) -> bool:
        """The driver takes the rows and writes them in the landing transaction itself, where they are few."""
        if not self._settings.is_small(planned.ranges):
            return False
        rows = batch.collect()
        if rows is None:
            return False
        reached("batch.rows-written", batch.number)
        records_read, letters = self._check_after_reading(batch, planned)
        self._land(planned, lambda transaction: self._target.write(transaction, rows), letters, records_read)
        return True

    def _land_staged(self, batch: SparkBatch, planned: PlannedBatch) -> None:
        """Tasks stage; the landing transaction moves what successful tasks staged, and no other rows."""
        reports = batch.run_tasks(tasks.StageJob(batch.number))
        staged = [Staged(report.tag, report.rows) for report in reports]
        reached("batch.rows-written", batch.number)
        records_read, letters = self._check_after_reading(batch, planned)
        expected = sum(part.rows for part in staged)

        def move(transaction: LedgerTransaction) -> int:
            moved = self._target.move_staged(transaction, batch.number, staged)
            require_staged(batch.number, expected, moved.found)
            return moved.written

        self._land(planned, move, letters, records_read)
        clear_staging_if_possible(self._target, batch.number)

    def _land_elsewhere(self, batch: SparkBatch, plan: ExecutedPlan, planned: PlannedBatch, target: Elsewhere) -> None:
        """The sink's own writer or its tasks write; the ledger records where the rows are, or what is to be committed."""

        def check() -> tuple[PlannedBatch, int | None]:
            records_read, _ = self._check_after_reading(batch, planned)
            return self._marked(planned), records_read

        is_small = self._settings.is_small(planned.ranges)
        self._rows = land_elsewhere(self._ledger, self._permit, target, batch, plan, planned, check, is_small=is_small)

    def _land_at_least_once(self, batch: SparkBatch, planned: PlannedBatch) -> None:
        """Tasks write; then the positions move. A crash in between writes the batch again."""
        reports = batch.run_tasks(tasks.WriteJob(batch.number, self._permit, once=False))
        rows, tags = sum(report.rows for report in reports), frozenset(report.tag for report in reports)
        reached("batch.rows-written", batch.number)
        records_read, letters = self._check_after_reading(batch, planned)

        def confirm(transaction: LedgerTransaction) -> int:
            require_witnesses(transaction, self._permit.stream_id, batch.number, tags)
            self._target.require_lasting(transaction)
            return rows

        self._land(planned, confirm, letters, records_read)

    def _land_at_most_once(self, batch: SparkBatch, planned: PlannedBatch) -> None:
        """The positions move; then tasks write, each once. A crash in between loses at most this batch."""
        self._log.require(planned.number, planned.ranges, planned.origin_ids, None)
        land_batch(self._ledger, self._permit, self._marked(planned), lambda _: Written(None), status=BatchStatus.TAKEN)
        reached("batch.landed", batch.number)
        reports = batch.run_tasks(tasks.WriteJob(batch.number, self._permit, once=True))
        rows = self._rows = sum(report.rows for report in reports)
        tags = {report.tag for report in reports}
        reached("batch.rows-written", batch.number)
        letters = self._letters(batch, planned)
        if letters:
            tag = secrets.randbits(63)
            tags.add(tag)
            write_under_fence(
                self._ledger,
                self._permit,
                batch.number,
                batch.number,
                tag,
                lambda it: self._target.write_dead_letters(it, batch.number, letters, planned.origin_ids),
            )
        written, records_read = Written(rows, len(letters)), self._counted(batch)
        lost: tuple[FailureRow, ...] = ()
        try:
            self._log.require(
                planned.number, planned.ranges, planned.origin_ids, self._settings.comparable(records_read)
            )
        except RecordsLost as problem:
            taken = planned_row(self._permit, planned, BatchStatus.TAKEN, written, records_read)
            lost = failures_of(taken, FailureStatus.LOST, self._source.address, str(problem))
        complete_taken(self._ledger, self._permit, planned, written, records_read, frozenset(tags), lost)

    def _land_by_partition(self, batch: SparkBatch, plan: ExecutedPlan, planned: PlannedBatch, begun: Begun) -> None:
        """Each task lands its partition; then the batch is closed."""
        assert plan.task_ranges is not None, "checked before the batch is read"
        unread = [part for part in plan.task_ranges if part.partition not in begun.finished]
        remaining = Ranges({part.partition: part.offsets for part in unread})
        letters: Sequence[DeadLetter] = ()
        rows: int | None = None
        if remaining:
            known = self._log.require(batch.number, remaining, planned.origin_ids)
            letters = self._letters(batch, planned, remaining)
            job = tasks.PartitionJob(
                batch.number,
                self._permit,
                plan.task_ranges,
                begun.finished,
                dict(planned.origin_ids),
                tuple(letters),
                known,
                planned.left_out,
            )
            reports = batch.run_tasks(job)
            all_known = not begun.finished and all(report.known for report in reports)
            rows = sum(report.rows for report in reports) if all_known else None
        self._rows = rows
        reached("batch.rows-written", batch.number)
        records_read = self._counted(batch) if remaining else None
        finish_partitions(self._ledger, self._permit, planned, Written(rows, len(letters)), records_read)

    def _land(
        self,
        planned: PlannedBatch,
        write: Callable[[LedgerTransaction], int],
        letters: Sequence[DeadLetter],
        records_read: int | None,
    ) -> None:
        def write_all(transaction: LedgerTransaction) -> Written:
            rows = self._rows = write(transaction)
            if letters:
                self._target.write_dead_letters(transaction, planned.number, letters, planned.origin_ids)
            return Written(rows, len(letters))

        land_batch(self._ledger, self._permit, self._marked(planned), write_all, records_read=records_read)

    def _marked(self, planned: PlannedBatch) -> PlannedBatch:
        """The batch with the fingerprints of the last records that it has read, once those are known."""
        return replace(planned, fingerprints=self._log.fingerprints(planned.ranges))

    def _check_after_reading(self, batch: SparkBatch, planned: PlannedBatch) -> tuple[int | None, Sequence[DeadLetter]]:
        letters = self._letters(batch, planned)
        records_read = self._counted(batch)
        self._log.require(planned.number, planned.ranges, planned.origin_ids, self._settings.comparable(records_read))
        reached("batch.source-checked", batch.number)
        return records_read, letters

    def _counted(self, batch: SparkBatch) -> int | None:
        self._records_read = batch.records_read()
        return self._records_read

    def _letters(self, batch: SparkBatch, planned: PlannedBatch, unread: Ranges | None = None) -> Sequence[DeadLetter]:
        if not self._settings.dead_letters:
            return ()
        found = batch.malformed(planned.ranges if unread is None else unread, before_run=unread is not None)
        return planned.left_out.without(found)

    def _ids_of(self, ranges: Ranges) -> Mapping[str, str]:
        """Return each topic's id, asked once per topic; the check before each commit compares with the source's."""
        unknown = [key for key in ranges if key.origin not in self._origin_ids]
        if unknown:
            self._origin_ids.update(self._source.now(unknown).origin_ids)
        return {key.origin: self._origin_ids[key.origin] for key in ranges}
