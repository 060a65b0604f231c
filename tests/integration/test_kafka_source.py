"""What the source says it holds, against a real broker: bounds, ids, moments, selections."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pydantic import ValidationError

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.properties import librdkafka_properties
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import GroupUnfit, OriginMissing, SourceUnreachable, StartInvalid
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import Bounds, NotShownBecause, ShownStream
from testbed.kafka import Kafka
from tests.rig import eventually
from tests.topics import bounds_of, made, open_transaction, produced, source

NOON = 1_790_000_000_000
"""A moment in milliseconds; the broker keeps the timestamps that producers give."""

READ_UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def as_text(moment: int) -> str:
    """Return a moment in milliseconds as a resource has it."""
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")


def test_earliest_and_latest_are_the_first_record_and_one_past_the_last(kafka: Kafka, name: str) -> None:
    made(kafka, name, 3)
    produced(kafka, name, 7, partition=0)
    produced(kafka, name, 2, partition=2)
    view = source(kafka.bootstrap_servers, topics=[name]).view()
    zero, one, two = (Partition(name, number) for number in range(3))
    assert view.bounds == {zero: Bounds(0, 7), one: Bounds(0, 0), two: Bounds(0, 2)}
    assert view.earliest == Positions({zero: 0, one: 0, two: 0})
    assert view.latest == Positions({zero: 7, one: 0, two: 2})
    assert view.selected == {zero, one, two}
    assert view.missing == ()


def test_records_that_retention_took_move_earliest(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 9)
    kafka.delete_records_before(name, 0, 4)
    assert bounds_of(kafka, name) == Bounds(4, 9)
    kafka.delete_records_before(name, 0, 9)
    assert bounds_of(kafka, name) == Bounds(9, 9), "a partition whose records are all gone is not one that starts at 0"


def test_an_open_transaction_ends_what_read_committed_can_read(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 5)
    with open_transaction(kafka, name, 3) as producer:
        assert bounds_of(kafka, name) == Bounds(0, 5), "Spark plans up to the open transaction and no further"
        assert bounds_of(kafka, name, READ_UNCOMMITTED) == Bounds(0, 8)
        producer.commit_transaction(60)
    eventually(lambda: bounds_of(kafka, name) == Bounds(0, 9), "3 records and the transaction's marker can be read")


def test_an_aborted_transaction_is_behind_latest_at_either_isolation(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    with open_transaction(kafka, name, 3) as producer:
        producer.abort_transaction(60)
    produced(kafka, name, 2)
    eventually(lambda: bounds_of(kafka, name) == Bounds(0, 6), "3 aborted, a marker, 2 more")
    assert bounds_of(kafka, name, READ_UNCOMMITTED) == Bounds(0, 6)


def test_a_stream_that_starts_at_latest_does_not_skip_an_open_transaction(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 5)
    asked = source(kafka.bootstrap_servers, topics=[name], start={"from": "Latest"})
    with open_transaction(kafka, name, 3):
        assert asked.start(asked.view()) == Positions({Partition(name, 0): 5})


def test_a_compacted_topic_keeps_its_bounds_while_records_go(kafka: Kafka, name: str) -> None:
    eager = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100",
        "max.compaction.lag.ms": "100",
    }
    made(kafka, name, config=eager)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def one_more() -> None:
        producer.produce(name, b"value", key=b"the only key", partition=0)
        assert producer.flush(30) == 0

    def is_compacted() -> bool:
        one_more()  # a new record rolls the segment, and only rolled segments are compacted
        return first_record(kafka, name) > 0

    one_more()
    eventually(is_compacted, "the cleaner has taken the first record", 120)
    found = bounds_of(kafka, name)
    assert found.earliest == 0, (
        "nothing says that the range is not whole: a count of records can be lower than the range"
    )
    assert found.latest > first_record(kafka, name)


def first_record(kafka: Kafka, topic: str) -> int:
    """The offset of the first record that a consumer gets."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "the test", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        return int(message.offset())
    finally:
        consumer.close()


def test_partitions_added_are_seen_at_the_next_look(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    asked = source(kafka.bootstrap_servers, topics=[name])
    before = asked.view()
    kafka.add_partitions(name, 4)
    eventually(lambda: len(asked.view().selected) == 4, "the source that was asked before sees the new partitions")
    after = asked.view()
    assert after.bounds[Partition(name, 3)] == Bounds(0, 0)
    assert after.origin_ids == before.origin_ids, "a topic that grows is the same topic"


def test_a_driver_that_asks_for_partitions_alone_sees_those_added_since(kafka: Kafka, name: str) -> None:
    """Spark plans them at once, while the client that asks for their bounds remembers the topic as it was."""
    made(kafka, name, 2)
    asked = source(kafka.bootstrap_servers, topics=[name])
    asked.now([Partition(name, 0)])
    kafka.add_partitions(name, 4)
    added = [Partition(name, 2), Partition(name, 3)]
    eventually(lambda: len(source(kafka.bootstrap_servers, topics=[name]).view().selected) == 4, "they are there")
    assert asked.now(added).earliest == Positions(dict.fromkeys(added, 0))


def test_a_topic_that_was_deleted_and_made_again_has_another_id(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 3)
    asked = source(kafka.bootstrap_servers, topics=[name])
    first = asked.view().origin_ids[name]
    assert asked.view().origin_ids[name] == first
    kafka.delete_topic(name)
    eventually(lambda: asked.view().missing == (name,), "the topic is gone")
    assert asked.view(frozenset({Partition(name, 0)})).bounds == {}, "what is gone has no bounds, not empty ones"
    with pytest.raises(OriginMissing, match=f"Topic {name} is gone"):
        asked.now([Partition(name, 0)])
    kafka.create_topic(name, 1)
    eventually(lambda: asked.view().missing == (), "the topic is there again")
    assert asked.view().origin_ids[name] != first


class Unsure(KafkaAdmin):
    """A client of a broker one of whose answers, after so many, is that it does not know the topic."""

    left = 0

    def answer(self, future: Future[Any]) -> Any:
        """Await an answer, or make that one."""
        self.left -= 1
        if self.left == -1:
            self.named(self._not_known)
        return super().answer(future)

    def _not_known(self) -> None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


@pytest.mark.parametrize("answers_before", range(3))
def test_one_answer_that_a_topic_is_not_known_is_not_believed(kafka: Kafka, name: str, answers_before: int) -> None:
    """A broker that has just been started, or has not applied a partition that is new, gives it for a moment."""
    made(kafka, name)
    produced(kafka, name, 5)
    spec = KafkaSource.model_validate({"bootstrapServers": kafka.bootstrap_servers, "topics": [name]})
    admin = Unsure(kafka.bootstrap_servers, librdkafka_properties(spec, {}), 30.0)
    asked = KafkaBounds(spec, {}, 30.0, admin)
    admin.left = answers_before
    view = asked.view()
    assert admin.left < 0, "it was given"
    assert (view.missing, view.bounds) == ((), {Partition(name, 0): Bounds(0, 5)})
    admin.left = answers_before
    assert asked.now([Partition(name, 0)]).earliest == Positions({Partition(name, 0): 0})


def test_what_a_batch_checks_before_its_commit_is_earliest_and_the_id(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    produced(kafka, name, 5, partition=1)
    kafka.delete_records_before(name, 1, 2)
    asked = source(kafka.bootstrap_servers, topics=[name])
    zero, one = Partition(name, 0), Partition(name, 1)
    now = asked.now([zero, one])
    assert now.earliest == Positions({zero: 0, one: 2})
    assert now.origin_ids == asked.view().origin_ids


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param(NOON - 1, (0, 0), id="before the first"),
        pytest.param(NOON, (0, 0), id="at the first"),
        pytest.param(NOON + 1, (2, 1), id="between two"),
        pytest.param(NOON + 5_000, (2, 1), id="between two, later"),
        pytest.param(NOON + 60_000, (2, 1), id="at the last of one"),
        pytest.param(NOON + 60_001, (4, 1), id="after the last of one"),
        pytest.param(NOON + 3_600_000, (4, 1), id="after the last of all"),
    ],
)
def test_a_start_at_a_moment_is_the_first_record_at_or_after_it(
    timed_topic: str, kafka: Kafka, moment: int, expected: tuple[int, int]
) -> None:
    start = {"from": "Timestamp", "timestamp": as_text(moment)}
    asked = source(kafka.bootstrap_servers, topics=[timed_topic], start=start)
    zero, one = Partition(timed_topic, 0), Partition(timed_topic, 1)
    assert asked.start(asked.view()) == Positions({zero: expected[0], one: expected[1]})


@pytest.fixture(scope="module")
def timed_topic(kafka: Kafka) -> str:
    """Partition 0 has two records at noon and two a minute later; partition 1 has one at noon."""
    made(kafka, "timed", 2)
    produced(kafka, "timed", 2, at=NOON)
    produced(kafka, "timed", 2, at=NOON + 60_000)
    produced(kafka, "timed", 1, partition=1, at=NOON)
    return "timed"


def test_a_start_at_a_moment_inside_an_open_transaction_is_where_that_begins(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 2, at=NOON)
    asked = source(
        kafka.bootstrap_servers, topics=[name], start={"from": "Timestamp", "timestamp": as_text(NOON + 1000)}
    )
    with open_transaction(kafka, name, 3):
        assert asked.start(asked.view()) == Positions({Partition(name, 0): 2})


def test_a_start_at_given_offsets_has_to_fit_what_the_source_holds(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    produced(kafka, name, 5)
    kafka.delete_records_before(name, 0, 2)

    def started(*given: tuple[int, int]) -> Positions:
        offsets = [{"topic": name, "partition": partition, "offset": offset} for partition, offset in given]
        asked = source(kafka.bootstrap_servers, topics=[name], start={"from": "Offsets", "offsets": offsets})
        return asked.start(asked.view())

    assert started((0, 2), (1, 0)) == Positions({Partition(name, 0): 2, Partition(name, 1): 0})
    assert started((0, 5), (1, 0))[Partition(name, 0)] == 5, "the end is where the next record will be"
    with pytest.raises(StartInvalid, match=rf"{name}-0 at 1; the source holds 2 to 5"):
        started((0, 1), (1, 0))
    with pytest.raises(StartInvalid, match=rf"{name}-0 at 6; the source holds 2 to 5"):
        started((0, 6), (1, 0))
    with pytest.raises(StartInvalid, match=rf"lacks {name}-1"):
        started((0, 2))
    with pytest.raises(StartInvalid, match=rf"names {name}-2, which the source has not"):
        started((0, 2), (1, 0), (2, 0))


def test_a_start_from_a_consumer_group_is_where_its_last_member_has_committed(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    produced(kafka, name, 5)
    asked = source(kafka.bootstrap_servers, topics=[name], start={"from": "ConsumerGroup", "group": name})
    with pytest.raises(GroupUnfit, match=f"Kafka at {kafka.bootstrap_servers} has no consumer group {name}; correct"):
        asked.start(asked.view())
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": name,
            "client.id": "billing",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 2, "the consumer has joined")
    with pytest.raises(GroupUnfit, match=r"has 1 member \(billing at /[0-9.]+\): the stream would process the same"):
        asked.start(asked.view())
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    consumer.close()
    assert asked.start(asked.view()) == Positions({Partition(name, 0): 3, Partition(name, 1): 0})
    produced(kafka, name, 1, partition=1)
    with pytest.raises(GroupUnfit, match=f"has committed no offset of {name}-1, which holds records"):
        asked.start(asked.view())


def test_offsets_that_a_transaction_of_the_group_is_about_to_commit_are_waited_for(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 5)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    start = {"from": "ConsumerGroup", "group": name}
    asked = source(kafka.bootstrap_servers, topics=[name], start=start)
    impatient = source(kafka.bootstrap_servers, topics=[name], start=start, timeout=1.0)
    view = asked.view()
    with open_transaction(kafka, name, 1) as producer:
        producer.send_offsets_to_transaction([TopicPartition(name, 0, 4)], consumer.consumer_group_metadata())
        with pytest.raises(SourceUnreachable):
            impatient.start(view)
        producer.commit_transaction(60)
    assert asked.start(view) == Positions({Partition(name, 0): 4})
    consumer.close()


def test_a_consumer_group_shows_where_a_stream_has_landed_unless_it_has_members(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    produced(kafka, name, 5)
    own = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "client.id": "billing"}
    asked = source(kafka.bootstrap_servers, topics=[name], mirrorOffsets={"group": name})
    zero, one, gone = Partition(name, 0), Partition(name, 1), Partition(f"{name}-gone", 0)
    reader = Consumer(own)
    stream = ShownStream(name, "system 7 database 5", "0123456789abcdef")

    def shown() -> list[int]:
        found = reader.committed([TopicPartition(name, 0), TopicPartition(name, 1)], timeout=30)
        return [entry.offset for entry in found]

    assert asked.origin_ids([name, gone.origin]).keys() == {name}
    assert asked.show_landed(stream, Positions({zero: 3, one: 0, gone: 8})) is None
    assert shown() == [3, 0], "as a consumer of the group reads them; a topic that was deleted is passed over"
    told = asked.show_landed(replace(stream, stream_id=f"{name}-other"), Positions({zero: 4}))
    assert told is not None
    assert told.because is NotShownBecause.OF_ANOTHER
    assert f"it shows where another stream has landed in {name}-0" in told.words
    consumer = Consumer({**own, "enable.auto.commit": False})
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 2, "the consumer has joined")
    told = asked.show_landed(stream, Positions({zero: 5, one: 0}))
    assert told is not None
    assert told.because is NotShownBecause.TWO_CONSUMERS
    assert told.words.startswith(f"Consumer group {name} does not show what has landed: it has 1 member (billing at ")
    assert shown() == [3, 0]
    consumer.close()
    assert asked.show_landed(stream, Positions({zero: 5, one: 0})) is None
    assert shown() == [5, 0]
    reader.close()


def test_a_pattern_selects_what_it_matches_as_a_whole_and_never_kafkas_own_topics(kafka: Kafka, name: str) -> None:
    for topic in (f"{name}-a", f"{name}-b", f"{name}-a-late"):
        made(kafka, topic)
    with open_transaction(kafka, f"{name}-a", 1):
        pass  # the broker has made __transaction_state by now
    assert any(topic.startswith("__") for topic in kafka.admin().list_topics(timeout=10).topics)
    view = source(kafka.bootstrap_servers, topicPattern=f"{name}-.|__.*").view()
    assert {partition.origin for partition in view.selected} == {f"{name}-a", f"{name}-b"}
    assert set(view.origin_ids) == {f"{name}-a", f"{name}-b"}


def test_a_pattern_that_matches_nothing_or_is_none_says_so(kafka: Kafka, name: str) -> None:
    unmatched = source(kafka.bootstrap_servers, topicPattern=f"{name}-nothing-.*")
    with pytest.raises(
        OriginMissing, match=rf"{kafka.bootstrap_servers} has no topic that matches {name}-nothing-\.\*"
    ):
        unmatched.start(unmatched.view())
    with pytest.raises(ValidationError, match=r"'\(orders' is not a regular expression"):
        source(kafka.bootstrap_servers, topicPattern="(orders")


def test_assigned_partitions_are_read_and_others_are_not(kafka: Kafka, name: str) -> None:
    made(kafka, name, 4)
    produced(kafka, name, 3, partition=2)
    asked = source(kafka.bootstrap_servers, assign=[{"topic": name, "partitions": [0, 2]}])
    zero, two, three = (Partition(name, number) for number in (0, 2, 3))
    assert asked.start(asked.view()) == Positions({zero: 0, two: 0})
    with_one_more = asked.view(frozenset({three}))
    assert with_one_more.selected == {zero, two}
    assert with_one_more.bounds[three] == Bounds(0, 0), "a partition that was read before is still asked about"


def test_an_assigned_partition_that_does_not_exist_is_named(kafka: Kafka, name: str) -> None:
    made(kafka, name, 2)
    asked = source(kafka.bootstrap_servers, assign=[{"topic": name, "partitions": [0, 7]}])
    with pytest.raises(OriginMissing, match=rf"{kafka.bootstrap_servers} has no partition {name}-7"):
        asked.start(asked.view())


def test_a_missing_topic_is_an_error_that_names_topic_and_brokers(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    asked = source(kafka.bootstrap_servers, topics=[name, f"{name}-absent"])
    view = asked.view()
    assert view.missing == (f"{name}-absent",)
    assert set(view.bounds) == {Partition(name, 0)}
    with pytest.raises(OriginMissing) as caught:
        asked.start(view)
    assert str(caught.value) == (
        f"Kafka at {kafka.bootstrap_servers} has no topic {name}-absent; create it, or correct source.kafka."
    )
