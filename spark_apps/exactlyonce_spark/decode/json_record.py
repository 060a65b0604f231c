"""One record of JSON by itself: the path that knows the reason, and that `json_chunks.py` has to agree with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
from exactlyonce_spark.decode.decoder import require_present
from exactlyonce_spark.decode.json_text import Value, elements, members, only_value, string, text_of_record
from exactlyonce_spark.decode.malformed import Malformed, in_column, shown
from exactlyonce_spark.decode.rules import Rules
from exactlyonce_spark.decode.values import Written, value_of

Path = tuple[str, ...]
"""A column, and the fields below it; `ELEMENT` for what a list or a map holds."""
ELEMENT = "[]"


@dataclass
class Forms:
    """How the values of a record are written, so that records like it can be read at once.

    Attributes:
        unusual: the columns with a value that their type takes, and that is not written as most are: 5 as "5".
        unread: the keys of the record that no column has.
    """

    unusual: set[Path] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)


def record_of(value: bytes, columns: tuple[Column, ...], rules: Rules, forms: Forms) -> Mapping[str, object]:
    """Return the columns of a record.

    Raises:
        Malformed: if it is not exactly one object, or has a value that a column does not take.
    """
    text = text_of_record(value)
    found = only_value(text)
    if found.written is not Written.OBJECT:
        what = "null" if found.written is None else found.written.value
        raise Malformed(f"the record is {what}, not an object with columns")
    return _Record(text, rules, forms).struct(columns, found, ())


@dataclass(frozen=True)
class _Record:
    text: str
    rules: Rules
    forms: Forms

    def struct(self, columns: tuple[Column, ...], value: Value, path: Path) -> Mapping[str, object]:
        """Return the fields of an object; a key that no field has is passed over."""
        by_name = {column.name: column for column in columns}
        found: dict[str, object] = dict.fromkeys(by_name)
        seen: set[str] = set()
        for key, member in members(self.text, value):
            column = by_name.get(key)
            if column is None:
                if not path:
                    self.forms.unread.add(key)
                continue
            where = (*path, key)
            if key in seen:
                raise in_column(_named(where), Malformed("its key occurs twice in the record"))
            seen.add(key)
            found[key] = self.value(column.type, member, where)
        for column in columns:
            require_present(column, found[column.name], _named((*path, column.name)))
        return found

    def value(self, type_: ColumnType, value: Value, path: Path) -> object:
        """Return a value as its column takes it."""
        written = value.written
        if written is None:
            return None
        match type_, written:
            case StructType(fields), Written.OBJECT:
                return self.struct(fields, value, path)
            case ArrayType(element), Written.ARRAY:
                return [self.value(element, it, (*path, ELEMENT)) for it in elements(self.text, value)]
            case MapType(), Written.OBJECT:
                return self._map(type_, value, path)
        is_text = written is Written.TEXT
        text = string(self.text, value.start, value.end) if is_text else self.text[value.start : value.end]
        try:
            found = value_of(type_, text, written, self.rules)
        except Malformed as problem:
            raise in_column(_named(path), problem) from None
        if written is not _USUAL.get(type(type_), Written.TEXT):
            self.forms.unusual.add(path)
        return found

    def _map(self, type_: MapType, value: Value, path: Path) -> list[tuple[object, object]]:
        found: dict[object, object] = {}
        for key, member in members(self.text, value):
            try:
                name = value_of(type_.key, key, Written.TEXT, self.rules)
            except Malformed as problem:
                raise in_column(f"{_named(path)}, key", problem) from None
            if name in found:
                raise in_column(_named(path), Malformed(f"the key {shown(key)} occurs twice"))
            found[name] = self.value(type_.value, member, (*path, ELEMENT))
        return list(found.items())


_USUAL = {
    IntegerType: Written.NUMBER,
    FloatingType: Written.NUMBER,
    TextType: Written.TEXT,
    PlainType: Written.TEXT,
    DecimalType: Written.TEXT,
}


def _named(path: Path) -> str:
    return ".".join(path).replace(f".{ELEMENT}", ELEMENT)
