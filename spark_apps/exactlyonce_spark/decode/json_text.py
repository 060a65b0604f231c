"""JSON as RFC 8259 has it, read with the place of each value: exactly one value, whose text is kept as it is in the record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from exactlyonce_spark.decode.malformed import Malformed
from exactlyonce_spark.decode.numbers import NUMBER
from exactlyonce_spark.decode.values import Written

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WORDS = {"true": Written.BOOLEAN, "false": Written.BOOLEAN, "null": None}


@dataclass(frozen=True, slots=True)
class Value:
    """A value in the text of a record, from `start` to before `end`; `written` is None for null."""

    written: Written | None
    start: int
    end: int


def text_of_record(value: bytes) -> str:
    """Return a record's text, without a byte order mark at its start.

    Raises:
        Malformed: if it is not UTF-8.
    """
    try:
        return value.removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as problem:
        raise Malformed(
            f"the record is not UTF-8: byte {problem.start} is 0x{problem.object[problem.start]:02x}"
        ) from None


def only_value(text: str) -> Value:
    """Return the one value that a text holds."""
    found = _value(text, _after_space(text, 0))
    rest = _after_space(text, found.end)
    if rest < len(text):
        raise Malformed(f"the record has more after its value, from character {rest} on")
    return found


def members(text: str, value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the keys and values of an object that `only_value` has read."""
    place = _after_space(text, value.start + 1)
    while text[place] != "}":
        end = _string_end(text, place)
        key = string(text, place, end)
        found = _value(text, _after_space(text, _after_space(text, end) + 1))
        yield key, found
        place = _after_space(text, found.end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def elements(text: str, value: Value) -> Iterator[Value]:
    """Yield the values of an array that `only_value` has read."""
    place = _after_space(text, value.start + 1)
    while text[place] != "]":
        found = _value(text, place)
        yield found
        place = _after_space(text, found.end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def string(text: str, start: int, end: int) -> str:
    """Return the text that a literal between quotes stands for."""
    literal = text[start:end]
    return str(json.loads(literal)) if "\\" in literal else literal[1:-1]


def _value(text: str, start: int) -> Value:
    """Read one value, however deep it is: what it holds is passed over with a stack, not by recursion."""
    closing: list[str] = []
    place = start
    while True:
        opened = text[place : place + 1]
        if opened in ("{", "["):
            place = _after_space(text, place + 1)
            closes = "}" if opened == "{" else "]"
            if text[place : place + 1] != closes:
                closing.append(closes)
                place = _key(text, place) if closes == "}" else place
                continue
            place += 1
        else:
            place = _scalar_end(text, place)
        place = _closed(text, place, closing)
        if not closing:
            return Value(_written(text, start), start, place)


def _closed(text: str, place: int, closing: list[str]) -> int:
    """Pass over what closes after a value; return where the next value is, or, with nothing left open, the end."""
    while closing:
        place = _after_space(text, place)
        sign = text[place : place + 1]
        if sign == ",":
            place = _after_space(text, place + 1)
            return _key(text, place) if closing[-1] == "}" else place
        if sign != closing[-1]:
            raise _invalid(text, place, f"a comma or {closing[-1]}")
        closing.pop()
        place += 1
    return place


def _key(text: str, place: int) -> int:
    """Pass over a key and its colon; return where its value is."""
    place = _after_space(text, _string_end(text, place))
    if text[place : place + 1] != ":":
        raise _invalid(text, place, "a colon")
    return _after_space(text, place + 1)


def _written(text: str, start: int) -> Written | None:
    match text[start]:
        case "{":
            return Written.OBJECT
        case "[":
            return Written.ARRAY
        case '"':
            return Written.TEXT
        case "t" | "f":
            return Written.BOOLEAN
        case "n":
            return None
        case _:
            return Written.NUMBER


def _scalar_end(text: str, place: int) -> int:
    if text[place : place + 1] == '"':
        return _string_end(text, place)
    for word in _WORDS:
        if text.startswith(word, place):
            return place + len(word)
    if (match := NUMBER.match(text, place)) is None:
        raise _invalid(text, place, "a value")
    return match.end()


def _string_end(text: str, place: int) -> int:
    match = _STRING.match(text, place)
    if match is None:
        raise _invalid(text, place, "a text between quotes, without control characters")
    if "\\" in match[0] and _SURROGATE.search(match[0]) is not None:
        try:
            json.loads(match[0]).encode()
        except UnicodeEncodeError:
            raise Malformed(
                f"the text at character {place} has half of a surrogate pair, which is no character"
            ) from None
    return match.end()


def _after_space(text: str, place: int) -> int:
    if text[place : place + 1] > " ":  # most places have no blank
        return place
    match = _SPACE.match(text, place)
    assert match is not None, "the pattern matches nothing, too"
    return match.end()


def _invalid(text: str, place: int, expected: str) -> Malformed:
    if place >= len(text):
        return Malformed(f"the record is not JSON: it ends where {expected} has to follow")
    return Malformed(f"the record is not JSON: expected {expected} at character {place}, found {text[place]!r}")
