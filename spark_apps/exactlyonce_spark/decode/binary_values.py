"""Values of formats that are not text: the same table as `values.py`, from numbers and bytes."""

from __future__ import annotations

import math
from decimal import Context, Decimal

from exactlyonce.api.columns import ColumnType, DecimalType, FloatingType, IntegerType, PlainType, TextType
from exactlyonce_spark.decode import moments
from exactlyonce_spark.decode.malformed import Malformed
from exactlyonce_spark.decode.numbers import floating
from exactlyonce_spark.decode.rules import Rules, TimestampUnit

_EXACT = Context(prec=400)
_LEAST_DAY, _MOST_DAY = -719_162, 2_932_896


def whole(value: int, type_: ColumnType, rules: Rules, unit: TimestampUnit | None = None) -> object:
    """Return a whole number as an integer, a decimal, a day or a moment; `unit` is what the format says that it counts."""
    match type_:
        case IntegerType():
            if not type_.least <= value <= type_.most:
                raise Malformed(f"{value} is outside of {type_} ({type_.least} to {type_.most})")
            return value
        case DecimalType():
            return decimal(value, 0, type_)
        case PlainType.DATE:
            if not _LEAST_DAY <= value <= _MOST_DAY:
                raise Malformed(f"{value} days since 1970 are outside of the years 1 to 9999")
            return value
        case PlainType.TIMESTAMP | PlainType.TIMESTAMP_NTZ:
            return moments.moment_of_number(str(value), Rules(timestamp_unit=unit) if unit else rules)
        case _:
            raise Malformed(f"{value} is a number, not a value of {type_}")


def decimal(unscaled: int, scale: int, type_: DecimalType) -> Decimal:
    """Return a decimal exactly."""
    value = Decimal(unscaled).scaleb(-scale, _EXACT)
    shifted = unscaled * 10 ** max(0, type_.scale - scale)
    rest = 0 if scale <= type_.scale else unscaled % 10 ** (scale - type_.scale)
    shifted = shifted // 10 ** max(0, scale - type_.scale)
    if rest:
        raise Malformed(f"{value:f} has more digits than {type_}")
    if abs(shifted) >= 10**type_.precision:
        raise Malformed(f"{value:f} is too large for {type_}")
    return Decimal(shifted).scaleb(-type_.scale, _EXACT)


def number(value: float, type_: FloatingType, rules: Rules) -> float:
    """Return a floating-point number as the column has it."""
    if not math.isfinite(value):
        return floating(
            repr(value).replace("inf", "Infinity").replace("nan", "NaN"), type_, not_a_number=rules.not_a_number
        )
    return floating(repr(value), type_, not_a_number=rules.not_a_number) if type_ is FloatingType.FLOAT else value


def text(value: bytes, type_: TextType) -> str:
    """Return a text that fits its column."""
    try:
        found = value.decode()
    except UnicodeDecodeError:
        raise Malformed("the text is not UTF-8") from None
    if type_.most is not None and len(found) > type_.most:
        raise Malformed(f"the text has {len(found)} characters, more than {type_}")
    return found
