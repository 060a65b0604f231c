"""CSV as RFC 4180 has it, a line per record: what the product's files sink writes is read back value for value.

NULL is nothing between two separators, or the text that `nullValue` names; a text between quotes never is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exactlyonce.api.columns import ArrayType, Column, MapType, StructType
from exactlyonce.errors import Refused
from exactlyonce_spark.decode import utf8
from exactlyonce_spark.decode.arrow import Array, pa, pc
from exactlyonce_spark.decode.columns import as_numpy, nothing, typed
from exactlyonce_spark.decode.decoder import Chunk, Decoder, Places, require_present, sure_rows
from exactlyonce_spark.decode.json_text import text_of_record
from exactlyonce_spark.decode.malformed import Malformed, in_column
from exactlyonce_spark.decode.rules import Rules
from exactlyonce_spark.decode.values import Written, value_of


class DialectUnusable(Refused):
    """A separator, a quote or a schema is one that lines of CSV cannot have."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How fields are told apart.

    Attributes:
        separator: what is between two fields.
        quote: what is around a field that has a separator, a quote or a line end in it; within, two of them are one.
        null: the text without quotes that is NULL.
    """

    separator: str = ","
    quote: str = '"'
    null: str = ""


class CsvDecoder(Decoder):
    """Decodes lines. Those without a quote are split at once, and their columns taken from texts."""

    def __init__(self, columns: tuple[Column, ...], rules: Rules, dialect: Dialect) -> None:
        super().__init__(columns)
        _require_usable(columns, dialect)
        self._rules = rules
        self._dialect = dialect
        separator, quote = re.escape(dialect.separator), re.escape(dialect.quote)
        self._plain_field = re.compile(rf"(?:(?!{separator})[^{quote}\r\n])*")
        self._quoted_field = re.compile(rf"{quote}((?:[^{quote}]|{quote}{quote})*){quote}")

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one line."""
        fields = self._fields(text_of_record(value))
        if len(fields) != len(self.columns):
            raise Malformed(f"the record has {len(fields)} fields, and the schema has {len(self.columns)} columns")
        found: dict[str, object] = {}
        for column, text in zip(self.columns, fields, strict=True):
            try:
                found[column.name] = None if text is None else value_of(column.type, text, Written.FIELD, self._rules)
            except Malformed as problem:
                raise in_column(column.name, problem) from None
            require_present(column, found[column.name], column.name)
        return found

    def _fields(self, line: str) -> list[str | None]:
        """Return the fields of a line; None is NULL."""
        end = len(line) - next((len(ending) for ending in ("\r\n", "\n", "\r") if line.endswith(ending)), 0)
        quote, found, place = self._dialect.quote, list[str | None](), 0
        while True:
            if line.startswith(quote, place):
                match = self._quoted_field.match(line, place)
                if match is None:
                    raise Malformed(f"the quote at character {place} is not closed")
                found.append(match[1].replace(quote * 2, quote))
            else:
                match = self._plain_field.match(line, place, end)
                assert match is not None, "it matches nothing, too"
                found.append(None if match[0] == self._dialect.null else match[0])
            place = match.end()
            if place >= end:
                return found
            if not line.startswith(self._dialect.separator, place):
                raise Malformed(_unseparated(line, place, quote))
            place += len(self._dialect.separator)

    def chunk(self, values: Array) -> Chunk:
        """Read many lines. Those without a quote are split together, others one by one; all columns are taken together."""
        texts = utf8.texts(values)
        ended = pc.replace_substring_regex(texts, r"(?:\r\n|\n|\r)\z", "") if _ends_with_line_end(texts) else texts
        odd = rf"\A\x{{FEFF}}|[{re.escape(self._dialect.quote)}\r\n]"
        plain = as_numpy(pc.invert(pc.match_substring_regex(ended, odd)))
        fields = pc.split_pattern(ended, self._dialect.separator)
        plain &= as_numpy(pc.equal(pc.list_value_length(fields), len(self.columns)))
        split = np.flatnonzero(plain)
        if len(split) == len(values):
            return self._rows(self._columns_of(fields), len(values))
        others, lines = self._each(texts, np.flatnonzero(~plain))
        places = np.concatenate([split, others])
        order = np.argsort(places, kind="stable")
        columns = [
            pa.concat_arrays([array, pa.array(more, pa.string())]).take(pa.array(order))
            for array, more in zip(self._columns_of(fields.take(pa.array(split))), lines, strict=True)
        ]
        places = places[order]
        chunk = self._rows(columns, len(places))
        sure = places[chunk.places]
        return Chunk(chunk.rows, sure, np.setdiff1d(np.arange(len(values)), sure).tolist())

    def _each(self, texts: Array, places: Places) -> tuple[Places, list[list[str | None]]]:
        """Split some lines one by one; return those that have a field for each column, and the columns."""
        kept: list[int] = []
        columns: list[list[str | None]] = [[] for _ in self.columns]
        for place, text in zip(places.tolist(), texts.take(pa.array(places)).to_pylist(), strict=True):
            try:
                fields = [] if text is None else self._fields(text.removeprefix("\ufeff"))
            except Malformed:
                continue
            if len(fields) == len(columns):
                kept.append(place)
                for column, field in zip(columns, fields, strict=True):
                    column.append(field)
        return np.array(kept, np.int64), columns

    def _columns_of(self, fields: Array) -> list[Array]:
        """Return the columns of lines that have a field for each, as texts; NULL is what the dialect says."""
        width, flat, columns = len(self.columns), fields.flatten(), []
        for number in range(width):
            texts = flat.take(pa.array(np.arange(number, len(fields) * width, width))) if width > 1 else flat
            is_null = pc.equal(texts, self._dialect.null)
            columns.append(pc.if_else(is_null, None, texts) if pc.any(is_null).as_py() else texts)
        return columns

    def _rows(self, columns: Sequence[Array], count: int) -> Chunk:
        """Return the rows of columns of texts."""
        doubt, arrays = nothing(count), []
        for column, texts in zip(self.columns, columns, strict=True):
            array, more = typed(texts, column.type, self._rules)
            arrays.append(array)
            doubt = doubt | more
        return sure_rows(self.columns, arrays, self.schema, doubt)


def _ends_with_line_end(texts: Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, r"[\r\n]\z")).as_py())


def _unseparated(line: str, place: int, quote: str) -> str:
    if line[place] in "\r\n":
        return f"the record has a line end at character {place}, outside of quotes"
    if line[place] == quote:
        return f"the field before character {place} has a quote in it and none around it"
    return f"the record has more after the quote that closes before character {place}"


def _require_usable(columns: Sequence[Column], dialect: Dialect) -> None:
    nested = [column.name for column in columns if isinstance(column.type, ArrayType | MapType | StructType)]
    if nested:
        raise DialectUnusable(f"CSV has no STRUCT, ARRAY or MAP; declare {', '.join(nested)} as STRING.")
    if len(dialect.quote) != 1 or not dialect.separator or dialect.quote in dialect.separator:
        raise DialectUnusable(
            f"quote is one character that sep does not have: {dialect.quote!r} and {dialect.separator!r} will not do."
        )
    if set("\r\n") & set(dialect.separator + dialect.quote):
        raise DialectUnusable("sep and quote cannot be line ends.")
