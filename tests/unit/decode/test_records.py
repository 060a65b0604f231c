"""What a task makes of its records: each is a row, malformed with a reason, or neither; what is left out is not decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.format import Format
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.decode.decoder import Decoded
from exactlyonce_spark.decode.records import (
    MALFORMED,
    VALUE,
    RecordDecoder,
    Records,
    as_option,
    lacking,
    record_decoder,
)
from exactlyonce_spark.decode.unread import LeftOut

NESTED = (
    "id BIGINT NOT NULL, o STRUCT<x: INT NOT NULL, l: ARRAY<STRUCT<d: VARCHAR(3)>>> NOT NULL, m MAP<STRING, DECIMAL(5,1)>, "
    "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, b BINARY, f FLOAT, t TINYINT"
)
LINES = [b'{"id": 1, "a": "x"}', b"not json", None, b'{"id": 2}', b'{"a": "y"}']


def read(
    values: Sequence[bytes | None], key: Callable[[int], bytes | None] = lambda place: b"k", **given: Any
) -> Records:
    return Records(pa.array(values, pa.binary()), key, lambda place: place * 1_000_000, **given)


def decoder(**given: Any) -> RecordDecoder:
    return RecordDecoder(Format.model_validate({"schema": "id BIGINT NOT NULL, a STRING", **given}))


def test_both_columns_have_the_types_that_spark_asks_for_whether_records_are_malformed_or_not() -> None:
    """Spark compares the schema of what a source in Python yields, with what may be NULL."""
    made = decoder(schema=NESTED)
    good = b'{"id": 1, "o": {"x": 1, "l": [{"d": "abc"}]}, "m": {"k": 1.5}, "at": "2026-01-02T03:04:05Z", "b": "aGk="}'
    for values in ([good], [good, b"x"], [b"x"], [None]):
        batch = pa.RecordBatch.from_arrays(list(made.decode(read(values))), names=[VALUE, MALFORMED])
        assert batch.schema == to_arrow_schema(from_arrow_schema(batch.schema), timezone="UTC")
        assert all(it.nullable for it in [*batch.schema, *batch.schema.field(VALUE).type])


def test_a_record_is_a_row_or_malformed_and_what_a_letter_keeps_is_beside_the_reason() -> None:
    value, malformed = decoder().decode(read(LINES))
    assert value.to_pylist() == [{"id": 1, "a": "x"}, None, None, {"id": 2, "a": None}, None]
    found = malformed.to_pylist()
    assert [None if it is None else it["value"] for it in found] == [None, b"not json", None, None, b'{"a": "y"}']
    assert [it is None for it in found] == [True, False, False, True, False]
    assert found[4]["reason"] == "column id: no value, and the column is NOT NULL"
    assert (found[4]["key"], found[4]["timestamp"].second) == (b"k", 4)
    assert found[2]["reason"] == "the value is null (a tombstone)"


@pytest.mark.parametrize(
    ("given", "rows", "reasons"),
    [
        ({"onTombstone": "Skip"}, [False], [None]),
        ({"onTombstone": "Delete"}, [False], [None]),
        ({"type": "Raw", "schema": "v BINARY"}, [True], [None]),
        ({"type": "Raw", "schema": "v BINARY", "onTombstone": "Skip"}, [False], [None]),
        ({"type": "Raw", "schema": "v BINARY NOT NULL"}, [False], ["the value is null (a tombstone)"]),
        ({"type": "Raw", "schema": "v STRING"}, [False], ["the value is null (a tombstone)"]),
    ],
)
def test_a_tombstone_is_what_the_resource_says(
    given: dict[str, Any], rows: list[bool], reasons: list[str | None]
) -> None:
    value, malformed = decoder(**given).decode(read([None]))
    assert value.is_valid().to_pylist() == rows
    assert [None if it is None else it["reason"] for it in malformed.to_pylist()] == reasons


def test_a_tombstone_without_a_key_says_nothing_of_what_is_deleted() -> None:
    _, malformed = decoder(onTombstone="Delete").decode(read([None, None], lambda place: b"k" if place else None))
    assert [it and it["reason"] for it in malformed.to_pylist()] == [
        "neither key nor value, so nothing says what is deleted",
        None,
    ]


def test_what_is_left_out_is_not_decoded_and_what_the_source_finds_broken_is_malformed_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = decoder()
    seen: list[bytes | None] = []
    inner = made._decoder.decode

    def decode(values: Any) -> Decoded:
        seen.extend(values.to_pylist())
        return inner(values)

    monkeypatch.setattr(made._decoder, "decode", decode)
    left_out = np.array([False, True, False, False, True])
    value, malformed = made.decode(read(LINES, broken={0: "torn", 4: "torn"}, left_out=left_out))
    assert seen == [None, None, None, b'{"id": 2}', None]
    assert value.is_valid().to_pylist() == [False, False, False, True, False]
    assert [it and it["reason"] for it in malformed.to_pylist()] == [
        "torn",
        None,
        "the value is null (a tombstone)",
        None,
        None,
    ]


def test_ranges_that_are_left_out_are_told_to_tasks_whatever_their_positions() -> None:
    shard, topic = Partition("stream", "shardId-0"), Partition("orders", 3)
    spans = [(shard, OffsetRange(2**200, 2**200 + 1)), (topic, OffsetRange(5, 7)), (topic, OffsetRange(9, 10))]
    told = LeftOut.of(LeftOut.options(spans)["left_out"])
    assert told == LeftOut(tuple(spans))
    found = told.of_positions(topic, range(4, 11))
    assert found is not None
    assert np.flatnonzero(found).tolist() == [1, 2, 5]
    of_shard = told.of_positions(shard, [2**200 - 1, 2**200])
    assert of_shard is not None
    assert of_shard.tolist() == [False, True]
    assert told.of_positions(Partition("orders", 4), [5]) is None
    assert LeftOut.options([]) == {}
    assert LeftOut.of(None) == LeftOut()


def test_a_process_keeps_its_decoder_for_as_long_as_the_format_is_the_same() -> None:
    option = as_option(Format.model_validate({"schema": "id INT", "options": {"timeZone": "+01:00"}}))
    assert record_decoder(option) is record_decoder(option)


def test_a_row_that_the_source_has_read_lacks_what_is_not_null() -> None:
    rows = pa.array([{"id": 1, "n": None}, {"id": None, "n": 2}], pa.struct([("id", pa.int64()), ("n", pa.int64())]))
    found = lacking(rows, parse("id BIGINT NOT NULL, n BIGINT"), 0).to_pylist()
    assert found[0] is None
    assert found[1]["reason"] == "column id: no value, and the column is NOT NULL"
