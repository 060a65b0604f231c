"""What a value of JSON or CSV becomes in a column, written from the table of docs/values.md alone, without the decoder.

It takes a value as the json module reads it, with numbers kept as their texts, and gives what Arrow's to_pylist gives; or
`MALFORMED`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from json import scanner
from typing import Any
from zoneinfo import ZoneInfo

from exactlyonce.api import columns as types


class Outcome(Enum):
    MALFORMED = "malformed"


MALFORMED = Outcome.MALFORMED


class BadError(Exception):
    pass


@dataclass(frozen=True)
class Number:
    """A number, as the record writes it."""

    text: str


@dataclass(frozen=True)
class Choices:
    zone: str = "UTC"
    per_second: int | None = None
    not_a_number: bool = False


class Pairs(list[tuple[str, Any]]):
    """An object, with its keys as often as they are in it."""


def parsed(text: str) -> Any:
    def refused(_: str) -> None:
        raise BadError

    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=refused, object_pairs_hook=Pairs)


def json_record(
    value: bytes, columns: Sequence[types.Column], choices: Choices = Choices()
) -> dict[str, Any] | Outcome:
    try:
        text = value.decode("utf-8-sig" if value.startswith(b"\xef\xbb\xbf") else "utf-8")
        found = parsed(text)
        require_whole_characters(found)
        if not isinstance(found, Pairs):
            return MALFORMED
        return struct_of(found, columns, choices, Texts(text))
    except (BadError, ValueError):
        return MALFORMED


def require_whole_characters(value: Any) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, Pairs):
        for key, member in value:
            key.encode()
            require_whole_characters(member)
    elif isinstance(value, list):
        for member in value:
            require_whole_characters(member)


scanner_of: Any = scanner.make_scanner
"""What reads one value from a place of a text on, and says where it ends."""


@dataclass
class Texts:
    """Finds how a value is written by reading the text once more, with the standard library's own scanner."""

    text: str

    def members(self) -> dict[str, str]:
        """Return the text of each member of an object."""
        scan = scanner_of(json.JSONDecoder())
        place = self._after_space(self._after_space(0) + 1)
        found = {}
        while self.text[place] != "}":
            key, place = scan(self.text, place)
            place = self._after_space(self._after_space(place) + 1)
            _, end = scan(self.text, place)
            found[key] = self.text[place:end]
            place = self._after_space(end)
            if self.text[place] == ",":
                place = self._after_space(place + 1)
        return found

    def elements(self) -> list[str]:
        scan = scanner_of(json.JSONDecoder())
        place = self._after_space(self._after_space(0) + 1)
        found = []
        while self.text[place] != "]":
            _, end = scan(self.text, place)
            found.append(self.text[place:end])
            place = self._after_space(end)
            if self.text[place] == ",":
                place = self._after_space(place + 1)
        return found

    def _after_space(self, place: int) -> int:
        while place < len(self.text) and self.text[place] in " \t\r\n":
            place += 1
        return place


def struct_of(found: Pairs, columns: Sequence[types.Column], choices: Choices, written: Texts) -> dict[str, Any]:
    keys = [key for key, _ in found]
    texts, row = written.members(), {}
    for column in columns:
        if keys.count(column.name) > 1:
            raise BadError
        value = dict(found).get(column.name)
        row[column.name] = None if value is None else json_value(value, column.type, choices, texts[column.name])
        if row[column.name] is None and not column.nullable:
            raise BadError
    return row


def json_value(value: Any, type_: types.ColumnType, choices: Choices, written: str) -> Any:  # noqa: C901 - a row of the table each
    if value is None:
        return None
    match type_:
        case types.StructType(fields):
            return struct_of(pairs(value), fields, choices, Texts(written))  # an object, or it is malformed
        case types.ArrayType(element):
            if not isinstance(value, list) or isinstance(value, Pairs):
                raise BadError
            each = Texts(written).elements()
            return [json_value(it, element, choices, text) for it, text in zip(value, each, strict=True)]
        case types.MapType(key, inner):
            each_pair, members = pairs(value), Texts(written).members()
            found = [
                (scalar(name, key, choices), json_value(it, inner, choices, members[name])) for name, it in each_pair
            ]
            if len({repr(name) for name, _ in found}) < len(found):
                raise BadError
            return found
        case types.TextType() if not isinstance(value, str):
            return scalar(written, type_, choices)
        case types.PlainType.BOOLEAN:
            if not isinstance(value, bool):
                raise BadError
            return value
    if isinstance(value, Number):
        number_columns = types.IntegerType | types.DecimalType | types.FloatingType
        if isinstance(type_, number_columns) or type_ is types.PlainType.TIMESTAMP:
            return scalar(value.text, type_, choices)
        raise BadError
    if not isinstance(value, str):
        raise BadError
    return scalar(value, type_, choices)


def pairs(value: Any) -> Pairs:
    if not isinstance(value, Pairs):
        raise BadError
    return value


PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def scalar(text: str, type_: types.ColumnType, choices: Choices) -> Any:  # noqa: C901 - a row of the table each
    """A value from its text, as CSV has it as well."""
    match type_:
        case types.TextType(most):
            if most is not None and len(text) > most:
                raise BadError
            return text
        case types.IntegerType():
            if not re.fullmatch(r"-?(0|[1-9][0-9]*)", text) or not type_.least <= int(text) <= type_.most:
                raise BadError
            return int(text)
        case types.DecimalType(precision, scale):
            return exact(text, precision, scale)
        case types.FloatingType():
            return nearest(text, type_.value, choices)
        case types.PlainType.BOOLEAN:
            if text not in ("true", "false"):
                raise BadError
            return text == "true"
        case types.PlainType.DATE:
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                raise BadError
            return date.fromisoformat(text)
        case types.PlainType.BINARY:
            found = base64.b64decode(text, validate=True)
            if base64.b64encode(found).decode() != text:
                raise BadError
            return found
        case types.PlainType.TIMESTAMP:
            return moment(text, choices)
        case types.PlainType.TIMESTAMP_NTZ:
            local, offset = iso(text)
            if offset:
                raise BadError
            return local
    raise BadError


def value_of(text: str) -> Fraction | None:
    """A number exactly; None if its exponent is out of all bounds."""
    if not PLAIN_NUMBER.fullmatch(text):
        raise BadError
    exponent = re.search(r"[eE]([-+]?[0-9]+)$", text)
    mantissa = Fraction(re.split("[eE]", text)[0])
    if mantissa == 0:
        return mantissa
    power = int(exponent[1]) if exponent else 0
    return mantissa * Fraction(10) ** power if abs(power) < 5000 else None


def exact(text: str, precision: int, scale: int) -> Decimal:
    value = value_of(text)
    if value is None:
        raise BadError
    unscaled = value * 10**scale
    if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
        raise BadError
    with localcontext() as context:
        context.prec = 100
        return Decimal(int(unscaled)).scaleb(-scale)


def nearest(text: str, bits: int, choices: Choices) -> float:
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if text in named:
        if not choices.not_a_number:
            raise BadError
        return named[text]
    value = value_of(text)
    if value is None:
        if "e-" in text.lower():
            return -0.0 if text.startswith("-") else 0.0
        raise BadError
    if value == 0:
        return -0.0 if text.startswith("-") and text != "-0" else 0.0
    return rounded(value, bits)


def rounded(value: Fraction, bits: int) -> float:
    """Round half to even, among all numbers of a format, found by search."""
    pack, code = ("<d", "<Q") if bits == 64 else ("<f", "<I")
    sign, magnitude = (-1 if value < 0 else 1), abs(value)
    low, high = 0, 0x7FF0_0000_0000_0000 if bits == 64 else 0x7F80_0000

    def number(pattern: int) -> Fraction:
        return Fraction(struct.unpack(pack, struct.pack(code, pattern))[0])

    largest = number(high - 1)
    overflow = largest + (largest - number(high - 2)) / 2
    if magnitude >= overflow:
        raise BadError
    if magnitude >= largest:
        return sign * float(largest)
    while high - low > 1:
        middle = (low + high) // 2
        if number(middle) <= magnitude:
            low = middle
        else:
            high = middle
    below, above = number(low), number(low + 1)
    if magnitude - below != above - magnitude:
        chosen = low if magnitude - below < above - magnitude else low + 1
    else:
        chosen = low if low % 2 == 0 else low + 1
    return sign * float(number(chosen))


ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}):([0-9]{2})(:([0-9]{2})(\.([0-9]+))?)?"
    r"(Z|[-+]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
)


def iso(text: str) -> tuple[datetime, str]:
    match = ISO.fullmatch(text)
    if match is None:
        raise BadError
    fraction = Fraction(int(match[7]), 10 ** len(match[7])) * 1_000_000 if match[7] else Fraction(0)
    if fraction.denominator != 1:
        raise BadError
    day = date.fromisoformat(match[1])
    found = datetime(day.year, day.month, day.day, int(match[2]), int(match[3]), int(match[5] or 0), int(fraction))
    return found, match[8] or ""


def moment(text: str, choices: Choices) -> datetime:
    if PLAIN_NUMBER.fullmatch(text):
        value = value_of(text)
        if choices.per_second is None or value is None:
            raise BadError
        micros = value * 1_000_000 / choices.per_second
        if micros.denominator != 1:
            raise BadError
        return checked(datetime(1970, 1, 1), timedelta(microseconds=bounded(int(micros))))
    found, offset = iso(text)
    if offset == "Z":
        return found.replace(tzinfo=UTC)
    if offset:
        digits = (offset[1:].replace(":", "") + "00")[:4]
        span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return checked(found, span if offset[0] == "-" else -span)
    if choices.zone == "UTC":
        return found.replace(tzinfo=UTC)
    zone = ZoneInfo(choices.zone)
    candidates = set()
    for fold in (0, 1):
        utc = found.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if utc.astimezone(zone).replace(tzinfo=None) == found:
            candidates.add(utc)
    if len(candidates) != 1:
        raise BadError
    return candidates.pop()


def bounded(micros: int) -> int:
    if abs(micros) > 10**18:
        raise BadError
    return micros


def checked(start: datetime, span: timedelta) -> datetime:
    try:
        return (start + span).replace(tzinfo=UTC)
    except OverflowError:
        raise BadError from None


def csv_record(
    value: bytes, columns: Sequence[types.Column], choices: Choices = Choices(), null: str = ""
) -> dict[str, Any] | Outcome:
    """A line, read character by character."""
    try:
        text = value.decode("utf-8-sig" if value.startswith(b"\xef\xbb\xbf") else "utf-8")
        fields = csv_fields(text, null)
        if len(fields) != len(columns):
            return MALFORMED
        row = {
            it.name: None if field is None else scalar(field, it.type, choices)
            for it, field in zip(columns, fields, strict=True)
        }
        if any(row[it.name] is None and not it.nullable for it in columns):
            return MALFORMED
        return row
    except (BadError, ValueError):
        return MALFORMED


def csv_fields(text: str, null: str) -> list[str | None]:  # noqa: C901 - character by character, on purpose
    for ending in ("\r\n", "\n", "\r"):
        if text.endswith(ending):
            text = text[: -len(ending)]
            break
    fields: list[str | None] = []
    rest = text
    while True:
        if rest.startswith('"'):
            taken, place = "", 1
            while True:
                if place >= len(rest):
                    raise BadError
                if rest[place] != '"':
                    taken, place = taken + rest[place], place + 1
                elif rest[place + 1 : place + 2] == '"':
                    taken, place = taken + '"', place + 2
                else:
                    place += 1
                    break
            fields.append(taken)
        else:
            place = rest.find(",") if "," in rest else len(rest)
            taken = rest[:place]
            if set(taken) & set('"\r\n'):
                raise BadError
            fields.append(None if taken == null else taken)
        if place == len(rest):
            return fields
        if rest[place] != ",":
            raise BadError
        rest = rest[place + 1 :]
