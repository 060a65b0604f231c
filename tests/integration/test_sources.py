"""What a stream reads: where it starts and stays, which topics and partitions, how much at once, which records count."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted, Watching
from tests.combinations import in_full, one_or_all
from tests.rig import Rig, eventually, running

pytestmark = pytest.mark.seconds(10)

START = "spec.source.kafka.start"
HOUR_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
NOON = int(HOUR_AGO.timestamp()) * 1000
"""A moment in milliseconds, to which records are produced; lately, as retention takes records by their timestamps."""


def send(rig: Rig, topic: str, records: Iterable[tuple[int, int]], *, milliseconds: int | None = None) -> None:
    """Produce ids to partitions of a topic, at a moment that the records name."""
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for partition, number in records:
        producer.produce(topic, order(number), partition=partition, timestamp=milliseconds or 0)
        producer.poll(0)
    assert producer.flush(30) == 0


def order(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def die_before_the_first_batch(rig: Rig) -> None:
    """The start is resolved and seeded, a driver is started, and killed before it has planned anything."""
    opened = rig.open()
    assert isinstance(rig.loop(opened).run_pass(), Watching), rig.story()
    opened.launcher.kill(Epoch(1))
    assert rig.landed_batch() == 0, "the seed"


def test_a_start_at_earliest_stays_where_it_was_when_retention_passes_it(rig: Rig) -> None:
    rig.produce(40)
    rig.kafka.delete_records_before(rig.name, 1, 5)
    die_before_the_first_batch(rig)
    rig.produce(40)
    rig.kafka.delete_records_before(rig.name, 2, 3)
    result = rig.run()
    assert isinstance(result, Halted)
    assert f"no longer holds 3 records that have not landed: {rig.name}-2 [0, 3)" in result.message
    rig.run(changes={"spec.recovery.onSourceTruncated": "ResumeFromEarliest"})
    before_the_start = [1 + 4 * offset for offset in range(5)]
    lost = [2 + 4 * offset for offset in range(3)]
    rig.assert_exactly_once(without=[*before_the_start, *lost])


def test_a_start_at_latest_takes_every_record_since_it_was_resolved(rig: Rig) -> None:
    before = rig.produce(40)
    rig.overrides[START] = {"from": "Latest"}
    die_before_the_first_batch(rig)
    rig.produce(40)
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once(without=before)
    assert rig.verdicts() == ["FirstStart", "SkipLanded"], "the seed has landed, and Spark had not seen it"


def test_a_start_at_given_offsets_of_assigned_partitions_is_not_moved_by_a_changed_resource(rig: Rig) -> None:
    rig.produce(40)
    rig.overrides["spec.source.kafka.topics"] = None
    rig.overrides["spec.source.kafka.assign"] = [{"topic": rig.name, "partitions": [1, 3]}]
    given = {1: 4, 3: 10}
    rig.overrides[START] = {
        "from": "Offsets",
        "offsets": [{"topic": rig.name, "partition": key, "offset": offset} for key, offset in given.items()],
    }
    die_before_the_first_batch(rig)
    rig.produce(40)
    rig.overrides[START] = {"from": "Latest"}
    assert rig.run() == Done(completed=True), rig.story()
    without = [number for number in rig.produced if number // 4 < given.get(number % 4, len(rig.produced))]
    rig.assert_exactly_once(without=without)
    assert rig.landed() == 16 + 10


def test_a_start_at_a_moment_is_not_moved_by_older_records_that_come_later(rig: Rig) -> None:
    """Partitions 0 and 1 hold records at and after noon; in 2 and 3 the first of them is yet to come."""
    send(rig, rig.name, [(number % 4, number) for number in range(40)], milliseconds=NOON - 1)
    send(rig, rig.name, [(number % 2, number) for number in range(40, 60)], milliseconds=NOON)
    rig.overrides[START] = {"from": "Timestamp", "timestamp": HOUR_AGO.isoformat()}
    die_before_the_first_batch(rig)
    send(rig, rig.name, [(number % 4, number) for number in range(60, 80)], milliseconds=NOON - 60_000)
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.counts() == Counter(range(40, 80))


def test_topics_of_a_pattern_and_their_new_partitions_are_read_from_their_first_record_while_it_runs(rig: Rig) -> None:
    """A part of a topic's name is not enough: `longer` and `other` have to stay out."""
    one, two, three, other = (f"{rig.name}.{word}" for word in ("one", "two", "three", "other"))
    longer = f"old.{one}.old"
    for topic in (one, two, other, longer):
        rig.kafka.create_topic(topic, 2)
    rig.overrides["spec.source.kafka.topics"] = None
    rig.overrides["spec.source.kafka.topicPattern"] = rf"{rig.name}\.(one|two|three)"
    for place, topic in enumerate((one, two, other, rig.name, longer)):
        send(rig, topic, [(number % 2, 1000 * place + number) for number in range(20)])
    with running(rig, rig.open()):
        eventually(lambda: rig.landed() >= 40, "what the topics of the pattern held has landed", 120)
        rig.kafka.create_topic(three, 1)
        landed = rig.landed_batch()
        eventually(lambda: rig.landed_batch() > landed, "a topic without records has landed as an empty batch", 120)
        send(rig, three, [(0, 5000 + number) for number in range(20)])
        rig.kafka.add_partitions(one, 4)
        send(rig, one, [(number % 4, 6000 + number) for number in range(20)])
        eventually(lambda: rig.landed() >= 80, "what came to new topics and partitions has landed", 120)
    ids = [*range(20), *range(1000, 1020), *range(5000, 5020), *range(6000, 6020)]
    assert rig.counts() == Counter(ids)
    assert rig.verdicts() == ["FirstStart"]


def test_a_new_partition_lands_from_its_first_record_through_kills(rig: Rig) -> None:
    """It is named in the log one batch before it is read, and the batch that reads it first lands for one partition only."""
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    rig.produce(400)
    rig.run()
    rig.kafka.add_partitions(rig.name, 6)
    rig.partitions = 6
    rig.produce(7200)
    # A task that dies before its commit, and a batch that has landed before Spark knew: tests/faults/test_crash_points.py.
    crash, verdicts = in_full(
        (
            "task.before-commit@3=kill-driver task.committed@3=kill-driver batch.landed@3=kill-driver",
            ["FinishBatch", "SkipLanded"],
        ),
        otherwise=("task.committed@3=kill-driver", ["FinishBatch"]),
    )
    assert rig.run(crash=crash) == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert rig.verdicts()[-len(verdicts) :] == verdicts


def test_a_compacted_topic_and_one_with_transactions_land_what_a_reader_of_them_may_see(rig: Rig) -> None:
    compacted, transactional = f"{rig.name}.compacted", f"{rig.name}.transactional"
    rig.overrides["spec.source.kafka.topics"] = [compacted, transactional]
    kept = fill_compacted(rig, compacted)
    rig.kafka.create_topic(transactional, 2)
    producer = transactional_producer(rig)
    committed: list[int] = []
    for first in range(10_000, 12_800, 400):
        aborted = first % 800 == 0
        in_transaction(producer, transactional, range(first, first + 400))
        producer.abort_transaction() if aborted else producer.commit_transaction()
        committed += [] if aborted else list(range(first, first + 400))
    in_transaction(producer, transactional, range(20_000, 20_400))
    assert rig.run(crash="batch.rows-written@1=kill-driver") == Done(completed=True), rig.story()
    found = rig.counts()
    assert Counter({key: count for key, count in found.items() if key >= 10_000}) == Counter(committed)
    producer.commit_transaction()
    assert rig.run() == Done(completed=True), rig.story()
    found = rig.counts()
    later = Counter({key: count for key, count in found.items() if key >= 10_000})
    assert later == Counter([*committed, *range(20_000, 20_400)]), "the open transaction, once it was committed"
    of_compacted = {key: count for key, count in found.items() if key < 10_000}
    assert set(of_compacted.values()) == {1}
    assert kept <= set(of_compacted), "the latest record of each key"
    assert len(of_compacted) < 2000, "compaction has taken records, so offsets are missing in the middle of ranges"


def fill_compacted(rig: Rig, topic: str) -> set[int]:
    """A topic of 2000 records of 20 keys, compacted up to its last segment; returns the latest id of each key."""
    rig.kafka.create_topic(
        topic, 1, **{"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    )
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for first in range(0, 2000, 200):
        for number in range(first, first + 200):
            producer.produce(topic, order(number), key=str(number % 20), partition=0)
        assert producer.flush(30) == 0
    segments = sorted((rig.kafka.folder / "logs" / f"{topic}-0").glob("*.log"))
    size = sum(file.stat().st_size for file in segments)
    eventually(lambda: size_of_log(rig, topic) < size * 0.7, "the log cleaner has been there", 120)
    return set(range(1980, 2000))


def size_of_log(rig: Rig, topic: str) -> int:
    """Bytes of a partition's log; a segment may go while it is looked at."""
    sizes = []
    for file in (rig.kafka.folder / "logs" / f"{topic}-0").glob("*.log"):
        try:
            sizes.append(file.stat().st_size)
        except FileNotFoundError:
            continue
    return sum(sizes)


def transactional_producer(rig: Rig) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": rig.kafka.bootstrap_servers,
            "transactional.id": rig.name,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(60)
    return producer


def in_transaction(producer: Any, topic: str, ids: Iterable[int]) -> None:
    producer.begin_transaction()
    for number in ids:
        producer.produce(topic, order(number), partition=number % 2)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("limit", "most"),
    one_or_all(
        [
            pytest.param(
                {"spec.source.kafka.maxRatePerPartition": 30, "spec.trigger": {"interval": "1s"}},
                4 * 30,
                id="maxRatePerPartition",
            ),
            pytest.param({"spec.source.kafka.maxOffsetsPerTrigger": 90}, 90, id="maxOffsetsPerTrigger"),
        ]
    ),
)
def test_a_limit_splits_what_there_is_into_batches(rig: Rig, limit: dict[str, Any], most: int) -> None:
    rig.overrides |= limit
    rig.produce(400)
    assert rig.run(rig.has_all) == Done(completed=False), rig.story()
    rig.assert_exactly_once()
    planned = planned_ends(rig)
    sizes = [after - before for before, after in itertools.pairwise(planned) if after > before]
    assert sum(sizes) == 400
    assert max(sizes) <= most
    assert len(sizes) >= 400 // most


def planned_ends(rig: Rig) -> list[int]:
    """How many records each batch had planned up to, from Spark's own log."""
    (generation,) = rig.generations()
    logs = sorted(
        (file for file in (generation / "offsets").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    ends = [json.loads(log.read_text().split("\n")[2]) for log in logs]
    return [sum(offset for partitions in end.values() for offset in partitions.values()) for end in ends]
