"""Which small files become one, and what the ledger says of them afterwards. Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.connectors.files.manifest import DataFile, Manifest, Replaced
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber

MOST_FILES = 1_000
"""So many files are merged between two transactions at most: a crash costs no more, and the ledger's entry stays small."""


class MergeUnfit(Refused):
    """A merged file would not hold exactly what the files hold; they stay as they are, and others can be merged."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one: at least two, of one folder, with the same columns, in the order of their batches.

    `batch` is the latest of theirs, which the merged file will belong to.
    """

    batch: BatchNumber
    files: tuple[DataFile, ...]

    @property
    def folder(self) -> str:
        """The folder, relative to the sink's path and with a slash at its end; empty where files are in no folder."""
        above, slash, _ = self.files[0].path.rpartition("/")
        return above + slash

    @property
    def size_bytes(self) -> int:
        """How large the files are together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        """How many rows they hold."""
        return sum(file.rows or 0 for file in self.files)


def planned(
    manifests: Mapping[BatchNumber, Manifest], until: BatchNumber | None, target_bytes: int
) -> tuple[Merge, ...]:
    """Return what can be merged of the batches before `until`, each into a file of about `target_bytes` at most.

    A file is small if two of its size fit into one. One that a compaction made is left alone for as long as what it replaced is
    recorded, so that no record has to be followed through several merges.
    """
    found: list[Merge] = []
    gathered: dict[tuple[str, str], list[tuple[BatchNumber, DataFile]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for batch, manifest in sorted(manifests.items()):
        if until is not None and batch >= until:
            break
        merged = {replaced.by for replaced in manifest.replaced}
        for file in manifest.files:
            if file.schema is not None:
                continue  # its columns are others than those of its batch
            if file.path in merged or file.rows is None or 2 * file.size_bytes > target_bytes:
                continue
            key = (file.path.rpartition("/")[0], manifest.schema)
            together = gathered.setdefault(key, [])
            if together and sizes[key] + file.size_bytes > target_bytes:
                found += _merges(together)
                together.clear()
                sizes[key] = 0
            together.append((batch, file))
            sizes[key] = sizes.get(key, 0) + file.size_bytes
    for together in gathered.values():
        found += _merges(together)
    return tuple(sorted(found, key=lambda merge: (merge.batch, merge.folder)))


def _merges(together: Sequence[tuple[BatchNumber, DataFile]]) -> Iterator[Merge]:
    for first in range(0, len(together), MOST_FILES):
        part = together[first : first + MOST_FILES]
        if len(part) > 1:
            yield Merge(part[-1][0], tuple(file for _, file in part))


def next_merges(merges: Sequence[Merge]) -> tuple[Merge, ...]:
    """Return the first of them that have MOST_FILES files together at most."""
    files, taken = 0, 0
    for merge in merges:
        files += len(merge.files)
        if files > MOST_FILES:
            break
        taken += 1
    return tuple(merges[:taken])


def switched(
    manifests: Mapping[BatchNumber, Manifest], merged: Sequence[tuple[Merge, DataFile]], now_milliseconds: int
) -> dict[BatchNumber, Manifest]:
    """Return the manifests that change where each merged file counts in the place of the files that it was made of."""
    after = dict(manifests)
    gone = {file.path for merge, _ in merged for file in merge.files}
    for batch, manifest in manifests.items():
        if any(file.path in gone for file in manifest.files):
            after[batch] = _with_files(manifest, [file for file in manifest.files if file.path not in gone])
    for merge, file in merged:
        manifest = after[merge.batch]
        replaced = Replaced(file.path, now_milliseconds, tuple(it.path for it in merge.files))
        manifest = replace(manifest, replaced=(*manifest.replaced, replaced))
        after[merge.batch] = _with_files(manifest, [*manifest.files, file])
    return {batch: manifest for batch, manifest in after.items() if manifest != manifests[batch]}


def dated(
    manifests: Mapping[BatchNumber, Manifest], merged: Collection[str], now_milliseconds: int
) -> dict[BatchNumber, Manifest]:
    """Return the manifests that change where what these merged files replaced was replaced now."""
    after = {
        batch: replace(
            manifest,
            replaced=tuple(
                replace(it, since_milliseconds=now_milliseconds) if it.by in merged else it for it in manifest.replaced
            ),
        )
        for batch, manifest in manifests.items()
    }
    return {batch: manifest for batch, manifest in after.items() if manifest != manifests[batch]}


def without(manifests: Mapping[BatchNumber, Manifest], paths: Collection[str]) -> Mapping[BatchNumber, Manifest]:
    """Return what would be if these files were not there."""
    if not paths:
        return manifests
    return {
        batch: _with_files(manifest, [file for file in manifest.files if file.path not in paths])
        for batch, manifest in manifests.items()
    }


def _with_files(manifest: Manifest, files: Sequence[DataFile]) -> Manifest:
    return replace(manifest, files=tuple(files), rows=sum(file.rows or 0 for file in files))
