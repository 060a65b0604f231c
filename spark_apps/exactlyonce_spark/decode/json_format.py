"""JSON: an object per record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from exactlyonce.api.columns import Column
from exactlyonce_spark.decode import utf8
from exactlyonce_spark.decode.arrow import Array
from exactlyonce_spark.decode.columns import Doubt
from exactlyonce_spark.decode.decoder import Chunk, Decoder, Places, sure_rows
from exactlyonce_spark.decode.json_keys import Bytes, is_ascii, key_count, key_places, object_count
from exactlyonce_spark.decode.json_record import Forms, record_of
from exactlyonce_spark.decode.json_shape import Reader, Shape, Unshapeable
from exactlyonce_spark.decode.rules import Rules

MOST_UNREAD = 200
"""Keys that no column has and that are known; with more, the records that have them are looked at for equal keys one by one."""


class JsonDecoder(Decoder):
    """Decodes records by msgspec, in the form that the records before had; what differs is read by itself, and remembered."""

    def __init__(self, columns: tuple[Column, ...], rules: Rules) -> None:
        super().__init__(columns)
        self._rules = rules
        self._forms = Forms()
        self._shape = Shape(columns)
        self._decoder = self._made()

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one record."""
        forms = Forms()
        found = record_of(value, self.columns, self._rules, forms)
        self._forms.unusual |= forms.unusual
        if len(self._forms.unread) + len(forms.unread) <= MOST_UNREAD:
            self._forms.unread |= forms.unread
        return found

    def chunk(self, values: Array) -> Chunk:
        """Read many records; where one is not as the others, it alone is doubtful."""
        self._learn()
        empty = Chunk(self.no_rows, np.zeros(0, np.int64), range(len(values)))
        if self._decoder is None:
            return empty
        data, ends = _bytes(values)
        records, places, others = self._read(values, [] if is_ascii(data) else utf8.others(values))
        if not records:
            return empty
        arrays, doubt, keys = Reader(self._shape, self._rules).fields(self.columns, records, ())
        if _keys(data, ends, places) != keys + self._shape.unread_keys(
            records, with_nested=object_count(data) > len(values)
        ):
            doubt |= self._with_equal_keys(values, places)
        chunk = sure_rows(self.columns, arrays, self.schema, doubt)
        if not others:
            return chunk
        return Chunk(chunk.rows, places[chunk.places], sorted({*others, *places[list(chunk.doubtful)].tolist()}))

    def _read(self, values: Array, others: list[int]) -> tuple[list[Any], Places, list[int]]:
        """Return the records that msgspec takes, their places, and the places of the others; some are known."""
        assert self._decoder is not None
        given = values.to_pylist()
        every = np.arange(len(given), dtype=np.int64)
        decode = self._decoder.decode
        if not others:
            try:
                return [decode(value) for value in given], every, []
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass
        records, refused = [], set(others)
        for place, value in enumerate(given):
            if place not in refused:
                try:
                    records.append(decode(value))
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    refused.add(place)
        others = sorted(refused)
        return records, np.delete(every, others), others

    def _with_equal_keys(self, values: Array, places: Places) -> Doubt:
        """Return which records have an object in which a key occurs twice, whoever reads it; learn the keys of the others."""
        found = np.zeros(len(places), np.bool_)
        has_equal = _EqualKeys()
        names = {column.name for column in self.columns}
        for number, place in enumerate(places.tolist()):
            found[number], keys = has_equal.keys(values[place].as_py())
            if len(self._forms.unread) < MOST_UNREAD:
                self._forms.unread |= keys - names
        return found

    def _learn(self) -> None:
        """Read records from now on in the forms that were seen."""
        unread = tuple(sorted(self._forms.unread))
        if self._forms.unusual != self._shape.unusual or unread != self._shape.unread:
            self._shape = Shape(self.columns, frozenset(self._forms.unusual), unread)
            self._decoder = self._made()

    def _made(self) -> msgspec.json.Decoder[Any] | None:
        try:
            return self._shape.decoder()
        except Unshapeable:
            return None


def _bytes(values: Array) -> tuple[Bytes, np.ndarray[Any, np.dtype[np.int32]]]:
    """Return the bytes of the values, one after the other, and where each begins and ends."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _keys(data: Bytes, ends: np.ndarray[Any, np.dtype[np.int32]], places: Places) -> int:
    """Return how many keys the records at these places have, or more."""
    if len(places) == len(ends) - 1:
        return key_count(data)
    return int(np.diff(np.searchsorted(key_places(data), ends))[places].sum())


class _EqualKeys:
    """Looks for equal keys in one object."""

    def __init__(self) -> None:
        self._found = False
        self._outermost: set[str] = set()
        self._decode = json.JSONDecoder(object_pairs_hook=self._pairs).decode

    def keys(self, value: bytes) -> tuple[bool, set[str]]:
        """Return whether there are any, and the keys of the record."""
        self._found = False
        try:
            self._decode(value.decode())
        except (ValueError, RecursionError):
            return True, set()
        return self._found, self._outermost

    def _pairs(self, pairs: list[tuple[str, Any]]) -> None:
        self._outermost = {key for key, _ in pairs}
        self._found |= len(self._outermost) < len(pairs)
