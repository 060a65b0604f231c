"""What ended a driver is named by its kind, raised here or in a task, from which it comes back as text."""

from __future__ import annotations

import pytest

from exactlyonce.errors import (
    CommitOutcomeUnknown,
    ExactlyOnceError,
    LedgerUnreachable,
    LockHeldByOther,
    OriginMissing,
    SecretMissing,
    SourceUnreachable,
)
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.fence import EpochOvertaken, Fenced
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.planned import PositionsDiffer, StagedRowsLost

KINDS = [
    (Fenced, Ending.FENCED),
    (OriginMissing, Ending.REFUSED),
    (SecretMissing, Ending.REFUSED),
    (SourceUnreachable, Ending.UNREACHABLE),
    (LedgerUnreachable, Ending.UNREACHABLE),
    (LockHeldByOther, Ending.UNREACHABLE),
    (CommitOutcomeUnknown, Ending.UNREACHABLE),
    (EpochOvertaken, None),
    (PositionsDiffer, None),
    (StagedRowsLost, None),
]
"""Errors of this project; None where it depends on whether a batch was running."""

SAID = "Epoch 3 of shop/orders: something happened at db:5432/shop."
FROM_A_TASK = """An error occurred while calling o98.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 4.0 failed 4 times, most recent failure:
Lost task 1.3 in stage 4.0 (TID 9) (127.0.0.1 executor driver): org.apache.spark.api.python.PythonException: Traceback (most
recent call last):
  File "pyspark/worker.py", line 3421, in main
    process()
ValueError: the first one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "exactlyonce_spark/tasks.py", line 88, in land
    raise Something
{name}: {said}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
	at java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
	at org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2981)
Caused by: java.lang.IllegalStateException: nothing of interest
	at org.apache.spark.Foo.bar(Foo.scala:1)
"""


def test_what_a_server_refuses_is_asked_again_where_nobody_waits_for_the_answer() -> None:
    assert ending_of(OriginMissing(SAID), in_batch=True, asks_again=True) == (Ending.UNREACHABLE, SAID)
    assert ending_of(SecretMissing(SAID), in_batch=True, asks_again=True) == (Ending.REFUSED, SAID)


@pytest.mark.parametrize(("kind", "ending"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
@pytest.mark.parametrize("in_batch", [True, False], ids=["in a batch", "outside of any batch"])
def test_an_error_of_this_project_ends_the_driver_alike_here_and_in_a_task(
    kind: type[ExactlyOnceError], ending: Ending | None, in_batch: bool
) -> None:
    expected = ending or (Ending.BATCH_FAILED if in_batch else Ending.FAILED)
    assert ending_of(kind(SAID), in_batch=in_batch) == (expected, SAID)
    text = FROM_A_TASK.format(name=f"{kind.__module__}.{kind.__name__}", said=SAID)
    assert ending_of(RuntimeError(text), in_batch=in_batch) == (expected, SAID)


@pytest.mark.parametrize("name", ["shop.orders.Unreachable", "shop.Refused", "shop.Fenced"])
def test_an_error_of_the_users_own_that_has_a_name_of_ours_is_a_failure_of_the_batch(name: str) -> None:
    text = FROM_A_TASK.format(name=name, said="no price for 7")
    assert ending_of(RuntimeError(text), in_batch=True) == (Ending.BATCH_FAILED, "no price for 7")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(FROM_A_TASK.format(name="ZeroDivisionError", said="division by zero"), "division by zero",
                     id="the user's function failed in a task"),
        pytest.param(FROM_A_TASK.format(name="shop.orders.PriceMissing", said="no price for 7"), "no price for 7",
                     id="with an error of its own"),
        pytest.param(
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `amout` cannot be resolved. Did you mean `amount`? SQLSTATE: 42703\n"
            "=== Streaming Query ===\nIdentifier: [id = 1, runId = 2]\nCurrent Committed Offsets: {}\n",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `amout` cannot be resolved. Did you mean `amount`? SQLSTATE: 42703",
            id="Spark's analysis, without the state of the query",
        ),
        pytest.param(
            FROM_A_TASK.format(name="exactlyonce.connectors.kafka.reading.RecordsGone", said="Kafka does not hold orders-0."),
            "Kafka does not hold orders-0.",
            id="Kafka lost records",
        ),
        pytest.param(
            FROM_A_TASK.format(name="exactlyonce.errors.OriginMissing", said="Kafka at k:9092 does not know the topic."),
            "Kafka at k:9092 does not know the topic.",
            id="Kafka lost a topic under the query: reconciliation says what becomes of it",
        ),
        pytest.param("", "RuntimeError", id="nothing at all"),
        pytest.param("  \n ", "RuntimeError", id="nothing but space"),
    ],
)  # fmt: skip
def test_what_others_say_is_cut_down_to_the_cause(text: str, said: str) -> None:
    assert ending_of(RuntimeError(text), in_batch=True) == (Ending.BATCH_FAILED, said)
    assert ending_of(RuntimeError(text), in_batch=False) == (Ending.FAILED, said)


def test_a_message_of_1200_characters_is_kept_whole() -> None:
    assert ending_of(RuntimeError("x" * 1200), in_batch=True) == (Ending.BATCH_FAILED, "x" * 1200)


@pytest.mark.parametrize(
    "text", ["word " * 5000, f"ValueError: {'x' * 5000}"], ids=["without a known cause", "with a known cause"]
)
def test_a_message_is_one_line_that_a_person_can_read(text: str) -> None:
    _, said = ending_of(RuntimeError(text), in_batch=True)
    assert len(said) == 1200
    assert said.endswith("…")
    assert "\n" not in said
