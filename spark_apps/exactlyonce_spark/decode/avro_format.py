"""Avro: the binary encoding of one record of a schema per value, without a header."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exactlyonce.api.columns import Column
from exactlyonce_spark.decode.arrow import Array
from exactlyonce_spark.decode.avro_chunks import ChunkReader
from exactlyonce_spark.decode.avro_record import record_of
from exactlyonce_spark.decode.avro_schema import compiled
from exactlyonce_spark.decode.byte_grid import ByteGrid
from exactlyonce_spark.decode.decoder import Chunk, Decoder, sure_rows
from exactlyonce_spark.decode.rules import Rules


class AvroDecoder(Decoder):
    """Decodes records of one schema, the writer's; the columns are the reader's."""

    def __init__(self, columns: tuple[Column, ...], rules: Rules, schema: str) -> None:
        super().__init__(columns)
        self._rules = rules
        self._record = compiled(schema, columns)

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one record."""
        return record_of(value, self._record, self.columns, self._rules)

    def chunk(self, values: Array) -> Chunk:
        """Read many records in step."""
        grid = ByteGrid(values)
        with np.errstate(over="ignore"):
            arrays = ChunkReader(grid, self._rules).struct(self._record, self.columns, grid.every(), nested=False)
        return sure_rows(self.columns, arrays, self.schema, grid.doubt | (grid.places != grid.ends))
