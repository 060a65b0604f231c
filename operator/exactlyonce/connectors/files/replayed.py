"""What replays have landed in a folder of files, and how a batch takes it over. Performs no I/O.

A replay's files count once the ledger has a manifest of them under the name of the replay's attempt. They are no batch's: so
Spark's log, whose entries are those of batches, shows them with the next batch that lands, whose manifest then names them.
From then on they are files like any others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exactlyonce.connectors.files.manifest import Manifest, ManifestUnreadable
from exactlyonce.positions.ranges import BatchNumber


def replayed_manifests(texts: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Return the manifests of what replays have landed and no batch has taken over; as the number of their batch they have 0.

    Raises:
        ManifestUnreadable: naming the one that another release wrote, or that was changed.
    """
    return tuple(_parsed(name, text) for name, text in texts.items())


def _parsed(name: str, text: str) -> Manifest:
    try:
        return Manifest.from_json(BatchNumber(0), text)
    except ManifestUnreadable as problem:
        raise unreadable(name) from problem


def unreadable(name: str) -> ManifestUnreadable:
    """Return what is said of a record that this release cannot read."""
    return ManifestUnreadable(
        f"The ledger's record of the files that the replay {name} has landed cannot be read by this release: use the "
        "release that wrote it, or restore the record from a backup."
    )


def with_replayed(manifest: Manifest, taken: Sequence[Manifest]) -> Manifest:
    """Return the manifest of a batch that takes over what replays have landed."""
    files = [
        replace(file, schema=None if it.schema == manifest.schema else it.schema) for it in taken for file in it.files
    ]
    return replace(manifest, rows=manifest.rows + sum(it.rows for it in taken), files=(*manifest.files, *files))
