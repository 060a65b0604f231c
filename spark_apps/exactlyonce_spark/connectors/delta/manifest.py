"""The committable of a batch: which files it has written, and for which table. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exactlyonce.connectors.files import manifest as of_files
from exactlyonce.connectors.files.manifest import DataFile, Manifest, ManifestUnreadable
from exactlyonce.connectors.files.replayed import unreadable, with_replayed
from exactlyonce.positions.ranges import BatchNumber

REGISTERED = 0
"""The number of a stream's transaction in the table before its first batch: from then on the table knows the stream."""


@dataclass(frozen=True, slots=True)
class TableManifest:
    """The files of one batch, with paths from the table's folder on, and the id of the table that they were written for.

    `life` is that of the stream in which it has landed: its transactions in the table have an identifier of that life. A person
    who settles whose a stream is gives it another life, while its ledger continues. `told` is what the table's history is to
    say of the records that the batch holds (`notes_on_records`). The ledger keeps manifests for as long as the stream and has
    that in the batch's row, so it is no part of their text.
    """

    table: str
    life: str
    manifest: Manifest
    told: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def batch(self) -> BatchNumber:
        """The batch."""
        return self.manifest.batch

    @property
    def number(self) -> int:
        """The version of the stream's transaction that commits the batch; batches count from 0 and so does `REGISTERED`."""
        return self.manifest.batch + 1

    def with_replayed(self, taken: Sequence[TableManifest]) -> TableManifest:
        """Return the manifest of a batch that takes over what replays have landed; it is committed in the life of the batch."""
        return replace(self, manifest=with_replayed(self.manifest, [it.manifest for it in taken]))

    def to_json(self) -> str:
        """Render it; equal manifests give equal texts."""
        document = {"table": self.table, "life": self.life, "manifest": json.loads(self.manifest.to_json())}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, batch: BatchNumber, text: str) -> TableManifest:
        """Parse what `to_json` renders.

        Raises:
            ManifestUnreadable: if it is anything else.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        match document:
            case {"table": str(table), "life": str(life), "manifest": dict(manifest)}:
                return cls(table, life, Manifest.from_json(batch, json.dumps(manifest)))
            case _:
                raise ManifestUnreadable(
                    f"The committable of batch {batch} in the ledger names no files of a table; restore it from a backup."
                )


def replayed_tables(texts: Mapping[str, str]) -> tuple[TableManifest, ...]:
    """Return what replays have landed and no batch has taken over; as the number of their batch they have 0.

    Raises:
        ManifestUnreadable: naming the one that another release wrote, or that was changed.
    """
    return tuple(_of_replay(name, text) for name, text in texts.items())


def _of_replay(name: str, text: str) -> TableManifest:
    try:
        return TableManifest.from_json(BatchNumber(0), text)
    except ManifestUnreadable as problem:
        raise unreadable(name) from problem


def is_of_replay(file: DataFile) -> bool:
    """Whether a replay wrote a file: files of tables stay in the folder of their attempt."""
    return of_files.is_of_replay(file.path.partition("/")[0])
