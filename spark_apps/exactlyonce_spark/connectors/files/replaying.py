"""A folder of files as a replay writes to it: files first, under names of the replay; then the ledger names them. No pyspark.

The transaction that marks the ranges records the files as well, so they count exactly if the ranges are Replayed. Whoever dies
in between leaves files that no list names; once the replay holds no range any more, they are orphans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files import columns as schemas
from exactlyonce.connectors.files.columns import ColumnsUnfit, Type, told
from exactlyonce.connectors.files.manifest import Manifest, ReplayWrite
from exactlyonce.connectors.files.shown import latest_shown
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.standing import standing
from exactlyonce.connectors.files.tenancy import Tenant, require_unchanged
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.files.as_yielded import fit_files
from exactlyonce_spark.connectors.files.target import WrittenFiles, are_kept, keep_columns, kept_columns
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.target import DeadLetter


class ReplayWriter(Protocol):
    """Writes rows of a replay into data files, as a `FileWriter` does those of a batch."""

    def write(self, write: ReplayWrite, rows: Any) -> WrittenFiles:
        """Write rows into files of this attempt alone."""
        ...

    def learn(self, manifest: Manifest) -> None:
        """Take from what has landed how many bytes a row takes."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """The files of a chunk, under the name of the attempt that wrote them."""

    name: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class FilesReplayTarget:
    """A `ReplayTarget` that `WritesAhead`, of the replay with a token, in one life of the stream."""

    stream_id: str
    life: str
    token: str
    columns: Mapping[str, Type]
    writer: ReplayWriter

    def prepare(self, batch: BatchNumber, rows: Any) -> WrittenChunk:
        """Write the rows into files that nobody's list names."""
        write = ReplayWrite.draw(self.life, self.token, batch)
        written = self.writer.write(write, rows)
        reached("replay.files-written", batch)
        return WrittenChunk(write.name, Manifest(batch, written.rows, written.files, schemas.digest(self.columns)))

    def write(self, transaction: LedgerTransaction, rows: WrittenChunk) -> int:
        """Let the files count; a chunk of which no row was made has none."""
        if rows.manifest.files:
            transaction.write_replayed(self.stream_id, rows.name, rows.manifest.to_json())
        return rows.manifest.rows

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """There are none: a rule of the resource refuses them with such a sink."""
        raise AssertionError("a sink of files keeps no dead letters")


@dataclass
class PreparedFolderOfReplay:
    """A `PreparedReplay`: the folder, which is the stream's under this ledger."""

    sink: FilesSink
    store: OutputStore
    ledger: Ledger
    stream_id: str
    _renamed: dict[str, str] = field(default_factory=dict)
    _columns: dict[str, Type] = field(default_factory=dict)

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        self._columns, self._renamed, fitted = fit_files(self.sink, yielded, positions)
        return fitted

    def target(self, columns: Sequence[FittedColumn], token: str) -> FilesReplayTarget:
        """Return the target; what it lands has the columns of what the stream has landed last."""
        from exactlyonce_spark.connectors.files.writer import SparkFileWriter

        return self.with_writer(SparkFileWriter(self.sink, self._renamed), token)

    def with_writer(self, writer: ReplayWriter, token: str) -> FilesReplayTarget:
        """Return the target over a writer.

        Raises:
            NothingToReplayInto: if the ledger does not know the stream.
            Refused: if the folder is not the stream's under this ledger, shows readers what the ledger does not know, or has
                files of other columns, of another format or in other partitions.
        """
        if self.ledger.view(self.stream_id) is None:
            raise NothingToReplayInto(f"The ledger has no row of {self.stream_id}; start the stream first.")
        found = standing(self.store, self.ledger, self.stream_id, latest_shown(self.store))
        require_unchanged(
            self.store.location, found.tenant, Tenant.of(self.sink, self.stream_id, self.ledger.identity())
        )
        landed = [manifest for _, manifest in sorted(found.manifests.items()) if manifest.files]
        landed = landed or list(found.replayed)
        if landed:
            self._require_same_columns(kept_columns(self.store, landed[-1].schema))
            writer.learn(landed[-1])
        elif not are_kept(self.store, self._columns):
            # What the replay lands would settle the columns, which the stream that runs may not have.
            named = ", ".join(f"{name} ({told(kind)})" for name, kind in self._columns.items())
            raise ColumnsUnfit(
                f"Nothing has landed in {self.store.location} yet, and the stream has not been started with the columns of "
                f"this replay: {named}. Replay with the stream's own transform, or start the stream with this one first."
            )
        keep_columns(self.store, self._columns)
        return FilesReplayTarget(self.stream_id, found.stream.life, token, self._columns, writer)

    def _require_same_columns(self, landed: Mapping[str, Type]) -> None:
        """A column that is new comes with the stream, which would refuse files with it once it does without it again."""
        schemas.require_fit(landed, self._columns, self.sink.format, self.store.location)
        new = [f"{name} ({told(kind)})" for name, kind in self._columns.items() if name not in landed]
        if new:
            raise ColumnsUnfit(
                f"A replay into {self.store.location} would add columns that no file has yet: {', '.join(new)}. Leave them out "
                "of its transform, or add them to the stream's transform and replay once the stream has landed a batch."
            )
