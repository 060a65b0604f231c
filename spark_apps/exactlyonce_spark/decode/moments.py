"""Moments and days: from texts in ISO 8601, and from numbers, to microseconds and days since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

from exactlyonce_spark.decode.malformed import Malformed, shown
from exactlyonce_spark.decode.numbers import scaled
from exactlyonce_spark.decode.rules import Rules

MICROSECONDS = 1_000_000
LEAST_MOMENT, MOST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970."""

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_number(text: str) -> bool:
    """Whether a text is a number, whatever it counts."""
    return _NUMBER.fullmatch(text) is not None


def moment_of_text(text: str, rules: Rules, *, with_zone: bool) -> int:
    """Return the microseconds since 1970 of a moment; `with_zone` for TIMESTAMP, without for TIMESTAMP_NTZ."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise Malformed(f"{shown(text)} is not a time like 2026-01-02T03:04:05.678Z")
    *parts, fraction, offset = match.groups(default="")
    if offset and not with_zone:
        raise Malformed(f"{shown(text)} has an offset, and TIMESTAMP_NTZ is a time without a zone")
    try:
        local = datetime(*(int(part or 0) for part in parts))  # type: ignore[arg-type]
    except ValueError as problem:
        raise Malformed(f"{shown(text)} is not a time: {problem}") from None
    micros = _micros(fraction, text)
    if not with_zone:
        zone = UTC
    elif offset:
        zone = _fixed(offset)
    else:
        zone = _in_zone(local, rules, text)
    found = (local.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) + micros - zone_micros(zone)
    return _within_years(found, text)


def _micros(fraction: str, text: str) -> int:
    if len(fraction.rstrip("0")) > 6:
        raise Malformed(f"{shown(text)} is more exact than a microsecond")
    return int(fraction[:6].ljust(6, "0"))


def zone_micros(offset: timezone) -> int:
    """Return an offset in microseconds."""
    return offset.utcoffset(None) // timedelta(microseconds=1)


def _fixed(offset: str) -> timezone:
    if offset == "Z":
        return UTC
    digits = offset[1:].replace(":", "").ljust(4, "0")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-span if offset[0] == "-" else span)


def offset_in_zone(local: datetime, rules: Rules) -> timedelta | None:
    """Return the zone's offset at a local time; None if that time happens twice there, or never."""
    zone = rules.time_zone
    first, second = local.replace(tzinfo=zone, fold=0).utcoffset(), local.replace(tzinfo=zone, fold=1).utcoffset()
    return first if first == second else None


def _in_zone(local: datetime, rules: Rules, text: str) -> timezone:
    offset = offset_in_zone(local, rules)
    if offset is None:
        raise Malformed(f"{shown(text)} happens twice or never in {rules.zone}; a time with an offset is unambiguous")
    return timezone(offset)


def _within_years(micros: int, text: str) -> int:
    if not LEAST_MOMENT <= micros <= MOST_MOMENT:
        raise Malformed(f"{shown(text)} is outside of the years 1 to 9999")
    return micros


def moment_of_number(text: str, rules: Rules) -> int:
    """Return the microseconds since 1970 of a number, which counts what the rules say."""
    unit = rules.timestamp_unit
    if unit is None:
        raise Malformed(f"{shown(text)} is a number, and nothing says what it counts; set format.timestampUnit")
    micros = scaled(text, MICROSECONDS, unit.value)
    if micros is None:
        raise Malformed(
            f"{shown(text)} {unit.name.lower()} are more exact than a microsecond, or outside of the years 1 to 9999"
        )
    return _within_years(micros, text)


def day_of_text(text: str) -> int:
    """Return the days since 1970 of YYYY-MM-DD."""
    match = _DAY.fullmatch(text)
    if match is None:
        raise Malformed(f"{shown(text)} is not a day like 2026-01-02")
    try:
        return (date(*(int(part) for part in match.groups())) - _EPOCH.date()).days
    except ValueError as problem:
        raise Malformed(f"{shown(text)} is not a day: {problem}") from None
