"""A driver that was told a smaller limit continues with the whole one when what was too large has landed."""

from __future__ import annotations

from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.last_message import Ending, LastMessage, parse_cut_message, parse_last_message
from exactlyonce.launch.port import Orders, ShrunkLimit
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce_spark.failures import is_too_large
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.source_check import RecordsLost

ZERO, ONE = Partition("orders", 0), Partition("orders", 1)
LIMIT = ShrunkLimit(20, '{"orders":{"0":60,"1":50}}')


def test_the_smaller_limit_holds_until_every_partition_has_come_as_far() -> None:
    growth = Growth(LIMIT)
    for stands in ({ZERO: 60, ONE: 49}, {ZERO: 10, ONE: 500}):
        growth.landed(Positions(stands))
        assert (growth.records, growth.due) == (20, False)
    growth.landed(Positions({ZERO: 61, ONE: 50}))
    assert growth.due
    growth.grow()
    assert (growth.records, growth.due) == (None, False)
    growth.landed(Positions({ZERO: 70, ONE: 60}))
    assert not growth.due, "it grows once"


def test_a_driver_without_a_smaller_limit_never_stops_its_query() -> None:
    growth = Growth(None)
    growth.landed(Positions({ZERO: 5}))
    assert (growth.records, growth.due) == (None, False)


def test_a_limit_reaches_the_driver_in_its_document() -> None:
    plain = DriverDocument("shop/orders", {}, "local[1]")
    ordered = plain.ordered(Orders("ticket", limit=LIMIT))
    assert DriverDocument.parse(ordered.render()) == ordered
    assert DriverDocument.parse(plain.render()).limit is None


def test_last_message_say_that_a_batch_was_too_large_even_where_they_were_cut() -> None:
    words = LastMessage(Ending.BATCH_FAILED, "It took too long.", 7, '{"orders":{"0":[0,5]}}', too_large=True)
    assert parse_last_message(words.render()) == words
    cut = parse_cut_message(words.render()[:60])
    assert cut is not None
    assert (cut.batch, cut.too_large) == (7, True)
    plain = LastMessage(Ending.BATCH_FAILED, "No.", 7)
    assert "tooLarge" not in plain.render()
    cut = parse_cut_message(plain.render()[:45])
    assert cut is not None
    assert (cut.batch, cut.too_large) == (7, False)


TOO_LARGE = [
    "Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space",
    "org.apache.spark.memory.SparkOutOfMemoryError: Unable to acquire 65536 bytes of memory",
    "Total size of serialized results of 9 tasks (1026.0 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)",
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: The executor with id 1 exited with "
    "exit code 137(SIGKILL, possible container OOM).",
    "Command exited with code 52: the executor exited with exit code 52",
    "PythonException: Traceback (most recent call last): MemoryError",
    "exactlyonce.errors.TransactionTooLong: A transaction at db took longer than 900 seconds and was ended.",
]


def test_what_says_that_a_batch_was_too_large_is_recognised_and_nothing_else_is() -> None:
    for text in TOO_LARGE:
        assert is_too_large(Exception(text)), text
    assert is_too_large(MemoryError())
    for text in ("exit code 1370", "Malformed record in topic orders", "the executor exited with exit code 1"):
        assert not is_too_large(Exception(text)), text
    assert not is_too_large(RecordsLost("Retention took records of batch 3"))
