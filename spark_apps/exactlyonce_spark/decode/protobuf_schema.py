"""A message of Protobuf against the columns of a stream: fields are found by their names, and others passed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

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
from exactlyonce.errors import Refused

_GOOGLES, _OURS = ".google.protobuf.", ".messages.google.protobuf."
TIMESTAMP = f"{_OURS[1:]}Timestamp"
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"{_OURS[1:]}{name}Value" for name in _WRAPPED}
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


class ProtobufSchemaUnusable(Refused):
    """A set of descriptors has no such message, or its fields cannot become the columns."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """What `protoc --include_imports --descriptor_set_out` writes, and the full name of the message."""

    descriptors: bytes
    message: str


def message_of(schema: ProtobufSchema, columns: tuple[Column, ...]) -> Descriptor:
    """Return the message, of which every column can be read.

    Google's own messages get another name, so that they are read as others are: libraries make times of their own of them.

    Raises:
        ProtobufSchemaUnusable: if there is none, or a column cannot be read; the message names it.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema.descriptors)
        for file in files.file:
            pool.Add(_renamed(file))
        found = pool.FindMessageTypeByName(schema.message)
    except (DecodeError, TypeError) as problem:
        raise ProtobufSchemaUnusable(f"the Protobuf descriptors are unusable: {problem}.") from problem
    except KeyError as problem:
        raise ProtobufSchemaUnusable(f"the Protobuf descriptors have no message {schema.message}.") from problem
    _require_fields(found, columns, "")
    return found


def _renamed(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    if f".{copy.package}." == _GOOGLES:
        copy.package = _OURS.strip(".")
    del copy.service[:]
    for message in _messages(copy.message_type):
        for field in message.field:
            if field.type_name.startswith(_GOOGLES):
                field.type_name = _OURS + field.type_name.removeprefix(_GOOGLES)
    return copy


def _messages(messages: Any) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def within(field: FieldDescriptor, name: str) -> FieldDescriptor:
    """Return a field of the message that a field holds."""
    assert field.message_type is not None, "who asks knows that it is a message"
    return field.message_type.fields_by_name[name]


def is_wrapper(field: FieldDescriptor) -> bool:
    """Whether a field is one of Google's messages around one value, which may be absent."""
    return field.message_type is not None and field.message_type.full_name in _WRAPPERS


def _require_fields(message: Descriptor, columns: tuple[Column, ...], where: str) -> None:
    for column in columns:
        at = f"{where}{column.name}"
        field = message.fields_by_name.get(column.name)
        if field is None:
            if not column.nullable:
                raise ProtobufSchemaUnusable(f"column {at} is NOT NULL, and {message.full_name} has no such field.")
            continue
        _require_fitting(field, column.type, at)


def _require_fitting(field: FieldDescriptor, type_: ColumnType, where: str) -> None:
    if is_map(field):
        if not isinstance(type_, MapType):
            raise _unfit(field, type_, where, "a map")
        _require_one(within(field, "key"), type_.key, f"{where}, key")
        _require_one(within(field, "value"), type_.value, f"{where}[]")
    elif field.is_repeated:
        if not isinstance(type_, ArrayType):
            raise _unfit(field, type_, where, "a repeated field")
        _require_one(field, type_.element, f"{where}[]")
    else:
        _require_one(field, type_, where)


def _require_one(field: FieldDescriptor, type_: ColumnType, where: str) -> None:
    """Require that one value of a field fits."""
    if is_wrapper(field):
        _require_one(within(field, "value"), type_, where)
    elif field.message_type is not None and field.message_type.full_name != TIMESTAMP:
        if not isinstance(type_, StructType):
            raise _unfit(field, type_, where, f"the message {field.message_type.full_name}")
        _require_fields(field.message_type, type_.fields, f"{where}.")
    elif not _takes(field, type_):
        raise _unfit(field, type_, where, "another type")


def _unfit(field: FieldDescriptor, type_: ColumnType, where: str, what: str) -> ProtobufSchemaUnusable:
    return ProtobufSchemaUnusable(f"column {where} is {type_}, and field {field.full_name} is {what}.")


def _takes(field: FieldDescriptor, type_: ColumnType) -> bool:
    kind = field.cpp_type
    is_text = kind == FieldDescriptor.CPPTYPE_STRING and field.type == FieldDescriptor.TYPE_STRING
    match type_:
        case IntegerType() | DecimalType():
            return kind in _WHOLE
        case FloatingType():
            return kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
        case TextType():
            return is_text or kind == FieldDescriptor.CPPTYPE_ENUM
        case PlainType.TIMESTAMP:
            return kind in _WHOLE or (field.message_type is not None and field.message_type.full_name == TIMESTAMP)
        case PlainType.BOOLEAN:
            return kind == FieldDescriptor.CPPTYPE_BOOL
        case PlainType.BINARY:
            return kind == FieldDescriptor.CPPTYPE_STRING and not is_text
        case PlainType() | StructType() | ArrayType() | MapType():
            return False
        case _:
            assert_never(type_)
