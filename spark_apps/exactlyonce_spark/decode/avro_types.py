"""What the types of a schema of Avro are to the columns of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from exactlyonce.api.columns import (
    ArrayType,
    ColumnType,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode.rules import TimestampUnit


@dataclass(frozen=True, slots=True)
class Number:
    """int (32 bits) or long (64); `per_second` is what a moment counts, `is_day` that it counts days."""

    bits: int
    per_second: TimestampUnit | None = None
    is_local: bool = False
    is_day: bool = False


@dataclass(frozen=True, slots=True)
class Floating:
    """A number of so many bits."""

    bits: int


@dataclass(frozen=True, slots=True)
class Boolean:
    """One byte, 0 or 1."""


@dataclass(frozen=True, slots=True)
class Null:
    """No byte at all."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """A length and as many bytes, or `size` bytes; `scale` of what they are as a decimal."""

    is_text: bool = False
    size: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Symbols:
    """The number of one of some texts."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Fields, one after the other; each with the name of the column that it fills, or None."""

    fields: tuple[tuple[str | None, Node], ...]


@dataclass(frozen=True, slots=True)
class Many:
    """Blocks of items; those of a map have a key each."""

    item: Node
    has_keys: bool = False


@dataclass(frozen=True, slots=True)
class Branches:
    """The number of one of some types, and a value of it."""

    branches: tuple[Node, ...]


@dataclass(slots=True)
class Named:
    """A type that is named again within itself, and passed over; `node` is set once it is known."""

    node: Node | None = field(default=None, repr=False)


Node = Number | Floating | Boolean | Null | Bytes | Symbols | Record | Many | Branches | Named


def takes(type_: ColumnType, node: Node) -> bool:
    """Whether a column takes what a field means, for all values or for those that fit."""
    match type_:
        case IntegerType():
            return isinstance(node, Number) and node.per_second is None and not node.is_day
        case DecimalType():
            is_number = isinstance(node, Number) and node.per_second is None and not node.is_day
            return is_number or (isinstance(node, Bytes) and node.scale is not None)
        case FloatingType():
            return isinstance(node, Floating)
        case TextType():
            return isinstance(node, Symbols) or (isinstance(node, Bytes) and node.is_text)
        case PlainType():
            return _takes_plain(type_, node)
        case StructType() | ArrayType() | MapType():
            return False
        case _:
            assert_never(type_)


def _takes_plain(type_: PlainType, node: Node) -> bool:
    match type_:
        case PlainType.BOOLEAN:
            return isinstance(node, Boolean)
        case PlainType.BINARY:
            return isinstance(node, Bytes) and not node.is_text and node.scale is None
        case PlainType.DATE:
            return isinstance(node, Number) and node.is_day
        case PlainType.TIMESTAMP:
            return isinstance(node, Number) and not node.is_local and not node.is_day
        case PlainType.TIMESTAMP_NTZ:
            return isinstance(node, Number) and node.is_local
        case _:
            assert_never(type_)
