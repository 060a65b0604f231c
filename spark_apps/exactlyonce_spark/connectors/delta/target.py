"""A table with a log as the target of a batch loop: files that no log names, the ledger's entry, one commit. No pyspark here.

The commit carries the batch's number: for Delta, as the version of the stream's own transaction. Of two drivers that commit one
batch, the first adds its files; the other finds the number there, in the log or by the log's conflict check, and adds nothing.
Iceberg tables go by the same steps; what differs is in methods that their target overrides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import Type, digest
from exactlyonce.connectors.files.manifest import Author, Manifest, Write
from exactlyonce.errors import Unreachable
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.fit import (
    lacking,
    require_files_fit,
    require_holdable,
    require_partitioned_so,
)
from exactlyonce_spark.connectors.delta.history_notes import notes_on_records
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest
from exactlyonce_spark.connectors.delta.table import (
    DELTA,
    DeltaTableLog,
    FileFacts,
    RowsGone,
    TableLog,
    TableOfAnother,
    TableSeen,
    TableUnfit,
    Words,
    require_not_restored,
    unpublished,
)
from exactlyonce_spark.connectors.files.target import FileWriter
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.target import ManifestTarget, Prepared, RecordsOfBatch

TRIES = 20
"""How often a commit is tried while others change what it depends on; appends of others do not."""


class TableBusy(Unreachable):
    """Others have changed the table in each try; the next driver tries again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream asks of its table."""

    where: str
    columns: Mapping[str, Type]
    partition_by: tuple[str, ...]
    evolution: SchemaEvolution = SchemaEvolution.REFUSE
    accepted_restore: int | None = None
    words: Words = DELTA


class TableTarget(ManifestTarget):
    """The table of one stream, for one driver. Nothing is written before `recover`."""

    tells_records = True

    def __init__(self, log: TableLog, writer: FileWriter, author: Author, wanted: Wanted) -> None:
        self._log = log
        self._writer = writer
        self._author = author
        self._wanted = wanted
        self._table = ""
        self._number: int | None = None
        self._shown: str | None = None
        """The life of the latest batch that the table has."""

    def prepare(self, batch: BatchNumber, rows: object) -> Prepared:
        """Write the rows of a batch into files of this attempt alone, which the table's log does not name."""
        written = self._writer.write(Write.draw(self._author, batch), rows)
        manifest = Manifest(batch, written.rows, written.files, digest(self._wanted.columns))
        return Prepared(TableManifest(self._table, self._author.life, manifest).to_json(), manifest.rows)

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Hold the table to the ledger, commit what an earlier driver landed and did not commit, fit the columns."""
        self._require_holdable()
        manifests = [TableManifest.from_json(batch, text) for batch, text in sorted(committables.items())]
        with_files = [manifest for manifest in manifests if manifest.manifest.files]
        life = with_files[-1].life if with_files else self._author.life
        seen = self._seen_or_created(life, with_files)
        of_life = [it for it in with_files if it.life == life]
        missing, number = unpublished(seen, of_life, self._wanted.where, self._wanted.words)
        self._table, self._number = seen.id, number
        shown = with_files if missing is None else with_files[:-1]
        self._shown = shown[-1].life if shown else None
        self._require_not_restored()
        if with_files:
            self._writer.learn(with_files[-1].manifest)
        if missing is not None:
            self._commit(replace(missing, told=notes_on_records(records)) if missing is manifests[-1] else missing)
        if life != self._author.life:
            # A person has settled whose the stream is: nothing has landed in its new life.
            _, self._number = unpublished(self._seen(self._author.life), (), self._wanted.where, self._wanted.words)
        if self._number is None:
            self._register()
        self._fit_columns()

    def publish(self, batch: BatchNumber, committable: str, records: RecordsOfBatch | None = None) -> None:
        """Commit a batch that has landed."""
        manifest = replace(TableManifest.from_json(batch, committable), told=notes_on_records(records))
        if manifest.manifest.files:
            self._writer.learn(manifest.manifest)
            self._commit(manifest)

    def _seen_or_created(self, life: str, landed: Sequence[TableManifest]) -> TableSeen:
        seen = self._log.view(life)
        if seen is None and not landed:
            self._log.create(self._wanted.columns, self._wanted.partition_by)
            reached("table.created")
        return self._seen(life)

    def _seen(self, life: str) -> TableSeen:
        seen = self._log.view(life)
        if seen is None:
            raise TableOfAnother(
                f"There is no table at {self._wanted.where}, and batches of this stream have landed: somebody deleted it, or "
                f"the stream was given another location. Restore it, or use the former location, or "
                f"{self._wanted.words.another}."
            )
        if seen.unwritable is not None:
            raise self._unwritable(seen.unwritable)
        return seen

    def _register(self) -> None:
        """Have the table know the stream before a row lands: from then on, one that does not know it was tampered with."""
        self._number = REGISTERED
        for _ in range(TRIES):
            if self._log.commit(None, {}):
                reached("table.registered")
                return
            if self._seen(self._author.life).number is not None:
                return
        raise self._busy()

    def _commit(self, manifest: TableManifest) -> None:
        """Add the files of a batch to the table once, whoever else is about to, and however often it is tried."""
        for _ in range(TRIES):
            seen = self._same_table(manifest)
            if seen.number is not None and seen.number >= manifest.number:
                self._number, self._shown = seen.number, manifest.life
                return
            if seen.number != self._number:
                raise RowsGone(
                    f"The table at {self._wanted.where} has forgotten batches of this stream while a driver was writing to it. "
                    f"Restore its {self._wanted.words.log}, or {self._wanted.words.another}."
                )
            if seen.unwritable is not None:
                raise self._unwritable(seen.unwritable)
            self._require_not_restored()
            facts = self._log.facts(manifest.manifest.files)
            gone = [file.path for file in manifest.manifest.files if file.path not in facts]
            if gone:
                raise RowsGone(
                    f"Files of batch {manifest.batch}, which has landed, are missing from {self._wanted.where} or have another "
                    f"size ({', '.join(gone[:3])}{', …' if len(gone) > 3 else ''}): somebody deleted them before the table's "
                    f"log named them, such as {self._wanted.words.cleanup}. Restore them, and the stream continues with them.",
                    [manifest.batch],
                )
            self._require_files_fit(seen, facts, manifest)
            require_partitioned_so(seen, manifest.manifest.files, manifest.batch, self._wanted.where)
            reached("table.before-commit", manifest.batch)
            if self._log.commit(manifest, facts):
                reached("table.committed", manifest.batch)
                self._number, self._shown = manifest.number, manifest.life
                return
        raise self._busy()

    @abstractmethod
    def _require_holdable(self) -> None:
        """Require that such a table can have these columns."""

    @abstractmethod
    def _require_files_fit(self, seen: TableSeen, facts: Mapping[str, FileFacts], manifest: TableManifest) -> None:
        """Require that readers of the table find in files that are to be committed what was written to them."""

    @abstractmethod
    def _require_not_restored(self) -> None:
        """Require that nobody has taken back what the table had; a restore from before its first batch takes nothing."""

    def _same_table(self, manifest: TableManifest) -> TableSeen:
        seen = self._log.view(manifest.life)
        if seen is None or seen.id != manifest.table:
            raise TableOfAnother(
                f"The table at {self._wanted.where}, for which batch {manifest.batch} was written, is gone or another one. "
                f"Restore it, or {self._wanted.words.another}."
            )
        return seen

    def _fit_columns(self) -> None:
        for _ in range(TRIES):
            seen = self._seen(self._author.life)
            new = lacking(
                seen, self._wanted.columns, self._wanted.partition_by, self._wanted.where, self._wanted.words.sink
            )
            if not new:
                return
            if self._wanted.evolution is SchemaEvolution.REFUSE:
                raise TableUnfit(
                    f"The query yields {', '.join(new)}, which the table at {self._wanted.where} lacks; leave it out in the "
                    f"transform, add it to the table, or set {self._wanted.words.sink}.schemaEvolution: AddColumns."
                )
            if self._log.add_columns(new):
                reached("table.columns-added")
        raise self._busy()

    def _unwritable(self, why: str) -> TableUnfit:
        return TableUnfit(
            f"The table at {self._wanted.where} cannot be written: {why}. Change the table, or use another one."
        )

    def _busy(self) -> TableBusy:
        return TableBusy(
            f"Others have changed the table at {self._wanted.where} in each of {TRIES} tries to commit to it; nothing was lost "
            "by this, and the next driver tries again."
        )


class DeltaTarget(TableTarget):
    """The Delta table of one stream."""

    _log: DeltaTableLog

    def __init__(self, log: DeltaTableLog, writer: FileWriter, author: Author, wanted: Wanted) -> None:
        super().__init__(log, writer, author, wanted)

    def _require_holdable(self) -> None:
        require_holdable(self._wanted.columns, self._wanted.partition_by)

    def _require_files_fit(self, seen: TableSeen, facts: Mapping[str, FileFacts], manifest: TableManifest) -> None:
        require_files_fit(seen, facts, manifest.batch, self._wanted.where)

    def _require_not_restored(self) -> None:
        if self._shown is not None:
            since = self._log.since_ours(self._shown)
            require_not_restored(since, self._wanted.accepted_restore, self._wanted.where)
