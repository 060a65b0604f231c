"""A memory as a source and as a sink, inside Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.connectors.toy.codec import CODEC, ToyCodec
from exactlyonce.connectors.toy.memory import client_of
from exactlyonce.connectors.toy.spec import ToySink, ToySource

from exactlyonce.api.format import Format
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.errors import Refused
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, RecordColumns, Spot, YieldedColumn
from exactlyonce_spark.decode.records import as_option
from exactlyonce_spark.decode.unread import LeftOut
from exactlyonce_spark.manifest_landing import recover_manifests
from exactlyonce_spark.target import ManifestTarget, Prepared, RecordsOfBatch

_VIEW = {"_partition": "partition", "_position": "position", "_timestamp": "timestamp", "_key": "key"}


@dataclass(frozen=True)
class ToyRecords:
    """A `SourceReader` over a memory."""

    spec: ToySource
    format: Format
    codec: ToyCodec = CODEC

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` has of it."""
        return tuple(_VIEW)

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """Partition and position; a stream reads one memory."""
        return {"_partition": PositionPart.PARTITION, "_position": PositionPart.POSITION}

    @property
    def names_before_reading(self) -> bool:
        """A memory has the partitions that it was made with."""
        return False

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of its records."""
        where = "concat(' in partition ', _partition, ' position ', _position)"
        return RecordColumns(_VIEW, where, "origin", "partition", "position")

    def stream(self, session: Any, partitions: int, most: int | None, left_out: Collection[Spot] = ()) -> Any:
        """Return the streaming DataFrame of its records."""
        limit = self.spec.batch_records if most is None else min(self.spec.batch_records, most)
        options = {**self._options(left_out), "batch_records": str(limit)}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges, left_out: Collection[Spot] = ()) -> Any:
        """Return the records of exactly these ranges."""
        spans = [(str(key.key), span.from_offset, span.until_offset) for key, span in ranges.non_empty().items()]
        options = {**self._options(left_out), "spans": json.dumps(spans)}
        return session.read.format(_registered(session)).options(**options).load()

    def task_ranges(self, input_partitions: Iterable[Any]) -> None:
        """Return nothing: Spark does not show what a task of a source in Python reads."""

    def _options(self, left_out: Collection[Spot]) -> dict[str, str]:
        return {"server": self.spec.server, "format": as_option(self.format), **LeftOut.options(left_out)}


def _registered(session: Any) -> str:
    from exactlyonce_spark.connectors.toy.records import ToyData

    session.dataSource.register(ToyData)
    return "toy"


class ToyTarget(ManifestTarget):
    """The memory that rows are written to; the ledger names the tag that each batch is read from."""

    def __init__(self, server: str) -> None:
        self._server = server

    def prepare(self, batch: BatchNumber, rows: Any) -> Prepared:
        """Write the rows of a batch under a tag of this attempt alone."""
        tag, texts = str(uuid.uuid4()), rows.toJSON().collect()
        with client_of(self._server) as memory:
            memory.write(tag, texts)
        return Prepared(tag, len(texts))

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Show what earlier drivers landed."""
        for batch, tag in committables.items():
            self.publish(batch, tag)

    def publish(self, batch: BatchNumber, committable: str, records: RecordsOfBatch | None = None) -> None:
        """Show a batch that has landed."""
        with client_of(self._server) as memory:
            if not memory.show(str(batch), committable):
                raise Refused(
                    f"The memory at {self._server} lacks the rows of batch {batch}, which has landed; restore it."
                )


@dataclass(frozen=True)
class PreparedMemory:
    """A `PreparedSink`."""

    server: str
    ledger: Ledger
    permit: Permit

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns as they are: rows are kept as JSON."""
        return tuple(FittedColumn(column.name, f"`{column.name}`") for column in yielded)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[ToyTarget, NoTasks]:
        """Return the memory, which shows all that has landed."""
        target = ToyTarget(self.server)
        recover_manifests(self.ledger, self.permit, target)
        return target, NoTasks(self.permit.stream_id)

    def finishing(self) -> ToyTarget:
        """Return the memory, which shows whatever it is told."""
        return ToyTarget(self.server)


class ToyConnector:
    """Memories."""

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> ToyRecords:
        """Return the reader of a stream."""
        toy = spec.source.spec
        assert isinstance(toy, ToySource), "the registry gives each connector its own spec"
        return ToyRecords(toy, spec.source.format)

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedMemory:
        """Return the memory that rows are written to."""
        sink = spec.sink.spec
        assert isinstance(sink, ToySink), "the registry gives each connector its own spec"
        return PreparedMemory(sink.server, ledger, permit)


SOURCE = SINK = ToyConnector()
