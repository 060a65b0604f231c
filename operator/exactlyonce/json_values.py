"""The values of a JSON document that others may write, each of the type that belongs there. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

Found = TypeVar("Found")


class WrongType(ValueError):
    """A value is of another type than the one that belongs there."""


def whole_number(value: object) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value, "a whole number")
    return value


def count(value: object) -> int:
    """Return a whole number that is not negative."""
    found = whole_number(value)
    if found < 0:
        raise WrongType("a negative number stands where only others belong")
    return found


def text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise _wrong(value, "a text")
    return value


def truth(value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def moment(value: object) -> datetime:
    """Return a moment; text without a time zone is refused."""
    found = datetime.fromisoformat(text(value))
    if found.tzinfo is None:
        raise WrongType("a moment has no time zone")
    return found


def fields(value: object) -> Mapping[str, Any]:
    """Return an object's fields."""
    if not isinstance(value, dict):
        raise _wrong(value, "an object")
    return value


def items(value: object, length: int | None = None) -> Sequence[Any]:
    """Return a list, of the length that is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise _wrong(value, "a list" if length is None else f"a list of {length}")
    return value


def optional(read: Callable[[object], Found], value: object) -> Found | None:
    """Return None for null, and otherwise what `read` makes of the value."""
    return None if value is None else read(value)


def _wrong(value: object, expected: str) -> WrongType:
    """Say what is wrong without what is there, which may be long, or a secret."""
    return WrongType(f"{expected} belongs where a {type(value).__name__} stands")
