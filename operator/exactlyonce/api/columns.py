"""The columns that a format's schema declares, as types; `column_ddl.py` parses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class IntegerType(Enum):
    """A whole number of so many bits."""

    TINYINT = 8
    SMALLINT = 16
    INT = 32
    BIGINT = 64

    @property
    def least(self) -> int:
        """The smallest value."""
        return -(1 << (self.value - 1))

    @property
    def most(self) -> int:
        """The largest value."""
        return (1 << (self.value - 1)) - 1

    def __str__(self) -> str:
        return self.name


class FloatingType(Enum):
    """A binary floating-point number of so many bits."""

    FLOAT = 32
    DOUBLE = 64

    def __str__(self) -> str:
        return self.name


class PlainType(Enum):
    """A type without parameters, other than those of numbers."""

    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"
    DATE = "DATE"
    BINARY = "BINARY"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """An exact decimal number: `precision` digits (1 to 38), `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class TextType:
    """A text; `most` is the number of characters that VARCHAR(n) allows, None for STRING."""

    most: int | None = None

    def __str__(self) -> str:
        return "STRING" if self.most is None else f"VARCHAR({self.most})"


@dataclass(frozen=True, slots=True)
class StructType:
    """Named values, in the order of the schema."""

    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f'{field.quoted_name}: {field.declaration}' for field in self.fields)}>"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of values of one type; each of them may be NULL."""

    element: ColumnType

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """Keys, which are never NULL, and values, which may be."""

    key: ColumnType
    value: ColumnType

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


ColumnType = IntegerType | FloatingType | PlainType | DecimalType | TextType | StructType | ArrayType | MapType


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a STRUCT."""

    name: str
    type: ColumnType
    nullable: bool = True

    @property
    def quoted_name(self) -> str:
        """The name as DDL takes it, whatever characters it has."""
        return "`" + self.name.replace("`", "``") + "`"

    @property
    def declaration(self) -> str:
        """The type, and NOT NULL where the column has it."""
        return f"{self.type}{'' if self.nullable else ' NOT NULL'}"


def ddl(columns: tuple[Column, ...]) -> str:
    """Return DDL that `column_ddl.parse` reads back as the same columns."""
    return ", ".join(f"{column.quoted_name} {column.declaration}" for column in columns)


def nested(type_: ColumnType) -> Iterator[ColumnType]:
    """Yield a type and the types within it."""
    yield type_
    match type_:
        case StructType(fields):
            for field in fields:
                yield from nested(field.type)
        case ArrayType(element):
            yield from nested(element)
        case MapType(key, value):
            yield from nested(key)
            yield from nested(value)
        case _:
            return
