"""A stream that writes to an Iceberg table without Spark: its drivers one after another, and readers that are not ours.

The catalog is a database of SQLite, and files are written by pyarrow with the ids that Spark would give their columns. Batches
are those of delta_rig.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet
import sqlalchemy
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce_spark.connectors.delta.table import Wanted
from exactlyonce_spark.connectors.files.target import WrittenFiles
from exactlyonce_spark.connectors.iceberg.catalog import CatalogInDatabase
from exactlyonce_spark.connectors.iceberg.fit import schema_of
from exactlyonce_spark.connectors.iceberg.marker import ICEBERG
from exactlyonce_spark.connectors.iceberg.table_log import IcebergLog
from exactlyonce_spark.connectors.iceberg.target import IcebergTarget
from exactlyonce_spark.manifest_landing import recover_manifests
from tests.delta_rig import COLUMNS, RECORDS, DeltaStream, Row, escaped, ids_by_duckdb
from tests.ledgers import STREAM

IDENTIFIER = "shop.orders"


@dataclass
class IdentifyingWriter:
    """Writes a file for each row, with the ids of the table's fields."""

    root: Path
    columns: Mapping[str, Type]
    partition_by: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)

    def write(self, write: Write | ReplayWrite, rows: Sequence[Row]) -> WrittenFiles:
        """Write rows."""
        files = [self._file(write, number, row) for number, row in enumerate(rows)]
        return WrittenFiles(tuple(files), len(rows))

    def learn(self, manifest: Manifest) -> None:
        """Sizes do not matter."""

    def _file(self, write: Write | ReplayWrite, number: int, row: Row) -> DataFile:
        folders = [f"{name}={escaped(row[name])}" for name in self.partition_by]
        path = "/".join([write.name, *folders, f"part-{number}.parquet"])
        types = {"long": pa.int64(), "integer": pa.int32(), "string": pa.string(), "date": pa.date32()}
        held = [name for name in self.columns if name not in self.partition_by]
        fields = [
            pa.field(name, types[str(self.columns[name])], metadata={b"PARQUET:field_id": str(self.ids[name]).encode()})
            for name in held
        ]
        place = self.root / "data" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table([[row[name]] for name in held], schema=pa.schema(fields)), place)
        return DataFile(path, place.stat().st_size, 1_700_000_000_000 + number, 1)


@dataclass
class IcebergStream(DeltaStream):
    """A stream that writes to a table, and its drivers."""

    accepted_rollback: int | None = None

    @property
    def database(self) -> str:
        """The address of the catalog's database."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{self.root.parent}/catalog.db"

    def drivers_catalog(self) -> CatalogInDatabase:
        """The catalog as a driver has it."""
        return CatalogInDatabase("default", sqlalchemy.create_engine(self.database), {}, str(self.root))

    def catalog(self) -> SqlCatalog:
        """The catalog as everybody else has it."""
        return SqlCatalog("default", uri=self.database)

    def log(self) -> IcebergLog:  # type: ignore[override]
        """The table's log as a driver has it."""
        view = self.ledger.view(STREAM)
        assert view is not None
        where, folder = str(self.root), LocalLogStore(str(self.root))
        return IcebergLog(
            IDENTIFIER, where, f"file://{where}", self.drivers_catalog, folder, STREAM, Author.of(view.stream)
        )

    def target(self) -> IcebergTarget:  # type: ignore[override]
        """The target of a driver that has looked at nothing yet."""
        log = self.log()
        writer = IdentifyingWriter(self.root, self.columns, self.partition_by)
        wanted = Wanted(
            str(self.root), self.columns, self.partition_by, self.evolution, self.accepted_rollback, ICEBERG
        )
        return IcebergTarget(log, writer, log.author, wanted)

    def next_driver(self) -> IcebergTarget:  # type: ignore[override]
        """The successor of a driver, whether that one has ended or not."""
        return cast("IcebergTarget", super().next_driver())

    def driver(self) -> IcebergTarget:  # type: ignore[override]
        """A driver that has recovered what its predecessor left."""
        target = self.target()
        recover_manifests(self.ledger, self.permit, target)
        return target

    def table(self) -> Table:  # type: ignore[override]
        """The table as anybody opens it."""
        return self.catalog().load_table(IDENTIFIER)

    def made_by_another(self, schema: Schema | None = None, **more: Any) -> Table:
        """A table that somebody else has made."""
        self.catalog().create_namespace_if_not_exists("shop")
        given = {"location": f"file://{self.root}", **more}
        return self.catalog().create_table(IDENTIFIER, schema or schema_of(COLUMNS), **given)

    def written_by_another(self, *ids: int) -> None:
        """Rows of somebody else."""
        table = self.table()
        rows = {"id": pa.array(ids, pa.int64()), "day": pa.array(["another's"] * len(ids))}
        names = [column.name for column in table.schema().fields]
        rows |= {name: pa.nulls(len(ids), pa.int64()) for name in names if name not in rows}
        table.append(pa.table({name: rows[name] for name in names}))

    def seen(self) -> Counter[int]:
        """Count ids as readers do: by pyiceberg, and by DuckDB in the files that its scan plans, which none is in twice."""
        table = self.table()
        by_scan: Counter[Any] = Counter(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
        tasks = list(table.scan().plan_files())
        if not any(task.delete_files for task in tasks):
            names = [task.file.file_path.removeprefix("file://") for task in tasks]
            assert Counter(ids_by_duckdb(names)) == by_scan
        return by_scan

    def require(self, last: int, foreign: Sequence[int] = ()) -> None:
        """Every record up to a batch is in the table once, and so is what others wrote."""
        assert self.seen() == Counter([*range(RECORDS, RECORDS * (last + 1)), *foreign])

    def expire_snapshots(self) -> None:
        """Forget every snapshot but the current one."""
        table = self.table()
        current = table.current_snapshot()
        assert current is not None
        old = [it.snapshot_id for it in table.snapshots() if it.snapshot_id != current.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def roll_back_to(self, snapshot: int) -> None:
        """Make an earlier snapshot the current one."""
        with self.table().manage_snapshots() as manage:
            manage.rollback_to_snapshot(snapshot)

    def snapshot(self) -> int:
        """The current one."""
        current = self.table().current_snapshot()
        assert current is not None
        return current.snapshot_id
