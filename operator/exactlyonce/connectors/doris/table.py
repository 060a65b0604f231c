"""A table of Doris as its `_schema` tells it: the model and the columns. Performs no I/O.

It tells no lengths, no digits of a second, no elements of an array, and not which columns may be NULL. What a column cannot
hold for one of those is left to the server, which is asked to refuse such rows (`strict_mode`, no filtered rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from exactlyonce.connectors.doris.answers import Unreadable

_MOST_COLUMNS = 4096
_MOST_NAME = 256


class KeysModel(Enum):
    """What a table does with rows of equal keys."""

    DUPLICATE = "DUP_KEYS"
    UNIQUE = "UNIQUE_KEYS"
    AGGREGATE = "AGG_KEYS"


@dataclass(frozen=True, slots=True)
class DorisColumn:
    """A column: its primitive type, such as DATEV2 or DECIMAL64; precision and scale of a decimal."""

    name: str
    type: str
    precision: int = 0
    scale: int = 0
    aggregation: str = ""

    @property
    def is_decimal(self) -> bool:
        """Whether it is a decimal of any size."""
        return self.type.startswith("DECIMAL")


@dataclass(frozen=True, slots=True)
class DorisTable:
    """A table's model and its columns, in their order."""

    model: KeysModel
    columns: tuple[DorisColumn, ...]

    def column(self, name: str) -> DorisColumn | None:
        """Return a column by its name, whose case does not count."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


def table_of(data: Any) -> DorisTable:
    """Return the table that the data of a `_schema` describe.

    Raises:
        Unreadable: if they describe none that takes loads, such as a view or a table of another database.
    """
    if not isinstance(data, dict) or not isinstance(data.get("properties"), list):
        raise Unreadable("no properties")
    try:
        model = KeysModel(data.get("keysType"))
    except ValueError:
        raise Unreadable("no keysType that takes loads") from None
    if not 0 < len(data["properties"]) <= _MOST_COLUMNS:
        raise Unreadable("no columns, or too many")
    return DorisTable(model, tuple(_column(one) for one in data["properties"]))


def _column(found: Any) -> DorisColumn:
    if not isinstance(found, dict):
        raise Unreadable("a column that is not a JSON object")
    name, kind = _text(found, "name"), _text(found, "type").upper()
    aggregation = found.get("aggregation_type") or ""
    if not isinstance(aggregation, str):
        raise Unreadable("an aggregation_type that is not a string")
    return DorisColumn(name, kind, _number(found, "precision"), _number(found, "scale"), aggregation)


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_NAME or not value.isprintable():
        raise Unreadable(f"a column without a {name}")
    return value


def _number(found: Mapping[str, Any], name: str) -> int:
    """Numbers are told as texts."""
    value = str(found.get(name) or 0)
    if not (value.isascii() and value.isdigit() and len(value) <= 3):
        raise Unreadable(f"a column whose {name} is not a number")
    return int(value)
