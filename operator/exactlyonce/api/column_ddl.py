"""Parse the columns of a format's schema, written as SQL DDL as Spark takes it: `id BIGINT NOT NULL, tags ARRAY<STRING>`.

Spark is not asked, so that `validate` and tasks read a schema as the driver does. tests/integration/test_column_ddl.py compares
both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from exactlyonce.errors import Refused

MOST_DIGITS = 38
"""Digits that a DECIMAL of Spark holds."""
DEEPEST = 50
"""Types within types: more is a mistake, or meant to exhaust the parser."""

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z0-9_]+)|'((?:[^'\\]|\\.|'')*)'|([<>(),:])|(\S))", re.DOTALL)
_SIMPLE: dict[str, ColumnType] = {
    "TINYINT": IntegerType.TINYINT, "BYTE": IntegerType.TINYINT,
    "SMALLINT": IntegerType.SMALLINT, "SHORT": IntegerType.SMALLINT,
    "INT": IntegerType.INT, "INTEGER": IntegerType.INT, "BIGINT": IntegerType.BIGINT, "LONG": IntegerType.BIGINT,
    "FLOAT": FloatingType.FLOAT, "REAL": FloatingType.FLOAT, "DOUBLE": FloatingType.DOUBLE, "STRING": TextType(),
    "BOOLEAN": PlainType.BOOLEAN, "TIMESTAMP": PlainType.TIMESTAMP, "TIMESTAMP_LTZ": PlainType.TIMESTAMP,
    "TIMESTAMP_NTZ": PlainType.TIMESTAMP_NTZ, "DATE": PlainType.DATE, "BINARY": PlainType.BINARY,
}  # fmt: skip
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_INSTEAD = {
    "CHAR": "write VARCHAR(n) or STRING: CHAR pads values with blanks",
    "CHARACTER": "write VARCHAR(n) or STRING: CHAR pads values with blanks",
    "VARIANT": "write STRING: the text of the value, exactly as in the record",
    "INTERVAL": "write STRING",
    "TIME": "write STRING",
    "VOID": "leave the column out",
}


class DdlInvalid(Refused):
    """A schema does not parse; the message says where and why."""


def parse(text: str) -> tuple[Column, ...]:
    """Return the columns.

    Raises:
        DdlInvalid: if the text is no DDL of columns, or has a type that no record can be decoded to.
    """
    tokens = _Tokens([*_tokens(text)])
    columns = _fields(tokens, closing=None, depth=0)
    _require_distinct(columns, "the schema")
    return columns


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool
    is_quoted: bool = False

    @property
    def word(self) -> str:
        """The keyword that it may be; a quoted name never is one."""
        return self.text.upper() if self.is_name and not self.is_quoted else self.text if not self.is_quoted else ""


@dataclass
class _Tokens:
    """The tokens that are left."""

    tokens: list[_Token]
    place: int = field(default=0)

    def next_word(self) -> str:
        """Return the next token as a keyword or sign; empty at the end."""
        return self.tokens[self.place].word if self.place < len(self.tokens) else ""

    def take(self) -> _Token:
        """Take the next token."""
        if self.place == len(self.tokens):
            raise DdlInvalid("it ends where more has to follow")
        self.place += 1
        return self.tokens[self.place - 1]

    def take_if(self, word: str) -> bool:
        """Take the next token if it is this keyword or sign."""
        if self.place < len(self.tokens) and self.next_word() == word:
            self.place += 1
            return True
        return False

    def require(self, word: str, where: str) -> None:
        """Take this keyword or sign."""
        if not self.take_if(word):
            found = self.tokens[self.place].text if self.place < len(self.tokens) else "the end"
            raise DdlInvalid(f"{where}: expected {word}, found {found}")


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        assert match is not None, "the last alternative takes any character"
        quoted, name, literal, sign, other = match.groups()
        place = match.end()
        if quoted is not None:
            yield _Token(quoted.replace("``", "`"), is_name=True, is_quoted=True)
        elif name is not None:
            yield _Token(name, is_name=True)
        elif literal is not None:
            yield _Token(literal, is_name=False, is_quoted=True)
        elif sign is not None:
            yield _Token(sign, is_name=False)
        else:
            raise DdlInvalid(f"{other!r} at character {match.end()}: put names with such characters between backquotes")


def _fields(tokens: _Tokens, closing: str | None, depth: int) -> tuple[Column, ...]:
    """Parse fields up to the sign that closes them, or to the end."""
    found: list[Column] = []
    if closing is not None and tokens.take_if(closing):
        return ()
    while True:
        found.append(_field(tokens, depth))
        if tokens.take_if(","):
            continue
        if closing is not None:
            tokens.require(closing, f"after {found[-1].name}")
        elif tokens.place < len(tokens.tokens):
            raise DdlInvalid(f"after {found[-1].name}: expected a comma, found {tokens.take().text}")
        return tuple(found)


def _field(tokens: _Tokens, depth: int) -> Column:
    name = tokens.take()
    if not name.is_name:
        raise DdlInvalid(f"{name.text}: expected the name of a column")
    tokens.take_if(":")
    type_ = _type(tokens, name.text, depth)
    nullable = True
    if tokens.take_if("NOT"):
        tokens.require("NULL", name.text)
        nullable = False
    if tokens.take_if("COMMENT"):
        tokens.take()
    return Column(name.text, type_, nullable)


def _type(tokens: _Tokens, name: str, depth: int) -> ColumnType:
    if depth > DEEPEST:
        raise DdlInvalid(f"{name}: types are nested deeper than {DEEPEST} levels")
    word = tokens.take().word
    if word in _DECIMAL:
        return _decimal(tokens, name)
    if word == "VARCHAR":
        tokens.require("(", name)
        most = _number(tokens, name)
        tokens.require(")", name)
        if most < 1:
            raise DdlInvalid(f"{name}: VARCHAR needs a length of at least 1")
        return TextType(most)
    if word in ("ARRAY", "MAP", "STRUCT"):
        return _composed(word, tokens, name, depth + 1)
    if word == "STRING" and tokens.next_word() == "COLLATE":
        raise DdlInvalid(f"{name}: write STRING without COLLATE, and compare with a collation in the transform")
    if word in _SIMPLE:
        return _SIMPLE[word]
    raise DdlInvalid(
        f"{name}: {word or 'a name'} is not a type; {_INSTEAD.get(word, 'write columns as id BIGINT, name STRING')}"
    )


def _decimal(tokens: _Tokens, name: str) -> DecimalType:
    precision, scale = 10, 0
    if tokens.take_if("("):
        precision = _number(tokens, name)
        scale = _number(tokens, name) if tokens.take_if(",") else 0
        tokens.require(")", name)
    if not (1 <= precision <= MOST_DIGITS and scale <= precision):
        raise DdlInvalid(
            f"{name}: DECIMAL({precision},{scale}) needs 1 to {MOST_DIGITS} digits, and at most all of them after the point"
        )
    return DecimalType(precision, scale)


def _composed(word: str, tokens: _Tokens, name: str, depth: int) -> ColumnType:
    tokens.require("<", f"{name} {word}")
    if word == "STRUCT":
        fields = _fields(tokens, closing=">", depth=depth)
        _require_distinct(fields, name)
        return StructType(fields)
    first = _type(tokens, name, depth)
    if word == "ARRAY":
        tokens.require(">", name)
        return ArrayType(first)
    tokens.require(",", name)
    if isinstance(first, ArrayType | MapType | StructType):
        raise DdlInvalid(f"{name}: the keys of a MAP are texts in a record; write MAP<STRING, …>")
    value = _type(tokens, name, depth)
    tokens.require(">", name)
    return MapType(first, value)


def _number(tokens: _Tokens, name: str) -> int:
    text = tokens.take().text
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise DdlInvalid(f"{name}: {text} is not a number of digits")
    return int(text)


def _require_distinct(columns: tuple[Column, ...], where: str) -> None:
    """Spark resolves names without regard to case, so two that differ in it alone cannot both be read."""
    lowered = [column.name.lower() for column in columns]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise DdlInvalid(f"{where} names {', '.join(twice)} twice; rename one")
