"""Numbers as texts: exact decimals of any length, and the nearest binary floating-point number."""

from __future__ import annotations

import re
from decimal import Context, Decimal

import numpy as np

from exactlyonce.api.columns import DecimalType, FloatingType, IntegerType
from exactlyonce_spark.decode.malformed import Malformed, shown

NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
"""A number as JSON has it: no blank, no leading zero, no plus sign, no grouping."""
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MOST_EXPONENT_DIGITS = 9
_NOT_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_EXACT = Context(prec=400)
_FLOAT_MOST = float(np.finfo(np.float32).max)
_FLOAT_BOUND = 2.0**128 - 2.0**103
"""The first number whose nearest FLOAT is beyond the largest one."""


def integer(text: str, type_: IntegerType) -> int:
    """Return a whole number that fits its column."""
    if _INTEGER.fullmatch(text) is None:
        raise Malformed(f"{shown(text)} is not a whole number")
    if len(text) > 20 or not type_.least <= (found := int(text)) <= type_.most:
        raise Malformed(f"{shown(text)} is outside of {type_} ({type_.least} to {type_.most})")
    return found


def _parts(text: str) -> tuple[str, str, int] | None:
    """Return sign, significant digits and the power of ten of the last one; None if the text is not a number.

    Digits of zero are empty. An exponent too long to count with is as far out as one that is not.
    """
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, written = match.groups(default="")
    exponent = 0
    if written:
        digits = written.lstrip("+-").lstrip("0")
        size = int(digits or "0") if len(digits) <= _MOST_EXPONENT_DIGITS else 10**_MOST_EXPONENT_DIGITS
        exponent = -size if written[0] == "-" else size
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    return sign, significant, exponent - len(fraction) + len(digits) - len(significant)


def decimal(text: str, type_: DecimalType) -> Decimal:
    """Return a decimal that is exactly the text."""
    parts = _parts(text)
    if parts is None:
        raise Malformed(f"{shown(text)} is not a plain decimal number like -1234.50")
    sign, digits, power = parts
    if not digits:
        return Decimal(0)
    if power < -type_.scale:
        raise Malformed(f"{shown(text)} has more digits than {type_}")
    if len(digits) + power > type_.precision - type_.scale:
        raise Malformed(f"{shown(text)} is too large for {type_}")
    return Decimal(int(sign + digits)).scaleb(power, _EXACT)


def scaled(text: str, numerator: int, denominator: int) -> int | None:
    """Return a number times a fraction; None if it is a fraction, or has more digits than any moment."""
    parts = _parts(text)
    if parts is None:
        return None
    sign, digits, power = parts
    if not digits:
        return 0
    if len(digits) > 30 or len(digits) + power > 22 or power < -22:
        return None
    value = int(sign + digits) * numerator
    value, divisor = (value * 10**power, denominator) if power >= 0 else (value, denominator * 10**-power)
    return value // divisor if value % divisor == 0 else None


def floating(text: str, type_: FloatingType, *, not_a_number: bool) -> float:
    """Return the nearest number that the column holds; -0 without a fraction is the whole number 0."""
    if text in _NOT_NUMBERS:
        if not_a_number:
            return _NOT_NUMBERS[text]
        raise Malformed(f"{text} is not a number; the option allowNonNumericNumbers lets it in")
    if NUMBER.fullmatch(text) is None:
        raise Malformed(f"{shown(text)} is not a number like -1234.5 or 1.5e-3")
    found = 0.0 if text == "-0" else float(text)
    if type_ is FloatingType.FLOAT:
        found = _nearest_float(found, text)
    if found in (float("inf"), float("-inf")):
        raise Malformed(f"{shown(text)} is too large for {type_}")
    return found


def _nearest_float(found: float, text: str) -> float:
    """Round to a FLOAT once: by way of a DOUBLE, a number near the middle of two is rounded twice."""
    magnitude = abs(found)
    with np.errstate(over="ignore"):
        nearest = abs(float(np.float32(found)))
    if magnitude == nearest or magnitude == float("inf"):
        return float(np.copysign(nearest, found))
    if nearest > _FLOAT_MOST:
        other, middle = _FLOAT_MOST, _FLOAT_BOUND
    else:
        other = float(np.nextafter(np.float32(nearest), np.float32(np.inf if magnitude > nearest else 0)))
        middle = _FLOAT_BOUND if other == float("inf") else (nearest + other) / 2
    if magnitude == middle:
        exact = Decimal(text).copy_abs()
        if exact != Decimal(middle):
            nearest = max(nearest, other) if exact > Decimal(middle) else min(nearest, other)
    return float(np.copysign(nearest, found))
