"""What a stream says of a table of Doris: where its frontends are, which table, how rows are written."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import Duration, Model, SecretRef, within

SECRET_KEYS = ("user", "password")
_NODE = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}"
_NAME = r"[^\x00-\x20\x7f/]+"

Frontend = Annotated[
    str,
    Field(min_length=3, max_length=270),
    matches(_NODE, "write host:port, the port being http_port of the frontend, 8030 by default"),
]
Name = Annotated[
    str,
    Field(min_length=1, max_length=256),
    matches(_NAME, "write a name without spaces and slashes"),
]


class Write(StrEnum):
    """How rows go into the table, which is what its model does with equal keys."""

    APPEND = "Append"
    UPSERT = "Upsert"
    AGGREGATE = "Aggregate"


def _has_no_doris(it: Any) -> bool:
    return getattr(it.sink, "doris", None) is None


STREAM_RULES = (
    *manifest_rules("doris"),
    Rule(
        "!has(self.sink.doris) || !has(self.ledger) || has(self.ledger.objectLog)",
        lambda it: _has_no_doris(it) or it.ledger is None or it.ledger.object_log is not None,
        "sink.doris needs ledger.objectLog, which is also what a stream without ledger has: a database can go back to an "
        "earlier state, and what Doris has committed does not go back with it",
    ),
)
"""Rules of the whole spec."""


class DorisSink(Model):
    """A table of Apache Doris, by stream load in two phases."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    fixed_fields: ClassVar[tuple[str, ...]] = ("frontends", "database", "table", "write")
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = True
    folder_field: ClassVar[str | None] = None

    frontends: Annotated[tuple[Frontend, ...], Field(min_length=1, max_length=16), Unique()] = Field(
        description="Frontends as host:port of their HTTP service; the first one that answers is asked. Executors have to "
        "reach them and the addresses of the backends that they name."
    )
    database: Name = Field(description="The database.")
    table: Name = Field(description="The table.")
    secret_ref: SecretRef = Field(
        description=f"The login; the keys read are {' and '.join(SECRET_KEYS)}. It needs LOAD and SELECT on the table."
    )
    write: Write = Field(
        Write.APPEND,
        description="Append: a table with the Duplicate key model. Upsert: one with the Unique key model, each row replaces "
        "the row of its key. Aggregate: one with the Aggregate key model.",
    )
    load_timeout: Annotated[Duration, within("10s", "1h")] = Field(
        timedelta(minutes=10), description="How long one load may take, from its first row to its answer."
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        4, description="How often a load is tried again, under the same label, before its batch is run again."
    )

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each frontend."""
        found = (re.fullmatch(r"\[?(.*?)\]?:(\d+)", text) for text in self.frontends)
        return tuple((one[1], int(one[2])) for one in found if one is not None)

    @property
    def place_on_s3(self) -> None:
        """Rows go to Doris."""
        return

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def transaction_timeout(self) -> timedelta:
        """Only labels are written in the transaction that decides a batch."""
        return timedelta(minutes=1)


SINK = DorisSink
