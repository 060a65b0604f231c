"""Turn Arrow batches into the text that COPY reads, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg2.extensions
import pyarrow as pa
import pyarrow.csv
from psycopg2 import sql

from exactlyonce_spark.connectors.postgres.table import TargetUnfit
from exactlyonce_spark.crash_points import reached

CHUNK_BYTES = 1 << 17
_LEAVES_OUT = (
    "A trigger BEFORE INSERT or BEFORE UPDATE that returns NULL, or a rule, leaves rows out: drop it, and filter in "
    "transform.sql instead. To find it: select tgrelid::regclass, tgname from pg_trigger where tgtype & 2 = 2 and not "
    "tgisinternal."
)
_PLAIN = pa.csv.WriteOptions(include_header=False, quoting_style="needed")


def copy_rows(
    cursor: psycopg2.extensions.cursor,
    table: sql.Identifier,
    columns: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    batch_number: int,
) -> int:
    """COPY Arrow batches into the columns of a table, in their order, and return how many rows they are.

    Text is quoted and NULL is empty without quotes, which is how COPY's CSV tells the two apart.

    Raises:
        TargetUnfit: if the table does not take all of them.
    """
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    statement = sql.SQL("copy {} ({}) from stdin with (format csv)").format(table, names)
    reader = _CsvReader(batches, batch_number)
    cursor.copy_expert(statement, reader, size=CHUNK_BYTES)  # type: ignore[arg-type] # of a file it uses read alone
    require_all_taken(table, reader.rows, cursor.rowcount)
    return reader.rows


def require_all_taken(table: sql.Identifier, written: int, taken: int) -> None:
    """Require that a table has taken every row that was written to it; the transaction rolls back otherwise.

    Raises:
        TargetUnfit: a trigger or a rule leaves rows out, which are lost rows to whoever counts them.
    """
    if taken != written:
        name = ".".join(table.strings)
        raise TargetUnfit(f"The table {name} took {taken} of {written} rows; nothing was written. {_LEAVES_OUT}")


def require_none_left_out(table: sql.Identifier, keys: int, left_out: int) -> None:
    """Require that each key which was upserted or merged took effect, or had no effect to take.

    Raises:
        TargetUnfit: as for rows that are appended.
    """
    if left_out:
        name = ".".join(table.strings)
        raise TargetUnfit(f"The table {name} left out {left_out} of {keys} keys; nothing was written. {_LEAVES_OUT}")


def quoted_name(table: sql.Identifier) -> str:
    """Return a table's name as SQL quotes it, for a parameter of type regclass."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.strings)


class _CsvReader:
    """A file as psycopg2 reads one; asks for the next Arrow batch when the last one's text is used up."""

    def __init__(self, batches: Iterable[pa.RecordBatch], batch_number: int) -> None:
        self.rows = 0
        self._batches = iter(batches)
        self._batch_number = batch_number
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end."""
        while not self._rest:
            batch = next(self._batches, None)
            if batch is None:
                return b""
            if batch.num_rows:
                self._rest = memoryview(_as_csv(batch))
                self.rows += batch.num_rows
                reached("task.copying", self._batch_number)
        chunk, self._rest = self._rest[:size], self._rest[size:]
        return bytes(chunk)


def _as_csv(batch: pa.RecordBatch) -> pa.Buffer:
    output = pa.BufferOutputStream()
    pa.csv.write_csv(batch, output, _PLAIN)
    return output.getvalue()
