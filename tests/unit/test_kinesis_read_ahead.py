"""What is held of a shard: records are taken from where the next batch begins, whatever a page holds before that."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.kinesis.aggregation import RawRecord
from exactlyonce.connectors.kinesis.positions import UserRecord, position_after_record
from exactlyonce_spark.connectors.kinesis.read_ahead import Cut, ReadAhead, size_of
from tests.kinesis_in_memory import aggregated

PLAIN, AGGREGATE, LAST = (
    RawRecord(number, "k", data, 0) for number, data in ((10, b"a"), (20, aggregated(["b", "c", "d"])), (30, b"e"))
)
PAGE, END = (PLAIN, AGGREGATE, LAST), position_after_record(30)


@pytest.mark.parametrize(
    ("start", "records", "held"),
    [
        (UserRecord(10).position, 5, PAGE),
        (position_after_record(10), 4, (AGGREGATE, LAST)),
        (UserRecord(20, 1).position, 3, (AGGREGATE, LAST)),
        (UserRecord(20, 2).position, 2, (AGGREGATE, LAST)),
        (position_after_record(20), 1, (LAST,)),
        (position_after_record(30), 0, ()),
    ],
)
def test_a_page_counts_from_where_the_batch_begins_also_inside_an_aggregate(
    start: int, records: int, held: tuple[RawRecord, ...]
) -> None:
    ahead = ReadAhead(start)
    ahead.add(PAGE, END, lambda size: True)
    assert ahead.records == records
    assert ahead.cut(100, 1000) == Cut(END, records, sum(map(size_of, held)))
    assert ahead.between(start, END) == held
    if records:
        assert ahead.between(start, UserRecord(30).position) == tuple(record for record in held if record is not LAST)
