"""Generated values through the fast path, the path of one record, and an oracle written from the table alone: one answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.columns import Column
from exactlyonce_spark.decode.csv_format import CsvDecoder, Dialect
from exactlyonce_spark.decode.decoder import Decoder
from exactlyonce_spark.decode.json_format import JsonDecoder
from exactlyonce_spark.decode.rules import Rules, TimestampUnit
from tests.decode_oracle import MALFORMED, Choices, csv_record, json_record
from tests.decode_values import csv_values, json_batches
from tests.unit.decode.answers import outcome, shown

EXAMPLES = int(os.environ.get("EXAMPLES", "12"))
"""Batches for each schema: of up to 30 values in twelve forms each."""
SETTINGS = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=True
)
SCALARS = [
    "v TINYINT",
    "v SMALLINT",
    "v INT",
    "v BIGINT NOT NULL",
    "v DECIMAL(12,2)",
    "v DECIMAL(38,38)",
    "v DECIMAL(5,0)",
    "v DECIMAL(38,10)",
    "v FLOAT",
    "v DOUBLE",
    "v STRING",
    "v VARCHAR(3)",
    "v BOOLEAN",
    "v TIMESTAMP",
    "v TIMESTAMP_NTZ",
    "v DATE",
    "v BINARY",
]
NESTED = [
    "id BIGINT NOT NULL, o STRUCT<x: INT NOT NULL, `y z`: STRING, p: STRUCT<q: DECIMAL(5,2), r: TIMESTAMP>>, d DATE",
    "id INT, l ARRAY<DECIMAL(12,2)>, ll ARRAY<ARRAY<STRING>>, lo ARRAY<STRUCT<id: INT, x: BOOLEAN NOT NULL>>",
    "id INT, m MAP<STRING, BIGINT>, n MAP<INT, STRING>, mo MAP<STRING, STRUCT<x: DOUBLE NOT NULL>>, ml "
    "MAP<DECIMAL(5,2), ARRAY<DATE>>",
]
Oracle = Callable[[bytes], Any]


def require_one_answer(decoder: Decoder, values: Sequence[bytes], oracle: Oracle) -> None:
    given = pa.array(values, pa.binary())
    expected = [oracle(value) for value in values]
    for how, decoded in (
        ("at once", decoder.decode(given)),
        ("each", decoder.decode_each(given)),
        ("again", decoder.decode(given)),
    ):
        for value, found, wanted in zip(values, outcome(decoded, len(values), MALFORMED), expected, strict=True):
            assert shown(found) == shown(wanted), (how, value)


def columns_of(schema: str) -> tuple[Column, ...]:
    return parse(schema)


@pytest.mark.parametrize("schema", [*SCALARS, *NESTED])
def test_json_is_what_the_table_says(schema: str) -> None:
    columns = columns_of(schema)

    @SETTINGS
    @given(json_batches(columns))
    def holds(values: list[bytes]) -> None:
        require_one_answer(JsonDecoder(columns, Rules()), values, lambda value: json_record(value, columns))

    holds()


@pytest.mark.parametrize("schema", SCALARS)
@pytest.mark.parametrize("null", ["", "NULL"])
def test_csv_is_what_the_table_says(schema: str, null: str) -> None:
    columns = columns_of(f"a STRING, {schema}")

    @SETTINGS
    @given(st.lists(csv_values(columns), max_size=15))
    def holds(values: list[bytes]) -> None:
        decoder = CsvDecoder(columns, Rules(), Dialect(null=null))
        require_one_answer(decoder, values, lambda value: csv_record(value, columns, null=null))

    holds()


@pytest.mark.parametrize("unit", TimestampUnit)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_are_those_of_the_zone_and_the_unit_that_the_resource_names(unit: TimestampUnit, zone: str) -> None:
    columns = columns_of("v TIMESTAMP, w DOUBLE")
    rules, choices = Rules(zone, unit, not_a_number=True), Choices(zone, unit.value, not_a_number=True)

    @SETTINGS
    @given(json_batches(columns), st.lists(csv_values(columns), max_size=15))
    def holds(json_texts: list[bytes], lines: list[bytes]) -> None:
        require_one_answer(JsonDecoder(columns, rules), json_texts, lambda value: json_record(value, columns, choices))
        require_one_answer(
            CsvDecoder(columns, rules, Dialect()), lines, lambda value: csv_record(value, columns, choices)
        )

    holds()
