"""One value of one column, from its text: what each type takes, and why it takes no other. docs/values.md is this table.

`columns.py` does the same for many texts at once, and leaves to this module what it has not approved.
"""

from __future__ import annotations

import binascii
from enum import Enum
from typing import assert_never

from exactlyonce.api.columns import (
    ArrayType,
    ColumnType,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode import moments, numbers
from exactlyonce_spark.decode.malformed import Malformed, shown
from exactlyonce_spark.decode.rules import Rules


class Written(Enum):
    """How a value stands in its record."""

    TEXT = "a text"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    OBJECT = "an object"
    ARRAY = "an array"
    FIELD = "a field of CSV, which may be anything"


def value_of(type_: ColumnType, text: str, written: Written, rules: Rules) -> object:
    """Return what Arrow builds the column from: moments and days are numbers since 1970.

    Raises:
        Malformed: if the column does not take the value.
    """
    match type_:
        case TextType(most):
            return _text(text, most)
        case IntegerType():
            return numbers.integer(_scalar(type_, text, written), type_)
        case DecimalType():
            return numbers.decimal(_scalar(type_, text, written), type_)
        case FloatingType():
            return numbers.floating(_scalar(type_, text, written), type_, not_a_number=rules.not_a_number)
        case PlainType():
            return _plain(type_, text, written, rules)
        case StructType() | ArrayType() | MapType():
            raise Malformed(f"{shown(text)} is {written.value}, not a value of {type_}")
        case _:
            assert_never(type_)


def _scalar(type_: ColumnType, text: str, written: Written) -> str:
    """Return the text of a value that may be a number."""
    if written in (Written.NUMBER, Written.TEXT, Written.FIELD):
        return text
    raise Malformed(f"{shown(text)} is {written.value}, not a value of {type_}")


def _text(text: str, most: int | None) -> str:
    if most is not None and len(text) > most:
        raise Malformed(f"{shown(text)} has {len(text)} characters, more than VARCHAR({most})")
    return text


def _plain(type_: PlainType, text: str, written: Written, rules: Rules) -> object:
    if type_ is PlainType.BOOLEAN:
        if text in ("true", "false") and written in (Written.BOOLEAN, Written.FIELD):
            return text == "true"
        raise Malformed(f"{shown(text)} is not true or false")
    if type_ is PlainType.TIMESTAMP and written is not Written.BOOLEAN and moments.is_number(text):
        return moments.moment_of_number(text, rules)
    if written not in (Written.TEXT, Written.FIELD):
        raise Malformed(f"{shown(text)} is {written.value}, not a text as {type_} takes it")
    if type_ is PlainType.BINARY:
        return _bytes(text)
    if type_ is PlainType.DATE:
        return moments.day_of_text(text)
    return moments.moment_of_text(text, rules, with_zone=type_ is PlainType.TIMESTAMP)


def _bytes(text: str) -> bytes:
    """Return the bytes of base64, in the one form that stands for them (RFC 4648: padded, no bits left over)."""
    try:
        found = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        found = None
    if found is None or binascii.b2a_base64(found, newline=False) != text.encode():
        raise Malformed(f"{shown(text)} is not base64")
    return found
