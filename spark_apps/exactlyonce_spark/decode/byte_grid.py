"""Many records of a binary format, read in step: the same field of all of them at once, with numpy.

What does not fit (a record that ends early, a number of more than 8 bytes) makes its record doubtful; its place stays within
the record, and what is read there from then on does not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from exactlyonce_spark.decode.arrow import Array, pa

Longs = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
Doubt = npt.NDArray[np.bool_]
_PADDING = 16
_STOP = np.uint64(0x8080_8080_8080_8080)
_ONE = np.uint64(1)
_STEPS = (
    (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
    (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
    (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
)
"""How groups of 7 bits move together, each step two neighbours."""


class ByteGrid:
    """The bytes of some values, and where each is read next. A record is named by its number."""

    def __init__(self, values: Array) -> None:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(
            np.int64
        )
        given = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        self.data = np.zeros(len(given) + _PADDING, np.uint8)
        self.data[: len(given)] = given
        self.places: Places = offsets[:-1] - offsets[0]
        self.ends: Places = offsets[1:] - offsets[0]
        self.doubt: Doubt = np.zeros(len(values), np.bool_)

    def every(self) -> Places:
        """Return all records."""
        return np.arange(len(self.places))

    def longs(self, records: Places) -> Longs:
        """Read a zigzag varint of each record."""
        places = self._places_of(records)
        first = self.data[places]
        if not (first & 0x80).any():
            self._advance(records, places + 1)
            small = first.astype(np.int64)
            return (small >> 1) ^ -(small & 1)
        words = self._gathered(places, "<u8")
        stops = ~words & _STOP
        lowest = stops & (~stops + _ONE)
        words &= (lowest << _ONE) - _ONE
        words &= ~_STOP
        for low, high, shift in _STEPS:
            words = (words & np.uint64(low)) | ((words & np.uint64(high)) >> np.uint64(shift))
        sizes = (np.bitwise_count(lowest - _ONE) + np.uint8(1)) >> 3  # a stop bit is the highest of its byte
        too_long = lowest == 0  # more than 8 bytes, which the other path reads
        if too_long.any():
            self.doubt[records[too_long]] = True
        self._advance(records, places + sizes)
        signed = words.view(np.int64)
        return (signed >> 1) ^ -(signed & 1)

    def fixed(self, records: Places, dtype: str) -> npt.NDArray[Any]:
        """Read a little-endian number of each record."""
        places = self._places_of(records)
        found = self._gathered(places, dtype)
        self._advance(records, places + found.dtype.itemsize)
        return found

    def spans(self, records: Places, size: int | None) -> tuple[Places, Longs]:
        """Pass over a length and as many bytes, or `size` bytes; return where they begin, and how many they are."""
        lengths = self.longs(records) if size is None else np.full(len(records), size, np.int64)
        starts = self._places_of(records)
        bad = self._advance(records, starts + lengths)
        return starts, lengths if bad is None else np.where(bad, 0, lengths)

    def _places_of(self, records: Places) -> Places:
        """Return where records are read next; that of all of them is no copy, and is replaced when they advance."""
        return self.places if len(records) == len(self.places) else self.places[records]

    def _advance(self, records: Places, places: Places) -> Doubt | None:
        """Move on, within the records; return which of them would have left theirs, if any."""
        if len(records) == len(self.places):
            before, ends = self.places, self.ends
        else:
            before, ends = self.places[records], self.ends[records]
        bad = places > ends
        bad |= places < before
        has_bad = bool(bad.any())
        if has_bad:
            self.doubt[records[bad]] = True
            places = np.where(bad, before, places)
        if len(records) == len(self.places):
            self.places = places
        else:
            self.places[records] = places
        return bad if has_bad else None

    def _gathered(self, places: Places, dtype: str) -> npt.NDArray[Any]:
        """Return the number that begins at each place, wherever that is."""
        size = np.dtype(dtype).itemsize
        every = np.ndarray((len(self.data) - size + 1,), dtype, self.data, strides=(1,))
        return every[places]

    def binary(self, starts: Places, lengths: Longs) -> Array:
        """Return spans as values of type binary: views of the bytes, which Arrow copies together."""
        views = np.zeros((len(starts), 4), np.int32)
        views[:, 0] = lengths
        short = lengths <= 12
        if not short.any():  # a view of a long value has its first bytes, and where it is
            views[:, 1] = self._gathered(starts, "<i4")
            views[:, 3] = starts
            return self._copied(views)
        for place in range(3):
            rest = np.clip(lengths - 4 * place, 0, 4)
            words = self._gathered(np.where(rest > 0, starts + 4 * place, 0), "<u4")
            words &= ((np.uint64(1) << (rest * 8).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
            views[:, 1 + place] = words.view(np.int32)
        if not short.all():
            views[:, 2][~short] = 0
            views[:, 3][~short] = starts[~short]
        return self._copied(views)

    def _copied(self, views: npt.NDArray[np.int32]) -> Array:
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.binary())

    def big_endian(self, starts: Places, lengths: Longs) -> tuple[Longs, Doubt]:
        """Return signed numbers of 1 to 8 bytes; doubtful are those of more, or of none."""
        outside = (lengths < 1) | (lengths > 8)
        shift = (64 - 8 * np.where(outside, 8, lengths)).astype(np.int64)
        return self._gathered(starts, ">u8").astype(np.uint64).view(np.int64) >> shift, outside
