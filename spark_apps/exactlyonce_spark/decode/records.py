"""What a task makes of the records that it has read: typed rows, and why the others are malformed, as two columns for Spark.

A source's reader puts both in the place of the bytes. A record that yields no row has no `value`: it is malformed, a tombstone
that is skipped or that deletes, or left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import numpy.typing as npt

from exactlyonce.api.columns import ArrayType, Column, ColumnType, MapType, StructType, TextType
from exactlyonce.api.format import Format, OnTombstone
from exactlyonce_spark.decode.arrow import Array, RecordBatch, pa, pc
from exactlyonce_spark.decode.arrow_types import arrow_schema
from exactlyonce_spark.decode.columns import as_numpy
from exactlyonce_spark.decode.formats import spec_of

VALUE, MALFORMED = "value", "malformed"
"""The two columns."""

MALFORMED_DDL = "STRUCT<reason: STRING, value: BINARY, key: BINARY, timestamp: TIMESTAMP>"
"""Spark's type of the second: why, and what a dead letter keeps of the record."""

_MALFORMED_TYPE = pa.struct(
    [
        pa.field("reason", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_A_TOMBSTONE = "the value is null (a tombstone)"
_NAMELESS = "neither key nor value, so nothing says what is deleted"


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order in which they were read.

    Attributes:
        values: their bytes, an array of type binary; NULL for tombstones.
        key: returns the key of the record at a place, if it has one.
        timestamp: returns the timestamp of the record at a place, in microseconds since 1970, if it has one.
        broken: by their places, those that the source itself finds malformed, and why.
        left_out: the records that are not looked at, if there are any.
    """

    values: Array
    key: Callable[[int], bytes | None]
    timestamp: Callable[[int], int | None]
    broken: Mapping[int, str] = field(default_factory=dict)
    left_out: npt.NDArray[np.bool_] | None = None


class RecordDecoder:
    """Decodes the records of one stream. It serves a process for as long as that lives, and learns how records are written."""

    def __init__(self, format_: Format) -> None:
        spec = spec_of(format_)
        self._decoder = spec.decoder()
        self._on_tombstone = format_.on_tombstone
        self._takes_bytes = spec.takes_bytes
        self._fields = list(arrow_schema(as_spark_has_them(spec.columns)))
        self.type = pa.struct(self._fields)
        self.ddl = ddl_of(spec.columns)

    def decode(self, records: Records) -> tuple[Array, Array]:
        """Return the columns `value` and `malformed` of the records."""
        count = len(records.values)
        hidden = _hidden(records, count)
        found = self._decoder.decode(
            records.values if hidden is None else pc.if_else(pa.array(hidden), None, records.values)
        )
        reasons = {it.place: it.reason for it in found.malformed}
        left_out = records.left_out
        reasons |= {place: why for place, why in records.broken.items() if left_out is None or not left_out[place]}
        tombstones = [int(it) for it in found.tombstones if hidden is None or not hidden[it]]
        kept = self._tombstones(tombstones, records, reasons)
        return self._values(found.rows, found.places, kept, count), _malformed(records, reasons, count)

    def _tombstones(self, places: Sequence[int], records: Records, reasons: dict[int, str]) -> list[int]:
        """Return the tombstones that are rows of NULL, and add those that are malformed to the reasons."""
        match self._on_tombstone:
            case OnTombstone.FAIL:
                if self._takes_bytes:
                    return list(places)
                reasons.update(dict.fromkeys(places, _A_TOMBSTONE))
            case OnTombstone.DELETE:
                reasons.update({place: _NAMELESS for place in places if records.key(place) is None})
            case OnTombstone.SKIP:
                pass
            case _:
                assert_never(self._on_tombstone)
        return []

    def _values(
        self, rows: RecordBatch, places: npt.NDArray[np.int64], rows_of_null: Sequence[int], count: int
    ) -> Array:
        """Return a row for each record, NULL for those that yield none."""
        columns = [
            column if column.type == it.type else column.cast(it.type)
            for column, it in zip(rows.columns, self._fields, strict=True)
        ]
        if len(places) == count:
            return pa.StructArray.from_arrays(columns, fields=self._fields)
        taken = np.full(count, -1, np.int64)
        taken[places] = np.arange(len(places))
        absent = taken < 0
        indices = pa.array(taken, mask=absent)
        absent[list(rows_of_null)] = False
        arrays = [column.take(indices) for column in columns]
        return pa.StructArray.from_arrays(arrays, fields=self._fields, mask=pa.array(absent))


@functools.lru_cache(maxsize=2)
def record_decoder(format_: str) -> RecordDecoder:
    """Return this process's decoder of a format, which is given as JSON.

    Raises:
        Refused: if the format cannot give its columns.
    """
    return RecordDecoder(Format.model_validate_json(format_))


def as_option(format_: Format) -> str:
    """Return a format as `record_decoder` takes it."""
    return format_.model_dump_json(by_alias=True, exclude_defaults=True)


def ddl_of(columns: Collection[Column]) -> str:
    """Return Spark's type of the column `value`."""
    return f"STRUCT<{', '.join(f'{it.quoted_name}: {it.type}' for it in as_spark_has_them(columns))}>"


def lacking(values: Array, columns: Sequence[Column], timestamp: int) -> Array:
    """Return the column `malformed` of rows that the source itself has read: a column without a value may be NOT NULL."""
    reasons: dict[int, str] = {}
    for number, column in enumerate(columns):
        if not column.nullable:
            for place in np.flatnonzero(as_numpy(values.field(number).is_null())).tolist():
                reasons.setdefault(place, f"column {column.name}: no value, and the column is NOT NULL")
    nothing = Records(pa.nulls(len(values), pa.binary()), lambda _place: None, lambda _place: timestamp)
    return _malformed(nothing, reasons, len(values))


def _hidden(records: Records, count: int) -> npt.NDArray[np.bool_] | None:
    """Return which values are not decoded."""
    if not records.broken:
        return records.left_out
    hidden = np.zeros(count, np.bool_) if records.left_out is None else records.left_out.copy()
    hidden[list(records.broken)] = True
    return hidden


def _malformed(records: Records, reasons: Mapping[int, str], count: int) -> Array:
    if not reasons:
        return pa.nulls(count, _MALFORMED_TYPE)
    told = [
        {
            "reason": reasons[place],
            "value": records.values[place].as_py(),
            "key": records.key(place),
            "timestamp": records.timestamp(place),
        }
        for place in sorted(reasons)
    ]
    taken = np.full(count, -1, np.int64)
    taken[sorted(reasons)] = np.arange(len(told))
    return pa.array(told, _MALFORMED_TYPE).take(pa.array(taken, mask=taken < 0))


def as_spark_has_them(columns: Collection[Column]) -> tuple[Column, ...]:
    """Return columns as tasks hand them to Spark: with NULL allowed, as in malformed records, and with texts of any length.

    The decoder has checked both.
    """
    return tuple(Column(it.name, _plain(it.type)) for it in columns)


def _plain(type_: ColumnType) -> ColumnType:
    match type_:
        case StructType(fields):
            return StructType(as_spark_has_them(fields))
        case ArrayType(element):
            return ArrayType(_plain(element))
        case MapType(key, value):
            return MapType(_plain(key), _plain(value))
        case TextType():
            return TextType()
        case _:
            return type_
