"""A partition that lands alone lands with the fingerprint of its last record, also where that appeared while it was read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.target import TaskRange
from exactlyonce_spark.tasks import PartitionJob, TaskPlace, TaskTools
from tests.ledgers import P0, P1, STREAM, started
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic

NO_ID = {P0.origin: ZERO_ORIGIN_ID}
BATCH = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), NO_ID)


class ProducingTarget:
    """Writes a row; meanwhile the topic gets its records, as one that was recreated just before the batch does."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic

    def write(self, transaction: Any, rows: object) -> int:
        self._topic.ends[P0] = 5
        appended: Counter[object] = transaction.appended
        appended.update(["row"])
        return 1


def test_the_last_record_of_a_topic_without_an_id_lands_as_it_was_seen_after_the_read() -> None:
    topic = MemoryTopic({P0: 0, P1: 0}, has_ids=False)
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    begin_batch(ledger, permit, BATCH, by_partition=True)
    job = PartitionJob(BATCH.number, permit, (TaskRange(P0, BATCH.ranges[P0]),), frozenset(), NO_ID)
    report = job.run(TaskTools(ledger, ProducingTarget(topic), topic), TaskPlace(0, 0), [])  # type: ignore[arg-type]
    view = ledger.view(STREAM)
    assert view is not None
    assert (report.rows, view.landed.positions[P0]) == (1, 5)
    assert view.landed.fingerprints[P0] == topic.records_at({P0: 4})[P0]
