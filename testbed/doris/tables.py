"""Tables of the stand-in: their columns, what a value becomes in one, and their rows in SQLite."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "LARGEINT": 128}
_DIGITS = Context(prec=100)
"""More digits than any column has; Python's own context has 28."""


class BadValue(ValueError):
    """A value that its column cannot hold."""


@dataclass(frozen=True)
class Column:
    """A column; `type` is the primitive type as `_schema` tells it, `length` that of a VARCHAR or CHAR, in bytes."""

    name: str
    type: str
    is_key: bool = False
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    length: int = 0
    aggregation: str = ""

    def to_document(self) -> dict[str, str]:
        """Return it as `_schema` does. fe/fe-core/…/httpv2/rest/TableSchemaAction.java: no lengths, no word on NULLs."""
        document = {"type": self.type, "comment": "", "name": self.name, "aggregation_type": self.aggregation}
        if self.type.startswith("DECIMAL"):
            document |= {"precision": str(self.precision), "scale": str(self.scale)}
        return document

    def converted(self, value: Any) -> Any:
        """Return a value as SQLite keeps it.

        docs/data-operate/import/load-strict-mode.md: what cannot be converted becomes NULL; in strict mode, its row is bad.

        Raises:
            BadValue: if it cannot be converted.
        """
        if value is None:
            return None
        try:
            return self._converted(value)
        except (ValueError, TypeError, InvalidOperation, OverflowError) as problem:
            raise BadValue(f"the value of column {self.name} cannot be a {self.type}") from problem

    def _converted(self, value: Any) -> Any:
        if self.type in _INTEGER_BITS:
            return self._integer(value)
        if self.type.startswith("DECIMAL"):
            return self._decimal(value)
        if self.type.startswith("DATETIME"):
            return datetime.datetime.fromisoformat(str(value)).isoformat(" ", "microseconds")
        if self.type.startswith("DATE"):
            return datetime.date.fromisoformat(str(value)).isoformat()
        if self.type in ("FLOAT", "DOUBLE"):
            return float(value)
        if self.type == "BOOLEAN":
            return _boolean(str(value).lower())
        if self.type in ("JSON", "JSONB", "VARIANT", "ARRAY", "MAP", "STRUCT"):
            return json.dumps(json.loads(value) if isinstance(value, str) else value, ensure_ascii=False)
        return self._text(value)

    def _integer(self, value: Any) -> Any:
        number, bits = int(str(value)), _INTEGER_BITS[self.type]
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise BadValue("out of range")
        return str(number) if bits > 64 else number

    def _decimal(self, value: Any) -> str:
        number = Decimal(str(value)).quantize(Decimal(1).scaleb(-self.scale), ROUND_HALF_UP, _DIGITS)
        if len(number.as_tuple().digits) > self.precision and abs(number) >= Decimal(10) ** (
            self.precision - self.scale
        ):
            raise BadValue("out of range")
        return f"{number:f}"

    def _text(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if self.length and len(text.encode()) > self.length:
            raise BadValue("the length of input is too long than schema")
        return text


def _boolean(text: str) -> int:
    if text not in ("true", "false", "1", "0"):
        raise BadValue("no boolean")
    return int(text in ("true", "1"))


@dataclass(frozen=True)
class Table:
    """A table; `keys` is DUP_KEYS, UNIQUE_KEYS or AGG_KEYS, as fe/fe-core/…/catalog/KeysType.java names the three models."""

    name: str
    columns: tuple[Column, ...]
    keys: str = "DUP_KEYS"
    has_sequence: bool = False
    """Whether loads have to say by which column rows of one key are chosen (docs/…/sequence-column-manual.md)."""

    def to_document(self) -> dict[str, Any]:
        """Return what `_schema` says of it."""
        columns = [column.to_document() for column in self.columns]
        return {"status": 200, "tableType": "OLAP", "keysType": self.keys, "properties": columns}


@dataclass
class Rows:
    """All rows, in one SQLite database; whoever calls holds the stand-in's lock."""

    database: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:", check_same_thread=False))

    def __post_init__(self) -> None:
        self.database.execute("create table prepared (load integer, target text, place integer, content text)")

    def create(self, database: str, table: Table) -> None:
        """Create a table."""
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        keys = ", ".join(f'"{column.name}"' for column in table.columns if column.is_key)
        unique = f", primary key ({keys})" if table.keys != "DUP_KEYS" else ""
        self.database.execute(f'create table "{database}.{table.name}" ({columns}{unique})')

    def keep(self, load: int, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows of a load, where no query sees them."""
        self.database.executemany(
            "insert into prepared values (?, ?, ?, ?)",
            [(load, table, place, json.dumps(row)) for place, row in enumerate(rows)],
        )

    def drop(self, load: int) -> None:
        """Forget the rows of a load."""
        self.database.execute("delete from prepared where load = ?", (load,))

    def show(self, database: str, table: Table, load: int) -> None:
        """Let queries see the rows of a load. docs/table-design/data-model: what each model does with equal keys."""
        found = self.database.execute("select content from prepared where load = ? order by place", (load,)).fetchall()
        for (content,) in found:
            self._insert(f"{database}.{table.name}", table, json.loads(content))
        self.drop(load)

    def select(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Answer a query over `"database.table"`."""
        return self.database.execute(statement, parameters).fetchall()

    def _insert(self, name: str, table: Table, row: Mapping[str, Any]) -> None:
        columns = [column for column in table.columns if column.name in row]
        names, marks = ", ".join(f'"{column.name}"' for column in columns), ", ".join("?" for _ in columns)
        statement = f'insert into "{name}" ({names}) values ({marks})'
        if table.keys != "DUP_KEYS":
            keys = ", ".join(f'"{column.name}"' for column in table.columns if column.is_key)
            changes = [_change(column) for column in columns if not column.is_key]
            statement += f" on conflict ({keys}) do " + (f"update set {', '.join(changes)}" if changes else "nothing")
        self.database.execute(statement, [row[column.name] for column in columns])


def _change(column: Column) -> str:
    """What the value of a column becomes. docs/table-design/data-model/aggregate.md: SUM, MAX, MIN, REPLACE."""
    name = f'"{column.name}"'
    match column.aggregation:
        case "SUM":
            return f"{name} = coalesce({name}, 0) + coalesce(excluded.{name}, 0)"
        case "MAX" | "MIN" as function:
            return f"{name} = {function.lower()}({name}, excluded.{name})"
        case "REPLACE_IF_NOT_NULL":
            return f"{name} = coalesce(excluded.{name}, {name})"
        case _:
            return f"{name} = excluded.{name}"
