"""What every decoder gives: typed rows, malformed records and tombstones, from one read of the bytes.

A decoder takes many records at once, and leaves those that it is not sure of to the path that takes one record by itself and
knows the reason. Both give the same rows: `decode` and `decode_each` differ in speed alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exactlyonce.api.columns import Column
from exactlyonce_spark.decode.arrow import Array, RecordBatch, Schema, pa
from exactlyonce_spark.decode.arrow_types import arrow_schema
from exactlyonce_spark.decode.malformed import Malformed, in_column

Places = npt.NDArray[np.int64]
"""Records by their places in what was given."""
CHUNK = 8_192
"""Records that are taken at once: few enough to stay in a processor's cache, many enough to share the cost of a call."""
FIRST_CHUNK = 64
"""Records that are taken first: a decoder may learn from them how the others are written."""


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """A record that yields no row, and why."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a batch of values holds; each place is in exactly one of the three.

    Attributes:
        rows: the typed rows of well-formed records, in their order.
        places: for each row, the place of its record.
        malformed: the records without a row, in their order.
        tombstones: the places of the records without a value.
    """

    rows: RecordBatch
    places: Places
    malformed: tuple[MalformedRecord, ...]
    tombstones: Places


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was read of some records at once: the rows of those that are sure, and the places of all others."""

    rows: RecordBatch
    places: Places
    doubtful: Sequence[int]


class Decoder(ABC):
    """Decodes the values of one format into the columns of one schema. It holds no state that changes what it returns."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.schema = arrow_schema(columns)
        self.no_rows = pa.RecordBatch.from_pylist([], schema=self.schema)

    @abstractmethod
    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one record, as Arrow builds a struct from them.

        Raises:
            Malformed: if it yields no row; the message is the reason.
        """

    @abstractmethod
    def chunk(self, values: Array) -> Chunk:
        """Read up to CHUNK values, none of which is NULL; what is doubtful is given to `record`."""

    def decode(self, values: Array) -> Decoded:
        """Decode values of type binary."""
        return self._decoded(values, each=False)

    def decode_each(self, values: Array) -> Decoded:
        """Decode values one by one."""
        return self._decoded(values, each=True)

    def _decoded(self, values: Array, *, each: bool) -> Decoded:
        present = np.arange(len(values), dtype=np.int64)
        if values.null_count:
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            tombstones, present = present[~valid], present[valid]
            values = values.drop_null()
        else:
            tombstones = present[:0]
        batches: list[RecordBatch] = []
        places: list[Places] = []
        malformed: list[MalformedRecord] = []
        for start, part in _parts(values):
            chunk = Chunk(self.no_rows, present[:0], range(len(part))) if each else self.chunk(part)
            rows, found, bad = self._settled(chunk, part)
            batches.append(rows)
            places.append(present[start + found])
            malformed += [MalformedRecord(int(present[start + it.place]), it.reason) for it in bad]
        return Decoded(
            pa.concat_batches([self.no_rows, *batches]),
            np.concatenate([present[:0], *places]),
            tuple(malformed),
            tombstones,
        )

    def _settled(self, chunk: Chunk, values: Array) -> tuple[RecordBatch, Places, list[MalformedRecord]]:
        """Take the doubtful records one by one, and put the rows in the order of their records."""
        if not len(chunk.doubtful):
            return chunk.rows, chunk.places, []
        found: list[Mapping[str, object]] = []
        kept: list[int] = []
        malformed: list[MalformedRecord] = []
        for place in chunk.doubtful:
            try:
                found.append(self.record(values[place].as_py()))
                kept.append(place)
            except Malformed as reason:
                malformed.append(MalformedRecord(place, str(reason)))
        if not found:
            return chunk.rows, chunk.places, malformed
        more = pa.RecordBatch.from_struct_array(pa.array(found, pa.struct(list(self.schema))))
        places = np.concatenate([chunk.places, np.array(kept, np.int64)])
        order = np.argsort(places, kind="stable")
        return pa.concat_batches([chunk.rows, more.cast(self.schema)]).take(pa.array(order)), places[order], malformed


def _parts(values: Array) -> Iterator[tuple[int, Array]]:
    """Yield chunks, and where each begins."""
    start = 0
    while start < len(values):
        size = CHUNK if start else FIRST_CHUNK
        yield start, values.slice(start, size)
        start += size


def require_present(column: Column, value: object, where: str) -> None:
    """Refuse NULL where the schema says NOT NULL.

    Raises:
        Malformed: if the column has to have a value and has not.
    """
    if value is None and not column.nullable:
        raise in_column(where, Malformed("no value, and the column is NOT NULL"))


def sure_rows(
    columns: Sequence[Column], arrays: Sequence[Array], schema: Schema, doubt: npt.NDArray[np.bool_]
) -> Chunk:
    """Return the rows of which no column is in doubt; NULL in a column that is NOT NULL is."""
    for column, array in zip(columns, arrays, strict=True):
        if not column.nullable and array.null_count:
            doubt = doubt | array.is_null().to_numpy(zero_copy_only=False)
    rows = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    if not doubt.any():
        return Chunk(rows, np.arange(len(doubt), dtype=np.int64), ())
    sure = np.flatnonzero(~doubt)
    return Chunk(rows.take(pa.array(sure)), sure, np.flatnonzero(doubt).tolist())
