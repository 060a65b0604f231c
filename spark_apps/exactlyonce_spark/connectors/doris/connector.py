"""Doris as a sink inside Spark: tasks prepare loads, the driver commits those that the ledger has decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.api.recovery import OnBatchTooLarge
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.doris.answers import NotSettled, Settled
from exactlyonce.connectors.doris.spec import CERTIFICATE, SECRET_KEYS, USER, DorisSink, LabelFormat
from exactlyonce.connectors.doris.staging import READER_KEYS
from exactlyonce.connectors.doris.table import DorisTable
from exactlyonce.errors import SecretMissing
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.doris.broker_loads import DorisStagedLoads, StagingWriter, folder_of
from exactlyonce_spark.connectors.doris.client import DorisClient, DorisRefused, Login, Operation
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.fit import DorisFit, fit_columns
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.query_client import QueryClient
from exactlyonce_spark.connectors.doris.replaying import PreparedDorisReplay
from exactlyonce_spark.connectors.doris.staging_folder import FolderOnS3
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.connectors.doris.tls import trust_of
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import NO_EPOCH, LoadLabels

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
    shrinks: bool = False

    @property
    def key(self) -> str:
        """Of which stream and epoch it is."""
        return f"{self.labels.stream_id} {self.epoch}"

    def open(self, secrets: Secrets) -> tuple[None, DorisTarget]:
        """Return the table; no ledger is opened."""
        tries = self.sink.retries + 1
        loads = Loads(client_of(self.sink, secrets), tries, shrinks=self.shrinks)
        folder = staging_folder_of(self.sink, secrets)
        staging = None if folder is None else StagingWriter(folder, self.labels, tries)
        return None, DorisTarget(
            loads, self.columns, self.labels, self.epoch, self.published_for, staging, self.sink.stages_from_bytes
        )


@dataclass(frozen=True)
class PreparedDoris:
    """A `PreparedSink`: the table as Doris describes it."""

    sink: DorisSink
    secrets: Secrets
    table: DorisTable
    labels: LoadLabels
    epoch: Epoch
    published_for: str | None = None
    shrinks: bool = False

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
        tasks = DorisTaskSink(self.sink, fitted, self.labels, self.epoch, self.published_for, self.shrinks)
        target = tasks.open(self.secrets)[1]
        return replace(target, broker_loads=broker_loads_of(self.sink, self.secrets, target)), tasks

    def finishing(self) -> DorisTarget:
        """Return the table without columns: a transaction is known by its id. What waits in files needs them."""
        return DorisTaskSink(self.sink, (), self.labels, self.epoch).open(self.secrets)[1]


class DorisConnector:
    """Apache Doris."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedDoris:
        """Look at the table, and require that its servers know two phases."""
        sink: object = spec.sink.spec
        assert isinstance(sink, DorisSink), "the registry gives each connector its own spec"
        prepared = replace(
            prepared_doris(sink, secrets, LoadLabels(permit.stream_id, stream.token), permit.epoch),
            shrinks=spec.recovery.on_batch_too_large is OnBatchTooLarge.SHRINK,
        )
        if sink.label_format is LabelFormat.DEFAULT:
            return prepared
        return replace(prepared, published_for=spec.checkpoint.location)

    def prepare_replay(self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets) -> PreparedDorisReplay:
        """Look at the table, and require that its servers know two phases.

        Raises:
            NothingToReplayInto: if the ledger does not know the stream.
        """
        sink: object = spec.sink.spec
        assert isinstance(sink, DorisSink), "the registry gives each connector its own spec"
        view = ledger.view(stream_id)
        if view is None:
            raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
        table = prepared_doris(sink, secrets, LoadLabels(stream_id, view.stream.token), NO_EPOCH).table
        # A chunk that is too large for Doris is tried with half of its records.
        loads = Loads(client_of(sink, secrets), sink.retries + 1, shrinks=True)
        return PreparedDorisReplay(sink, loads, table, stream_id, view.stream.token)


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
    require_staging(sink, secrets, labels)
    return PreparedDoris(sink, secrets, table, labels, epoch)


def require_staging(sink: DorisSink, secrets: Secrets, labels: LoadLabels) -> None:
    """Require what broker loads need: a query port that answers this login, and a folder whose files can be listed.

    Raises:
        SecretMissing, DorisRefused, DorisUnreachable, StoreUnreachable: as they say.
    """
    folder = staging_folder_of(sink, secrets)
    if folder is not None:
        query_client_of(sink, client_of(sink, secrets), reader_of(sink, secrets)).now_milliseconds()
        next(iter(folder.paths_below(folder_of(labels))), None)


def staging_folder_of(sink: DorisSink, secrets: Secrets) -> FolderOnS3 | None:
    """Return the folder in which rows wait for broker loads, where the stream has one.

    Raises:
        SecretMissing: if the secret lacks a half of the login.
    """
    staging = sink.staging_location
    if staging is None:
        return None
    return FolderOnS3(staging, _login_to_files(staging.secret_ref, "secretRef", secrets))


def query_client_of(sink: DorisSink, client: DorisClient, reader: Mapping[str, str]) -> QueryClient:
    """Return the client of the frontends' query port, which tells nothing of the reader's login."""
    nodes = tuple(Node(node.host, sink.query_port) for node in client.frontends)
    hidden = tuple(reader[key] for key in READER_KEYS if key in reader)
    return QueryClient(nodes, client.login, client.database, client.request_seconds, hidden, client.trust.backends)


def broker_loads_of(sink: DorisSink, secrets: Secrets, target: DorisTarget) -> DorisStagedLoads | None:
    """Return the broker loads of a driver, where the stream has a place for their files."""
    staging, folder = sink.staging_location, staging_folder_of(sink, secrets)
    if staging is None or folder is None:
        return None
    client, reader = target.loads.client, reader_of(sink, secrets)
    return DorisStagedLoads(
        query_client_of(sink, client, reader),
        client,
        folder,
        staging,
        reader,
        tuple(column.name for column in target.columns),
        target.labels,
        target.epoch,
    )


def reader_of(sink: DorisSink, secrets: Secrets) -> Mapping[str, str]:
    """Return the keys of the login with which Doris reads files.

    Raises:
        SecretMissing: if the secret lacks one.
    """
    staging = sink.staging_location
    assert staging is not None, "who asks has looked"
    return _login_to_files(staging.reader, "readerSecretRef" if staging.reader_secret_ref else "secretRef", secrets)


def _login_to_files(reference: SecretRef, field: str, secrets: Secrets) -> Mapping[str, str]:
    """No login but that of a secret is used: what a process is given by its machine is not to stand in a statement."""
    found = secrets(reference)
    lacking = [key for key in READER_KEYS[:2] if not found.get(key, "").strip()]
    if lacking:
        raise SecretMissing(
            f"The secret {reference.name} that sink.doris.stagingLocation.{field} names has no {' and no '.join(lacking)}; "
            "give it both."
        )
    return found


def client_of(sink: DorisSink, secrets: Secrets) -> DorisClient:
    """Return the client of a table.

    Raises:
        SecretMissing: if the secret lacks a key; the password may be empty.
        CertificateUnfit: if what it has for a CA is not a certificate.
    """
    login = {key: value.strip() for key, value in secrets(sink.secret_ref).items() if key in SECRET_KEYS}
    lacking = [key for key in SECRET_KEYS if key not in login or (key == USER and not login[key])]
    if lacking:
        raise SecretMissing(
            f"The secret {sink.secret_ref.name} that sink.doris.secretRef names has no {' and no '.join(lacking)}; give it "
            f"both {' and '.join(SECRET_KEYS)}, of which the password may be empty."
        )
    user, password = (login[key] for key in SECRET_KEYS)
    certificates = secrets(sink.secret_ref).get(CERTIFICATE, "").strip()
    return DorisClient(
        tuple(Node(host, port) for host, port in sink.nodes),
        Login(user, password),
        sink.database,
        sink.table,
        load_seconds=sink.load_timeout.total_seconds(),
        properties=sink.properties,
        computed=sink.told_columns.computed,
        trust=trust_of(sink.tls, certificates),
    )


SINK = DorisConnector()
