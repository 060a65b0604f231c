"""Records of Kinesis as Spark is given them: the same rows from both ways, in Arrow batches that fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest

from exactlyonce.connectors.kinesis.aggregation import UserRecordData
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, to_text
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce_spark.connectors.kinesis import records
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit
from exactlyonce_spark.connectors.kinesis.records import KinesisStreamReader, Place, ShardRange
from exactlyonce_spark.connectors.kinesis.rows import _ARROW, arrow_batches
from tests.kinesis_api import SHARD, STREAM, KinesisApi, ManualTime, client_of
from tests.kinesis_in_memory import aggregated

MEBIBYTE = 1 << 20


def user_records_of(sizes: Iterable[int]) -> list[UserRecordData]:
    return [
        UserRecordData(UserRecord(number + 1), "key", None, b"x" * size, 1_700_000_000_000)
        for number, size in enumerate(sizes)
    ]


def test_an_arrow_batch_of_large_records_is_bounded_and_one_of_small_records_has_many() -> None:
    large = list(arrow_batches(user_records_of([MEBIBYTE] * 40 + [20 * MEBIBYTE]), STREAM, SHARD))
    assert max(batch.nbytes for batch in large[:-1]) < 10 * MEBIBYTE, "a batch of one is as large as its record"
    assert sum(batch.num_rows for batch in large) == 41
    assert [batch.num_rows for batch in arrow_batches(user_records_of([10] * 5000), STREAM, SHARD)] == [
        2000,
        2000,
        1000,
    ]


def test_rows_are_the_same_from_what_the_planner_hands_over_and_from_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, time = KinesisApi(page_records=4), ManualTime()
    numbers = api.put(b"a", aggregated(["b", "c", "d"]), b"", b"\xf3\x89\x9a\xc2 damaged", aggregated(["e", "f"]), b"g")
    api.close_shard()
    monkeypatch.setattr(Place, "client", lambda _: client_of(api, time))
    reader = ShardReader(client_of(api, time), STREAM, SHARD, TRIM_HORIZON)
    fetched = (*reader.fetch().records, *reader.fetch().records)
    ends = [TRIM_HORIZON, UserRecord(numbers[1], 2).position, UserRecord(numbers[4], 1).position, SHARD_END]
    place = Place(STREAM, STREAM, "eu-west-1", None, None)
    rows = []
    for start, end in pairwise(ends):
        handed, read = (
            pa.Table.from_batches(
                records._batches(place, ShardRange(SHARD, to_text(start), to_text(end), held)), schema=_ARROW
            )
            for held in (fetched, None)
        )
        assert handed.equals(read)
        rows += [(row["data"], row["sub_sequence_number"], row["malformed"] is None) for row in handed.to_pylist()]
    assert [row[0] for row in rows] == [b"a", b"b", b"c", b"d", b"", b"\xf3\x89\x9a\xc2 damaged", b"e", b"f", b"g"]
    assert [number for _, number, _ in rows] == [0, 0, 1, 2, 0, 0, 0, 1, 0]
    assert [well for _, _, well in rows].index(False) == 5


def test_a_reader_that_is_sent_to_tasks_takes_nothing_of_the_planner_with_it() -> None:
    place = Place(STREAM, STREAM, "eu-west-1", None, "login")
    reader = KinesisStreamReader(place, BatchLimit(1, 1))
    reader._planner = object()  # type: ignore[assignment] # whatever it holds
    sent = reader.__getstate__()
    assert sent["_planner"] is None
    assert (sent["_place"], sent["_limit"]) == (place, BatchLimit(1, 1))
