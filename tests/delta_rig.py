"""A stream that writes to a Delta table without Spark: its drivers one after another, and readers that are not ours.

Files are written by pyarrow with the key in their footers by which Spark says which columns they have. A batch has two records,
whose ids are twice its number and one more, in a file each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.connectors.delta.table import Wanted
from exactlyonce_spark.connectors.delta.table_log import DeltaLog
from exactlyonce_spark.connectors.delta.target import DeltaTarget, TableTarget
from exactlyonce_spark.connectors.files.target import WrittenFiles
from exactlyonce_spark.manifest_landing import land_manifest, recover_manifests
from exactlyonce_spark.planned import PlannedBatch
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started

RECORDS = 2
COLUMNS: Mapping[str, Type] = {"id": "long", "day": "string"}


class Killed(BaseException):
    """The driver died here."""


Row = Mapping[str, Any]


@dataclass
class PyarrowWriter:
    """Writes a file for each row, where the writer of the product would."""

    root: Path
    columns: Mapping[str, Type]
    partition_by: tuple[str, ...] = ()

    def write(self, write: Write | ReplayWrite, rows: Sequence[Row]) -> WrittenFiles:
        """Write rows."""
        files = [self._file(write, number, row) for number, row in enumerate(rows)]
        return WrittenFiles(tuple(files), len(rows))

    def learn(self, manifest: Manifest) -> None:
        """Sizes do not matter."""

    def _file(self, write: Write | ReplayWrite, number: int, row: Row) -> DataFile:
        folders = [f"{name}={escaped(row[name])}" for name in self.partition_by]
        path = "/".join([write.name, *folders, f"part-{number}.parquet"])
        held = {name: type_ for name, type_ in self.columns.items() if name not in self.partition_by}
        document = {"type": "struct", "fields": [{"name": name, "type": type_} for name, type_ in held.items()]}
        table = pa.table({name: [row[name]] for name in held})
        metadata = {b"org.apache.spark.sql.parquet.row.metadata": json.dumps(document).encode()}
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), place)
        return DataFile(path, place.stat().st_size, 1_700_000_000_000 + number, 1)


def escaped(value: Any) -> str:
    """Return a value as the name of a folder says it, as Spark's ExternalCatalogUtils.escapePathName."""
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return "".join(f"%{ord(letter):02X}" if letter in "\"#%'*/:=?\\{[]^" else letter for letter in str(value))


@dataclass
class DeltaStream:
    """A stream that writes to a table, and its drivers."""

    root: Path
    ledger: Ledger
    columns: Mapping[str, Type] = field(default_factory=lambda: COLUMNS)
    partition_by: tuple[str, ...] = ()
    evolution: SchemaEvolution = SchemaEvolution.REFUSE
    accepted_restore: int | None = None
    days: Sequence[str | None] = ("d/0", "d 1")
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.permit = started(self.ledger)

    def log(self) -> DeltaLog:
        """The table's log as a driver has it."""
        view = self.ledger.view(STREAM)
        assert view is not None
        return DeltaLog(
            str(self.root), f"file://{self.root}", {}, LocalLogStore(str(self.root)), STREAM, Author.of(view.stream)
        )

    def target(self) -> DeltaTarget:
        """The target of a driver that has looked at nothing yet."""
        log = self.log()
        writer = PyarrowWriter(self.root, self.columns, self.partition_by)
        wanted = Wanted(str(self.root), self.columns, self.partition_by, self.evolution, self.accepted_restore)
        return DeltaTarget(log, writer, log.author, wanted)

    def driver(self) -> DeltaTarget:
        """A driver that has recovered what its predecessor left."""
        target = self.target()
        recover_manifests(self.ledger, self.permit, target)
        return target

    def next_driver(self) -> DeltaTarget:
        """The successor of a driver, whether that one has ended or not."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
        return self.driver()

    def land(self, target: TableTarget, first: int, last: int, permit: Permit | None = None) -> None:
        """Land batches."""
        for number in range(first, last + 1):
            ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})
            planned = PlannedBatch(BatchNumber(number), ranges, IDS)
            rows = [self.row(RECORDS * number + at, self.days[at]) for at in range(RECORDS)]
            land_manifest(self.ledger, permit or self.permit, target, planned, rows, _unchecked(planned))

    def row(self, number: int, day: str | None) -> Row:
        """A record as the query yields it."""
        known = {"id": number, "day": day}
        others = {name: str(number) if type_ == "string" else number for name, type_ in self.columns.items()}
        return {name: known.get(name, others[name]) for name in self.columns}

    def table(self) -> DeltaTable:
        """The table as anybody opens it."""
        return DeltaTable(str(self.root))

    def seen(self) -> Counter[int]:
        """Count ids as readers do: by deltalake, and by DuckDB in the files that the log names."""
        by_log: Counter[Any] = Counter(self.table().to_pyarrow_table(columns=["id"])["id"].to_pylist())
        names = self.table().file_uris()
        assert Counter(ids_by_duckdb(names)) == by_log
        return by_log

    def committables(self) -> dict[BatchNumber, str]:
        """What the ledger names."""
        with self.ledger.transaction() as transaction:
            return dict(transaction.read_committables(STREAM))

    def require(self, last: int, foreign: Sequence[int] = ()) -> None:
        """Every record up to a batch is in the table once, and so is what others wrote."""
        assert self.seen() == Counter([*range(RECORDS, RECORDS * (last + 1)), *foreign])


def ids_by_duckdb(files: Sequence[str]) -> list[int]:
    """Return the ids in files, as DuckDB reads them."""
    if not files:
        return []
    found = duckdb.sql(f"select id from read_parquet({[*files]}, hive_partitioning = false)")
    assert found is not None
    return [row[0] for row in found.fetchall()]


def _unchecked(planned: PlannedBatch) -> Callable[[], tuple[PlannedBatch, int | None]]:
    return lambda: (planned, None)


def act_at(monkeypatch: pytest.MonkeyPatch, point: str, batch: int | None, act: Callable[[], object]) -> None:
    """Do something while a driver is at a point of a batch, once."""
    armed = [(point, batch)]

    def watcher(reached: str, at: int | None = None) -> None:
        if (reached, at) in armed:
            armed.clear()
            act()

    for module in ("landing", "manifest_landing", "connectors.delta.target"):
        monkeypatch.setattr(f"exactlyonce_spark.{module}.reached", watcher)


def dies() -> None:
    """Kill the driver."""
    raise Killed
