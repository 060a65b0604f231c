"""Files as the target of a batch loop: written unseen, named by the ledger, then shown to Spark's readers. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, OutputStore
from exactlyonce.connectors.files import columns as schemas
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.former_output import former_files, require_numbered_behind
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.replayed import replayed_manifests, with_replayed
from exactlyonce.connectors.files.shown import latest_shown
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.connectors.files.spec import FileFormat, ManifestKind
from exactlyonce.connectors.files.tenancy import FilesLost, Tenant, require_files, require_replayed_files, take_place
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.target import ManifestTarget, Prepared, RecordsOfBatch

SCHEMAS = "_exactlyonce/columns"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What an attempt wrote: its files, and how many rows went into them as the query counted them."""

    files: tuple[DataFile, ...]
    rows: int


class FileWriter(Protocol):
    """Writes rows into data files."""

    def write(self, write: Write | ReplayWrite, rows: Any) -> WrittenFiles:
        """Write rows into files of this attempt alone."""
        ...

    def learn(self, manifest: Manifest) -> None:
        """Take from a batch that has landed how many bytes a row takes."""
        ...


class FilesTarget(ManifestTarget):
    """The folder of one stream, for one driver. Nothing is written before `recover`."""

    takes_replays = True

    def __init__(
        self,
        store: OutputStore,
        writer: FileWriter,
        tenant: Tenant,
        author: Author,
        columns: Mapping[str, Type],
        columns_in: Callable[[str], Mapping[str, Type] | None] = lambda path: None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._tenant = tenant
        self._author = author
        self._columns = columns
        self._columns_in = columns_in
        shows = tenant.manifest == ManifestKind.SPARK_METADATA
        self._log = (
            SparkMetadata(store, store.location, reached, has_former=tenant.former_batch is not None) if shows else None
        )

    def prepare(self, batch: BatchNumber, rows: Any) -> Prepared:
        """Write the rows of a batch."""
        written = self._writer.write(Write.draw(self._author, batch), rows)
        manifest = Manifest(batch, written.rows, written.files, schemas.digest(self._columns))
        return Prepared(manifest.to_json(), manifest.rows)

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Hold the folder to the ledger, and show what an earlier driver landed and did not come to show."""
        manifests = {batch: Manifest.from_json(batch, text) for batch, text in committables.items()}
        if self.writes:
            self._prepare_for(manifests, landed)
        elif not manifests:
            return  # nothing is there to show, and the folder may be nobody's yet
        require_files(self._store, manifests)
        if self._log is not None:
            self._log.recover(manifests, landed)
        if self.writes:
            self._keep_columns()

    def _prepare_for(self, manifests: Mapping[BatchNumber, Manifest], landed: BatchNumber | None) -> None:
        """Make the folder the stream's, and require that the rows of the query fit those that have landed."""
        given = FileFormat(self._tenant.format)
        schemas.require_columns(self._columns, given, self._tenant.partition_by)
        require_numbered_behind(self._tenant.former_batch, landed, self._store.location)
        take_place(self._store, self._tenant)
        reached("folder.taken")
        with_rows = [manifest for _, manifest in sorted(manifests.items()) if manifest.files]
        if not with_rows:
            self._require_fit_with_former(given)
        else:
            landed_columns = self._landed_columns(with_rows[-1])
            schemas.require_fit(landed_columns, self._columns, given, self._store.location)
            self._writer.learn(with_rows[-1])

    def publish(self, batch: BatchNumber, committable: str, records: RecordsOfBatch | None = None) -> None:
        """Show Spark's readers a batch that has landed."""
        manifest = Manifest.from_json(batch, committable)
        if manifest.files:
            self._writer.learn(manifest)
        if self._log is not None:
            self._log.publish({batch: manifest})

    def require_replayed(self, replayed: Mapping[str, str]) -> None:
        """Hold the files that replays have landed to the folder, and their columns to those of this driver."""
        manifests = replayed_manifests(replayed)
        require_replayed_files(self._store, manifests)
        self._require_fitting(manifests)

    def _require_fitting(self, manifests: Iterable[Manifest]) -> None:
        for name in {manifest.schema for manifest in manifests} - {schemas.digest(self._columns)}:
            given = FileFormat(self._tenant.format)
            schemas.require_fit(kept_columns(self._store, name), self._columns, given, self._store.location)

    def with_replayed(self, batch: BatchNumber, committable: str, replayed: Mapping[str, str]) -> str:
        """Return the manifest of a batch with the files of replays, most of which have landed since `recover`."""
        taken = replayed_manifests(replayed)
        self._require_fitting(taken)
        return with_replayed(Manifest.from_json(batch, committable), taken).to_json()

    def _require_fit_with_former(self, given: FileFormat) -> None:
        """Require that readers can read the rows together with those of the query whose output the stream continues."""
        if self._tenant.former_batch is None or given is not FileFormat.PARQUET:
            return
        files = former_files(self._store, latest_shown(self._store))
        former = self._columns_in(files[-1].path) if files else None
        if former is not None:
            held = {
                name: schemas.plain(type_)
                for name, type_ in self._columns.items()
                if name not in self._tenant.partition_by
            }
            schemas.require_fit(former, held, given, self._store.location)

    def _landed_columns(self, manifest: Manifest) -> dict[str, Type]:
        """Columns are kept under a name of their content, by every driver before its first batch."""
        return kept_columns(self._store, manifest.schema)

    def _keep_columns(self) -> None:
        """Keep the columns of what this driver lands, which later ones have to fit."""
        keep_columns(self._store, self._columns)
        reached("folder.columns-kept")


def kept_columns(store: OutputStore, name: str) -> dict[str, Type]:
    """Return the columns that are kept under this name.

    Raises:
        FilesLost: if they are missing or were changed.
    """
    try:
        found = schemas.from_json(store.read(_path_of(name)), name)
    except FileMissing:
        found = None
    if found is None:
        raise _columns_lost(store, name)
    return found


def are_kept(store: OutputStore, columns: Mapping[str, Type]) -> bool:
    """Whether a driver has kept these columns before its first batch."""
    try:
        store.read(_path_of(schemas.digest(columns)))
    except FileMissing:
        return False
    return True


def keep_columns(store: OutputStore, columns: Mapping[str, Type]) -> None:
    """Keep the columns of what is landed, under a name of their content.

    Raises:
        FilesLost: if something else stands there.
    """
    name, content = schemas.digest(columns), schemas.to_json(columns).encode()
    outcome = store.create(_path_of(name), content)
    if isinstance(outcome, AlreadyExists) and outcome.content != content:
        raise _columns_lost(store, name)


def _columns_lost(store: OutputStore, name: str) -> FilesLost:
    return FilesLost(
        f"{store.location}/{_path_of(name)}, which holds the columns of the files that have landed, is missing or "
        "was changed. Restore it, or start a stream with another streamId and another path."
    )


def _path_of(name: str) -> str:
    return f"{SCHEMAS}/{name}.json"
