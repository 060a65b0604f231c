"""What a stream says of a table of Doris: where its frontends are, which table, how rows are written."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from exactlyonce.connectors.doris.advice import advice
from exactlyonce.connectors.doris.columns import Column, Columns, columns_of
from exactlyonce.connectors.doris.load_properties import LoadProperties
from exactlyonce.connectors.doris.staging import RULES as STAGING_RULES
from exactlyonce.connectors.doris.staging import SEQUENCE_COLUMN, Load, LoadSize, StagingLocation, bytes_of
from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, Unique, cel_text, matches
from exactlyonce.schema.model import Duration, Model, SecretRef, within

USER = "user"
SECRET_KEYS = (USER, "password")
CERTIFICATE = "ca.crt"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_NODE = rf"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):{_PORT}"
DEFAULT_BROKER_LOAD_ABOVE = "1Gi"
_NAME = r"[^\x00-\x20\x7f/]+"

Frontend = Annotated[
    str,
    Field(min_length=3, max_length=270),
    matches(_NODE, "write host:port; the port is http_port of the frontend, 8030 by default"),
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


class LabelFormat(StrEnum):
    """How labels of loads are made."""

    DEFAULT = "Default"
    COMPATIBLE = "Compatible"


class Tls(StrEnum):
    """Which servers of Doris are spoken to with TLS."""

    OFF = "Off"
    FRONTENDS = "Frontends"
    ALL = "All"


def _has_no_doris(it: Any) -> bool:
    return getattr(it.sink, "doris", None) is None


_LABELLED = r"[-_A-Za-z0-9:|/.]*"
"""Checkpoint locations that the rule of Compatible makes labels of that Doris takes (`labels.compatible_label`)."""


def _gives_labels(it: Any) -> bool:
    if _has_no_doris(it) or it.sink.doris.label_format is not LabelFormat.COMPATIBLE:
        return True
    return re.fullmatch(_LABELLED, it.checkpoint.location) is not None


STREAM_RULES = (
    *manifest_rules("doris"),
    Rule(
        "!has(self.sink.doris) || !has(self.ledger) || !has(self.ledger.postgres)",
        lambda it: _has_no_doris(it) or it.ledger is None or getattr(it.ledger, "postgres", None) is None,
        "sink.doris needs ledger.objectLog, which is also what a stream without ledger has: a failover of a "
        "database may lose the latest batches of a ledger there, and rows that Doris has committed would be loaded again",
    ),
    Rule(
        "!has(self.sink.doris) || self.sink.doris.labelFormat != 'Compatible' || (has(self.checkpoint.s3) ? "
        "self.checkpoint.s3.location : has(self.checkpoint.volume) ? self.checkpoint.volume.path : "
        f"has(self.checkpoint.local) ? self.checkpoint.local.path : '').matches({cel_text(f'^({_LABELLED})$')})",
        _gives_labels,
        "sink.doris.labelFormat: Compatible makes labels from the checkpoint's location, which may then contain only letters, "
        "digits and - _ : | / . characters; leave labelFormat out, or choose another location",
    ),
)
"""Rules of the whole spec."""


class DorisSink(Model):
    """A table of Apache Doris, by stream load in two phases, or by broker load of files."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    fixed_fields: ClassVar[tuple[str, ...]] = ("frontends", "database", "table", "write")
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = True
    tells_latest_load: ClassVar[bool] = False
    folder_field: ClassVar[str | None] = None

    frontends: Annotated[tuple[Frontend, ...], Field(min_length=1, max_length=16), Unique()] = Field(
        description="Frontends as host:port of their HTTP service; the first one that answers is used. Executors have to "
        "reach them and the addresses of the backends that they name."
    )
    database: Name = Field(description="The database.")
    table: Name = Field(description="The table.")
    secret_ref: SecretRef = Field(
        description=f"The login; the keys read are {' and '.join(SECRET_KEYS)}, and {CERTIFICATE} with tls. It needs LOAD and "
        "SELECT on the table."
    )
    tls: Tls = Field(
        Tls.OFF,
        description="Off: HTTP. Frontends: HTTPS to frontends, by their https_port (enable_https of Doris, 8050 by default); "
        "login and rows go to backends unencrypted, since Doris encrypts nothing there. All: TLS to frontends, backends and "
        "query port (enable_tls of Doris); nothing is sent to a server without it. Certificates are checked, names as well, "
        f"against the CA in the key {CERTIFICATE} of the secret, or the CAs of the image. If a batch is decided when ports "
        "change, list a former address behind the new ones until that batch has landed.",
    )
    write: Write = Field(
        Write.APPEND,
        description="Append: a table with the Duplicate key model. Upsert: one with the Unique key model, each row replaces "
        "the row of its key. Aggregate: one with the Aggregate key model.",
    )
    load: Load = Field(
        Load.STREAM_LOAD,
        description="The kind of load. StreamLoad: each task sends its rows by HTTP, prepared in a first phase. What no driver "
        "decided, because it died, Doris aborts by itself, an hour after it was prepared. BrokerLoad: each task writes its "
        "rows into a file in stagingLocation, and once the ledger has decided, the driver has Doris read it. Auto: a task "
        "chooses by brokerLoadAbove. BulkLoad is refused.",
    )
    broker_load_above: LoadSize | None = Field(
        None,
        description="With load: Auto, tasks whose rows have more bytes than this use a broker load, others a stream load; 1Gi "
        "if left out. It is the size of the rows as they are in the memory of the task.",
    )
    staging_location: StagingLocation | None = Field(
        None,
        description="Where rows wait in files for broker loads. Files are removed when their load is over, also those of "
        "drivers that died. While a decided batch has loads in it, the stream needs it, whatever load says.",
    )
    query_port: Annotated[int, Field(ge=1, le=65535)] = Field(
        9030, description="The port of the frontends for MySQL's protocol, by which broker loads are submitted."
    )
    load_timeout: Annotated[Duration, within("10s", "1h")] = Field(
        timedelta(minutes=10), description="How long one load may take, from its first row to its answer."
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        4, description="How often a load is tried again, under the same label, before its batch is run again."
    )
    label_format: LabelFormat = Field(
        LabelFormat.DEFAULT,
        description="Default: a label names the stream, the attempt, the batch and the run of a task. Compatible: the "
        "checkpoint's location, the batch and the task, joined by _; each - | / : and . becomes _, each run of _ becomes one, "
        "and the last 128 characters are kept. Another stream in the database may make the same label, for example one with a "
        "similar location: an unfinished load under it is aborted, and a finished one fails the batch until Doris forgets it.",
    )
    columns: Annotated[tuple[Column, ...], Field(max_length=200), Unique()] = Field(
        (),
        description="The columns of each load, if the names that the query yields are not enough: `name` for each of those, "
        "and `name=expression` for each column of the table that Doris computes from them, such as `users=hll_hash(user)`. A "
        "value that an expression cannot compute becomes NULL in Doris; no row is refused for it. The default is what the "
        "query yields.",
    )
    properties: LoadProperties = Field(
        {},
        description="Further headers of stream load, by their names in Doris, such as `send_batch_parallelism` and "
        "`function_column.sequence_col`.",
    )

    rules = (
        Rule(
            "self.load != 'BulkLoad'",
            lambda it: it.load is not Load.BULK_LOAD,
            "load: BulkLoad (mini load) commits its rows at once and by their label alone, which Doris forgets, so a lost "
            "answer could load them twice, and servers have it switched off; write StreamLoad, which Doris has in two phases "
            "since 1.0",
        ),
        *STAGING_RULES,
    )

    @property
    def told_columns(self) -> Columns:
        """What is said of columns."""
        return columns_of(self.columns)

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
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """The logins to the files of broker loads."""
        staging = self.staging_location
        return () if staging is None else (staging.secret_ref, staging.reader)

    @property
    def stages_from_bytes(self) -> int | None:
        """A task with so many bytes of rows, or more, writes them into a file; None where none does."""
        match self.load:
            case Load.BROKER_LOAD:
                return 0
            case Load.AUTO:
                return bytes_of(self.broker_load_above or DEFAULT_BROKER_LOAD_ABOVE) + 1
            case _:
                return None

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def replay_refusal(self) -> str | None:
        """Why rows of an earlier batch may not be loaded after those of later ones; of an aggregation the table tells."""
        if self.write is Write.UPSERT and SEQUENCE_COLUMN not in self.properties:
            return (
                f"write: Upsert has no {SEQUENCE_COLUMN} in sink.doris.properties, so that older values would replace newer "
                "ones; give the table a sequence column, and name it there"
            )
        return None

    @property
    def landing_place(self) -> str:
        """The table, at the frontends that are named."""
        return f"doris {self.database}.{self.table} at {', '.join(sorted(self.frontends))}"

    @property
    def transaction_timeout(self) -> timedelta:
        """Only labels are written in the transaction that decides a batch; but behind it, Doris reads a whole file."""
        return timedelta(minutes=1) + (timedelta() if self.staging_location is None else self.load_timeout)


SINK = DorisSink
ADVICE = advice
