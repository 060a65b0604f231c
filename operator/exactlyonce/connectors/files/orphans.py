"""Which data files no reader will ever count. Performs no I/O.

A file counts once the ledger's manifest of its batch names it. Files of attempts that failed, or whose driver died, are left
behind; they cost storage and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exactlyonce.connectors.files.manifest import DATA, Manifest, Write
from exactlyonce.positions.ranges import BatchNumber, Epoch


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no manifest names and no driver can land any more; its path is relative to the sink's path."""

    path: str
    size_bytes: int


def orphans(
    listed: Mapping[str, int], manifests: Iterable[Manifest], epoch: Epoch, landed: BatchNumber | None
) -> tuple[Orphan, ...]:
    """Return what can be removed of the files below DATA.

    `listed` has to be older than the rest: list the files first, then read epoch, landed batch and manifests in one
    transaction.
    A file of an earlier epoch cannot land after that, since its driver is fenced, and neither can one of a batch that has
    landed. What the driver of this epoch writes for a later batch is left alone, however old it is, and so is what carries no
    name of an attempt.
    """
    named = {file.path for manifest in manifests for file in manifest.files}
    found = []
    for path, size in sorted(listed.items()):
        write = Write.of_path(path)
        if write is None or f"{DATA}/{path}" in named:
            continue
        is_settled = landed is not None and write.batch <= landed
        if write.epoch < epoch or (write.epoch == epoch and is_settled):
            found.append(Orphan(f"{DATA}/{path}", size))
    return tuple(found)
