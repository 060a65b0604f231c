"""Protobuf: a message per value. Two messages in one value are one message by the format: nothing tells where one ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import ptars
from google.protobuf.message_factory import GetMessageClass

from exactlyonce.api.columns import Column
from exactlyonce_spark.decode.arrow import Array, RecordBatch, pa
from exactlyonce_spark.decode.decoder import Chunk, Decoder, Places, sure_rows
from exactlyonce_spark.decode.protobuf_chunks import ChunkReader
from exactlyonce_spark.decode.protobuf_record import record_of
from exactlyonce_spark.decode.protobuf_schema import ProtobufSchema, message_of
from exactlyonce_spark.decode.rules import Rules

_PARTS = 8
"""Into how many parts messages are divided to find the one that ptars refuses."""


class ProtobufDecoder(Decoder):
    """Decodes messages by ptars; those that it refuses, or reads otherwise than others do, by Google's library."""

    def __init__(self, columns: tuple[Column, ...], rules: Rules, schema: ProtobufSchema) -> None:
        super().__init__(columns)
        self._rules = rules
        self._message = message_of(schema, columns)
        self._class = GetMessageClass(self._message)
        self._handler = ptars.HandlerPool([self._message.file]).get_for_message(self._message)

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one message."""
        return record_of(value, self._class, self.columns, self._rules)

    def chunk(self, values: Array) -> Chunk:
        """Read many messages."""
        places, batches = self._read(values, 0)
        if not len(places):
            return Chunk(self.no_rows, places, range(len(values)))
        batch = pa.concat_batches(batches)
        arrays, doubt = ChunkReader(self._rules).struct(
            batch.columns, self._message, self.columns, len(places), nested=False
        )
        chunk = sure_rows(self.columns, arrays, self.schema, doubt)
        if len(places) == len(values):
            return chunk
        sure = places[chunk.places]
        return Chunk(chunk.rows, sure, np.setdiff1d(np.arange(len(values)), sure).tolist())

    def _read(self, values: Array, start: int) -> tuple[Places, list[RecordBatch]]:
        """Return what ptars reads, and of which messages; it refuses all of them for one."""
        batch = self._batch(values)
        if batch is not None:
            return np.arange(start, start + len(values)), [batch]
        if len(values) == 1:
            return np.zeros(0, np.int64), []
        size = -(-len(values) // _PARTS)
        parts = [self._read(values.slice(at, size), start + at) for at in range(0, len(values), size)]
        return np.concatenate([places for places, _ in parts]), [batch for _, batches in parts for batch in batches]

    def _batch(self, values: Array) -> RecordBatch | None:
        """Return what ptars makes of messages; None if it refuses one."""
        try:
            return self._handler.array_to_record_batch(values)
        except ValueError:
            return None
        except BaseException as problem:
            # A length that leads out of a message is a panic in Rust, caught at its border; its class cannot be imported.
            if type(problem).__name__ != "PanicException":
                raise
            return None
