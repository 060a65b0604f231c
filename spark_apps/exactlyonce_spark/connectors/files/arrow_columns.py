"""Columns of a file as the schema of the resource declares them: what fits without a loss is taken, and nothing else.

A column is found by its name. What a type may be taken for is a part of what Spark's own readers take, and what they take
with a loss, or fail to take, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Array = Any
Type = Any
"""Arrays and types of pyarrow, whose stubs know each array by the type of its values, which nobody knows here beforehand."""

_MICROSECONDS = pa.timestamp("us")
_OF_SPARK = b"spark.sql.catalyst.type"
_LOCAL_TIME = b"timestamp_ntz"
"""How Spark marks a column of ORC that holds local times as microseconds. Source: OrcUtils.CATALYST_TYPE_ATTRIBUTE_NAME."""
_SAME_CALENDAR_DAYS = -25_567
"""1900-01-01, in days after 1970: from then on the calendars of all releases of Spark agree, in every time zone."""
_DAY_MICROSECONDS = 86_400_000_000


class ColumnUnfit(ValueError):
    """A column of a file is not what the schema declares: its name, or what it is and what it would have to be."""


def place_of(name: str, names: Iterable[str], where: str = "") -> int | None:
    """Return which of several columns has a name, whatever the case of its letters if none has it exactly; None if none does.

    Raises:
        ColumnUnfit: if more than one has it.
    """
    listed = list(names)
    for found in (
        [place for place, other in enumerate(listed) if other == name],
        [place for place, other in enumerate(listed) if other.lower() == name.lower()],
    ):
        if len(found) > 1:
            raise ColumnUnfit(f"it has {len(found)} columns {where}{name}")
        if found:
            return found[0]
    return None


@dataclass(frozen=True)
class Conversion:
    """How the columns of one file are taken; `old_calendar`: its writer may have had another one for old dates."""

    old_calendar: bool = False

    def taken(self, found: Array, wanted: Type, where: str, told: Any) -> Array:
        """Return an array of exactly the wanted type. `where` names the column, and `told` is its field in the file's schema.

        What a reader returns for a map does not have the metadata that the file's schema has of its parts.

        Raises:
            ColumnUnfit: if what was found is of a type, or has a value, that would not be the same in it.
        """
        found = _plain(found)
        if found.type == wanted and not self.old_calendar:
            return found
        if pa.types.is_null(found.type):
            return pa.nulls(len(found), wanted)
        parts = told.type.storage_type if isinstance(told.type, pa.BaseExtensionType) else told.type
        if pa.types.is_struct(wanted) and pa.types.is_struct(found.type):
            return self._struct(found, wanted, where, parts)
        if pa.types.is_map(wanted) and pa.types.is_map(found.type):
            return self._map(found, wanted, where, parts)
        if pa.types.is_list(wanted) and _is_list(found.type):
            return self._list(found, wanted, where, parts)
        is_local_time = (told.metadata or {}).get(_OF_SPARK) == _LOCAL_TIME
        if is_local_time and found.type == pa.int64() and wanted == _MICROSECONDS:
            return found.cast(wanted)
        return self._leaf(found, wanted, where)

    def _struct(self, found: Array, wanted: Type, where: str, parts: Type) -> Array:
        names = [field.name for field in found.type]
        children = []
        for field in wanted:
            place = place_of(field.name, names, f"{where}.")
            if place is None:
                children.append(pa.nulls(len(found), field.type))
                continue
            children.append(self.taken(found.field(place), field.type, f"{where}.{field.name}", parts.field(place)))
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=found.is_null())

    def _list(self, found: Array, wanted: Type, where: str, parts: Type) -> Array:
        if not isinstance(found, pa.ListArray):
            found = found.cast(pa.list_(found.type.value_type))
        offsets, start, length = _offsets(found)
        values = self.taken(found.values.slice(start, length), wanted.value_type, f"{where}[]", parts.value_field)
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=found.is_null())

    def _map(self, found: Array, wanted: Type, where: str, parts: Type) -> Array:
        offsets, start, length = _offsets(found)
        keys = self.taken(found.keys.slice(start, length), wanted.key_type, f"{where}.key", parts.key_field)
        items = self.taken(found.items.slice(start, length), wanted.item_type, f"{where}.value", parts.item_field)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=found.is_null())

    def _leaf(self, found: Array, wanted: Type, where: str) -> Array:
        if not _holds(wanted, found.type):
            raise ColumnUnfit(f"its column {where} is {found.type}, which is not taken for {_named(wanted)}")
        try:
            taken = found.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            raise ColumnUnfit(
                f"its column {where} ({found.type}) has a value that {_named(wanted)} does not hold: {problem}"
            ) from problem
        if self.old_calendar and (pa.types.is_date(wanted) or pa.types.is_timestamp(wanted)):
            self._require_same_calendar(taken, where)
        return taken

    @staticmethod
    def _require_same_calendar(taken: Array, where: str) -> None:
        is_date = pa.types.is_date(taken.type)
        earliest = pc.min(taken.cast(pa.int32()) if is_date else taken.cast(pa.int64())).as_py()
        limit = _SAME_CALENDAR_DAYS * (1 if is_date else _DAY_MICROSECONDS)
        if earliest is not None and earliest < limit:
            raise ColumnUnfit(
                f"its column {where} has times before 1900, and was written by a release of Spark that counted such days by "
                "another calendar"
            )


def _plain(found: Array) -> Array:
    if isinstance(found, pa.ExtensionArray):
        found = found.storage
    return found.dictionary_decode() if isinstance(found, pa.DictionaryArray) else found


def _offsets(found: Array) -> tuple[Array, int, int]:
    """Return the offsets of a list or a map as if its values began at 0, where they begin, and how many there are."""
    offsets = found.offsets.to_numpy(zero_copy_only=False)
    start, end = int(offsets[0]), int(offsets[-1])
    return pa.array(offsets - start, pa.int32()), start, end - start


def _is_list(found: Type) -> bool:
    return pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)


def _holds(wanted: Type, found: Type) -> bool:
    """Whether each value of a type is one of the other. Strings may turn out not to be UTF-8, and times to be too exact."""
    types = pa.types
    if wanted == found:
        return True
    if wanted in (pa.string(), pa.binary()):
        is_fixed = types.is_fixed_size_binary(found) and wanted == pa.binary()
        return is_fixed or found in _BYTES
    if types.is_signed_integer(wanted):
        return bool(types.is_integer(found) and _bits(found) <= wanted.bit_width)
    if types.is_floating(wanted):
        is_whole = types.is_integer(found) and wanted == pa.float64() and _bits(found) <= 32
        return is_whole or (types.is_floating(found) and found.bit_width <= wanted.bit_width)
    if types.is_decimal128(wanted):
        if types.is_integer(found):
            return bool(wanted.precision - wanted.scale >= _DIGITS[found.bit_width])
        whole = wanted.precision - wanted.scale
        return types.is_decimal(found) and found.scale <= wanted.scale and found.precision - found.scale <= whole
    if types.is_timestamp(wanted):
        # Times without a zone are UTC for a column of instants, as in Spark's readers; the opposite is refused by them as well.
        return types.is_timestamp(found) and (wanted.tz is not None or found.tz is None)
    return types.is_date32(wanted) and types.is_date64(found)


_BYTES = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def _bits(found: Type) -> int:
    """Return how many bits a signed integer needs for each value of a type of integers."""
    return int(found.bit_width) + (1 if pa.types.is_unsigned_integer(found) else 0)


_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    _MICROSECONDS: "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}


def _named(wanted: Type) -> str:
    """Return a type as the resource declares it."""
    if pa.types.is_decimal(wanted):
        return f"DECIMAL({wanted.precision},{wanted.scale})"
    if pa.types.is_struct(wanted):
        return "a STRUCT"
    return _NAMES.get(wanted) or ("a MAP" if pa.types.is_map(wanted) else "an ARRAY")
