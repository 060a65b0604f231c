"""The transactions that land, and the tasks, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import fence
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.rows import LandedPositions, StreamRow
from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, Positions, Ranges
from exactlyonce_spark import batch as batch_module
from exactlyonce_spark import landing, landing_checks, log_watch, settling, tasks, witnesses
from exactlyonce_spark import planned as planned_batch
from exactlyonce_spark.target import Moved
from tests.simulation import database, spark_batch, target


@contextmanager
def offsets_alone_identify_a_batch() -> Iterator[None]:
    """A batch is recognised by where the sink stands, not by its number."""
    begin = landing.begin_batch

    def by_offsets(ledger: Ledger, permit: Permit, planned: planned_batch.PlannedBatch, **how: Any) -> Any:
        view = landing.require_permit(ledger, permit)
        if view.landed.positions == planned.ranges.ends:
            return planned_batch.AlreadyLanded()
        return begin(ledger, permit, planned, **how)

    # The number is not looked at either: a batch that was recognised wrongly leaves a hole.
    with (
        mock.patch.object(batch_module, "begin_batch", by_offsets),
        mock.patch.object(landing, "require_next", lambda stream, planned: None),
    ):
        yield


@contextmanager
def ranges_from_the_file() -> Iterator[None]:
    """The batch's ranges are read from the offset log, which another process may have written."""
    read_plan = spark_batch.Batch.plan

    def from_file(self: spark_batch.Batch) -> Any:
        plan = read_plan(self)
        path = f"{self._folder}/offsets/{self.number}"
        lines = self._world.store.files.get(path, b"").decode().split("\n")
        if len(lines) < 3 or lines[2] == "-":
            return plan
        try:
            ends = Positions.from_json(lines[2])
        except MalformedPositions:  # torn: another mutation's matter
            return plan
        starts = plan.ranges.starts
        if any(ends.get(key, -1) < start for key, start in starts.items()):
            return plan
        return replace(plan, ranges=starts.ranges_until(ends))

    with mock.patch.object(spark_batch.Batch, "plan", from_file):
        yield


@contextmanager
def staging_without_tags() -> Iterator[None]:
    """The landing moves everything staged for the batch, what failed tasks staged included."""

    def move_all(self: Any, transaction: Any, number: BatchNumber, staged: Any) -> Moved:
        rows = [row for epoch, batch, _, row in self._database.staging if (epoch, batch) == (self._epoch, number)]
        transaction.append(rows)
        return Moved(*[sum(part.rows for part in staged)] * 2)

    with mock.patch.object(target.MemoryTarget, "move_staged", move_all):
        yield


@contextmanager
def staged_rows_not_counted() -> Iterator[None]:
    """The rows moved are not compared with the rows staged, which a crash of the server empties."""
    move = target.MemoryTarget.move_staged

    def claim_all_moved(self: Any, transaction: Any, number: BatchNumber, staged: Any) -> Moved:
        move(self, transaction, number, staged)
        return Moved(*[sum(part.rows for part in staged)] * 2)

    with mock.patch.object(target.MemoryTarget, "move_staged", claim_all_moved):
        yield


@contextmanager
def a_second_landing_is_let_through() -> Iterator[None]:
    """The landing accepts a batch whose number the ledger holds already. Harmless alone: every second one is recognised
    before; it is taken away so that nothing but the settling under the lock stands between a lost COMMIT and a double.
    """
    require_next, require_start, advance = landing_checks.require_next, landing_checks.require_start, landing.advance
    second: set[BatchNumber] = set()

    def next_or_second(stream: StreamRow, planned: planned_batch.PlannedBatch) -> None:
        if stream.landed_batch == planned.number:
            second.add(planned.number)
            return
        second.discard(planned.number)
        require_next(stream, planned)

    def is_second(planned: planned_batch.PlannedBatch, landed: Any) -> bool:
        return planned.number in second and bool(landed.positions == planned.ranges.ends)

    with (
        mock.patch.object(landing, "require_next", next_or_second),
        mock.patch.object(
            landing,
            "require_start",
            lambda landed, planned, **how: is_second(planned, landed) or require_start(landed, planned, **how),
        ),
        mock.patch.object(
            landing,
            "advance",
            lambda transaction, stream_id, planned, landed: (
                is_second(planned, landed) or advance(transaction, stream_id, planned, landed)
            ),
        ),
    ):
        yield


@contextmanager
def unknown_commit_settled_by_a_plain_read() -> Iterator[None]:
    """After a lost COMMIT the ledger is read without the lock, while the COMMIT may still be pending."""

    def plain(ledger: Ledger, permit: Permit, planned: planned_batch.PlannedBatch) -> bool:
        view = ledger.view(permit.stream_id)
        return view is not None and view.stream.landed_batch == planned.number

    with mock.patch.object(settling, "_has_landed", plain), a_second_landing_is_let_through():
        yield


@contextmanager
def no_compare_and_set() -> Iterator[None]:
    """The landing neither compares where the batch starts nor its number; it overwrites."""
    with (
        mock.patch.object(landing, "require_next", lambda stream, planned: None),
        mock.patch.object(landing, "require_start", lambda *a, **k: None),
        mock.patch.object(landing, "advance", _advance_blindly),
    ):
        yield


@contextmanager
def tasks_do_not_compare() -> Iterator[None]:
    """`commit: Partition`: a task writes its rows whether or not its position could be moved."""

    def regardless(
        ledger: Ledger,
        permit: Permit,
        _: Any,
        partition: Any,
        offsets: Any,
        ids: Any,
        write: Any,
        fingerprint: Any,
        left_out: Any,
    ) -> int:
        with ledger.transaction(evicting=True) as transaction:
            fence.fence(transaction, permit, Lock.SHARE)
            kept = {} if fingerprint is None else {partition: fingerprint}
            transaction.advance_positions(permit.stream_id, Ranges({partition: offsets}), dict(ids), kept)
            return int(write(transaction))

    with mock.patch.object(tasks, "land_partition", regardless):
        yield


@contextmanager
def partitions_land_unrecorded() -> Iterator[None]:
    """`commit: Partition`: a task does not look for the record of its batch, which a crash or a failover may have lost."""
    with mock.patch.object(landing, "require_recorded", lambda *what: None):
        yield


@contextmanager
def second_tries_are_let_through() -> Iterator[None]:
    """AtMostOnce: a task that Spark runs again writes its rows again."""
    run = tasks.WriteJob.run

    def always_first(self: tasks.WriteJob, tools: Any, place: tasks.TaskPlace, rows: Any) -> tasks.TaskReport:
        return run(self, tools, replace(place, attempt=0), rows)

    with mock.patch.object(tasks.WriteJob, "run", always_first):
        yield


@contextmanager
def retention_not_checked() -> Iterator[None]:
    """Nobody asks the source, between reading and committing, whether everything was still there."""
    with (
        mock.patch.object(log_watch, "require_all_was_there", lambda *a, **k: {}),
        mock.patch.object(tasks, "require_all_was_there", lambda *a, **k: {}),
    ):
        yield


@contextmanager
def landed_batches_not_recognised() -> Iterator[None]:
    """A batch that landed is landed again when Spark runs it again."""

    def never(ledger: Ledger, permit: Permit, planned: planned_batch.PlannedBatch, **how: Any) -> planned_batch.Begun:
        landing.require_permit(ledger, permit)
        return planned_batch.Begun()

    with mock.patch.object(batch_module, "begin_batch", never), no_compare_and_set():
        yield


@contextmanager
def witnesses_not_required() -> Iterator[None]:
    """AtLeastOnce, AtMostOnce: the rows of tasks are taken to be there; that the server looks as before proves nothing."""
    with (
        mock.patch.object(batch_module, "require_witnesses", lambda *a: None),
        mock.patch.object(witnesses, "require_witnesses", lambda *a: None),
    ):
        yield


@contextmanager
def synchronous_commit_not_forced() -> Iterator[None]:
    """Where the role has synchronous_commit off, a commit that counts does not wait for the disk."""

    def as_the_role_has_it(server: Any, lasting: bool) -> bool:
        return lasting and bool(server.synchronous_commit)

    with mock.patch.object(database, "waits_for_disk", as_the_role_has_it):
        yield


def _advance_blindly(
    transaction: LedgerTransaction, stream_id: str, planned: planned_batch.PlannedBatch, landed: Any
) -> None:
    """Overwrite the positions, as a sink without compare-and-set does."""
    origin_ids = {**landed.origin_ids, **planned.origin_ids}
    ends = {**landed.positions, **planned.ranges.ends}
    transaction.set_positions(stream_id, replace(landed, positions=Positions(ends), origin_ids=origin_ids))


@contextmanager
def a_batch_of_partitions_is_not_closed() -> Iterator[None]:
    """`commit: Partition`: the batch's number does not move when all of its partitions have landed."""
    finish = landing.finish_partitions

    def without_closing(*arguments: Any) -> None:
        with mock.patch.object(landing, "close", lambda *given, **named: None):
            finish(*arguments)

    with mock.patch.object(batch_module, "finish_partitions", without_closing):
        yield


@contextmanager
def absent_partitions_not_refused() -> Iterator[None]:
    """A batch may leave out a partition that the stream has read."""
    require_start = landing_checks.require_start

    def of_what_it_reads(landed: LandedPositions, planned: planned_batch.PlannedBatch, *rest: Any, **how: Any) -> None:
        known = {key: offset for key, offset in landed.positions.items() if key in planned.ranges}
        require_start(replace(landed, positions=Positions(known)), planned, *rest, **how)

    with mock.patch.object(landing, "require_start", of_what_it_reads):
        yield


@contextmanager
def a_taken_batch_counts_as_landed() -> Iterator[None]:
    """With AtMostOnce, a batch that was taken is recognised as landed, also if the ledger lost how it ended."""
    with (
        mock.patch.object(landing, "require_completed", lambda row: None),
        mock.patch.object(batch_module, "require_completed", lambda row: None),
    ):
        yield
