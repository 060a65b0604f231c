"""The last message of a driver whose batch was too large names what limits a batch of this stream's own source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from exactlyonce.api.source import Source
from exactlyonce.errors import LedgerUnreachable, TransactionTooLong
from exactlyonce.launch.last_message import LastMessage, parse_last_message
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.connectors.doris.loads import RowsUnfit
from exactlyonce_spark.driver_failure import Claimed, failed

FORMAT = {"type": "Json", "schema": "id BIGINT"}
KAFKA = {"kafka": {"bootstrapServers": "k:9092", "topics": ["orders"]}, "format": FORMAT}
KINESIS = {"kinesis": {"streamName": "orders", "region": "eu-central-1"}, "format": FORMAT}


class Unreachable:
    """A ledger that does not answer, so that nothing is recorded in it."""

    def __getattr__(self, name: str) -> Any:
        raise LedgerUnreachable("it does not answer")


def words_of(problem: Exception, source: dict[str, Any], partitions: int = 0) -> LastMessage:
    """Return the last message as the launcher reads it, of a batch of so many partitions."""
    ranges = Ranges({Partition("orders", number): OffsetRange(10**12, 10**12 + 9) for number in range(partitions)})
    planned = SimpleNamespace(number=BatchNumber(4), ranges=ranges)
    claimed = Claimed(
        cast("Ledger", Unreachable()),
        cast("Permit", SimpleNamespace(stream_id="s")),
        "k",
        Source.model_validate(source),
    )
    loop = cast("BatchLoop", SimpleNamespace(in_hand=planned))
    words = parse_last_message(failed(problem, claimed, loop, asks_again=False).render())
    assert words is not None
    return words


def message_of(problem: Exception, source: dict[str, Any], partitions: int = 0) -> str:
    return words_of(problem, source, partitions).message


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        (KAFKA, "source.kafka.maxOffsetsPerTrigger"),
        (KINESIS, "source.kinesis.maxRecordsPerTrigger, source.kinesis.maxBytesPerTrigger"),
    ],
    ids=["kafka", "kinesis"],
)
@pytest.mark.parametrize("problem", [TransactionTooLong("It took 900 s."), RuntimeError("java.lang.OutOfMemoryError")])
def test_a_batch_that_was_too_large_is_told_with_the_limits_of_its_own_source(
    problem: Exception, source: dict[str, Any], limits: str
) -> None:
    assert message_of(problem, source).endswith(f" What limits a batch: {limits}.")


@pytest.mark.parametrize("partitions", [1, 60, 90, 400])
@pytest.mark.parametrize("said", ["x", "ö"])
def test_the_limits_are_told_also_where_a_long_error_and_many_ranges_leave_little_room(
    partitions: int, said: str
) -> None:
    told = message_of(TransactionTooLong(said * 10_000), KINESIS, partitions)
    assert told.endswith(
        " What limits a batch: source.kinesis.maxRecordsPerTrigger, source.kinesis.maxBytesPerTrigger."
    )
    assert told.startswith(said * 300)


def test_a_batch_that_failed_otherwise_is_not_to_be_made_smaller() -> None:
    assert "What limits" not in message_of(RuntimeError("relation does not exist"), KAFKA)


@pytest.mark.parametrize(
    ("problem", "count"),
    [
        (RowsUnfit("Doris refuses 3 of 500 rows, so none is loaded: too many filtered rows (label a)."), 3),
        (RowsUnfit("Doris refuses some of 500 rows, so none is loaded: unqualified (label a)."), None),
        (RowsUnfit("Doris took 498 of 500 rows (2 filtered, 0 not selected); the load a is aborted."), 2),
        (RowsUnfit("Doris took 498 of 500 rows (0 filtered, 2 not selected); the load a is aborted."), None),
        (RuntimeError("A record says: Doris refuses 3 of 500 rows, so none is loaded: "), None),
    ],
)
def test_a_last_message_tells_how_many_rows_doris_has_filtered(problem: Exception, count: int | None) -> None:
    assert words_of(problem, KAFKA).refused_rows == count
