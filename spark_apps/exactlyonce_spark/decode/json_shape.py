"""The form that most records have, as a type of msgspec's, and the columns of records that have it.

What msgspec takes otherwise than the table says stays as it is in the record (`Raw`) and becomes texts: decimals, and values
that a column takes and that are written as another type. An object is a Struct whose fields are its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Any, cast

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

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
from exactlyonce_spark.decode.arrow import Array, DataType, pa, pc
from exactlyonce_spark.decode.arrow_types import arrow_type
from exactlyonce_spark.decode.columns import Doubt, nothing, rounded, rows_of, typed
from exactlyonce_spark.decode.json_keys import bytes_of, key_count
from exactlyonce_spark.decode.json_record import ELEMENT, Path
from exactlyonce_spark.decode.rules import Rules

_ABSENT = Raw(b" null")
"""A member that a record lacks; no value of a record begins with a blank."""
_TEXTS: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])
_TEXTS_AND_NULLS: msgspec.json.Decoder[list[str | None]] = msgspec.json.Decoder(list[str | None])


@dataclass(frozen=True, slots=True)
class Read:
    """A column of some values.

    `keys` is how many keys of objects were read in them, less the values that their object does not have.
    """

    array: Array
    doubt: Doubt
    keys: int


class Unshapeable(Exception):
    """A name is one that msgspec does not take, so each record is read by itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the records of a schema are written: see `json_record.Forms`."""

    columns: tuple[Column, ...]
    unusual: frozenset[Path] = frozenset()
    unread: tuple[str, ...] = ()

    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Return the decoder of records of this shape.

        Raises:
            Unshapeable: if there is none.
        """
        unread = [(name, Raw, _ABSENT) for name in self.unread]
        return msgspec.json.Decoder(self._struct(self.columns, (), unread))

    def _struct(self, columns: Sequence[Column], path: Path, unread: Sequence[tuple[str, Any, Any]] = ()) -> type:
        members = []
        for column in columns:
            type_ = self._type(column.type, (*path, column.name))
            is_raw = type_ is Raw
            members.append((column.name, Raw, _ABSENT) if is_raw else (column.name, type_ | None | UnsetType, UNSET))
        members += unread
        names = {_field(place): name for place, (name, *_) in enumerate(members)}
        fields = [(_field(place), type_, default) for place, (_, type_, default) in enumerate(members)]
        try:
            return msgspec.defstruct("Record", fields, rename=names, gc=False)
        except ValueError as problem:
            raise Unshapeable(str(problem)) from problem

    def _type(self, type_: ColumnType, path: Path) -> Any:
        """Return what msgspec decodes a value to, NULL aside."""
        if self.is_raw(type_, path):
            return Raw
        match type_:
            case IntegerType():
                return Annotated[int, Meta(ge=type_.least, le=type_.most)]
            case FloatingType():
                return float
            case StructType(fields):
                return self._struct(fields, path)
            case ArrayType(element):
                return list[self._within(element, path)]  # type: ignore[misc]
            case MapType(_, value):
                return dict[str, self._within(value, path)]  # type: ignore[misc]
            case _:
                return bool if type_ is PlainType.BOOLEAN else str

    def _within(self, type_: ColumnType, path: Path) -> Any:
        found = self._type(type_, (*path, ELEMENT))
        return found if found is Raw else found | None

    def is_raw(self, type_: ColumnType, path: Path) -> bool:
        """Whether a value stays as it is in the record, and becomes a text."""
        takes_others = (
            isinstance(type_, IntegerType | FloatingType | TextType | DecimalType) or type_ is PlainType.TIMESTAMP
        )
        return takes_others and path in self.unusual

    def unread_keys(self, records: Sequence[Any], *, with_nested: bool) -> int:
        """Return how many known keys were passed over, and with `with_nested` how many there are in their objects."""
        found = 0
        for place in range(len(self.columns), len(self.columns) + len(self.unread)):
            raws = _getter(place)(records)
            found += len(raws) - raws.count(_ABSENT)
            if with_nested:
                found += key_count(bytes_of(b",".join(raws)))
        return found


def _field(place: int) -> str:
    return f"f{place}"


@cache
def _getter(place: int) -> Callable[[Sequence[Any]], list[Any]]:
    """Return what takes one field of many objects, in half the time of `attrgetter`."""
    found: Callable[[Sequence[Any]], list[Any]] = eval(f"lambda objects: [it.{_field(place)} for it in objects]")  # noqa: S307 - a number is all that varies
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes columns of decoded values."""

    shape: Shape
    rules: Rules

    def fields(self, columns: Sequence[Column], objects: Sequence[Any], path: Path) -> tuple[list[Array], Doubt, int]:
        """Return the columns of objects, none of which is NULL; which objects are doubtful; and how many keys were read."""
        doubt, keys, arrays = nothing(len(objects)), 0, []
        for place, column in enumerate(columns):
            values = _getter(place)(objects)
            read = self.column(column.type, values, (*path, column.name))
            arrays.append(read.array)
            doubt, keys = doubt | read.doubt, keys + read.keys + len(values)
            if path and not column.nullable and read.array.null_count:
                doubt |= read.array.is_null().to_numpy(zero_copy_only=False)
        return arrays, doubt, keys

    def column(self, type_: ColumnType, values: list[Any], path: Path) -> Read:
        """Return one column; a value is UNSET where its object lacks it."""
        if self.shape.is_raw(type_, path):
            texts, keys = texts_of(values)
            return Read(*typed(texts, type_, self.rules), keys - values.count(_ABSENT))
        match type_:
            case IntegerType():
                array, absent = _array(values, arrow_type(type_))
                return Read(array, nothing(len(values)), -absent)
            case FloatingType():
                array, absent = _array(values, pa.float64())
                return Read(*rounded(array, type_), -absent)
            case StructType() | ArrayType() | MapType():
                absent = values.count(UNSET)
                read = self._composed(type_, [None if it is UNSET else it for it in values] if absent else values, path)
                return Read(read.array, read.doubt, read.keys - absent)
            case _ if type_ is PlainType.BOOLEAN:
                array, absent = _array(values, pa.bool_())
                return Read(array, nothing(len(values)), -absent)
            case _:
                array, absent = _array(values, pa.string())
                return Read(*typed(array, type_, self.rules), -absent)

    def _composed(self, type_: StructType | ArrayType | MapType, values: list[Any], path: Path) -> Read:
        present = np.fromiter((it is not None for it in values), np.bool_, len(values))
        kept = [it for it in values if it is not None]
        absent = pa.array(~present)
        match type_:
            case StructType(fields):
                arrays, doubt, keys = self.fields(fields, kept, path)
                positions = pa.array(np.cumsum(present) - 1, mask=~present)
                spread = [array.take(positions) for array in arrays]
                found = (
                    pa.StructArray.from_arrays(spread, fields=list(arrow_type(type_)), mask=absent)
                    if spread
                    else _no_fields(absent)
                )
                return Read(found, _spread(doubt, present), keys)
            case ArrayType(element):
                lengths = [*map(len, kept)]
                read = self.column(element, [*chain.from_iterable(kept)], (*path, ELEMENT))
                offsets = _offsets(lengths, present)
                array = pa.ListArray.from_arrays(offsets, read.array, type=arrow_type(type_), mask=absent)
                return Read(array, _spread(rows_of(lengths, read.doubt), present), read.keys)
            case MapType(key, value):
                lengths = [*map(len, kept)]
                names = pa.array([*chain.from_iterable(kept)], pa.string())
                keys_read, key_doubt = typed(names, key, self.rules)
                if not isinstance(key, TextType):  # texts that differ may be the same key: 1.0 and 1.00
                    key_doubt = np.ones(len(names), np.bool_)
                    keys_read = pa.array([None] * len(names), arrow_type(key)) if len(names) == 0 else keys_read
                read = self.column(value, [*chain.from_iterable(map(dict.values, kept))], (*path, ELEMENT))
                doubtful = rows_of(lengths, read.doubt | key_doubt)
                offsets = _offsets(lengths, present)
                array = _map(offsets, keys_read, read.array, arrow_type(type_), absent)
                return Read(array, _spread(doubtful, present), read.keys + len(names))


def _no_fields(absent: Array) -> Array:
    return pa.array([None if it else {} for it in absent.to_pylist()], pa.struct([]))


def _map(offsets: Array, keys: Array, values: Array, type_: DataType, absent: Array) -> Array:
    """Keys that are in doubt are NULL, which a map cannot hold; their rows are doubtful and read again."""
    if keys.null_count:
        filler = pa.scalar("") if pa.types.is_string(keys.type) else pa.array([0], pa.int8()).cast(keys.type)[0]
        keys = keys.fill_null(filler)
    return pa.MapArray.from_arrays(offsets, keys, values, type=type_, mask=absent)


def _spread(doubt: Doubt, present: Doubt) -> Doubt:
    """Return the doubt of the present values as that of all."""
    found = nothing(len(present))
    found[present] = doubt
    return found


def _offsets(lengths: Sequence[int], present: Doubt) -> Array:
    """Return where each list begins; one that is NULL has nothing."""
    every = np.zeros(len(present) + 1, np.int32)
    every[1:][present] = lengths
    return pa.array(np.cumsum(every, dtype=np.int32))


def _array(values: list[Any], type_: DataType) -> tuple[Array, int]:
    """Return values, and how many are absent. Arrow refuses UNSET at once, so a list without it is not gone through."""
    try:
        return pa.array(values, type_), 0
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return pa.array([None if it is UNSET else it for it in values], type_), values.count(UNSET)


def texts_of(raws: Sequence[Raw | None]) -> tuple[Array, int]:
    """Return values as texts: of a text what it says, of another one what stands in the record; and how many keys they have."""
    if None in raws:
        raws = [_ABSENT if it is None else it for it in raws]
    joined = b",".join(cast("Sequence[Raw]", raws))
    if b'"' not in joined:
        return _unquoted(raws), 0
    try:
        return pa.array(_TEXTS_AND_NULLS.decode(b"[" + joined + b"]"), pa.string()), 0
    except msgspec.ValidationError:
        return pa.array([_text(bytes(it)) for it in raws if it is not None], pa.string()), key_count(bytes_of(joined))


def _unquoted(raws: Sequence[Raw | None]) -> Array:
    """Numbers, true, false and null, and lists of them, have no quotes: they become texts by getting some."""
    given = b'["' + b'","'.join(cast("Sequence[Raw]", raws)) + b'"]' if raws else b"[]"
    try:
        texts = pa.array(_TEXTS.decode(given), pa.string())
    except msgspec.DecodeError:  # a list that is written in several lines
        texts = pa.array([bytes(it).decode() for it in raws if it is not None], pa.string())
    is_null = pc.is_in(texts, value_set=pa.array(["null", " null"]))
    return pc.if_else(is_null, None, texts) if pc.any(is_null).as_py() else texts


def _text(raw: bytes) -> str | None:
    if raw.startswith(b'"'):
        return msgspec.json.decode(raw, type=str)
    return None if raw in (b"null", b" null") else raw.decode()
