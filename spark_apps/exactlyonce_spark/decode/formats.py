"""Which decoder a stream's format asks for; made from the resource in the driver, and pickled to its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from exactlyonce.api.column_ddl import parse
from exactlyonce.api.columns import Column, PlainType
from exactlyonce.api.format import Format
from exactlyonce.api.format_type import FormatType
from exactlyonce_spark.decode.avro_format import AvroDecoder
from exactlyonce_spark.decode.csv_format import CsvDecoder, Dialect
from exactlyonce_spark.decode.decoder import Decoder
from exactlyonce_spark.decode.json_format import JsonDecoder
from exactlyonce_spark.decode.json_schema_format import JsonSchemaDecoder
from exactlyonce_spark.decode.protobuf_format import ProtobufDecoder
from exactlyonce_spark.decode.protobuf_schema import ProtobufSchema
from exactlyonce_spark.decode.raw_format import RawDecoder
from exactlyonce_spark.decode.rules import Rules, TimestampUnit


@dataclass(frozen=True, slots=True)
class Json:
    """An object per record; `schema` is a JSON Schema that it has to be valid by, as text."""

    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Csv:
    """A line per record."""

    dialect: Dialect = field(default_factory=Dialect)


@dataclass(frozen=True, slots=True)
class Raw:
    """The value itself."""


@dataclass(frozen=True, slots=True)
class Avro:
    """A record in binary encoding, without a header; `schema` is the writer's, as JSON."""

    schema: str


@dataclass(frozen=True, slots=True)
class Protobuf:
    """A message."""

    schema: ProtobufSchema


DecodedFormat = Json | Csv | Raw | Avro | Protobuf


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """What a decoder is made of."""

    format: DecodedFormat
    columns: tuple[Column, ...]
    rules: Rules = field(default_factory=Rules)

    @property
    def takes_bytes(self) -> bool:
        """Whether a value is its column as it is, whatever it holds, and none is NULL."""
        return isinstance(self.format, Raw) and [(it.type, it.nullable) for it in self.columns] == [
            (PlainType.BINARY, True)
        ]

    def decoder(self) -> Decoder:
        """Return a decoder; one serves a process for as long as it likes, and learns how the records are written.

        Raises:
            Refused: if the format cannot give the columns; the message says which, and what to write.
        """
        match self.format:
            case Json(schema):
                _ = self.rules.time_zone  # a zone that nobody knows is refused here
                return (
                    JsonDecoder(self.columns, self.rules)
                    if schema is None
                    else JsonSchemaDecoder(self.columns, self.rules, schema)
                )
            case Csv(dialect):
                _ = self.rules.time_zone
                return CsvDecoder(self.columns, self.rules, dialect)
            case Raw():
                return RawDecoder(self.columns)
            case Avro(schema):
                return AvroDecoder(self.columns, self.rules, schema)
            case Protobuf(schema):
                return ProtobufDecoder(self.columns, self.rules, schema)
            case _:
                assert_never(self.format)


def spec_of(given: Format) -> DecoderSpec:
    """Return what the decoder of a resource's format is made of.

    Raises:
        Refused: if the schema does not parse.
    """
    options = given.options
    unit = None if given.timestamp_unit is None else TimestampUnit[given.timestamp_unit.name]
    not_a_number = options.get("allowNonNumericNumbers") == "true"
    rules = Rules(options.get("timeZone", "UTC"), unit, not_a_number)
    return DecoderSpec(_format_of(given.type, options), parse(given.schema_), rules)


def _format_of(kind: FormatType, options: Mapping[str, str]) -> DecodedFormat:
    match kind:
        case FormatType.JSON:
            return Json()
        case FormatType.CSV:
            return Csv(Dialect(options.get("sep", ","), options.get("quote", '"'), options.get("nullValue", "")))
        case FormatType.RAW:
            return Raw()
        case FormatType.PARQUET | FormatType.ORC:
            raise AssertionError(f"the source itself reads rows of {kind}")
        case _:
            assert_never(kind)
