"""Many records of Avro's binary encoding, the same field of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

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
from exactlyonce_spark.decode import utf8
from exactlyonce_spark.decode.arrow import Array, pa
from exactlyonce_spark.decode.arrow_types import arrow_type
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
from exactlyonce_spark.decode.byte_grid import ByteGrid, Longs, Places
from exactlyonce_spark.decode.columns import as_numpy, narrowed, of_unit, rounded, typed
from exactlyonce_spark.decode.rules import Rules

MOST_ITEMS = 64
"""Items of a list that are read in step; a record with more of them is read by itself."""


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """Reads some records in step."""

    grid: ByteGrid
    rules: Rules

    def struct(self, node: Record, columns: Sequence[Column], records: Places, *, nested: bool) -> list[Array]:
        """Return the columns of records; NULL in a nested field that is NOT NULL makes its record doubtful."""
        by_name = {column.name: column for column in columns}
        found: dict[str, Array] = {}
        for name, inner in node.fields:
            if name is None:
                self.skip(inner, records)
            else:
                found[name] = self.read(inner, by_name[name].type, records)
        for column in columns:
            if column.name not in found:
                found[column.name] = pa.nulls(len(records), arrow_type(column.type))
            if nested and not column.nullable:
                self._doubt(records, as_numpy(found[column.name].is_null()))
        return [found[column.name] for column in columns]

    def read(self, node: Node, type_: ColumnType, records: Places) -> Array:
        """Return a value of each record."""
        match node:
            case Null() | Named():
                return pa.nulls(len(records), arrow_type(type_))
            case Record():
                assert isinstance(type_, StructType)
                arrays = self.struct(node, type_.fields, records, nested=True)
                if not arrays:
                    return pa.array([{}] * len(records), arrow_type(type_))
                return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(type_)))
            case Branches(branches):
                return self._branches(branches, type_, records)
            case Many():
                return self._many(node, type_, records)
            case _:
                return self._scalar(node, type_, records)

    def _scalar(self, node: Number | Floating | Boolean | Symbols | Bytes, type_: ColumnType, records: Places) -> Array:
        match node:
            case Number():
                return self._number(node, type_, records)
            case Floating(bits):
                assert isinstance(type_, FloatingType)
                return self._float(self.grid.fixed(records, f"<f{bits // 8}"), type_, records)
            case Boolean():
                bytes_ = self.grid.fixed(records, "u1")
                self._doubt(records, bytes_ > 1)
                return pa.array(bytes_ == 1)
            case Symbols(names):
                return self._symbols(names, type_, records)
            case Bytes():
                return self._bytes(node, type_, records)
            case _:
                assert_never(node)

    def skip(self, node: Node, records: Places) -> None:
        """Pass over a value of each record."""
        match node:
            case Null():
                return
            case Number() | Symbols():
                self.grid.longs(records)
            case Floating(bits):
                self.grid.fixed(records, f"<f{bits // 8}")
            case Boolean():
                self._doubt(records, self.grid.fixed(records, "u1") > 1)
            case Bytes(size=size):
                self.grid.spans(records, size)
            case Record(fields):
                for _, inner in fields:
                    self.skip(inner, records)
            case Branches(branches):
                self._by_branch(branches, records, lambda branch, some: self.skip(branch, some))
            case Many() | Named():
                self._doubt(records, np.ones(len(records), np.bool_))
            case _:
                assert_never(node)

    def _doubt(self, records: Places, doubtful: npt.NDArray[np.bool_]) -> None:
        if doubtful.any():
            self.grid.doubt[records[doubtful]] = True

    def _branches(self, branches: Sequence[Node], type_: ColumnType, records: Places) -> Array:
        parts: list[Array] = []

        def read(branch: Node, some: Places) -> None:
            parts.append(self.read(branch, type_, some))

        taken = self._by_branch(branches, records, read)
        if len(parts) == 1 and len(parts[0]) == len(records):
            return parts[0]
        positions = np.full(len(records), -1, np.int64)
        if parts:
            positions[np.concatenate(taken)] = np.arange(sum(map(len, taken)))
        every = pa.concat_arrays([pa.nulls(0, arrow_type(type_)), *parts])
        return every.take(pa.array(positions, mask=positions < 0))

    def _by_branch(
        self, branches: Sequence[Node], records: Places, act: Callable[[Node, Places], None]
    ) -> list[npt.NDArray[np.int64]]:
        """Act on the records of each branch; return their numbers within `records`, in the order of the acts."""
        chosen = self.grid.longs(records)
        if len(chosen) and 0 <= (only := int(chosen[0])) < len(branches) and (chosen == only).all():
            act(branches[only], records)
            return [np.arange(len(records))]
        self._doubt(records, (chosen < 0) | (chosen >= len(branches)))
        taken = []
        for number, branch in enumerate(branches):
            within = np.flatnonzero(chosen == number)
            if len(within) and not (isinstance(branch, Null) and len(within) < len(records)):
                act(branch, records[within])
                taken.append(within)
        return taken

    def _many(self, node: Many, type_: ColumnType, records: Places) -> Array:
        """Read lists item by item, the first of all records, then the second, and so on."""
        left = self._block(records)
        items: list[Array] = []
        keys: list[Array] = []
        owners: list[Places] = []
        inner = type_.element if isinstance(type_, ArrayType) else type_.value if isinstance(type_, MapType) else type_
        for _ in range(MOST_ITEMS):
            within = np.flatnonzero((left > 0) & ~self.grid.doubt[records])
            if not len(within):
                break
            some = records[within]
            if node.has_keys:
                keys.append(self._bytes(Bytes(is_text=True), TextType(), some))
            items.append(self.read(node.item, inner, some))
            owners.append(within)
            left[within] -= 1
            ended = within[left[within] == 0]
            left[ended] = self._block(records[ended])
        self._doubt(records, left > 0)
        owner = np.concatenate([np.zeros(0, np.int64), *owners])
        order = pa.array(np.argsort(owner, kind="stable"))
        counts = np.bincount(owner, minlength=len(records))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        values = pa.concat_arrays([pa.nulls(0, arrow_type(inner)), *items]).take(order)
        if not node.has_keys:
            return pa.ListArray.from_arrays(offsets, values, type=arrow_type(type_))
        names = pa.concat_arrays([pa.nulls(0, pa.string()), *keys]).take(order)
        self._equal_keys(names, np.sort(owner), records)
        return pa.MapArray.from_arrays(offsets, names.fill_null(""), values, type=arrow_type(type_))

    def _block(self, records: Places) -> Longs:
        """Read how many items follow."""
        counts = self.grid.longs(records)
        sized = counts < 0
        if sized.any():
            self.grid.longs(records[sized])
            counts = np.abs(counts)
        return counts

    def _equal_keys(self, names: Array, owners: Longs, records: Places) -> None:
        """Make records doubtful that have a key twice."""
        codes = names.fill_null("").dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = owners * (len(names) + 1) + codes
        unique, first = np.unique(pairs, return_index=True)
        if len(unique) < len(pairs):
            self._doubt(records[owners], ~np.isin(np.arange(len(pairs)), first))

    def _number(self, node: Number, type_: ColumnType, records: Places) -> Array:
        numbers = self.grid.longs(records)
        if node.bits == 32:
            self._doubt(records, (numbers < -(1 << 31)) | (numbers >= 1 << 31))
        match type_:
            case IntegerType():
                found, doubt = narrowed(pa.array(numbers), np.zeros(len(records), np.bool_), type_)
            case DecimalType():
                return self._decimal(numbers, 0, type_, records)
            case PlainType.DATE:
                doubt = (numbers < -719_162) | (numbers > 2_932_896)
                found = pa.array(np.where(doubt, 0, numbers).astype(np.int32)).cast(pa.date32())
            case _:
                rules = Rules(timestamp_unit=node.per_second) if node.per_second else self.rules
                if rules.timestamp_unit is None:
                    doubt = np.ones(len(records), np.bool_)
                    found = pa.nulls(len(records), arrow_type(type_))
                else:
                    moments, doubt = of_unit(pa.array(numbers), rules)
                    found = moments.view(arrow_type(type_))
        self._doubt(records, doubt)
        return found

    def _float(self, numbers: npt.NDArray[np.floating], type_: FloatingType, records: Places) -> Array:
        if not self.rules.not_a_number:
            self._doubt(records, ~np.isfinite(numbers))
        if type_ is FloatingType.FLOAT and numbers.dtype == np.float32:
            return pa.array(numbers)
        found, doubt = rounded(pa.array(numbers.astype(np.float64)), type_)
        self._doubt(records, doubt)
        return found

    def _symbols(self, names: Sequence[str], type_: ColumnType, records: Places) -> Array:
        chosen = self.grid.longs(records)
        outside = (chosen < 0) | (chosen >= len(names))
        self._doubt(records, outside)
        texts = pa.array(names, pa.string()).take(pa.array(chosen, mask=outside))
        return self._text(texts, type_, records)

    def _bytes(self, node: Bytes, type_: ColumnType, records: Places) -> Array:
        starts, lengths = self.grid.spans(records, node.size)
        if isinstance(type_, DecimalType):
            numbers, outside = self.grid.big_endian(starts, lengths)
            self._doubt(records, outside)
            return self._decimal(np.where(outside, 0, numbers), node.scale or 0, type_, records)
        found = self.grid.binary(starts, lengths)
        if type_ is PlainType.BINARY:
            return found
        texts = utf8.texts(found)
        self._doubt(records, as_numpy(texts.is_null()))
        return self._text(texts, type_, records)

    def _text(self, texts: Array, type_: ColumnType, records: Places) -> Array:
        found, doubt = typed(texts, type_, self.rules)
        self._doubt(records, doubt)
        return found

    def _decimal(self, unscaled: Longs, scale: int, type_: DecimalType, records: Places) -> Array:
        """Return decimals of 64-bit numbers; where another scale needs fewer digits or may overflow, they are doubtful."""
        shift = type_.scale - scale
        bound = 10 ** (type_.precision - max(0, shift))
        outside = np.zeros(len(unscaled), np.bool_)
        if shift < 0:
            outside |= unscaled != 0
        if bound <= 2**63 - 1:
            outside |= (unscaled >= bound) | (unscaled <= -bound)
        if 0 < shift <= 18:
            factor = 10**shift
            outside |= (unscaled > (2**63 - 1) // factor) | (unscaled < -((2**63 - 1) // factor))
        elif shift > 18:
            outside |= unscaled != 0
        self._doubt(records, outside)
        numbers = np.where(outside, 0, unscaled) * (10**shift if 0 < shift <= 18 else 1)
        words = np.empty((len(numbers), 2), np.int64)
        words[:, 0], words[:, 1] = numbers, numbers >> 63
        return pa.Array.from_buffers(arrow_type(type_), len(numbers), [None, pa.py_buffer(words)])
