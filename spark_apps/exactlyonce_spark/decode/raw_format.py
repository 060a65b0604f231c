"""Raw: the value itself, as one column of bytes or of text."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.columns import Column, PlainType, TextType
from exactlyonce.errors import Refused
from exactlyonce_spark.decode import utf8
from exactlyonce_spark.decode.arrow import Array
from exactlyonce_spark.decode.columns import as_numpy, nothing, typed
from exactlyonce_spark.decode.decoder import Chunk, Decoder, sure_rows
from exactlyonce_spark.decode.malformed import Malformed, in_column
from exactlyonce_spark.decode.rules import Rules
from exactlyonce_spark.decode.values import Written, value_of


class RawSchemaUnusable(Refused):
    """Raw takes one column, STRING or BINARY."""


class RawDecoder(Decoder):
    """Takes each value as it is, a byte order mark with it."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        super().__init__(columns)
        if len(columns) != 1 or not (columns[0].type is PlainType.BINARY or isinstance(columns[0].type, TextType)):
            raise RawSchemaUnusable(
                "source.format.schema of a Raw format takes one column, STRING or BINARY: value STRING."
            )
        self._column = columns[0]

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the column of one record."""
        if self._column.type is PlainType.BINARY:
            return {self._column.name: value}
        try:
            return {self._column.name: value_of(self._column.type, value.decode(), Written.TEXT, Rules())}
        except UnicodeDecodeError as problem:
            raise Malformed(f"the record is not UTF-8: byte {problem.start} is 0x{value[problem.start]:02x}") from None
        except Malformed as problem:
            raise in_column(self._column.name, problem) from None

    def chunk(self, values: Array) -> Chunk:
        """Take many values; each of them by itself if one is not UTF-8."""
        if self._column.type is PlainType.BINARY:
            return sure_rows(self.columns, [values], self.schema, nothing(len(values)))
        texts = utf8.texts(values)
        array, doubt = typed(texts, self._column.type, Rules())
        return sure_rows(self.columns, [array], self.schema, doubt | as_numpy(texts.is_null()))
