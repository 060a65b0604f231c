"""The columns of many messages at once, from what ptars makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from exactlyonce.api.columns import (
    ArrayType,
    Column,
    ColumnType,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode.arrow import Array, pa, pc
from exactlyonce_spark.decode.arrow_types import arrow_type
from exactlyonce_spark.decode.byte_grid import Longs
from exactlyonce_spark.decode.columns import Doubt, as_numpy, narrowed, nothing, of_unit, rounded, rows_of, typed
from exactlyonce_spark.decode.moments import LEAST_MOMENT, MOST_MOMENT
from exactlyonce_spark.decode.protobuf_schema import TIMESTAMP, is_map, is_wrapper, within
from exactlyonce_spark.decode.rules import Rules

Found = tuple[Array, Doubt]


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """Makes columns of fields."""

    rules: Rules

    def struct(
        self, arrays: Sequence[Array], message: Descriptor, columns: Sequence[Column], count: int, *, nested: bool
    ) -> tuple[list[Array], Doubt]:
        """Return the columns of messages, whose fields are in the order of their descriptor."""
        by_name = dict(zip((field.name for field in message.fields), arrays, strict=True))
        found, doubt = [], _several_of_one(by_name, message, count)
        for column in columns:
            field = message.fields_by_name.get(column.name)
            if field is None:
                found.append(pa.nulls(count, arrow_type(column.type)))
                continue
            array, more = self.field(by_name[column.name], field, column.type)
            found.append(array)
            doubt = doubt | more
            if nested and not column.nullable:
                doubt = doubt | as_numpy(array.is_null())
        return found, doubt

    def field(self, array: Array, field: FieldDescriptor, type_: ColumnType) -> Found:
        """Return the column of a field."""
        if is_map(field):
            assert isinstance(type_, MapType)
            key, value = (within(field, name) for name in ("key", "value"))
            lengths = _lengths(array)
            order = _by_key(array.keys, lengths)
            keys, key_doubt = self.one(array.keys.take(order), key, type_.key)
            values, doubt = self.one(array.items.take(order), value, type_.value)
            doubt = rows_of(lengths, key_doubt | doubt) | _equal_keys(array.keys, lengths)
            if keys.null_count:
                return pa.nulls(len(array), arrow_type(type_)), np.ones(len(array), np.bool_)
            return pa.MapArray.from_arrays(_offsets(lengths), keys, values, type=arrow_type(type_)), doubt
        if field.is_repeated:
            assert isinstance(type_, ArrayType)
            values, doubt = self.one(array.flatten(), field, type_.element)
            lengths = _lengths(array)
            return pa.ListArray.from_arrays(_offsets(lengths), values, type=arrow_type(type_)), rows_of(lengths, doubt)
        return self.one(array, field, type_)

    def one(self, array: Array, field: FieldDescriptor, type_: ColumnType) -> Found:
        """Return the column of single values."""
        if field.message_type is not None and not pa.types.is_struct(array.type):  # a message within itself stays bytes
            return pa.nulls(len(array), arrow_type(type_)), np.ones(len(array), np.bool_)
        if is_wrapper(field):
            return self._within(array, within(field, "value"), type_)
        if field.message_type is not None and field.message_type.full_name == TIMESTAMP:
            return _timestamps(array, type_)
        if isinstance(type_, StructType):
            assert field.message_type is not None, "only messages become structs"
            arrays, doubt = self.struct(array.flatten(), field.message_type, type_.fields, len(array), nested=False)
            absent = array.is_null()
            for column, inner in zip(type_.fields, arrays, strict=True):
                if not column.nullable:
                    doubt = doubt | (as_numpy(inner.is_null()) & ~as_numpy(absent))
            if not arrays:
                return pa.array([None if it else {} for it in absent.to_pylist()], pa.struct([])), doubt
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(type_)), mask=absent), doubt
        return self._scalar(array, field, type_)

    def _within(self, array: Array, field: FieldDescriptor, type_: ColumnType) -> Found:
        return self._scalar(array.flatten()[0], field, type_)

    def _scalar(self, array: Array, field: FieldDescriptor, type_: ColumnType) -> Found:
        match type_:
            case IntegerType():
                if pa.types.is_uint64(array.type):
                    large = as_numpy(pc.greater(array, (1 << 63) - 1))
                    array = pc.if_else(pa.array(~large), array, None)
                    found, doubt = narrowed(array.cast(pa.int64()), large, type_)
                    return found, doubt
                return narrowed(array.cast(pa.int64()), nothing(len(array)), type_)
            case DecimalType(precision, scale):
                most = 10 ** (precision - scale)
                wide = array.cast(pa.decimal128(20, 0))
                outside = (
                    as_numpy(pc.greater_equal(pc.abs(wide), pa.scalar(min(most, 10**20 - 1), pa.decimal128(20, 0))))
                    if precision - scale < 20
                    else nothing(len(array))
                )
                kept = pc.if_else(pa.array(~outside), wide, None)
                return kept.cast(arrow_type(type_)), outside
            case FloatingType():
                doubt = nothing(len(array)) if self.rules.not_a_number else as_numpy(pc.invert(pc.is_finite(array)))
                if array.type == arrow_type(type_):
                    return array, doubt
                found, more = rounded(array.cast(pa.float64()), type_)
                return found, doubt | more
            case TextType():
                return self._text(array, field, type_)
            case PlainType.TIMESTAMP:
                if self.rules.timestamp_unit is None or pa.types.is_uint64(array.type):
                    return pa.nulls(len(array), arrow_type(type_)), as_numpy(array.is_valid())
                return of_unit(array.cast(pa.int64()), self.rules)
            case _:
                return array.cast(arrow_type(type_)), nothing(len(array))

    def _text(self, array: Array, field: FieldDescriptor, type_: TextType) -> Found:
        if field.enum_type is None:
            return typed(array.cast(pa.string()), type_, self.rules)
        values = field.enum_type.values_by_number
        places = pc.index_in(array, value_set=pa.array([*values], array.type))
        names = pa.array([value.name for value in values.values()], pa.string()).take(places)
        found, doubt = typed(names, type_, self.rules)
        return found, doubt | (as_numpy(names.is_null()) & as_numpy(array.is_valid()))


def _timestamps(array: Array, type_: ColumnType) -> Found:
    seconds, nanos = array.flatten()
    whole = pc.divide(nanos.cast(pa.int64()), 1000)
    doubt = pc.or_(pc.less(nanos, 0), pc.greater(nanos, 999_999_999))
    doubt = pc.or_(doubt, pc.not_equal(pc.multiply(whole, 1000), nanos.cast(pa.int64())))
    doubt = pc.or_(
        doubt, pc.or_(pc.less(seconds, LEAST_MOMENT // 1_000_000), pc.greater(seconds, MOST_MOMENT // 1_000_000))
    )
    kept = pc.if_else(doubt, None, seconds)
    return pc.add(pc.multiply(kept, 1_000_000), whole).cast(arrow_type(type_)), as_numpy(doubt)


def _several_of_one(arrays: dict[str, Array], message: Descriptor, count: int) -> Doubt:
    """Return which messages have several fields of a oneof: the last one counts, and ptars does not say which that is."""
    doubt = nothing(count)
    for choice in message.oneofs:
        if len(choice.fields) > 1:
            present = np.zeros(count, np.int64)
            for field in choice.fields:
                present += as_numpy(arrays[field.name].is_valid())
            doubt |= present > 1
    return doubt


def _lengths(array: Array) -> Longs:
    found: Longs = np.diff(array.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
    return found


def _offsets(lengths: Longs) -> Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _by_key(keys: Array, lengths: Longs) -> Array:
    """Return the order in which the keys of each map ascend: by the format they have none, and libraries differ."""
    owners = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    return pc.sort_indices(
        pa.table({"owner": owners, "key": keys}), sort_keys=[("owner", "ascending"), ("key", "ascending")]
    )


def _equal_keys(keys: Array, lengths: Longs) -> Doubt:
    """Return which maps have a key twice: the last one counts."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    pairs = owners * (len(keys) + 1) + codes
    doubt = nothing(len(lengths))
    _, first = np.unique(pairs, return_index=True)
    if len(first) < len(pairs):
        doubt[owners[~np.isin(np.arange(len(pairs)), first)]] = True
    return doubt
