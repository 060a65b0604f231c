"""Which values are UTF-8. Arrow says only that one of many is not."""

from __future__ import annotations

from exactlyonce_spark.decode.arrow import Array, pa


def texts(values: Array) -> Array:
    """Return values as texts; NULL where one is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value if _is_utf8(value) else None for value in values.to_pylist()], pa.binary()).cast(
            pa.string()
        )


def others(values: Array) -> list[int]:
    """Return the places of the values that are not UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return [place for place, value in enumerate(values.to_pylist()) if not _is_utf8(value)]
    return []


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
