"""What brokers answer in the middle of a transaction: a batch that is too large, rows that they do not take, or nobody's fault.

Brokers are librdkafka's mock of them, so what it makes of an answer is part of what is tested.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError

from exactlyonce.errors import ExactlyOnceError, RowsNotTaken, TransactionTooLong
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.connectors.kafka import sink_transactions
from exactlyonce_spark.connectors.kafka.sink_errors import IdForgotten, KafkaAway, Named, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_transactions import KafkaTransactions
from exactlyonce_spark.failures import ending_of, is_too_large
from tests.kafka_mock import PRODUCE, MockKafka, mock_kafka

TIMEOUT_SECONDS = 60.0
UNTIL_THE_ANSWER = 1_000_000
"""More records than librdkafka holds, so that sending them waits until it has heard of the request that failed."""


@pytest.fixture
def brokers() -> Iterator[MockKafka]:
    with mock_kafka("rows") as running:
        yield running


def begun(brokers: MockKafka) -> KafkaTransactions:
    """A transaction whose first record the brokers have taken."""
    transactions = KafkaTransactions(
        Named(brokers.bootstrap, "rows", "exactlyonce:shop_orders:0123"),
        {"bootstrap.servers": brokers.bootstrap, "linger.ms": 0},
        TIMEOUT_SECONDS,
        1_000_000,
    )
    transactions._producer.init_transactions(10)
    transactions.begin()
    transactions.send(None, b"first", ())
    assert transactions._producer.flush(10) == 0
    return transactions


def send_and_mark(transactions: KafkaTransactions, records: int) -> None:
    for _ in range(records):
        transactions.send(None, b"more", ())
    assert records < UNTIL_THE_ANSWER, "the client has heard of it by then"
    transactions.mark(Marker("label", None))


def ended_by(brokers: MockKafka, code: int, records: int, *, late: bool = False) -> ExactlyOnceError:
    """Return what is raised where the brokers answer so to the next request with records."""
    transactions = begun(brokers)
    if late:
        transactions._began -= 2 * TIMEOUT_SECONDS
    brokers.answers(PRODUCE, code)
    with pytest.raises(ExactlyOnceError) as raised:
        send_and_mark(transactions, records)
    with suppress(TransactionGone):  # where the producer is fenced; the batch that comes next is not too large for that
        transactions.abort()
    return raised.value


@pytest.mark.parametrize("records", [3, UNTIL_THE_ANSWER])
@pytest.mark.parametrize(
    ("code", "late", "kind", "ending"),
    [
        (KafkaError.INVALID_PRODUCER_EPOCH, True, TransactionTooLong, Ending.BATCH_FAILED),
        (KafkaError.INVALID_PRODUCER_EPOCH, False, TransactionGone, Ending.UNREACHABLE),
        (KafkaError.TRANSACTION_ABORTABLE, False, TransactionGone, Ending.UNREACHABLE),
        (KafkaError.INVALID_RECORD, False, RowsNotTaken, Ending.BATCH_FAILED),
        (KafkaError.MSG_SIZE_TOO_LARGE, False, RowsNotTaken, Ending.BATCH_FAILED),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, False, IdForgotten, Ending.UNREACHABLE),
    ],
)
def test_an_answer_in_the_middle_of_a_batch_is_named_whichever_call_it_comes_out_of(
    brokers: MockKafka, code: int, late: bool, kind: type[ExactlyOnceError], ending: Ending, records: int
) -> None:
    """Of a few records the wait for answers tells it, of many the next record, as a state that is wrong or a fatal error."""
    problem = ended_by(brokers, code, records, late=late)
    assert type(problem) is kind, problem
    assert ending_of(problem, in_batch=True)[0] is ending
    assert is_too_large(problem) is (kind is TransactionTooLong), "onBatchTooLarge: Shrink makes it smaller"


@pytest.mark.parametrize(
    ("takes_records", "kind"), [(True, TransactionTooLong), (False, KafkaAway)], ids=["slow", "silent"]
)
def test_brokers_that_are_slower_than_the_timeout_have_too_large_a_batch_and_silent_ones_are_away(
    brokers: MockKafka, takes_records: bool, kind: type[ExactlyOnceError]
) -> None:
    transactions = begun(brokers)
    transactions._began -= 2 * TIMEOUT_SECONDS
    assert transactions._delivered_at is not None
    if not takes_records:
        transactions._delivered_at -= 2 * sink_transactions.ASK_SECONDS
    brokers.is_slow(30_000)
    transactions.send(None, b"second", ())
    with pytest.raises(ExactlyOnceError) as raised:
        transactions.mark(Marker("label", None))
    assert type(raised.value) is kind, raised.value
    brokers.is_slow(0)


@pytest.mark.parametrize(
    ("takes_records", "kind"), [(True, TransactionTooLong), (False, KafkaAway)], ids=["slow", "silent"]
)
def test_a_record_that_waited_for_as_long_as_the_transaction_may_be_open_is_told_the_same_way(
    takes_records: bool, kind: type[ExactlyOnceError]
) -> None:
    transactions = KafkaTransactions(
        Named("127.0.0.1:9", "rows", "id"), {"bootstrap.servers": "127.0.0.1:9"}, 60.0, 100
    )
    transactions._began = time.monotonic() - TIMEOUT_SECONDS
    for code in [None, KafkaError._MSG_TIMED_OUT] if takes_records else [KafkaError._MSG_TIMED_OUT]:
        transactions._delivered(code and KafkaError(code), None)
    with pytest.raises(kind):
        transactions.mark(Marker("label", None))


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_that_shares_a_request_with_one_that_is_refused_hides_no_cause(order: int) -> None:
    transactions = KafkaTransactions(
        Named("127.0.0.1:9", "rows", "id"), {"bootstrap.servers": "127.0.0.1:9"}, 60.0, 100
    )
    for code in [KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD][::order]:
        transactions._delivered(KafkaError(code), None)
    with pytest.raises(RowsNotTaken, match="failed to validate record"):
        transactions.mark(Marker("label", None))


def test_a_good_record_whose_request_was_refused_is_no_outage() -> None:
    problem = Named("127.0.0.1:9", "rows", "id").error(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), "sending")
    assert type(problem) is RowsNotTaken


def test_a_record_that_the_topic_takes_and_the_driver_does_not_hold_is_blamed_by_its_size(brokers: MockKafka) -> None:
    named = Named(brokers.bootstrap, "rows", "exactlyonce:shop_orders:0123")
    transactions = KafkaTransactions(named, {"bootstrap.servers": brokers.bootstrap}, TIMEOUT_SECONDS, 2_147_483_647)
    transactions._producer.init_transactions(10)
    transactions.begin()
    with pytest.raises(RowsNotTaken, match=r"value of 67108864 bytes\. sink\.kafka sends none of more than 67108864"):
        transactions.send(b"key", bytes(sink_transactions.MOST_RECORD_BYTES), ())
    transactions.send(b"key", bytes(sink_transactions.MOST_RECORD_BYTES - 1_000), ())
