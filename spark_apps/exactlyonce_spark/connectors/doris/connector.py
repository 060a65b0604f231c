"""Doris as a sink inside Spark: tasks prepare loads, the driver commits those that the ledger has decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.doris.answers import NotSettled, Settled
from exactlyonce.connectors.doris.spec import SECRET_KEYS, USER, DorisSink, LabelFormat
from exactlyonce.connectors.doris.table import DorisTable
from exactlyonce.errors import SecretMissing
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.connectors.doris.client import DorisClient, DorisRefused, Login, Operation
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.fit import DorisFit, fit_columns
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import LoadLabels

NOBODYS_TRANSACTION = (1 << 63) - 1
"""An id that no transaction has: the same with which Doris' own tests ask for one that does not exist."""


@dataclass(frozen=True)
class DorisTaskSink:
    """A `TaskSink`: the table without its login, which each task reads itself."""

    sink: DorisSink
    columns: tuple[DorisFit, ...]
    labels: LoadLabels
    epoch: Epoch
    published_for: str | None = None

    @property
    def key(self) -> str:
        """Of which stream and epoch it is."""
        return f"{self.labels.stream_id} {self.epoch}"

    def open(self, secrets: Secrets) -> tuple[None, DorisTarget]:
        """Return the table; no ledger is opened."""
        loads = Loads(client_of(self.sink, secrets), self.sink.retries + 1)
        return None, DorisTarget(loads, self.columns, self.labels, self.epoch, self.published_for)


@dataclass(frozen=True)
class PreparedDoris:
    """A `PreparedSink`: the table as Doris describes it."""

    sink: DorisSink
    secrets: Secrets
    table: DorisTable
    labels: LoadLabels
    epoch: Epoch
    published_for: str | None = None

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[DorisFit, ...]:
        """Return how each column is handed over."""
        name = f"{self.sink.database}.{self.sink.table}"
        return fit_columns(yielded, self.table, name, self.sink.write, self.sink.told_columns)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[DorisTarget, DorisTaskSink]:
        """Return the table, for the driver and for its tasks."""
        fitted = tuple(column for column in columns if isinstance(column, DorisFit))
        assert len(fitted) == len(columns), "`fit` has returned each of them"
        tasks = DorisTaskSink(self.sink, fitted, self.labels, self.epoch, self.published_for)
        return tasks.open(self.secrets)[1], tasks


class DorisConnector:
    """Apache Doris."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedDoris:
        """Look at the table, and require that its servers know two phases."""
        sink: object = spec.sink.spec
        assert isinstance(sink, DorisSink), "the registry gives each connector its own spec"
        prepared = prepared_doris(sink, secrets, LoadLabels(permit.stream_id, stream.token), permit.epoch)
        if sink.label_format is LabelFormat.DEFAULT:
            return prepared
        return replace(prepared, published_for=spec.checkpoint.location)


def prepared_doris(sink: DorisSink, secrets: Secrets, labels: LoadLabels, epoch: Epoch) -> PreparedDoris:
    """Look at the table, and require that its servers know two phases. Nothing is loaded.

    Raises:
        SecretMissing: if the secret lacks a key.
        DorisRefused: if there is no such table, or its servers do not know two phases.
        DorisUnreachable: if no server answers, or one that a frontend names cannot be reached from here.
    """
    client = client_of(sink, secrets)
    table = client.schema()
    answer = client.settle(Operation.ABORT, NOBODYS_TRANSACTION)
    if answer is not Settled.NOT_FOUND:
        told = answer.message if isinstance(answer, NotSettled) else f"a transaction of nobody is {answer.value}"
        raise DorisRefused(
            f"Doris does not show that it knows loads in two phases, when asked to abort a transaction of {sink.database} that "
            f"nobody has: {told}."
        )
    return PreparedDoris(sink, secrets, table, labels, epoch)


def client_of(sink: DorisSink, secrets: Secrets) -> DorisClient:
    """Return the client of a table.

    Raises:
        SecretMissing: if the secret lacks a key; the password may be empty.
    """
    login = {key: value.strip() for key, value in secrets(sink.secret_ref).items() if key in SECRET_KEYS}
    lacking = [key for key in SECRET_KEYS if key not in login or (key == USER and not login[key])]
    if lacking:
        raise SecretMissing(
            f"The secret {sink.secret_ref.name} that sink.doris.secretRef names has no {' and no '.join(lacking)}; give it "
            f"both {' and '.join(SECRET_KEYS)}, of which the password may be empty."
        )
    user, password = (login[key] for key in SECRET_KEYS)
    return DorisClient(
        tuple(Node(host, port) for host, port in sink.nodes),
        Login(user, password),
        sink.database,
        sink.table,
        load_seconds=sink.load_timeout.total_seconds(),
        properties=sink.properties,
        computed=sink.told_columns.computed,
    )


SINK = DorisConnector()
