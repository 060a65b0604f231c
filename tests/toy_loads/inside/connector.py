"""A server that takes loads, as a sink inside Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xmlrpc.client import Error

from exactlyonce.connectors.loads.loads import client_of
from exactlyonce.connectors.loads.spec import LoadsSink

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.errors import Unreachable
from exactlyonce.ledger.decided import Committable
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.known_loads import Span
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad, TwoPhaseTarget


@dataclass(frozen=True)
class LoadsTarget(TwoPhaseTarget):
    """The server as a driver of an epoch, or one of its tasks, writes to it."""

    server: str
    labels: LoadLabels
    epoch: Epoch

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Load the rows of Arrow batches as JSON."""
        texts = [json.dumps(row, default=str) for piece in rows for row in piece.to_pylist()]
        if not texts:
            return None
        label = self.labels.label(self.epoch, batch, part)
        with self._asked() as server:
            return PreparedLoad(label, str(server.prepare(label, texts)), len(texts))

    def commit(self, committable: Committable) -> bool:
        """Commit a load."""
        with self._asked() as server:
            return bool(server.commit(int(committable.transaction_id)))

    def state_of(self, committable: Committable) -> LoadState:
        """Return what became of a load."""
        with self._asked() as server:
            found = server.find(committable.label)
        is_it = bool(found) and str(found[0]) == committable.transaction_id
        return LoadState(found[1]) if is_it else LoadState.UNKNOWN

    def open_loads(self) -> Iterable[OpenLoad]:
        """Return this stream's loads that are prepared."""
        with self._asked() as server:
            found = server.prepared()
        for label, number in found:
            epoch = self.labels.epoch_of(label)
            if epoch is not None:
                yield OpenLoad(label, str(number), epoch)

    def abort(self, load: OpenLoad) -> None:
        """Abort a load."""
        with self._asked() as server:
            server.abort(int(load.transaction_id))

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        try:
            with client_of(self.server) as server:
                yield server
        except (OSError, Error) as problem:
            raise Unreachable(f"The server at {self.server} does not answer ({problem}).") from problem


@dataclass(frozen=True)
class LoadsTasks:
    """The `TaskSink`: no ledger is opened."""

    key: str
    target: LoadsTarget

    def open(self, secrets: Secrets) -> tuple[None, LoadsTarget]:
        """Return the target."""
        return None, self.target


@dataclass(frozen=True)
class PreparedLoads:
    """A `PreparedSink`."""

    written: LoadsTarget
    key: str

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns as they are."""
        return tuple(FittedColumn(column.name, f"`{column.name}`") for column in yielded)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[LoadsTarget, LoadsTasks]:
        """Return the server."""
        return self.written, LoadsTasks(self.key, self.written)

    def finishing(self) -> LoadsTarget:
        """Return the server: a load is known by its number."""
        return self.written


class LoadsConnector:
    """Servers that take loads."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedLoads:
        """Return the server that rows are written to."""
        sink = spec.sink.spec
        assert isinstance(sink, LoadsSink), "the registry gives each connector its own spec"
        target = LoadsTarget(sink.server, LoadLabels(permit.stream_id, stream.token), permit.epoch)
        return PreparedLoads(target, f"{permit.stream_id} {permit.epoch}")


SINK = LoadsConnector()
