"""Files outside Spark: of a sink those that have landed and what may be removed, for the command line; a folder as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.locations import names_login
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.compaction import Compaction, compactable
from exactlyonce.connectors.files.compaction_plan import Merge
from exactlyonce.connectors.files.former_output import former_files
from exactlyonce.connectors.files.manifest import WRITING, Manifest
from exactlyonce.connectors.files.orphans import find_orphans
from exactlyonce.connectors.files.parquet import ParquetMerger, spans_in
from exactlyonce.connectors.files.rebuilt import rebuilt_positions
from exactlyonce.connectors.files.replayed import replayed_manifests
from exactlyonce.connectors.files.shown import latest_shown
from exactlyonce.connectors.files.source_bounds import FolderAddress, FolderFleet
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.connectors.files.standing import standing
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.errors import Refused
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay_decisions import made_visible
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.schema.places import S3_PREFIX
from exactlyonce.sink.files import LandedFile, Orphan, Rebuilt, SmallFiles, StreamUnknown


class CompactionUnsupported(Refused):
    """Files of this format cannot be merged."""


@dataclass(frozen=True)
class FilesFolder:
    """An `OutputFolder`."""

    sink: FilesSink
    store: FolderStore

    @property
    def location(self) -> str:
        """The sink's path."""
        return self.store.location

    def address(self, path: str) -> str:
        """Return a file's address."""
        return address_of(self.sink, path)

    def orphans(self, ledger: Ledger, stream_id: str) -> tuple[Orphan, ...]:
        """Look for orphans."""
        return find_orphans(self.store, ledger, stream_id)

    def former(self) -> tuple[LandedFile, ...]:
        """Read the entries of a query of Spark's own that the stream continues."""
        if self.sink.continue_after_batch is None:
            return ()
        found = former_files(self.store, latest_shown(self.store))
        return tuple(LandedFile(self.address(file.path), None, file.size_bytes, None, ()) for file in found)

    def rebuilt(self, stream_id: str) -> tuple[Rebuilt, ...]:
        """Read the positions in the rows."""
        return rebuilt_positions(self.store, stream_id, partial(spans_in, self.store, self.location))

    def small_files(self, ledger: Ledger, stream_id: str) -> tuple[SmallFiles, ...]:
        """Look for files to merge."""
        self._require_parquet()
        _require_known(ledger, stream_id)
        found = standing(self.store, ledger, stream_id, latest_shown(self.store))
        return tuple(map(self._told, compactable(found, self.sink.target_file_bytes)))

    def compact(self, ledger: Ledger, stream_id: str) -> Iterator[SmallFiles]:
        """Merge files."""
        self._require_parquet()
        _require_known(ledger, stream_id)
        merger = ParquetMerger(self.store, self.location)
        return map(self._told, Compaction(self.store, ledger, stream_id, self.sink.target_file_bytes, merger).run())

    def _told(self, merge: Merge) -> SmallFiles:
        return SmallFiles(self.address(merge.folder), len(merge.files), merge.size_bytes, merge.rows)

    def _require_parquet(self) -> None:
        if self.sink.format is not FileFormat.PARQUET:
            raise CompactionUnsupported(
                f"The files in {self.location} are {self.sink.format}, and only Parquet files can be merged, since their "
                "footers prove that no row is lost; let batches be larger instead."
            )

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Remove orphans; an attempt's own folder goes as a whole, since nothing in it can land if one file cannot."""
        paths = [orphan.path for orphan in orphans]
        unfinished = [path.removeprefix(f"{WRITING}/") for path in paths if path.startswith(f"{WRITING}/")]
        self.store.delete([path for path in paths if not path.startswith(f"{WRITING}/")])
        for attempt in dict.fromkeys(path.partition("/")[0] for path in unfinished):
            self.store.remove(f"{WRITING}/{attempt}")


def address_of(sink: FilesSink, path: str) -> str:
    """Return what a reader opens for a file of this sink: a path, or s3://, as every reader but Spark's calls it.

    Performs no I/O.
    """
    folder = sink.folder
    return f"{'s3://' + folder.removeprefix(S3_PREFIX) if sink.is_on_s3 else folder}/{path}"


def _require_known(ledger: Ledger, stream_id: str) -> None:
    if ledger.view(stream_id) is None:
        raise StreamUnknown(
            f"The ledger does not know {stream_id}: the stream has never run, or this is not its ledger; compare "
            "spec.ledger and spec.streamId with those of the stream that runs."
        )


def _of_one_moment(
    transaction: LedgerTransaction, stream_id: str
) -> tuple[Mapping[BatchNumber, str], Mapping[str, str]]:
    """Return what batches and what replays have made visible, without the stream's lock: who lists files may only read.

    A batch may take over what a replay has landed between two statements. A name never comes back: so as long as all that were
    there before are there behind, no batch that was read has taken one over.
    """
    replayed = made_visible(transaction.read_replayed(stream_id))
    while True:
        committables = transaction.read_committables(stream_id)
        before, replayed = replayed, made_visible(transaction.read_replayed(stream_id)) if replayed else replayed
        if before.keys() <= replayed.keys():
            return committables, before


class FilesConnector:
    """A `FileSink`."""

    def landed(self, spec: object, ledger: Ledger, stream_id: str) -> tuple[LandedFile, ...]:
        """Return the files that the ledger names."""
        assert isinstance(spec, FilesSink), "the registry gives each connector its own spec"
        _require_known(ledger, stream_id)
        with ledger.transaction() as transaction:
            committables, replayed = _of_one_moment(transaction, stream_id)
        found: list[tuple[BatchNumber | None, Manifest]] = [
            *((batch, Manifest.from_json(batch, text)) for batch, text in committables.items()),
            *((None, manifest) for manifest in replayed_manifests(replayed)),
        ]
        return tuple(
            LandedFile(address_of(spec, file.path), batch, file.size_bytes, file.rows, file.spans)
            for batch, manifest in found
            for file in manifest.files
        )

    def folder(self, spec: object, secret: Mapping[str, str]) -> FilesFolder:
        """Return the folder of a stream."""
        assert isinstance(spec, FilesSink), "the registry gives each connector its own spec"
        return FilesFolder(spec, open_folder(spec.place_on_s3 or spec.path, secret))


class FolderConnector:
    """Folders as sources."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> FolderAddress:
        """Return where the folder is."""
        assert isinstance(spec, FilesSource), "the registry gives each connector its own spec"
        if spec.place_on_s3 is not None:
            names_login(spec.place_on_s3, secret)  # half a login is told before a driver is started
        return FolderAddress(spec, secret)

    def fleet(self, key: tuple[tuple[str, str], ...]) -> FolderFleet:
        """Return folders as the monitor asks them."""
        return FolderFleet()


FILES = FilesConnector()
SOURCE = FolderConnector()
