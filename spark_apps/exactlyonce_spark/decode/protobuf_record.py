"""One message of Protobuf by itself, read by the library of the format's own makers: the path that knows the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from exactlyonce.api.columns import (
    ArrayType,
    Column,
    ColumnType,
    FloatingType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode import binary_values
from exactlyonce_spark.decode.decoder import require_present
from exactlyonce_spark.decode.malformed import Malformed, in_column
from exactlyonce_spark.decode.protobuf_schema import TIMESTAMP, is_map, is_wrapper, within
from exactlyonce_spark.decode.rules import Rules, TimestampUnit


def record_of(value: bytes, kind: type[Message], columns: tuple[Column, ...], rules: Rules) -> Mapping[str, object]:
    """Return the columns of a message.

    Raises:
        Malformed: if the bytes are no such message, or it has a value that a column does not take.
    """
    try:
        message = kind.FromString(value)
    except DecodeError as problem:
        raise Malformed(f"the record is not a message {kind.DESCRIPTOR.full_name}: {problem}") from None
    return _struct(message, columns, rules, "")


def _struct(message: Message, columns: tuple[Column, ...], rules: Rules, where: str) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for column in columns:
        field: Any = message.DESCRIPTOR.fields_by_name.get(column.name)
        at = f"{where}{column.name}"
        found[column.name] = None if field is None else _field(message, field, column.type, rules, at)
        require_present(column, found[column.name], at)
    return found


def _field(message: Message, field: FieldDescriptor, type_: ColumnType, rules: Rules, where: str) -> object:
    value = getattr(message, field.name)
    if is_map(field):
        assert isinstance(type_, MapType)
        key, item = (within(field, name) for name in ("key", "value"))
        return [  # in ascending order: by the format they have none
            (_one(it, key, type_.key, rules, f"{where}, key"), _one(value[it], item, type_.value, rules, f"{where}[]"))
            for it in sorted(value)
        ]
    if field.is_repeated:
        assert isinstance(type_, ArrayType)
        return [_one(it, field, type_.element, rules, f"{where}[]") for it in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field, type_, rules, where)


def _one(value: Any, field: FieldDescriptor, type_: ColumnType, rules: Rules, where: str) -> object:
    if is_wrapper(field):
        return _one(value.value, within(field, "value"), type_, rules, where)
    if isinstance(type_, StructType):
        return _struct(value, type_.fields, rules, f"{where}.")
    try:
        return _scalar(value, field, type_, rules)
    except Malformed as problem:
        raise in_column(where, problem) from None


def _scalar(value: Any, field: FieldDescriptor, type_: ColumnType, rules: Rules) -> object:
    if field.message_type is not None and field.message_type.full_name == TIMESTAMP:
        return _moment(value, type_, rules)
    match type_:
        case FloatingType():
            return binary_values.number(value, type_, rules)
        case TextType() if field.enum_type is not None:
            symbol = field.enum_type.values_by_number.get(value)
            if symbol is None:
                raise Malformed(f"{value} is not a number of {field.enum_type.full_name}")
            return binary_values.text(symbol.name.encode(), type_)
        case TextType():
            return binary_values.text(value.encode("utf-8", "surrogateescape"), type_)
        case PlainType.BOOLEAN | PlainType.BINARY:
            return value
        case _:
            return binary_values.whole(value, type_, rules)


def _moment(value: Any, type_: ColumnType, rules: Rules) -> object:
    if not 0 <= value.nanos < 1_000_000_000:
        raise Malformed(f"{value.nanos} nanoseconds are not a part of a second")
    nanoseconds = value.seconds * 1_000_000_000 + value.nanos
    return binary_values.whole(nanoseconds, type_, rules, TimestampUnit.NANOSECONDS)
