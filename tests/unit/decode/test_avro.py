"""Avro: what fastavro writes comes back value for value, in step and one by one; and what is not of the schema is malformed."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactlyonce.api.column_ddl import parse
from exactlyonce_spark.decode.avro_format import AvroDecoder
from exactlyonce_spark.decode.avro_schema import AvroSchemaUnusable
from exactlyonce_spark.decode.rules import Rules
from tests.unit.decode.answers import both_ways, shown

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "passed", "type": ["string", "null", "long"]},
        {"name": "text", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}]},
        {
            "name": "price",
            "type": {
                "type": "fixed",
                "name": "Price",
                "size": 6,
                "logicalType": "decimal",
                "precision": 12,
                "scale": 4,
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "f", "type": "float"},
        {"name": "d", "type": ["double", "null"]},
        {"name": "b", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "kinds", "type": {"type": "array", "items": ["null", "Kind"]}},
        {
            "name": "places",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Place",
                        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
                    },
                },
            ],
        },
        {"name": "first", "type": ["null", "Place"]},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "grid", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
    ],
}
COLUMNS = parse(
    "id BIGINT NOT NULL, small SMALLINT, text VARCHAR(20), amount DECIMAL(12,2), price DECIMAL(20,6), at "
    "TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, f FLOAT, d DOUBLE, b BOOLEAN, kind STRING, raw BINARY, kinds ARRAY<STRING>, places "
    "ARRAY<STRUCT<x: INT, y: STRING>>, "
    "first STRUCT<y: STRING NOT NULL, x: BIGINT>, counts MAP<STRING, BIGINT>, grid ARRAY<ARRAY<INT>>, nowhere STRING"
)
PARSED = fastavro.parse_schema(SCHEMA)
SETTINGS = settings(
    max_examples=int(os.environ.get("EXAMPLES", "15")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


places = st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1), "y": optional(st.text(max_size=14))})
orders = st.fixed_dictionaries(
    {
        "id": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200)),
        "small": optional(st.integers(-40000, 40000)),
        "passed": st.one_of(st.none(), st.text(max_size=30), st.integers(-9, 9)),
        "text": optional(st.text(max_size=22)),
        "amount": optional(st.decimals(-(10**12), 10**12, places=2)),
        "price": st.decimals(-(10**7), 10**7, places=4),
        "at": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
            lambda it: it.replace(fold=0)
        ),
        "local": optional(
            st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(
                lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000, fold=0)
            )
        ),
        "day": optional(st.dates()),
        "f": st.floats(width=32),
        "d": optional(st.floats()),
        "b": st.booleans(),
        "kind": st.sampled_from(["NEW", "OLD"]),
        "raw": optional(st.binary(max_size=40)),
        "kinds": st.lists(st.sampled_from([None, "NEW", "OLD"]), max_size=70),
        "places": optional(st.lists(places, max_size=3)),
        "first": optional(places),
        "counts": st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), max_size=4),
        "grid": st.lists(st.lists(st.integers(-3, 3), max_size=3), max_size=3),
    }
)


def written(order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, order)
    return out.getvalue()


def expected(order: dict[str, Any]) -> dict[str, Any] | None:
    """The row of an order; None if it is malformed."""
    row = {column.name: order.get(column.name) for column in COLUMNS}
    row["counts"] = list(order["counts"].items())
    row["places"] = order["places"] and [{"x": it["x"], "y": it["y"]} for it in order["places"]]
    row["price"] = order["price"].quantize(Decimal("0.000001"))
    if order["first"] is not None:
        row["first"] = {"y": order["first"]["y"], "x": order["first"]["x"]}
    fits = (
        (order["small"] is None or -(2**15) <= order["small"] < 2**15)
        and (order["text"] is None or len(order["text"]) <= 20)
        and (order["amount"] is None or abs(order["amount"]) < 10**10)
        and all(order[it] is None or abs(order[it]) < float("inf") for it in "fd")
        and (order["first"] is None or order["first"]["y"] is not None)
    )
    if row["amount"] is not None:
        row["amount"] += 0  # no negative zero
    return row if fits else None


@SETTINGS
@given(st.lists(orders, min_size=1, max_size=20))
def test_what_fastavro_writes_comes_back_value_for_value(given_orders: list[dict[str, Any]]) -> None:
    decoder = AvroDecoder(COLUMNS, Rules(), json.dumps(SCHEMA))
    found = both_ways(decoder, [written(order) for order in given_orders])
    for order, row in zip(given_orders, found, strict=True):
        wanted = expected(order)
        if wanted is None:
            assert isinstance(row, str)
            assert row.startswith("column ")
        else:
            assert shown(row) == shown(wanted)


GOOD = {
    "id": 5,
    "small": None,
    "passed": "x",
    "text": "hello, a longer text",
    "amount": Decimal("1.50"),
    "price": Decimal("2.0000"),
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "local": None,
    "day": date(2026, 1, 2),
    "f": 1.5,
    "d": 2.5,
    "b": True,
    "kind": "OLD",
    "raw": None,
    "kinds": ["NEW", None],
    "places": [{"x": 1, "y": "a"}],
    "first": {"x": 1, "y": "b"},
    "counts": {"k": 1},
    "grid": [[1], []],
}


@SETTINGS
@given(st.data())
def test_bytes_that_are_cut_joined_or_changed_give_the_same_answer_both_ways(data: st.DataObject) -> None:
    whole = written(GOOD)
    values = []
    for _ in range(15):
        value = bytearray(whole + data.draw(st.sampled_from([b"", b"", b"\0", whole])))
        for _ in range(data.draw(st.integers(0, 3))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF])
            )
        values.append(bytes(value[: data.draw(st.integers(0, 2 * len(value)))]))
    both_ways(AvroDecoder(COLUMNS, Rules(), json.dumps(SCHEMA)), [whole, *values, whole])


def simple(type_: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": type_}]})


@pytest.mark.parametrize(
    ("type_", "column", "value", "reason"),
    [
        ("long", "BIGINT", b"\x0a\x00", "the record has 1 bytes after its value"),
        ("long", "BIGINT", b"\x8a", "the record ends early: 1 bytes have to follow, and there are 0"),
        ("long", "BIGINT", b"", "the record ends early: 1 bytes have to follow, and there are 0"),
        ("long", "BIGINT", b"\xff" * 10 + b"\x01", "the record has a number of more than 64 bits"),
        ("int", "INT", b"\x80\x80\x80\x80\x20", "the record has 4294967296 where a number of 32 bits belongs"),
        ("int", "TINYINT", b"\x90\x03", "column v: 200 is outside of TINYINT (-128 to 127)"),
        ("boolean", "BOOLEAN", b"\x02", "the record has byte 0x02 where 0 or 1 belongs"),
        (["null", "long"], "BIGINT", b"\x04\x00", "the record says branch 2 of a union of 2"),
        ("string", "STRING", b"\x04\xff\xfe", "column v: the text is not UTF-8"),
        ("string", "STRING", b"\x03", "the record ends early: -2 bytes have to follow, and there are 0"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "STRING",
            b"\x02",
            "the record says symbol 1 of an enum of 1",
        ),
        (
            {"type": "array", "items": "null"},
            "ARRAY<INT>",
            b"\x80\x80\x80\x80\x80\x20\x00",
            "the record says 549755813888 items where 1 bytes are left",
        ),
        (
            {"type": "map", "values": "int"},
            "MAP<STRING, INT>",
            b"\x04\x02k\x02\x02k\x04\x00",
            "column v: the key k occurs twice",
        ),
        (
            "double",
            "DOUBLE",
            b"\0\0\0\0\0\0\xf8\x7f",
            "column v: NaN is not a number; the option allowNonNumericNumbers lets it in",
        ),
        (
            "double",
            "FLOAT",
            b"\xff\xff\xff\xff\xff\xff\xef\x7f",
            "column v: 1.7976931348623157e+308 is too large for FLOAT",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            "TIMESTAMP",
            b"\x02",
            "column v: 1 nanoseconds are more exact than a microsecond, or outside of the years 1 to 9999",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            "DECIMAL(12,2)",
            b"\x04\x03\xed",
            "column v: 1.005 has more digits than DECIMAL(12,2)",
        ),
    ],
)
def test_what_is_not_of_the_schema_is_malformed(type_: Any, column: str, value: bytes, reason: str) -> None:
    decoder = AvroDecoder(parse(f"v {column}"), Rules(), simple(type_))
    assert both_ways(decoder, [value]) == [reason]


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        ("{", "v INT", "the Avro schema is not JSON"),
        ('"long"', "v INT", "not that of a record"),
        (simple("string"), "v INT", 'column v is INT, and the Avro schema has "string" there'),
        (simple("long"), "w INT NOT NULL", "column w is NOT NULL, and the Avro schema has no such field"),
        (simple("Other"), "v INT", "has the type Other, which is not defined before it"),
        (
            simple([{"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "fields": []}]),
            "v STRUCT<x: INT>",
            "a union of two records",
        ),
        (simple({"type": "array", "items": "int"}), "v INT", "column v is INT, and the Avro schema has an array there"),
        (simple("x" * (1 << 21)), "v INT", "more than 1048576 bytes"),
    ],
)
def test_a_schema_that_cannot_become_the_columns_is_refused(schema: str, columns: str, message: str) -> None:
    with pytest.raises(AvroSchemaUnusable, match=message):
        AvroDecoder(parse(columns), Rules(), schema)


def test_a_schema_that_names_itself_is_passed_over_as_deep_as_a_record_goes() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    schema = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}, {"name": "n", "type": node}]}
    )
    decoder = AvroDecoder(parse("v INT"), Rules(), schema)
    assert both_ways(decoder, [b"\x0a\x02\x02\x00"]) == [{"v": 5}]
    assert both_ways(decoder, [b"\x0a" + b"\x02" * 5000 + b"\x00"]) == ["the record is nested deeper than 100 levels"]


def test_a_number_counts_what_the_resource_says() -> None:
    from exactlyonce_spark.decode.rules import TimestampUnit

    decoder = AvroDecoder(parse("v TIMESTAMP"), Rules(timestamp_unit=TimestampUnit.SECONDS), simple("long"))
    assert both_ways(decoder, [b"\x0a"]) == [{"v": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=5)}]
