"""The committable of a batch: which files it has written, and for which table. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.files.manifest import Manifest, ManifestUnreadable
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
