"""The protocol, broken on purpose: each mutation takes one rule away, and the simulation must find every one.

A mutation patches the product's own code for the length of a `with` block; nothing here is a second copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.checkpoint import files
from exactlyonce.ledger import fence, publish
from exactlyonce.ledger.fence import Fenced, Permit
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.rows import LedgerView, StreamRow
from exactlyonce.offsets import BatchNumber, Epoch, Positions, Ranges
from exactlyonce.reconcile import act, decide, launching, observe, source_change
from exactlyonce.reconcile.observation import MayLive
from exactlyonce.reconcile.source_checks import first_missing
from exactlyonce.source.bounds import SourceView
from exactlyonce_spark import batch as batch_module
from exactlyonce_spark import landing, tasks
from tests.simulation import database, spark

Mutation = Callable[[], Any]


@contextmanager
def no_lock_at_the_fence() -> Iterator[None]:
    """The fence reads epoch and claim without a lock, so a raise slips in before the commit."""

    def unlocked(transaction: Any, permit: Permit, lock: Lock) -> StreamRow:
        row: StreamRow | None = transaction._get(("stream", permit.stream_id))
        if row is None or (row.epoch, row.claim) != (permit.epoch, permit.claim):
            raise Fenced("not mine")
        return row

    with mock.patch.object(landing, "fence", unlocked):
        yield


@contextmanager
def no_claim() -> Iterator[None]:
    """One epoch may be claimed twice: whoever comes later is let in and the former keeps its permit."""

    def claim_anyway(
        ledger: Ledger, stream_id: str, epoch: Epoch, claim: str, ticket: str | None
    ) -> tuple[Permit, StreamRow]:
        with ledger.transaction() as transaction:
            row = transaction.lock_stream(stream_id, Lock.UPDATE)
            if row is None or row.epoch != epoch:
                raise Fenced("not mine")
            claimed = replace(row, claim="anyone", writer=epoch, writer_released=False)
            transaction.update_stream(claimed)
            return Permit(stream_id, epoch, "anyone"), claimed

    with mock.patch.object(fence, "_claim_once", claim_anyway):
        yield


@contextmanager
def offsets_alone_identify_a_batch() -> Iterator[None]:
    """A batch is recognised by where the sink stands, not by its number."""
    begin = landing.begin_batch

    def by_offsets(ledger: Ledger, permit: Permit, planned: landing.PlannedBatch, **how: Any) -> Any:
        view = landing.require_permit(ledger, permit)
        if view.landed.positions == planned.ranges.ends:
            return landing.AlreadyLanded()
        return begin(ledger, permit, planned, **how)

    # The number is not looked at either: a batch that was recognised wrongly leaves a hole.
    with (
        mock.patch.object(batch_module, "begin_batch", by_offsets),
        mock.patch.object(landing, "_require_next", lambda stream, planned: None),
    ):
        yield


@contextmanager
def ranges_from_the_file() -> Iterator[None]:
    """The batch's ranges are read from the offset log, which another process may have written."""
    read_plan = spark.Batch.plan

    def from_file(self: spark.Batch) -> Any:
        plan = read_plan(self)
        path = f"{self._folder}/offsets/{self.number}"
        lines = self._world.store.files.get(path, b"").decode().split("\n")
        if len(lines) < 3 or lines[2] == "-":
            return plan
        ends = Positions.from_json(lines[2])
        starts = plan.ranges.starts
        if any(ends.get(key, 0) < start for key, start in starts.items()):
            return plan
        return replace(plan, ranges=starts.ranges_until(ends))

    with mock.patch.object(spark.Batch, "plan", from_file):
        yield


@contextmanager
def staging_without_tags() -> Iterator[None]:
    """The landing moves everything staged for the batch, what failed tasks staged included."""

    def move_all(self: Any, transaction: Any, number: BatchNumber, staged: Any) -> int:
        rows = [row for epoch, batch, _, row in self._database.staging if (epoch, batch) == (self._epoch, number)]
        transaction.append(rows)
        return sum(part.rows for part in staged)

    with mock.patch.object(database.MemoryTarget, "move_staged", move_all):
        yield


@contextmanager
def staged_rows_not_counted() -> Iterator[None]:
    """The rows moved are not compared with the rows staged, which a crash of the server empties."""
    move = database.MemoryTarget.move_staged

    def claim_all_moved(self: Any, transaction: Any, number: BatchNumber, staged: Any) -> int:
        move(self, transaction, number, staged)
        return sum(part.rows for part in staged)

    with mock.patch.object(database.MemoryTarget, "move_staged", claim_all_moved):
        yield


@contextmanager
def a_second_landing_is_let_through() -> Iterator[None]:
    """The landing accepts a batch whose number the ledger holds already. Harmless alone: every second one is recognised
    before; it is taken away so that nothing but the settling under the lock stands between a lost COMMIT and a double.
    """
    require_next, require_start, advance = landing._require_next, landing._require_start, landing._advance

    def is_second(planned: landing.PlannedBatch, landed: Any) -> bool:
        return bool(landed.positions == planned.ranges.ends and planned.ranges.record_count)

    with (
        mock.patch.object(
            landing,
            "_require_next",
            lambda stream, planned: stream.landed_batch == planned.number or require_next(stream, planned),
        ),
        mock.patch.object(
            landing,
            "_require_start",
            lambda landed, planned, **how: is_second(planned, landed) or require_start(landed, planned, **how),
        ),
        mock.patch.object(
            landing,
            "_advance",
            lambda transaction, stream_id, planned, landed: (
                is_second(planned, landed) or advance(transaction, stream_id, planned, landed)
            ),
        ),
    ):
        yield


@contextmanager
def unknown_commit_settled_by_a_plain_read() -> Iterator[None]:
    """After a lost COMMIT the ledger is read without the lock, while the COMMIT may still be pending."""

    def plain(ledger: Ledger, permit: Permit, planned: landing.PlannedBatch) -> bool:
        view = ledger.look(permit.stream_id)
        return view is not None and view.stream.landed_batch == planned.number

    with mock.patch.object(landing, "_has_landed", plain), a_second_landing_is_let_through():
        yield


@contextmanager
def no_compare_and_set() -> Iterator[None]:
    """The landing neither compares where the batch starts nor its number; it overwrites."""
    with (
        mock.patch.object(landing, "_require_next", lambda stream, planned: None),
        mock.patch.object(landing, "_require_start", lambda *a, **k: None),
        mock.patch.object(landing, "_advance", _advance_blindly),
    ):
        yield


@contextmanager
def tasks_do_not_compare() -> Iterator[None]:
    """`commit: Partition`: a task writes its rows whether or not its position could be moved."""

    def regardless(
        ledger: Ledger, permit: Permit, number: Any, partition: Any, offsets: Any, topic_ids: Any, write: Any
    ) -> int:
        with ledger.transaction(evicting=True) as transaction:
            fence.fence(transaction, permit, Lock.SHARE)
            transaction.advance_positions(permit.stream_id, Ranges({partition: offsets}), dict(topic_ids))
            return int(write(transaction))

    with mock.patch.object(tasks, "land_partition", regardless):
        yield


@contextmanager
def seed_without_its_commit() -> Iterator[None]:
    """A seed lacks its commit log, so Spark runs the seeded batch itself, from the earliest offset."""

    def without_commit(store: Any, made: Any, number: BatchNumber, positions: Positions, partitions: int) -> None:
        store.create(f"{made.folder}/metadata", files.render_metadata("x"))
        store.create(f"{made.folder}/offsets/{number}", files.render_offsets(positions, partitions))

    with mock.patch.object(act, "write_seed", without_commit):
        yield


@contextmanager
def decided_before_the_raise() -> Iterator[None]:
    """The operator observes, then raises: what lands in between is overwritten by a generation seeded at the old position."""
    raised, observed = fence.raise_epoch, observe.observe
    seen: list[Any] = []

    def observe_first(ledger: Ledger, stream: fence.NewStream, epoch: Epoch) -> fence.Raised:
        current = step_in_pass[-1]
        seen.append(
            observed(
                current.world.stores,
                observe.request_of(current.stream, current.world.owner),
                epoch,
                MayLive("a mutation does not look"),
                current.world.owner_is_gone,
            )
        )
        return raised(ledger, stream, epoch)

    step_in_pass: list[Any] = []
    run = launching.Launching.launch

    def launch(self: Any, *arguments: Any) -> Any:
        step_in_pass.append(self)
        try:
            return run(self, *arguments)
        finally:
            step_in_pass.remove(self)

    def publish_without_comparing(ledger: Ledger, stream_id: str, publication: publish.Publication) -> None:
        with ledger.transaction() as transaction:
            standing = transaction.read_positions(stream_id).positions
        publish.publish(ledger, stream_id, replace(publication, before=standing))

    with (
        mock.patch.object(launching, "raise_epoch", observe_first),
        mock.patch.object(launching, "observe", lambda *arguments: seen.pop()),
        mock.patch.object(launching.Launching, "launch", launch),
        mock.patch.object(act, "publish", publish_without_comparing),
    ):
        yield


@contextmanager
def progress_record_does_not_last() -> Iterator[None]:
    """`commit: Partition`: the record of a batch in progress may be lost while its partitions stay."""
    begin = landing.begin_batch

    def carelessly(ledger: Any, permit: Permit, planned: landing.PlannedBatch, **how: Any) -> Any:
        careless = mock.Mock(wraps=ledger)
        careless.look = ledger.look
        careless.transaction = lambda **kwargs: ledger.transaction(**{**kwargs, "lasting": False})
        return begin(careless, permit, planned, **how)

    with mock.patch.object(batch_module, "begin_batch", carelessly):
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
        mock.patch.object(batch_module, "require_all_was_there", lambda *a, **k: None),
        mock.patch.object(tasks, "require_all_was_there", lambda *a, **k: None),
    ):
        yield


@contextmanager
def landed_batches_not_recognised() -> Iterator[None]:
    """A batch that landed is landed again when Spark runs it again."""

    def never(ledger: Ledger, permit: Permit, planned: landing.PlannedBatch, **how: Any) -> landing.Begun:
        landing.require_permit(ledger, permit)
        return landing.Begun("1")

    with mock.patch.object(batch_module, "begin_batch", never), no_compare_and_set():
        yield


@contextmanager
def truncation_not_noticed() -> Iterator[None]:
    """The decision does not look at the source's earliest offsets, and neither does the batch."""
    with mock.patch.object(decide, "first_missing", lambda seen, ledger: {}), retention_not_checked():
        yield


@contextmanager
def given_up_although_it_is_there() -> Iterator[None]:
    """What a stream goes on without is one record more than retention took."""

    def one_more(seen: Any, ledger: Any) -> dict[Any, tuple[int, int]]:
        missing = first_missing(seen, ledger)
        return {
            key: (wanted, min(earliest + 1, seen.source.bounds[key].latest))
            for key, (wanted, earliest) in missing.items()
        }

    with mock.patch.object(decide, "first_missing", one_more):
        yield


@contextmanager
def state_known_after_the_first_records_only() -> Iterator[None]:
    """That the query keeps state is known once a batch with records has landed; until then a seed without state is made,
    which Spark refuses for ever.
    """

    def in_ledger(seen: Any) -> bool:
        return seen.ledger is not None and bool(seen.ledger.stream.stateful)

    with (
        mock.patch.object(decide, "_keeps_state", in_ledger),
        mock.patch.object(landing, "_record_state", lambda ledger, permit: None),
    ):
        yield


def _advance_blindly(
    transaction: LedgerTransaction, stream_id: str, planned: landing.PlannedBatch, landed: Any
) -> None:
    """Overwrite the positions, as a sink without compare-and-set does."""
    topic_ids = {**landed.topic_ids, **planned.topic_ids}
    ends = {**landed.positions, **planned.ranges.ends}
    transaction.set_positions(stream_id, replace(landed, positions=Positions(ends), topic_ids=topic_ids))


@contextmanager
def a_topic_that_is_named_again_begins_anew() -> Iterator[None]:
    """Where the stream stood in a topic that was left out is forgotten: it is read from its first record again."""

    def from_the_first(source: SourceView, ledger: LedgerView) -> Positions:
        returned = returned_positions(source, ledger)
        return Positions({key: source.bounds[key].earliest for key in returned})

    returned_positions = source_change.returned_positions
    with mock.patch.object(source_change, "returned_positions", from_the_first):
        yield


@contextmanager
def tickets_not_asked_for() -> Iterator[None]:
    """Who is of the right epoch may claim it, a driver of the stream's former life too."""
    with mock.patch.object(fence, "holds_ticket", lambda drawn, epoch, ticket: True):
        yield


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        no_lock_at_the_fence,
        no_claim,
        offsets_alone_identify_a_batch,
        ranges_from_the_file,
        staging_without_tags,
        staged_rows_not_counted,
        unknown_commit_settled_by_a_plain_read,
        no_compare_and_set,
        tasks_do_not_compare,
        seed_without_its_commit,
        decided_before_the_raise,
        progress_record_does_not_last,
        second_tries_are_let_through,
        retention_not_checked,
        landed_batches_not_recognised,
        truncation_not_noticed,
        given_up_although_it_is_there,
        state_known_after_the_first_records_only,
        a_topic_that_is_named_again_begins_anew,
        tickets_not_asked_for,
    )
}
"""Each of these loses or doubles a record, or leaves the stream stuck."""

HARMLESS: dict[str, Mutation] = {a_second_landing_is_let_through.__name__: a_second_landing_is_let_through}
"""What a mutation takes away beside its own rule; alone it must break nothing, or the mutation would prove nothing."""
