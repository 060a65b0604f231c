"""A folder as a source outside of Spark: nobody but the driver and its tasks reads it, so nothing here performs I/O.

A position says by itself which files it stands for, and every read of a file proves that it is the one that was planned
(`source_folder.py`). So there is nothing that a look from outside could add to a decision: the operator may not even be on a
machine that has the folder. How many files wait is counted beside that, where the operator can (`source_counter.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.connectors.files.source_codec import CODEC, FolderCodec
from exactlyonce.connectors.files.source_counter import FolderCounter
from exactlyonce.connectors.files.source_position import NOTHING_READ
from exactlyonce.connectors.files.source_spec import KEY, FilesSource
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.errors import Refused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import PARTITION_END, Partition, Positions, Ranges
from exactlyonce.schema.places import NamedPlace
from exactlyonce.source.connector import Answer, GoesOn
from exactlyonce.source.port import Bounds, LeaderEpochs, SourceNow, SourceView

_IDENTITY = "folder"
"""A folder that is deleted and recreated is no other source: its files are told apart one by one."""

_BOUNDS = Bounds(NOTHING_READ, PARTITION_END, tells_ages=False)
"""What a folder holds is not known outside of it, so neither is where it ends now."""


class RowsTellNoFiles(Refused):
    """What follows on a row cannot be told for this source."""


@dataclass(frozen=True)
class WithoutFingerprints:
    """What `last_records` has read: nothing, since the positions themselves say which files they stand for."""

    without_records: frozenset[Partition]

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return nothing."""
        return {}


@dataclass(frozen=True)
class FolderBounds:
    """A `SourceCheck` of one folder."""

    spec: FilesSource

    @property
    def address(self) -> str:
        """The folder."""
        return self.spec.address

    @property
    def codec(self) -> FolderCodec:
        """How Spark's logs hold positions."""
        return CODEC

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return the folder, and others that the stream has read, each without a known end."""
        selected = frozenset({Partition(self.spec.folder, KEY)})
        return SourceView(
            dict.fromkeys(selected | also, _BOUNDS), {key.origin: _IDENTITY for key in selected | also}, selected
        )

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Return the position in front of the first file."""
        return Positions(dict.fromkeys(view.selected if only is None else only, NOTHING_READ))

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return that the folder is the one that it was."""
        return SourceNow(
            Positions(dict.fromkeys(partitions, NOTHING_READ)),
            {key.origin: _IDENTITY for key in partitions},
            _epochs(partitions),
        )

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Return the same epoch for ever: a folder has no leader."""
        return lambda: _epochs(partitions)

    def records_at(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Fingerprint | None]:
        """Return nothing: none was kept."""
        return {}

    def compacted(self, origins: frozenset[str]) -> frozenset[str]:
        """Return all of them: a file may go once it has landed."""
        return origins

    def last_records(self, ranges: Ranges) -> WithoutFingerprints:
        """Return nothing; see `WithoutFingerprints`."""
        return WithoutFingerprints(frozenset(ranges))


@dataclass(frozen=True)
class FolderFleet:
    """A `SourceFleet` of folders, of which nothing is known from outside."""

    def origins(self, specs: Collection[SourceSpec]) -> Mapping[str, Collection[int | str]]:
        """Return each stream's folder, with its one partition."""
        return {origin: [KEY] for spec in specs for origin in spec.selection().origins}

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return bounds without a known end."""
        return Answer(dict.fromkeys(partitions, _BOUNDS), {})

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | None]:
        """Return nothing: whether a file waits is not known here."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class FolderAddress:
    """Where a folder is: a `SourceAddress`, and a `CountsFiles`. `secret` is what its `secretRef` names, if anything."""

    spec: FilesSource
    secret: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Nothing that needs a connection."""
        return ()

    @property
    def shown(self) -> str:
        """The folder."""
        return self.spec.address

    @property
    def reached_by_process(self) -> tuple[NamedPlace, ...]:
        """Nothing: a path needs no login."""
        return ()

    def store_name(self, namespace: str) -> str:
        """Return the name of the folder."""
        return f"the folder {self.spec.address} of namespace {namespace}"

    def client(self) -> None:
        """Return nothing: nothing is asked."""

    def start_behind(self, last: Mapping[Partition, int]) -> GoesOn:
        """Refuse: a row says which file it is from, and not which files were read before it.

        Raises:
            RowsTellNoFiles: always.
        """
        raise RowsTellNoFiles(
            f"The rows do not tell which files of {self.spec.address} were read before them, so no stream can continue behind "
            "them; move the files that have landed out of the folder, and start a stream over those that have not."
        )

    def open(self, client: Any = None) -> FolderBounds:
        """Return the folder."""
        return FolderBounds(self.spec)

    def counter(self, checkpoints: ErasableStore) -> FolderCounter:
        """Return what counts its files, which are read by the login of the stream's own secret alone."""
        return FolderCounter(self.spec, self.secret, checkpoints)


def _epochs(partitions: list[Partition]) -> LeaderEpochs:
    return dict.fromkeys(partitions, 0)
