"""Many texts of one column at once. Arrow's casts are lenient, so they get only texts whose form is approved.

What is not approved is doubtful: `values.py` takes it, or says why not.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import assert_never

import numpy as np
import numpy.typing as npt

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
from exactlyonce_spark.decode import moments
from exactlyonce_spark.decode.arrow import Array, DataType, pa, pc
from exactlyonce_spark.decode.arrow_types import arrow_type
from exactlyonce_spark.decode.rules import Rules

Doubt = npt.NDArray[np.bool_]
"""For each value, whether it has to be looked at by itself."""

_NUMBER = r"\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?\z"
_DAY = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_EVERY_MONTH = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_WHOLE = (r"\A-?(?:0|[1-9][0-9]{0,18})\z", r"\A-?(?:0|[1-9][0-9]{0,17})\z")
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_MOMENT_WITH_OFFSET = (rf"\A{_DAY}[T ]{_TIME}{_OFFSET}\z", rf"\A{_EVERY_MONTH}[T ]{_TIME}{_OFFSET}\z")
_MOMENT_WITHOUT = (rf"\A{_DAY}[T ]{_TIME}\z", rf"\A{_EVERY_MONTH}[T ]{_TIME}\z")
_ONLY_DAY = (rf"\A{_DAY}\z", rf"\A{_EVERY_MONTH}\z")
_LEAST_DAY = -719_162


def typed(texts: Array, type_: ColumnType, rules: Rules) -> tuple[Array, Doubt]:
    """Return the column, in which a doubtful value is NULL, and which ones are doubtful; `texts` is of type string."""
    match type_:
        case TextType(most):
            if most is None:
                return texts, nothing(len(texts))
            return _approved(texts, pc.less_equal(pc.utf8_length(texts), most), lambda it: it)
        case IntegerType():
            return _integers(texts, type_)
        case DecimalType():
            return _decimals(texts, type_)
        case FloatingType():
            return _floats(texts, type_)
        case PlainType():
            return _plain(texts, type_, rules)
        case StructType() | ArrayType() | MapType():
            return pa.nulls(len(texts), arrow_type(type_)), _valid(texts)
        case _:
            assert_never(type_)


def nothing(count: int) -> Doubt:
    """Return that none of so many values is doubtful."""
    return np.zeros(count, np.bool_)


def _valid(array: Array) -> Doubt:
    return as_numpy(array.is_valid())


def as_numpy(booleans: Array) -> Doubt:
    """Return booleans; NULL is false."""
    found: Doubt = booleans.fill_null(False).to_numpy(zero_copy_only=False)
    return found.astype(np.bool_, copy=False)


def _approved(texts: Array, approved: Array, cast: Callable[[Array], Array]) -> tuple[Array, Doubt]:
    """Cast what is approved; `approved` is NULL where the text is."""
    if approved.true_count + approved.null_count == len(approved):
        return cast(texts), nothing(len(texts))
    return cast(pc.if_else(approved, texts, None)), as_numpy(pc.invert(approved))


def _matched(texts: Array, type_: DataType, pattern: str, narrower: str = "") -> tuple[Array, Doubt]:
    """Cast the texts that match. Where Arrow refuses one whose form allowed it, as on 30 February, the narrower form counts."""
    for form in filter(None, (pattern, narrower)):
        try:
            return _approved(texts, pc.match_substring_regex(texts, form), lambda it: it.cast(type_))
        except pa.ArrowInvalid:
            continue
    return pa.nulls(len(texts), type_), _valid(texts)


def without(array: Array, doubt: Doubt, more: Doubt) -> tuple[Array, Doubt]:
    """Make more values doubtful."""
    if not more.any():
        return array, doubt
    return pc.if_else(pa.array(~more), array, None), doubt | more


def _integers(texts: Array, type_: IntegerType) -> tuple[Array, Doubt]:
    return narrowed(*_matched(texts, pa.int64(), *_WHOLE), type_)


def narrowed(array: Array, doubt: Doubt, type_: IntegerType) -> tuple[Array, Doubt]:
    """Return 64-bit numbers as those of the column; what is out of its range is doubtful."""
    if type_ is IntegerType.BIGINT:
        return array, doubt
    outside = pc.or_(pc.less(array, type_.least), pc.greater(array, type_.most))
    array, doubt = without(array, doubt, as_numpy(outside))
    return array.cast(arrow_type(type_)), doubt


def _decimals(texts: Array, type_: DecimalType) -> tuple[Array, Doubt]:
    whole = type_.precision - type_.scale
    before = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    after = rf"(?:\.[0-9]{{1,{type_.scale}}}0*)?" if type_.scale else r"(?:\.0+)?"
    return _matched(texts, arrow_type(type_), rf"\A-?{before}{after}\z")


def _floats(texts: Array, type_: FloatingType) -> tuple[Array, Doubt]:
    array, doubt = _matched(texts, arrow_type(type_), _NUMBER)
    # The whole number -0 has no sign; what overflows is malformed.
    return without(array, doubt, as_numpy(pc.or_(pc.equal(texts, "-0"), pc.is_inf(array))))


def rounded(numbers: Array, type_: FloatingType) -> tuple[Array, Doubt]:
    """Return DOUBLEs as the column has them; doubtful is what may have been rounded twice, or overflows."""
    if type_ is FloatingType.DOUBLE:
        return numbers, nothing(len(numbers))
    doubles = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", under="ignore"):
        floats = doubles.astype(np.float32)
    middle = (doubles.view(np.uint64) & np.uint64((1 << 29) - 1)) == np.uint64(1 << 28)
    small = (np.abs(doubles) < np.finfo(np.float32).tiny) & (floats != doubles)
    return without(pa.array(floats, mask=~_valid(numbers)), nothing(len(numbers)), middle | small | np.isinf(floats))


def _plain(texts: Array, type_: PlainType, rules: Rules) -> tuple[Array, Doubt]:
    match type_:
        case PlainType.BOOLEAN:
            is_true = pc.equal(texts, "true")
            return without(is_true, nothing(len(texts)), as_numpy(pc.invert(pc.or_(is_true, pc.equal(texts, "false")))))
        case PlainType.BINARY:
            return _binaries(texts)
        case PlainType.DATE:
            days, doubt = _matched(texts, pa.date32(), *_ONLY_DAY)
            return without(days, doubt, as_numpy(pc.less(days.cast(pa.int32()), _LEAST_DAY)))
        case PlainType.TIMESTAMP_NTZ:
            return _within_years(*_matched(texts, arrow_type(type_), *_MOMENT_WITHOUT))
        case PlainType.TIMESTAMP:
            found, doubt = _within_years(*_moments(texts))
            if doubt.any():
                return _with_local_times(texts, found, doubt, rules)
            return found, doubt
        case _:
            assert_never(type_)


def _moments(texts: Array) -> tuple[Array, Doubt]:
    """Take times with an offset; where all are written alike, as one program writes them, one comparison approves them all."""
    type_ = arrow_type(PlainType.TIMESTAMP)
    if _have_one_form(texts):
        with suppress(pa.ArrowInvalid):
            return texts.cast(type_), nothing(len(texts))
    return _matched(texts, type_, *_MOMENT_WITH_OFFSET)


def _have_one_form(texts: Array) -> bool:
    """Whether all texts are like 2026-01-02T03:04:05Z, with the same number of digits for fractions of a second."""
    if texts.null_count or not len(texts):
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    length = int(offsets[1] - offsets[0])
    form = _FORMS.get(length)
    if form is None or not (np.diff(offsets) == length).all():
        return False
    least, span = form
    grid = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, length)
    return bool((grid - least <= span).all())


def _forms() -> Mapping[int, tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]:
    """Return for each length the least byte at each place, and how much greater it may be."""
    found = {}
    for digits in (0, *range(1, 7)):
        form = "0000-00-00T00:00:00" + ("." + "0" * digits if digits else "") + "Z"
        least = np.frombuffer(form.encode(), np.uint8)
        found[len(form)] = (least, np.where(least == ord("0"), 9, 0).astype(np.uint8))
    return found


_FORMS = _forms()


def _within_years(array: Array, doubt: Doubt) -> tuple[Array, Doubt]:
    numbers = array.view(pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= moments.LEAST_MOMENT and bounds["max"] <= moments.MOST_MOMENT):
        return array, doubt
    outside = pc.or_(pc.less(numbers, moments.LEAST_MOMENT), pc.greater(numbers, moments.MOST_MOMENT))
    return without(array, doubt, as_numpy(outside))


def _with_local_times(texts: Array, found: Array, doubt: Doubt, rules: Rules) -> tuple[Array, Doubt]:
    """Take the times that have no offset as the zone has them, and numbers as the unit says."""
    local, local_doubt = _matched(texts, pa.timestamp("us"), *_MOMENT_WITHOUT)
    if rules.time_zone is not UTC and local.null_count < len(local):
        local, more = _in_zone(local, rules)
        local, local_doubt = without(local, local_doubt, more)
    local, local_doubt = _within_years(local, local_doubt)
    found, doubt = pc.coalesce(found, local.cast(found.type)), doubt & local_doubt
    if rules.timestamp_unit is not None and doubt.any():
        numbers, number_doubt = _matched(texts, pa.int64(), *_WHOLE)
        counted, more = of_unit(numbers, rules)
        found, doubt = pc.coalesce(found, counted), doubt & (number_doubt | more)
    return found, doubt


def of_unit(numbers: Array, rules: Rules) -> tuple[Array, Doubt]:
    """Return moments that 64-bit numbers count; doubtful are those outside of the years, or not of whole microseconds."""
    assert rules.timestamp_unit is not None
    per_second, micros = rules.timestamp_unit.value, moments.MICROSECONDS
    if per_second == micros:
        return _within_years(numbers.view(pa.timestamp("us", "UTC")), nothing(len(numbers)))
    if per_second > micros:
        divisor = per_second // micros
        whole = pc.divide(numbers, divisor)
        off = pc.not_equal(pc.multiply(whole, divisor), numbers)
    else:
        factor = micros // per_second
        off = pc.greater(
            pc.abs_checked(pc.if_else(pc.equal(numbers, -(2**63)), 0, numbers)), moments.MOST_MOMENT // factor + 1
        )
        off = pc.or_(off, pc.equal(numbers, -(2**63)))
        whole = pc.multiply(pc.if_else(off, 0, numbers), factor)
    doubt = as_numpy(off)
    whole, doubt = without(whole, doubt, doubt)
    return _within_years(whole.cast(pa.timestamp("us", "UTC")), doubt)


def _in_zone(local: Array, rules: Rules) -> tuple[Array, Doubt]:
    """Shift local times by the zone's offset, which is asked once for each second that occurs."""
    micros = local.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    seconds, places = np.unique(np.floor_divide(micros, moments.MICROSECONDS), return_inverse=True)
    offsets = [moments.offset_in_zone(datetime(1970, 1, 1) + timedelta(seconds=int(it)), rules) for it in seconds]
    shifts = np.array([0 if it is None else it // timedelta(microseconds=1) for it in offsets], np.int64)[places]
    unclear = np.array([it is None for it in offsets], np.bool_)[places] & _valid(local)
    return pa.array(micros - shifts, mask=~_valid(local)).cast(local.type), unclear


def _binaries(texts: Array) -> tuple[Array, Doubt]:
    """Base64 has no kernel of Arrow's; what does not come back as it was is doubtful."""
    found: list[bytes | None] = [None if text is None else _decoded(text) for text in texts.to_pylist()]
    doubt = np.fromiter((it is None for it in found), np.bool_, len(found)) & _valid(texts)
    return pa.array(found, pa.binary()), doubt


def _decoded(text: str) -> bytes | None:
    try:
        given = text.encode("ascii")
        found = binascii.a2b_base64(given, strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return found if binascii.b2a_base64(found, newline=False) == given else None


def rows_of(lengths: Sequence[int] | npt.NDArray[np.int64], doubt: Doubt) -> Doubt:
    """Return which of several lists, one after the other, has a doubtful element."""
    parents = np.repeat(np.arange(len(lengths)), lengths)
    found = nothing(len(lengths))
    found[parents[doubt]] = True
    return found
