"""What a stream says of Postgres: its table, how rows are written, the ledger's schema."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field

from exactlyonce.connectors.postgres.ledger_spec import SECRET_KEYS, LedgerInPostgres, LedgerSchema
from exactlyonce.connectors.postgres.stream_rules import STREAM_RULES
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import Duration, Model, SecretRef, within

_NAME = r'([^."\x00]{1,63}|"([^"\x00]|""){1,63}")'
_SOME_KEYS = "has(self.keys) && size(self.keys) > 0"

TableName = Annotated[
    str,
    Field(min_length=1, max_length=260),
    matches(rf"{_NAME}(\.{_NAME})?", "write it as table or schema.table, and a name with a dot in double quotes"),
]
ColumnName = Annotated[str, Field(min_length=1, max_length=63)]


_PLACE = "table "


def names_in(table: str) -> tuple[str, ...]:
    """Return the names of which a table's name, or its landing place, consists, without their quotes."""
    found = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', table.removeprefix(_PLACE))
    return tuple(quoted.replace('""', '"') if quoted else plain for quoted, plain in found)


class Write(StrEnum):
    """How rows go into the table."""

    APPEND = "Append"
    UPSERT = "Upsert"
    MERGE = "Merge"


class Combine(StrEnum):
    """How Merge combines a column's old value with a new one."""

    SUM = "Sum"
    MIN = "Min"
    MAX = "Max"
    LAST = "Last"
    FIRST = "First"


class MergedColumn(Model):
    """How one column is merged."""

    column: ColumnName = Field(description="The column's name.")
    combine: Combine = Field(description="How its old value is combined with the new one.")


class PostgresSink(Model):
    """Rows of a Postgres table; the ledger is in the same database."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    fixed_fields: ClassVar[tuple[str, ...]] = ("table", "ledgerSchema")
    holds_ledger: ClassVar[bool] = True
    two_phases: ClassVar[bool] = False
    tells_latest_load: ClassVar[bool] = False
    folder_field: ClassVar[str | None] = None

    secret_ref: SecretRef = Field(description=f"The login; the keys read are {', '.join(SECRET_KEYS)}.")
    table: TableName = Field(
        description="The target table as table or schema.table, case-sensitive. A name with a dot or a quote in it stands "
        'in double quotes, as in SQL: "my ""odd"" schema".orders.',
    )
    write: Write = Field(
        Write.APPEND,
        description="Append inserts rows; Upsert keeps the latest row of each key; Merge combines rows of the same key.",
    )
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=32), Unique()] = Field(
        (), description="With Upsert and Merge: the columns of a unique index of the table."
    )
    version: ColumnName | None = Field(
        None, description="With Upsert: a column that only grows; a row never replaces one with a greater version."
    )
    merge: Annotated[tuple[MergedColumn, ...], Field(max_length=1600), Unique(("column",))] = Field(
        (), description="With Merge: every column that is not one of the keys, and how it is combined."
    )
    commit: Commit = Field(
        Commit.BATCH,
        description="Batch: one transaction per batch. Partition: one per partition of the source, without staging.",
    )
    transaction_timeout: Annotated[Duration, within("1s", "24h")] = Field(
        timedelta(minutes=15),
        description="How long a transaction may take: a task's, which reads its records meanwhile, and the one that lands a "
        "batch. A batch that takes longer fails.",
    )
    ledger_schema: LedgerSchema = Field("exactlyonce", description="The schema in which the ledger keeps its tables.")

    rules = (
        Rule(
            f"(self.write == 'Append') != ({_SOME_KEYS})",
            lambda it: (it.write is Write.APPEND) != bool(it.keys),
            "keys belongs to write: Upsert and Merge, and they need it",
        ),
        Rule(
            "(self.write == 'Merge') == (has(self.merge) && size(self.merge) > 0)",
            lambda it: (it.write is Write.MERGE) == bool(it.merge),
            "merge belongs to write: Merge, and write: Merge needs it",
        ),
        Rule(
            "!has(self.version) || self.write == 'Upsert'",
            lambda it: it.version is None or it.write is Write.UPSERT,
            "version belongs to write: Upsert",
        ),
        Rule(
            "!has(self.keys) || !has(self.merge) || !self.merge.exists(merged, merged.column in self.keys)",
            lambda it: not set(it.keys) & set(it.combined),
            "merge may not name a column of keys",
        ),
        Rule(
            "!has(self.keys) || !has(self.version) || !(self.version in self.keys)",
            lambda it: it.version not in it.keys,
            "version may not be one of the keys",
        ),
    )

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """There are none."""
        return ()

    @property
    def place_on_s3(self) -> None:
        """Rows go to the database."""
        return

    @property
    def replay_refusal(self) -> str | None:
        """Why rows of an earlier batch may not be written after those of later ones: older values would replace newer ones."""
        if self.write is Write.UPSERT and self.version is None:
            return "write: Upsert has no version, so that older values would replace newer ones; name a version column"
        by_order = [column for column, combine in self.combined.items() if combine in (Combine.FIRST, Combine.LAST)]
        if by_order:
            return f"merge keeps the first or the last value of {', '.join(by_order)}, and a replay comes out of order"
        return None

    @property
    def landing_place(self) -> str:
        """The table."""
        return f"{_PLACE}{self.table}"

    def into(self, table: str) -> Self:
        """Return the sink with another table."""
        return self.model_validate({**self.to_document(), "table": table})

    @property
    def combined(self) -> dict[str, Combine]:
        """How each column that is merged is combined, by its name."""
        return {merged.column: merged.combine for merged in self.merge}

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of which `table` consists, without their quotes."""
        return names_in(self.table)


SINK = PostgresSink
LEDGER = LedgerInPostgres
