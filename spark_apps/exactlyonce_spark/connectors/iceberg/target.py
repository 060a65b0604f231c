"""An Iceberg table as the target of a batch loop, by the steps of every table with a log. No pyspark here.

A commit is taken by the very state of the table that was looked at, and by no other, so whatever others commit meanwhile, the
table is looked at again: of two drivers that commit one batch, the second finds its number there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from exactlyonce.connectors.files.manifest import Author, ReplayWrite, Write
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.table import FileFacts, TableLog, TableSeen, TableUnfit, Wanted
from exactlyonce_spark.connectors.delta.target import TableTarget
from exactlyonce_spark.connectors.files.target import FileWriter
from exactlyonce_spark.connectors.iceberg.data_files import Footer, require_days_known
from exactlyonce_spark.connectors.iceberg.fit import require_holdable
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker, require_not_rolled_back
from exactlyonce_spark.target import RecordsOfBatch


class SnapshotLog(TableLog, Protocol):
    """A table that takes a commit as `view` saw it, and in no other state."""

    def marker(self, life: str) -> Marker | None:
        """Return what the table, as `view` saw it last, knows of a life of the stream; None if it does not know it."""
        ...

    def history(self) -> Iterable[Ancestor]:
        """Return the current snapshot and its ancestors as `view` saw them last, as far as they are not expired."""
        ...

    def added(self) -> Mapping[int, int]:
        """Return the batch of this stream that each snapshot has added, of those that are not expired, wherever they are."""
        ...

    def ids(self) -> Mapping[str, int]:
        """Return the id of each column of the table as `view` saw it last."""
        ...


class IdentifyingWriter(FileWriter, Protocol):
    """Writes rows into data files whose columns have the ids of the table's fields."""

    ids: Mapping[str, int]


class IcebergTarget(TableTarget):
    """The Iceberg table of one stream."""

    _log: SnapshotLog

    def __init__(self, log: SnapshotLog, writer: IdentifyingWriter, author: Author, wanted: Wanted) -> None:
        super().__init__(log, writer, author, wanted)
        self._identifying = writer

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Hold the table to the ledger, and learn the ids of its columns."""
        super().recover(committables, landed, records)
        if self.writes:
            self._identifying.ids = self._ids()

    def require_replayable(self, committables: Mapping[BatchNumber, str]) -> None:
        """Hold the table to the ledger for a replay, and learn the ids of its columns."""
        super().require_replayable(committables)
        self._identifying.ids = self._ids()

    def written(self, write: Write | ReplayWrite, rows: object) -> TableManifest:
        """Write the rows, unless somebody has dropped, recreated or renamed their columns by the time they are written.

        A batch that lands later was written before such a change: its values share the fate of those that were there.
        """
        by_replay = isinstance(write, ReplayWrite)
        self._require_known_columns(by_replay)
        written = super().written(write, rows)
        self._require_known_columns(by_replay)
        require_days_known(write.batch, written.manifest.files, self._wanted.columns)
        return written

    def require_takes_replay(self) -> None:
        """Require the same, and the ids of columns that the files have."""
        super().require_takes_replay()
        self._require_known_columns(by_replay=True)

    def _require_known_columns(self, by_replay: bool) -> None:
        seen = self._seen(self._author.life)
        if self._ids() != self._identifying.ids or seen.partition_by != tuple(self._wanted.partition_by):
            who, what, then = (
                ("a replay", "chunk", "replay again") if by_replay else ("a driver", "batch", "restart the stream")
            )
            raise TableUnfit(
                f"Somebody has dropped, recreated or renamed columns of the table at {self._wanted.where}, or partitioned it "
                f"otherwise, while {who} was writing to it. Nothing of this {what} has landed: change the transform or the "
                f"table, and {then}."
            )

    def _ids(self) -> dict[str, int]:
        return {name: id_ for name, id_ in self._log.ids().items() if name in self._wanted.columns}

    def _require_holdable(self) -> None:
        require_holdable(self._wanted.columns, self._wanted.partition_by)

    def _require_files_fit(self, seen: TableSeen, facts: Mapping[str, FileFacts], whose: str) -> None:
        """Columns are known by ids that are never used again: one that is renamed has its values, one that is gone is not read.

        One that is gone and has a namesake would be read as NULL where the query said a value.
        """
        ids = self._log.ids()
        written = [named for fact in facts.values() if isinstance(fact, Footer) for named in fact.ids().items()]
        gone = {name for name, id_ in written if id_ is not None and id_ not in ids.values()}
        recreated = sorted(gone & ids.keys())
        if recreated:
            raise TableUnfit(
                f"Somebody has dropped columns of the table at {self._wanted.where} and added others by their names "
                f"({', '.join(recreated)}), so the values of {whose}, which has landed, would be NULL. Make the "
                "former schema current again (columns that are added have new ids); or drop or rename the new ones until "
                f"{whose} is committed without these values."
            )

    def _require_not_restored(self) -> None:
        marker = None if self._shown is None else self._log.marker(self._shown)
        if marker is not None:
            history, added = list(self._log.history()), self._log.added()
            require_not_rolled_back(marker, history, added, self._wanted.accepted_restore, self._wanted.where)
