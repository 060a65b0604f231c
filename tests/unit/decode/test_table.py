"""Each example of docs/values.md, at once and one by one; and the records that once landed as other values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.api.column_ddl import parse
from exactlyonce_spark.decode.csv_format import CsvDecoder, Dialect
from exactlyonce_spark.decode.decoder import Decoded, Decoder
from exactlyonce_spark.decode.json_format import JsonDecoder
from exactlyonce_spark.decode.rules import Rules
from tests.decode_table import LINES, RECORDS, TABLE, Row

MANY = 200
"""Good records before the example, so that it is read among others."""


def only(decoded: Decoded) -> tuple[Any, str | None]:
    """The row of the one record, or its reason."""
    assert decoded.rows.num_rows + len(decoded.malformed) == 1
    return (decoded.rows.to_pylist()[0], None) if decoded.rows.num_rows else (None, decoded.malformed[0].reason)


def every_way(decoder: Decoder, value: bytes, good: bytes) -> tuple[Any, str | None]:
    given = pa.array([value], pa.binary())
    found = only(decoder.decode_each(given))
    assert only(decoder.decode(given)) == found
    for _ in range(2):  # the second time, the decoder has learned how such records are written
        among = decoder.decode(pa.array([good] * MANY + [value] + [good] * MANY, pa.binary()))
        if found[1] is None:
            assert not among.malformed
            assert among.rows.to_pylist()[MANY] == found[0]
        else:
            assert [(it.place, it.reason) for it in among.malformed] == [(MANY, found[1])]
            assert among.rows.num_rows == 2 * MANY
    return found


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_example_of_a_column_is_what_the_page_says(row: Row) -> None:
    decoder = JsonDecoder(parse(f"v {row.type}"), row.rules)
    good = b'{"v":' + next(iter(row.taken)).encode() + b"}"
    for literal, value in row.taken.items():
        assert every_way(decoder, b'{"v":' + literal.encode() + b"}", good) == ({"v": value}, None)
    for literal, reason in row.refused.items():
        assert every_way(decoder, b'{"v":' + literal.encode() + b"}", good) == (None, reason)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.what)
def test_each_record_is_read_as_the_page_says(record: Any) -> None:
    decoder = JsonDecoder(parse("v INT"), Rules())
    assert every_way(decoder, record.value, b'{"v": 5}') == (record.row, record.reason)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.value)
def test_each_line_is_read_as_the_page_says(line: Any) -> None:
    decoder = CsvDecoder(parse("id INT, v STRING"), Rules(), Dialect())
    row = None if line.row is None else dict(zip(("id", "v"), line.row, strict=True))
    assert every_way(decoder, line.value, b"0,x") == (row, line.reason)


CHANGED = (
    "id BIGINT NOT NULL, b TINYINT, a DECIMAL(12,2), d DOUBLE, f FLOAT, v STRING, doc STRING, ts TIMESTAMP, "
    "o STRUCT<x: INT NOT NULL>, day DATE"
)


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (b'{"id":1,"b":200}', "b", None),
        (b'{"id":2,"a":1.005}', "a", None),
        (b'{"id":3,"a":0.004}', "a", None),
        (b'{"id":4,"a":"1,50"}', "a", None),
        (b'{"id":5,"d":1e400}', "d", None),
        (b'{"id":6,"v":"\\ud83d"}', "the text", None),
        (b'{"id":7,"v":1.10}', "v", "1.10"),
        (b'{"id":8,"doc":{"amount":12345678901234567.89}}', "doc", '{"amount":12345678901234567.89}'),
        (b'{"id":9,"ts":500000000000}', "ts", None),
        (b'{"id":10,"ts":1764523417915916238}', "ts", None),
        (b'{"id":11,"ts":"12:30"}', "ts", None),
        (b'{"id":12,"o":{}}', "o.x", None),
        (b'{"id":13,"day":"19723"}', "day", None),
        (b'{"id":14}}{"id":15}', "more after its value", None),
        (b'{"id":16},"id":"x"', "more after its value", None),
        (b'{"id":3}}\n{"id":4}', "more after its value", None),
        (b'{"id":5}} not json at all', "more after its value", None),
        (b'{"id":6},"_exactlyonce_row":{"id":7}', "more after its value", None),
        (b'{"id":8},"note":"x"', "more after its value", None),
    ],
)
def test_a_record_that_landed_as_another_value_lands_as_it_says_or_is_malformed(
    value: bytes, column: str, text: str | None
) -> None:
    row, reason = every_way(JsonDecoder(parse(CHANGED), Rules()), value, b'{"id":0,"b":1,"a":1.5,"v":"x"}')
    if text is None:
        assert reason is not None
        assert column in reason
    else:
        assert row[column] == text


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (b'1,"say ""hi""",x', ('say "hi"', "x")),
        (b'2,"",x', ("", "x")),
        (b"3,,x", (None, "x")),
        (b"4,a,b\r\n", ("a", "b")),
        (b'5,"a, ""b""",c', ('a, "b"', "c")),
    ],
)
def test_a_line_as_everybody_writes_it_is_read_as_everybody_reads_it(
    value: bytes, fields: tuple[str | None, str]
) -> None:
    row, _ = every_way(CsvDecoder(parse("id BIGINT NOT NULL, v STRING, w STRING"), Rules(), Dialect()), value, b"0,a,b")
    assert (row["v"], row["w"]) == fields
