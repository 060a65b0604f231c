"""A decoder is made from what the resource says, also in another process; and each option of Spark's parsers has an answer."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pydantic import ValidationError

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.format import Format
from exactlyonce.api.format_options import DECODER_OPTIONS, INSTEAD, problems
from exactlyonce.api.format_type import FormatType
from exactlyonce.errors import Refused
from exactlyonce_spark.decode.csv_format import Dialect
from exactlyonce_spark.decode.decoder import CHUNK, FIRST_CHUNK
from exactlyonce_spark.decode.formats import Avro, Csv, DecodedFormat, DecoderSpec, Json, Raw, spec_of
from exactlyonce_spark.decode.rules import Rules, TimestampUnit
from tests.unit.decode.answers import both_ways

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "v", "type": "string"}]}'


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        (Json(), b'{"v": "x"}'),
        (Json("{}"), b'{"v": "x"}'),
        (Csv(), b"x"),
        (Csv(Dialect(";", "'", "NULL")), b"'x'"),
        (Raw(), b"x"),
        (Avro(AVRO), b"\x02x"),
    ],
    ids=str,
)
def test_a_decoder_is_made_in_another_process_from_the_same_facts(format_: DecodedFormat, value: bytes) -> None:
    spec = pickle.loads(pickle.dumps(DecoderSpec(format_, parse("v STRING"))))
    assert both_ways(spec.decoder(), [value, None, value]) == [{"v": "x"}, "tombstone", {"v": "x"}]


def test_each_record_has_its_place_however_many_there_are() -> None:
    count = FIRST_CHUNK + 2 * CHUNK + 5
    values = [
        None if n % 1000 == 3 else b"{" if n % 1000 == 4 else b'{"v": "%d"}' % n if n % 7 == 0 else b'{"v": %d}' % n
        for n in range(count)
    ]
    for whole in (pa.array([b"x", *values], pa.binary()).slice(1), pa.array(values, pa.binary())):
        decoded = DecoderSpec(Json(), parse("v INT")).decoder().decode(whole)
        assert decoded.tombstones.tolist() == [n for n in range(count) if n % 1000 == 3]
        assert [it.place for it in decoded.malformed] == [n for n in range(count) if n % 1000 == 4]
        assert decoded.places.tolist() == [n for n in range(count) if n % 1000 not in (3, 4)]
        assert decoded.rows["v"].to_pylist() == decoded.places.tolist()


def test_no_record_is_no_row() -> None:
    decoded = DecoderSpec(Json(), parse("v INT")).decoder().decode(pa.array([], pa.binary()))
    assert (decoded.rows.num_rows, decoded.malformed) == (0, ())


def test_raw_takes_a_value_as_it_is() -> None:
    assert both_ways(DecoderSpec(Raw(), parse("v BINARY")).decoder(), [b"\xff\0", b"", None]) == [
        {"v": b"\xff\0"},
        {"v": b""},
        "tombstone",
    ]
    found = both_ways(DecoderSpec(Raw(), parse("v VARCHAR(2)")).decoder(), ["\ufeffä".encode(), b"abc", b"\xff"])
    assert found == [
        {"v": "\ufeffä"},
        "column v: abc has 3 characters, more than VARCHAR(2)",
        "the record is not UTF-8: byte 0 is 0xff",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DecoderSpec(Raw(), parse("v INT")), "one column, STRING or BINARY"),
        (DecoderSpec(Csv(), parse("v ARRAY<INT>")), "declare v as STRING"),
        (DecoderSpec(Csv(Dialect(quote="''")), parse("v INT")), "quote is one character"),
        (DecoderSpec(Csv(Dialect(separator="\n")), parse("v INT")), "cannot be line ends"),
        (DecoderSpec(Json(), parse("v INT"), Rules(zone="Mars/Base")), "not a known zone"),
    ],
)
def test_what_a_format_cannot_give_is_refused(spec: DecoderSpec, message: str) -> None:
    with pytest.raises(Refused, match=message):
        spec.decoder()


def test_an_option_that_the_decoder_does_not_have_is_named_with_what_to_write() -> None:
    for kind in (FormatType.JSON, FormatType.CSV):
        assert not {*DECODER_OPTIONS[kind]} & {*INSTEAD[kind]}
        for name, instead in INSTEAD[kind].items():
            with pytest.raises(ValidationError) as refused:
                Format.model_validate({"type": str(kind), "schema": "v INT", "options": {name: "x"}})
            assert f"{name}: {instead}" in str(refused.value)
    assert list(problems(FormatType.CSV, {"sep": ";", "nullValue": "NULL", "allowNonNumericNumbers": "true"})) == []


def test_a_decoder_is_made_of_what_the_resource_says() -> None:
    given = {"schema": "v TIMESTAMP, d DOUBLE", "timestampUnit": "Milliseconds"}
    options = {"timeZone": "Europe/Berlin", "allowNonNumericNumbers": "true"}
    spec = spec_of(Format.model_validate({**given, "options": options}))
    assert spec == DecoderSpec(
        Json(), parse(given["schema"]), Rules("Europe/Berlin", TimestampUnit.MILLISECONDS, not_a_number=True)
    )
    csv = {"type": "Csv", "schema": "v INT", "options": {"sep": ";", "quote": "'", "nullValue": "NULL"}}
    assert spec_of(Format.model_validate(csv)) == DecoderSpec(Csv(Dialect(";", "'", "NULL")), parse("v INT"))
