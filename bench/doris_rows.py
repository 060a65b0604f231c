"""The rows of the benchmark of Doris: orders, which are mostly text, and readings, which are many numbers.

Both `row` and `select` make the same row of a number; the second one is for Doris' own connector, whose rows Spark makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from exactlyonce_spark.connectors.doris.rows import json_lines

DATABASE = "bench"
USER, PASSWORD = "loader", "bench"
ARROW_ROWS = 10_000
"""What Spark puts into an Arrow batch (spark.sql.execution.arrow.maxRecordsPerBatch)."""


@dataclass(frozen=True)
class Kind:
    """Rows of a table: every value is text, as the fit hands it over; `texts` are the columns that no number gave."""

    table: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    row: Callable[[int], tuple[str, ...]]
    select: str


def _order(number: int) -> tuple[str, ...]:
    time_of_day = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    return (
        str(number),
        f"customer-{number % 9973:06d}-of-the-benchmark",
        f"{number % 100000}.{number % 100:02d}",
        f"2026-01-02 {time_of_day}",
    )


ORDERS = Kind(
    "orders",
    ("id", "customer", "amount", "ts"),
    ("customer",),
    _order,
    "SELECT id, concat('customer-', lpad(id % 9973, 6, '0'), '-of-the-benchmark') AS customer, "
    "concat(id % 100000, '.', lpad(id % 100, 2, '0')) AS amount, "
    "concat('2026-01-02 ', lpad(id div 3600 % 24, 2, '0'), ':', lpad(id div 60 % 60, 2, '0'), ':', "
    "lpad(id % 60, 2, '0')) AS ts FROM ids",
)

_WHOLE = tuple(f"whole_{number:02d}" for number in range(12))
_DECIMAL = tuple(f"decimal_{number:02d}" for number in range(12))


def _reading(number: int) -> tuple[str, ...]:
    whole = (str((number * (3 + place)) % 1_000_003) for place in range(len(_WHOLE)))
    decimals = (f"{(number * (5 + place)) % 10_007}.{number % 10_000:04d}" for place in range(len(_DECIMAL)))
    return (str(number), *whole, *decimals)


READINGS = Kind(
    "readings",
    ("id", *_WHOLE, *_DECIMAL),
    (),
    _reading,
    "SELECT id, "
    + ", ".join(
        (
            *(f"(id * {3 + place}) % 1000003 AS {name}" for place, name in enumerate(_WHOLE)),
            *(
                f"concat((id * {5 + place}) % 10007, '.', lpad(id % 10000, 4, '0')) AS {name}"
                for place, name in enumerate(_DECIMAL)
            ),
        )
    )
    + " FROM ids",
)
KINDS = (ORDERS, READINGS)


@dataclass
class Parts:
    """The rows of one batch, by connection, as Arrow batches and as files of JSON lines."""

    arrow: list[list[pa.RecordBatch]]
    files: list[Path]

    @staticmethod
    def of(kind: Kind, rows: int, connections: int, folder: Path) -> Parts:
        """Make them."""
        parts = Parts([], [])
        for part in range(connections):
            found = [kind.row(number) for number in range(part, rows, connections)]
            values = (pa.array(column, pa.string()) for column in zip(*found, strict=True))
            whole = pa.table(dict(zip(kind.columns, values, strict=True)))
            parts.arrow.append(whole.to_batches(max_chunksize=ARROW_ROWS))
            parts.files.append(folder / f"{kind.table}-{part}.json")
            parts.files[-1].write_bytes(b"".join(json_lines(found, kind.columns, ())))
        return parts

    @property
    def bytes_of_json(self) -> int:
        """The size of the files."""
        return sum(file.stat().st_size for file in self.files)
