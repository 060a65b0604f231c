"""A source that lost records, or was recreated, behind a stream's back: real brokers, real logs, counted by ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.source_check import RecordsReplaced
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.truncation import cut
from tests.rig import Rig, eventually
from tests.topics import made, open_transaction, source

pytestmark = pytest.mark.seconds(10)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker whose logs are cut while it is stopped."""
    with Kafka(tmp_path_factory.mktemp("broker")) as started:
        yield started


def lose_records(broker: Kafka, topic: str, offset: int) -> None:
    """Restart the broker without the records of partition 0 from `offset` on."""
    broker.stop()
    cut(broker, topic, 0, offset)
    broker.start()
    eventually(lambda: topic in broker.admin().list_topics(timeout=10).topics, f"the broker knows {topic}")


def one_by_one(broker: Kafka, topic: str, values: list[str]) -> None:
    """Produce records to partition 0, each in a batch of its own, so that the log can be cut between any two."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(30) == 0


def test_a_log_that_lost_what_had_landed_and_has_grown_past_it_halts_the_stream_with_partition_and_offset(
    broker: Kafka, postgres_18: Postgres, tmp_path: Path
) -> None:
    rig = Rig(broker, postgres_18, tmp_path, "truncated", partitions=1)
    for _ in range(6):
        rig.produce(1)
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once()

    lose_records(broker, rig.name, 4)
    rig.produce(5)
    result = rig.run()
    assert isinstance(result, Halted), rig.story()
    assert f"{rig.name}-0 has landed up to 6 and offset 5 is not what landed" in result.message
    assert rig.landed() == 6, "none of the records that stand in the place of others"
    assert rig.verdicts() == ["FirstStart", "SourceReplaced"]


def test_a_running_driver_finds_that_its_log_lost_what_has_landed_before_it_lands_more(broker: Kafka) -> None:
    topic, batch = "truncated-under-way", BatchNumber(2)
    made(broker, topic)
    one_by_one(broker, topic, ["a", "b", "c", "d"])
    asked = source(broker.bootstrap_servers, topics=[topic])
    key = Partition(topic, 0)
    ids = dict(asked.view().origin_ids)
    watch, first, second = LogWatch(asked), Ranges({key: OffsetRange(0, 4)}), Ranges({key: OffsetRange(4, 6)})
    watch.begin(first, ids, {}, watch.request_epochs(first)())
    landed = watch.require(batch, first, ids).read
    assert landed[key].offset == 3

    broker.stop()
    broker.start()
    one_by_one(broker, topic, ["e"])
    clean = Ranges({key: OffsetRange(4, 5)})
    watch.begin(clean, ids, landed, watch.request_epochs(clean)())
    watch.require(batch, clean, ids)  # another leader epoch, and everything is there

    lose_records(broker, topic, 2)
    one_by_one(broker, topic, ["x", "y", "z", "w"])
    watch.begin(second, ids, landed, watch.request_epochs(second)())
    with pytest.raises(RecordsReplaced, match=rf"records that have landed.*{topic}-0 at 3 "):
        watch.require(batch, second, ids)


def test_a_topic_recreated_on_brokers_without_topic_ids_is_known_by_its_records(rig: Rig) -> None:
    rig.partitions = 1
    rig.produce(5)
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    rig.sql("update exactlyonce.offsets set topic_id = %s", ZERO_ORIGIN_ID)  # as such brokers tell it

    rig.kafka.delete_topic(rig.name)
    eventually(lambda: rig.name not in rig.kafka.admin().list_topics(timeout=10).topics, "the topic is gone")
    rig.kafka.create_topic(rig.name, 4)
    rig.produce(9)
    result = rig.run()
    assert isinstance(result, Halted), rig.story()
    assert f"{rig.name}-0 has landed up to 5 and offset 4 is not what landed" in result.message
    assert rig.landed() == 5


def test_the_last_record_of_a_range_is_found_behind_a_transactions_marker_and_known_again(
    kafka: Kafka, name: str
) -> None:
    made(kafka, name)
    with open_transaction(kafka, name, 3) as producer:
        producer.commit_transaction(60)
    asked, key = source(kafka.bootstrap_servers, topics=[name]), Partition(name, 0)
    (found,) = asked.last_records(Ranges({key: OffsetRange(0, 4)})).result().values()
    assert found.offset == 2, "the marker is at 3"
    assert asked.records_at({key: 2}) == {key: found}
    assert asked.records_at({key: 3}) == {key: None}
    assert asked.records_at({key: 9}) == {}, "it is past the end"
    view = asked.view(offsets={key: 3})
    assert (view.records, view.compacted) == ({key: None}, frozenset())


def test_a_record_that_compaction_took_is_told_from_one_that_was_lost(kafka: Kafka, name: str) -> None:
    kafka.create_topic(
        name,
        1,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b"old", b"new"):
        producer.produce(name, value, key=b"k", partition=0)
    assert producer.flush(30) == 0
    asked, key = source(kafka.bootstrap_servers, topics=[name]), Partition(name, 0)

    def is_gone() -> bool:
        producer.produce(name, b"tick", key=b"tick", partition=0)  # a segment is closed by the next record
        producer.flush(30)
        return asked.records_at({key: 0}) == {key: None}

    eventually(is_gone, "compaction took the older value")
    view = asked.view(offsets={key: 0})
    assert (view.records, view.compacted) == ({key: None}, frozenset({name}))
