"""A table with a log as the target of a batch loop: files that no log names, the ledger's entry, one commit. No pyspark here.

The commit carries the batch's number: for Delta, as the version of the stream's own transaction. Of two drivers that commit one
batch, the first adds its files; the other finds the number there, in the log or by the log's conflict check, and adds nothing.
Iceberg tables go by the same steps; what differs is in methods that their target overrides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import digest
from exactlyonce.connectors.files.manifest import Author, Manifest, ReplayWrite, Write
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.fit import lacking, require_files_fit, require_holdable, require_partitioned_so
from exactlyonce_spark.connectors.delta.gone import require_files_of_batch, require_replayed_files, require_same_table
from exactlyonce_spark.connectors.delta.history_notes import notes_on_records
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest, replayed_tables
from exactlyonce_spark.connectors.delta.table import (
    DeltaTableLog,
    FileFacts,
    RowsGone,
    TableLog,
    TableOfAnother,
    TableSeen,
    TableUnfit,
    Wanted,
    busy_table,
    require_not_restored,
    unpublished,
    unwritable_table,
)
from exactlyonce_spark.connectors.files.target import FileWriter
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.target import ManifestTarget, NotLookedAt, Prepared, RecordsOfBatch

OF_REPLAY = "the chunk of a replay"
TRIES = 20
"""How often a commit is tried while others change what it depends on; appends of others do not."""


class TableTarget(ManifestTarget):
    """The table of one stream, for one driver. Nothing is written before `recover`."""

    takes_replays = True
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
        self._looked_at: set[str] = set()
        """What replays have landed and this batch may take over, by the names of their attempts."""

    def prepare(self, batch: BatchNumber, rows: object) -> Prepared:
        """Write the rows of a batch into files of this attempt alone, which the table's log does not name."""
        self._looked_at.clear()
        written = self.written(Write.draw(self._author, batch), rows)
        return Prepared(written.to_json(), written.manifest.rows)

    def written(self, write: Write | ReplayWrite, rows: object) -> TableManifest:
        """Write the rows of an attempt, be it a driver's or a replay's."""
        written = self._writer.write(write, rows)
        manifest = Manifest(write.batch, written.rows, written.files, digest(self._wanted.columns))
        return TableManifest(self._table, self._author.life, manifest)

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Hold the table to the ledger, commit what an earlier driver landed and did not commit, fit the columns."""
        manifests, with_files, life = self._landed(committables)
        if self.writes:
            self._require_holdable()
        elif not with_files:
            return
        missing = self._held_to(with_files, life, self._seen_or_created(life, with_files))
        if missing is not None:
            self._commit(replace(missing, told=notes_on_records(records)) if missing is manifests[-1] else missing)
        if not self.writes:
            return
        if life != self._author.life:
            # A person has settled whose the stream is: nothing has landed in its new life.
            _, self._number = unpublished(self._seen(self._author.life), (), self._wanted.where, self._wanted.words)
        if self._number is None:
            self._register()
        self._fit_columns()

    def require_replayable(self, committables: Mapping[BatchNumber, str]) -> None:
        """Hold the table to the ledger for a replay, which writes files for it as it is and changes nothing of it.

        Raises:
            Refused: if a driver would be refused, or the replay's columns are not the table's.
        """
        self._require_holdable()
        _, with_files, life = self._landed(committables)
        if not with_files and self._log.view(life) is None:
            raise NothingToReplayInto(
                f"There is no table at {self._wanted.where} yet; start the stream, which creates it."
            )
        self._held_to(with_files, life, self._seen(life))
        TableTarget.require_takes_replay(self)

    def require_takes_replay(self) -> None:
        """Require that the table, as it is now, has the columns of a replay, and is the one that its files are written for.

        Raises:
            TableUnfit, TableOfAnother: if it does not; what was written is not to be landed.
        """
        seen = self._seen(self._author.life)
        if seen.id != self._table:
            raise TableOfAnother(
                f"Somebody has deleted and recreated the table at {self._wanted.where} while a replay was writing to it. What "
                "it was about to land has not landed; restore the former table."
            )
        sink = self._wanted.words.sink
        new = lacking(seen, self._wanted.columns, self._wanted.partition_by, self._wanted.where, sink)
        if new:
            raise TableUnfit(
                f"The replay yields {', '.join(new)}, which the table at {self._wanted.where} lacks, and a replay adds no "
                "column. Leave it out of its transform; or add it to the table, or to the stream's transform with "
                f"{sink}.schemaEvolution: AddColumns, and replay once the stream has been started with it."
            )

    def require_replayed(self, replayed: Mapping[str, str]) -> None:
        """Hold what replays have landed, and no batch has taken over, to the table as it is now."""
        if replayed:
            self._require_committable(replayed_tables(replayed))
            self._looked_at |= replayed.keys()

    def with_replayed(self, batch: BatchNumber, committable: str, replayed: Mapping[str, str]) -> str:
        """Return the manifest of a batch with the files of replays, which its commit adds; they were looked at right before."""
        unseen = {name: text for name, text in replayed.items() if name not in self._looked_at}
        if unseen:
            raise NotLookedAt(unseen)
        return TableManifest.from_json(batch, committable).with_replayed(replayed_tables(replayed)).to_json()

    def _require_committable(self, replayed: Sequence[TableManifest]) -> None:
        """Require that files of replays are there, and that the table reads in them what was written to them."""
        seen = self._seen(self._author.life)
        same_table = seen.id == self._table
        require_same_table([it for it in replayed if not same_table or it.table != seen.id], self._wanted)
        files = [file for it in replayed for file in it.manifest.files]
        facts = self._log.facts(files)
        require_replayed_files(files, facts, self._wanted)
        self._require_files_fit(seen, facts, OF_REPLAY)
        require_partitioned_so(seen, files, OF_REPLAY, self._wanted.where)

    def _landed(self, committables: Mapping[BatchNumber, str]) -> tuple[list[TableManifest], list[TableManifest], str]:
        """Return all batches, those with files, and the life in which the latest of these has landed."""
        manifests = [TableManifest.from_json(batch, text) for batch, text in sorted(committables.items())]
        with_files = [manifest for manifest in manifests if manifest.manifest.files]
        return manifests, with_files, with_files[-1].life if with_files else self._author.life

    def _held_to(self, with_files: Sequence[TableManifest], life: str, seen: TableSeen) -> TableManifest | None:
        """Compare the table with the ledger, learn what it has, and return the batch that it lacks."""
        of_life = [it for it in with_files if it.life == life]
        missing, self._number = unpublished(seen, of_life, self._wanted.where, self._wanted.words)
        self._table = seen.id
        shown = with_files if missing is None else with_files[:-1]
        self._shown = shown[-1].life if shown else None
        self._require_not_restored()
        if with_files:
            self._writer.learn(with_files[-1].manifest)
        return missing

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
            raise unwritable_table(self._wanted, seen.unwritable)
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
        raise busy_table(self._wanted, TRIES)

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
                raise unwritable_table(self._wanted, seen.unwritable)
            self._require_not_restored()
            facts = self._log.facts(manifest.manifest.files)
            require_files_of_batch(manifest, facts, self._wanted)
            whose = f"batch {manifest.batch}"
            self._require_files_fit(seen, facts, whose)
            require_partitioned_so(seen, manifest.manifest.files, whose, self._wanted.where)
            reached("table.before-commit", manifest.batch)
            if self._log.commit(manifest, facts):
                reached("table.committed", manifest.batch)
                self._number, self._shown = manifest.number, manifest.life
                return
        raise busy_table(self._wanted, TRIES)

    @abstractmethod
    def _require_holdable(self) -> None:
        """Require that such a table can have these columns."""

    @abstractmethod
    def _require_files_fit(self, seen: TableSeen, facts: Mapping[str, FileFacts], whose: str) -> None:
        """Require that readers of the table find in files that are to be committed what was written to them.

        `whose` says which landing's they are, for a sentence.
        """

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
        raise busy_table(self._wanted, TRIES)


class DeltaTarget(TableTarget):
    """The Delta table of one stream."""

    _log: DeltaTableLog

    def __init__(self, log: DeltaTableLog, writer: FileWriter, author: Author, wanted: Wanted) -> None:
        super().__init__(log, writer, author, wanted)

    def _require_holdable(self) -> None:
        require_holdable(self._wanted.columns, self._wanted.partition_by)

    def _require_files_fit(self, seen: TableSeen, facts: Mapping[str, FileFacts], whose: str) -> None:
        require_files_fit(seen, facts, whose, self._wanted.where)

    def _require_not_restored(self) -> None:
        if self._shown is not None:
            since = self._log.since_ours(self._shown)
            require_not_restored(since, self._wanted.accepted_restore, self._wanted.where)
