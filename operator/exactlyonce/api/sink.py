"""The sink half of a stream's spec."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import Field, model_validator

from exactlyonce.api.model import Model, SecretRef

SECRET_KEYS = ("uri", "host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")
"""The keys read from the secret of a Postgres sink: `uri` alone, or `host`, `dbname`, `user` and `password` with the
rest optional. They are libpq's names, and the ones CloudNativePG writes."""


_NAME = r'([^."\x00]{1,63}|"([^"\x00]|""){1,63}")'


class Write(StrEnum):
    """How rows go into the table."""

    APPEND = "Append"
    UPSERT = "Upsert"
    MERGE = "Merge"


class Commit(StrEnum):
    """What one transaction covers."""

    BATCH = "Batch"
    PARTITION = "Partition"


class Combine(StrEnum):
    """How Merge combines a column's old value with a new one."""

    SUM = "Sum"
    MIN = "Min"
    MAX = "Max"
    LAST = "Last"
    FIRST = "First"


class PostgresSink(Model):
    """Rows of a Postgres table; the ledger stands in the same database."""

    secret_ref: SecretRef = Field(description=f"The login; the keys read are {', '.join(SECRET_KEYS)}.")
    table: str = Field(
        pattern=rf"^{_NAME}(\.{_NAME})?$",
        description="The target table as table or schema.table, case-sensitive. A name with a dot or a quote in it stands "
        'in double quotes, as in SQL: "my ""odd"" schema".orders.',
    )
    write: Write = Field(
        Write.APPEND,
        description="Append inserts rows; Upsert keeps the latest row of each key; Merge combines rows of the same key.",
    )
    keys: tuple[str, ...] = Field((), description="With Upsert and Merge: the columns of a unique index of the table.")
    version: str | None = Field(
        None, description="With Upsert: a column that only grows; a row never replaces one with a greater version."
    )
    merge: dict[str, Combine] = Field(
        {}, description="With Merge: how every column beside the keys combines its old value with the new one."
    )
    commit: Commit = Field(
        Commit.BATCH, description="Batch: one transaction a batch. Partition: one a Kafka partition, without staging."
    )
    ledger_schema: str = Field(
        "exactlyonce",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="The schema in which the ledger keeps its tables.",
    )

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of which `table` consists, without their quotes."""
        return tuple(
            quoted.replace('""', '"') if quoted else plain
            for quoted, plain in re.findall(r'"((?:[^"]|"")+)"|([^."]+)', self.table)
        )

    @model_validator(mode="after")
    def _consistent(self) -> PostgresSink:
        if (self.write is Write.APPEND) == bool(self.keys):
            raise ValueError("keys belongs to write: Upsert and Merge, and they need it")
        if (self.write is Write.MERGE) != bool(self.merge):
            raise ValueError("merge belongs to write: Merge, and write: Merge needs it")
        if self.version is not None and self.write is not Write.UPSERT:
            raise ValueError("version belongs to write: Upsert")
        both = sorted(set(self.keys) & set(self.merge))
        if both:
            raise ValueError(f"merge may not name the keys {', '.join(both)}")
        if len(self.keys) != len(set(self.keys)):
            raise ValueError("keys names a column twice")
        if self.version in self.keys:
            raise ValueError("version may not be one of the keys")
        return self


class Sink(Model):
    """Where rows take effect."""

    postgres: PostgresSink = Field(description="Rows of a Postgres table.")
