"""What is said of the end of a driver: the cause at the bottom, in words that help."""

from __future__ import annotations

import psycopg2
import pytest

from exactlyonce.errors import BatchTooLarge, TransactionTooLong
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.failures import ending_of, is_too_large

SAID = 'null value in column "id" violates not-null constraint'
ROW = "DETAIL:  Failing row contains (null, x).\nCONTEXT:  COPY orders, line 6\n"


@pytest.mark.parametrize(
    "problem",
    [
        psycopg2.errors.NotNullViolation(f"{SAID}\n{ROW}"),
        RuntimeError(f"Job aborted.\n  File x\npsycopg2.errors.NotNullViolation: {SAID}\n{ROW}\n\tat org.apache.Spark"),
    ],
    ids=["in the driver", "in a task"],
)
def test_a_refusal_of_the_database_names_what_it_said_and_the_row(problem: Exception) -> None:
    expected = f"The database refuses the rows: {SAID} (Failing row contains (null, x).; COPY orders, line 6)."
    assert ending_of(problem, in_batch=True) == (Ending.BATCH_FAILED, expected)


def test_a_malformed_record_is_named_without_the_words_of_spark_around_it() -> None:
    raised = "[USER_RAISED_EXCEPTION] Malformed record in topic t partition 2 offset 7: it does not fit SQLSTATE: P0001"
    expected = (
        "Malformed record in topic t partition 2 offset 7: it does not fit. "
        "Mend the producer, or set source.format.onMalformed to DeadLetter."
    )
    for text in (f"Job aborted.\n{raised}\n\tat org.apache.Spark", raised.removesuffix(" SQLSTATE: P0001")):
        assert ending_of(RuntimeError(text), in_batch=True) == (Ending.BATCH_FAILED, expected)


def test_an_error_without_words_says_that_a_process_may_have_been_killed_and_where_to_look() -> None:
    said = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: SQLSTATE: XXKST (no cause message)"
    assert ending_of(RuntimeError(said), in_batch=False) == (
        Ending.FAILED,
        "The query ended with an error that says nothing, as it does where a process of the driver is killed, for example "
        "for lack of memory; `exactlyonce logs` shows where it was.",
    )


def test_a_tombstone_names_its_own_ways_out() -> None:
    raised = "Malformed record in topic t partition 2 offset 7: the value is null (a tombstone) SQLSTATE: P0001"
    assert ending_of(RuntimeError(raised), in_batch=True) == (
        Ending.BATCH_FAILED,
        "Malformed record in topic t partition 2 offset 7: the value is null (a tombstone). Set source.format.onTombstone to "
        "Skip, or to Delete with write: Upsert; or onMalformed to DeadLetter.",
    )


@pytest.mark.parametrize(
    "condition",
    [
        "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    ],
)
def test_a_transform_that_keeps_other_state_than_the_checkpoint_holds_is_refused(condition: str) -> None:
    ending, message = ending_of(
        RuntimeError(f"Query terminated\n[{condition}] Provided key. SQLSTATE: 42K03"), in_batch=False
    )
    assert ending is Ending.REFUSED, "trying again changes nothing"
    assert message == (
        f"The transform keeps other state than the checkpoint holds ({condition}). Take the change back, or restore the "
        "checkpoint's state; or make a stream with another streamId, which starts with empty state. With continueAfterBatch a "
        "stream can keep none."
    )


def test_brokers_that_do_not_answer_are_no_fault_of_a_batch() -> None:
    expected = "Kafka at a:9092 gave nothing of orders-0 from 5 on for 60 s (no answer in time); it will be retried."
    text = f"Query terminated\n  File x\nexactlyonce.errors.SourceUnreachable: {expected}\n\tat x"
    for in_batch in (True, False):
        assert ending_of(RuntimeError(text), in_batch=in_batch) == (Ending.UNREACHABLE, expected)


TOO_LONG = "A transaction at u@h:5432/d took longer than 900 seconds and was ended (canceling statement)."


@pytest.mark.parametrize(
    "problem",
    [
        TransactionTooLong(TOO_LONG),
        RuntimeError(
            f"Job aborted.\n  File x\nexactlyonce.errors.TransactionTooLong: {TOO_LONG}\n\tat org.apache.Spark"
        ),
    ],
    ids=["in the driver", "in a task"],
)
def test_a_batch_that_takes_too_long_is_to_blame_for_it(problem: Exception) -> None:
    assert ending_of(problem, in_batch=True) == (Ending.BATCH_FAILED, TOO_LONG)
    assert ending_of(problem, in_batch=False) == (Ending.UNREACHABLE, TOO_LONG)


@pytest.mark.parametrize(
    "problem",
    [
        BatchTooLarge("The sink gave up 500 rows."),
        RuntimeError(
            "Job aborted.\nexactlyonce.errors.BatchTooLarge: The sink gave up 500 rows.\n\tat org.apache.Spark"
        ),
    ],
    ids=["in the driver", "in a task"],
)
def test_rows_that_a_sink_gave_up_for_their_number_make_a_batch_too_large(problem: Exception) -> None:
    assert ending_of(problem, in_batch=True) == (Ending.BATCH_FAILED, "The sink gave up 500 rows.")
    assert is_too_large(problem)
