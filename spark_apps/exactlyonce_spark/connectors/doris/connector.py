"""Doris as a sink inside Spark: tasks prepare loads, the driver commits those that the ledger has decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.doris.answers import NotSettled, Settled
from exactlyonce.connectors.doris.spec import SECRET_KEYS, DorisSink
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

    @property
    def key(self) -> str:
        """Of which stream and epoch it is."""
        return f"{self.labels.stream_id} {self.epoch}"

    def open(self, secrets: Secrets) -> tuple[None, DorisTarget]:
        """Return the table; no ledger is opened."""
        loads = Loads(client_of(self.sink, secrets), self.sink.retries + 1)
        return None, DorisTarget(loads, self.columns, self.labels, self.epoch)


@dataclass
class PreparedDoris:
    """A `PreparedSink`: the table as Doris describes it."""

    sink: DorisSink
    secrets: Secrets
    table: DorisTable
    labels: LoadLabels
    epoch: Epoch
    _fitted: tuple[DorisFit, ...] = field(default=())

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return how each column is handed over."""
        name = f"{self.sink.database}.{self.sink.table}"
        self._fitted = fit_columns(yielded, self.table, name, self.sink.write)
        return tuple(FittedColumn(column.name, column.expression) for column in self._fitted)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[DorisTarget, DorisTaskSink]:
        """Return the table, for the driver and for its tasks."""
        tasks = DorisTaskSink(self.sink, self._fitted, self.labels, self.epoch)
        return tasks.open(self.secrets)[1], tasks


class DorisConnector:
    """Apache Doris."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedDoris:
        """Look at the table, and require that its servers know two phases."""
        sink: object = spec.sink.spec
        assert isinstance(sink, DorisSink), "the registry gives each connector its own spec"
        return prepared_doris(sink, secrets, LoadLabels(permit.stream_id, stream.token), permit.epoch)


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
            f"Doris does not show that it knows loads in two phases, of {sink.database}.{sink.table}: {told}."
        )
    return PreparedDoris(sink, secrets, table, labels, epoch)


def client_of(sink: DorisSink, secrets: Secrets) -> DorisClient:
    """Return the client of a table.

    Raises:
        SecretMissing: if the secret lacks a key; the password may be empty.
    """
    secret = secrets(sink.secret_ref)
    lacking = [key for key in SECRET_KEYS if key not in secret]
    if lacking:
        raise SecretMissing(
            f"The secret {sink.secret_ref.name} that sink.doris.secretRef names has no {' and no '.join(lacking)}."
        )
    user, password = (secret[key] for key in SECRET_KEYS)
    nodes = tuple(Node(host, port) for host, port in sink.nodes)
    seconds = sink.load_timeout.total_seconds()
    return DorisClient(nodes, Login(user, password), sink.database, sink.table, load_seconds=seconds)


SINK = DorisConnector()
