"""One record of Avro's binary encoding by itself, byte by byte: the path that knows the reason."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from exactlyonce.api.columns import (
    ArrayType,
    Column,
    ColumnType,
    DecimalType,
    FloatingType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode import binary_values
from exactlyonce_spark.decode.avro_types import (
    Boolean,
    Branches,
    Bytes,
    Floating,
    Many,
    Named,
    Node,
    Null,
    Number,
    Record,
    Symbols,
)
from exactlyonce_spark.decode.decoder import require_present
from exactlyonce_spark.decode.malformed import Malformed, in_column, shown
from exactlyonce_spark.decode.rules import Rules

DEEPEST = 100
"""Values within values of a type that names itself."""
_WITHOUT_BYTES = 1_000
"""Items that may be there without a byte of their own."""


def record_of(value: bytes, schema: Record, columns: tuple[Column, ...], rules: Rules) -> Mapping[str, object]:
    """Return the columns of a record.

    Raises:
        Malformed: if it is not exactly one value of the schema, or has one that a column does not take.
    """
    reader = _Reader(value, rules)
    found = reader.struct(schema, columns, "", 0)
    if reader.place < len(value):
        raise Malformed(f"the record has {len(value) - reader.place} bytes after its value")
    return found


@dataclass
class _Reader:
    value: bytes
    rules: Rules
    place: int = 0

    def struct(self, node: Record, columns: tuple[Column, ...], where: str, depth: int) -> Mapping[str, object]:
        """Read a record as a struct."""
        by_name = {column.name: column for column in columns}
        found: dict[str, object] = dict.fromkeys(by_name)
        for name, inner in node.fields:
            if name is None:
                self.read(inner, None, where, depth)
                continue
            at = f"{where}{name}"
            try:
                found[name] = self.read(inner, by_name[name].type, at, depth)
            except _OfValue as problem:
                raise in_column(at, problem) from None
        for column in columns:
            require_present(column, found[column.name], f"{where}{column.name}")
        return found

    def read(self, node: Node, type_: ColumnType | None, where: str, depth: int) -> object:
        """Read a value for a column of a type, or pass over it."""
        if depth > DEEPEST:
            raise Malformed(f"the record is nested deeper than {DEEPEST} levels")
        match node:
            case Record():
                if isinstance(type_, StructType):
                    return self.struct(node, type_.fields, f"{where}.", depth + 1)
                for _, inner in node.fields:
                    self.read(inner, None, where, depth + 1)
                return None
            case Named(inner):
                assert inner is not None
                return self.read(inner, None, where, depth + 1)
            case Branches(branches):
                branch = self._long()
                if not 0 <= branch < len(branches):
                    raise Malformed(f"the record says branch {branch} of a union of {len(branches)}")
                return self.read(branches[branch], type_, where, depth + 1)
            case Many():
                return self._many(node, type_, where, depth)
            case _:
                return self._scalar(node, type_)

    def _scalar(self, node: Null | Boolean | Number | Floating | Bytes | Symbols, type_: ColumnType | None) -> object:
        match node:
            case Null():
                return None
            case Boolean():
                byte = self._take(1)[0]
                if byte > 1:
                    raise Malformed(f"the record has byte 0x{byte:02x} where 0 or 1 belongs")
                return bool(byte)
            case Number():
                return self._number(node, type_)
            case Floating(bits):
                found = struct.unpack("<f" if bits == 32 else "<d", self._take(bits // 8))[0]
                return (
                    _converted(lambda: binary_values.number(found, type_, self.rules))
                    if isinstance(type_, FloatingType)
                    else None
                )
            case Symbols(names):
                place = self._long()
                if not 0 <= place < len(names):
                    raise Malformed(f"the record says symbol {place} of an enum of {len(names)}")
                return (
                    _converted(lambda: binary_values.text(names[place].encode(), type_))
                    if isinstance(type_, TextType)
                    else None
                )
            case Bytes():
                return self._bytes(node, type_)
            case _:
                assert_never(node)

    def _number(self, node: Number, type_: ColumnType | None) -> object:
        found = self._long()
        if node.bits == 32 and not -(1 << 31) <= found < 1 << 31:
            raise Malformed(f"the record has {found} where a number of 32 bits belongs")
        return (
            None
            if type_ is None
            else _converted(lambda: binary_values.whole(found, type_, self.rules, node.per_second))
        )

    def _bytes(self, node: Bytes, type_: ColumnType | None) -> object:
        given = self._take(self._long() if node.size is None else node.size)
        match type_:
            case TextType():
                return _converted(lambda: binary_values.text(given, type_))
            case DecimalType():
                return _converted(
                    lambda: binary_values.decimal(int.from_bytes(given, "big", signed=True), node.scale or 0, type_)
                )
            case PlainType.BINARY:
                return given
            case _:
                return None

    def _many(self, node: Many, type_: ColumnType | None, where: str, depth: int) -> object:
        inner = type_.element if isinstance(type_, ArrayType) else type_.value if isinstance(type_, MapType) else None
        found: list[object] = []
        keys: list[str] = []
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the bytes of the block, for those who pass over it
            if count > len(self.value) - self.place + _WITHOUT_BYTES:
                raise Malformed(f"the record says {count} items where {len(self.value) - self.place} bytes are left")
            for _ in range(count):
                if node.has_keys:
                    keys.append(self._key())
                item = self.read(node.item, inner, f"{where}[]", depth + 1)
                if inner is not None:
                    found.append((keys[-1], item) if node.has_keys else item)
        if isinstance(type_, MapType):
            _require_distinct(keys)
        return found if type_ is not None else None

    def _key(self) -> str:
        given = self._take(self._long())
        return str(_converted(lambda: binary_values.text(given, TextType())))

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.value) - self.place:
            raise Malformed(
                f"the record ends early: {size} bytes have to follow, and there are {len(self.value) - self.place}"
            )
        self.place += size
        return self.value[self.place - size : self.place]

    def _long(self) -> int:
        found = 0
        for number in range(10):
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                if found >> 64:
                    break
                return (found >> 1) ^ -(found & 1)
        raise Malformed("the record has a number of more than 64 bits")


def _require_distinct(keys: Sequence[str]) -> None:
    if len({*keys}) < len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise _OfValue(f"the key {shown(twice)} occurs twice")


class _OfValue(Malformed):
    """A column does not take a value; who reads the column adds its name."""


def _converted(convert: Callable[[], object]) -> object:
    try:
        return convert()
    except Malformed as problem:
        raise _OfValue(str(problem)) from None
