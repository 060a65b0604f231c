"""Transactions of a real broker: drivers die at the points of both phases, zombies wake, and a reader counts what is committed.

The stream's ledger and its source are in memory; tests/integration/test_kafka_sink.py has Spark as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from exactlyonce.errors import RowsNotTaken, TransactionTooLong
from exactlyonce.ledger.fence import Fenced
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses, Named, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from exactlyonce_spark.crash_points import POINTS_OF_TRANSACTIONS
from testbed.kafka import Kafka
from tests.combinations import in_full, only_in_full
from tests.kafka_readers import committed_records
from tests.kafka_sink_world import KafkaWorld
from tests.two_phase_stream import OF_A_BATCH, READS, Killed, killed_at, span_of

ALL = Counter({f"{key.key}/{at}": 1 for key, span in READS.items() for at in range(*span_of(span))})
UNTIL_TOLD = 1_000_000
"""More records than librdkafka holds, so that sending them waits until it has heard of a request that failed."""


def world_on(kafka: Kafka, topic: str, most_bytes: int = 1_000_000) -> KafkaWorld:
    """A stream whose transactional ids begin with the topic's name, so that no other test has them."""
    named = Named(kafka.bootstrap_servers, topic, "")

    def under(transactional_id: str) -> KafkaTransactions:
        mine = replace(named, transactional_id=f"{topic}-{transactional_id}")
        return KafkaTransactions(mine, {"bootstrap.servers": kafka.bootstrap_servers}, 60.0, most_bytes)

    return KafkaWorld(transactions=under)


def seen(kafka: Kafka, topic: str) -> Counter[str]:
    return Counter(record.value().decode() for record in committed_records(kafka, topic))


@pytest.fixture(autouse=True)
def _nobody_watches() -> object:
    yield
    crash_points.watch(lambda point: None)


def test_a_batch_whose_driver_dies_at_any_point_is_there_once_for_a_reader_at_read_committed(
    kafka: Kafka, name: str
) -> None:
    """tests/unit/test_kafka_sink_batches.py kills at all of them over transactions in memory."""
    every = [point for point in (*POINTS_OF_TRANSACTIONS, *OF_A_BATCH) if point != "task.prepared"]
    points = in_full(every, ["transaction.piece-sent", "batch.rows-written", "batch.decided", "batch.committed"])
    for number, point in enumerate(points):
        topic = f"{name}-{number}"
        kafka.create_topic(topic, 2)
        world = world_on(kafka, topic)
        killed_at(point, crash_points.watch)
        with pytest.raises(Killed):
            world.land()
        world.next_driver()
        world.land()
        assert (seen(kafka, topic), world.status()) == (ALL, BatchStatus.LANDED), point


def test_a_zombie_that_has_decided_commits_nothing_behind_its_successor(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 2)
    world = world_on(kafka, name)

    def superseded(point: str) -> None:
        if point == "batch.decided":
            crash_points.watch(lambda point: None)
            world.next_driver()

    crash_points.watch(superseded)
    with pytest.raises(TransactionGone, match="a later driver or replay has begun"):
        world.land()
    assert world.read_again == [READS], "its transaction was aborted by the successor, who has made the rows again"
    assert seen(kafka, name) == ALL
    assert len(committed_records(kafka, name, "read_uncommitted")) == 16, "both are in the log, and one does not count"


def test_a_zombie_that_has_not_decided_yet_decides_nothing(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 2)
    world = world_on(kafka, name)

    def superseded(point: str) -> None:
        if point == "batch.rows-written":
            crash_points.watch(lambda point: None)
            world.next_driver()

    crash_points.watch(superseded)
    with pytest.raises(Fenced):
        world.land()
    assert not seen(kafka, name), "a reader is not held up by what the successor has aborted"
    world.next_driver()
    world.land()
    assert seen(kafka, name) == ALL


def test_a_record_that_the_topic_does_not_take_fails_its_batch_and_nothing_of_it_is_seen(
    kafka: Kafka, name: str
) -> None:
    kafka.create_topic(name, 1, **{"max.message.bytes": "2000"})
    transactions = world_on(kafka, name, most_bytes=2000).transactions
    assert transactions is not None
    one = transactions("large")
    one.take()
    one.begin()
    for _ in range(50):
        one.send(None, b"x" * 1000, ())  # each fits, and no request has more than the topic takes
    with pytest.raises(RowsNotTaken, match=r"max\.message\.bytes"):
        one.send(b"key", b"x" * 3000, ())
    one.abort()
    assert not committed_records(kafka, name)


def test_brokers_that_allow_no_transaction_as_long_as_the_resource_asks_for_are_named(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 1)
    named = Named(kafka.bootstrap_servers, name, f"{name}-id")
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    with pytest.raises(KafkaRefuses, match=r"Lower sink\.kafka\.transactionTimeout"):
        KafkaTransactions(named, properties, 3000.0, 1_000_000).take()


def test_a_record_without_a_key_fails_its_batch_where_a_good_one_shares_its_request(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name, 1, **{"cleanup.policy": "compact"})
    for others in (1, UNTIL_TOLD):  # told by the wait for answers, and by the next record
        one = lingering(kafka, name)
        one.take()
        one.begin()
        one.send(b"key", b"good", ())
        one.send(None, b"bad", ())
        with pytest.raises(RowsNotTaken, match=r"cleanup\.policy"):
            send_until_told(one, b"key", others)
        one.abort()
    assert not committed_records(kafka, name)


def test_a_producer_that_is_fenced_while_it_sends_is_no_failure_of_its_batch(kafka: Kafka, name: str) -> None:
    """A zombie takes the id late: whichever call the fatal error comes out of, it is told as what it is."""
    kafka.create_topic(name, 1)
    one, zombie = lingering(kafka, name), lingering(kafka, name)
    one.take()
    one.begin()
    one.send(None, b"first", ())
    zombie.take()
    with pytest.raises(TransactionGone):
        send_until_told(one, None, UNTIL_TOLD)
    with pytest.raises(TransactionGone):
        one.abort()
    assert not committed_records(kafka, name)


@only_in_full  # tests/unit/test_kafka_sink_answers.py has the broker's answer, and none of the time until it comes
def test_a_batch_whose_transaction_the_brokers_abort_by_time_while_it_is_sent_is_too_large(
    kafka: Kafka, name: str
) -> None:
    kafka.create_topic(name, 1)
    one = KafkaTransactions(
        Named(kafka.bootstrap_servers, name, name), {"bootstrap.servers": kafka.bootstrap_servers}, 10.0, 1_000_000
    )
    one.take()
    one.begin()
    with pytest.raises(TransactionTooLong, match="so Kafka has aborted it"):
        send_until_told(one, None, 100 * UNTIL_TOLD)


def lingering(kafka: Kafka, name: str) -> KafkaTransactions:
    """A producer that waits for further records, so that several share a request."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 100}
    return KafkaTransactions(Named(kafka.bootstrap_servers, name, name), properties, 60.0, 1_000_000)


def send_until_told(transactions: KafkaTransactions, key: bytes | None, records: int) -> None:
    for _ in range(records):
        transactions.send(key, b"more", ())
    transactions.mark(Marker("label", None))
