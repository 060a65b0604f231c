"""What a table's history says of a batch, so that a person who reads it alone knows which records a commit holds.

Performs no I/O. Nothing here is ever read to decide anything: the ledger does that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from exactlyonce.connectors.files.manifest import Author
from exactlyonce_spark.connectors.delta.manifest import TableManifest, is_of_replay
from exactlyonce_spark.target import RecordsOfBatch

MOST_CHARACTERS = 2000
"""Of positions in one commit, which the table's log keeps: about 70 partitions."""

_WHOLE = "too long for the table's history; the ledger has the ranges, in the row of this batch in `batches`"


def notes_on_records(records: RecordsOfBatch | None) -> dict[str, str]:
    """Return what is said of the records that a batch holds, as texts; nothing where the ledger does not know them any more.

    `positions` is a JSON object of topics or streams, their partitions, and `[from, until)` of each that the batch read. It
    is text, since positions of some sources have more digits than readers of logs keep. Where it would be too long, it is an
    object with the digest of that text and what it counts, and a sentence where the whole is.
    """
    if records is None:
        return {}
    ranges = records.ranges.non_empty()
    text = ranges.to_json()
    if len(text) > MOST_CHARACTERS:
        digest = hashlib.sha256(text.encode()).hexdigest()
        about = {"partitions": len(ranges), "offsets": ranges.record_count, "sha256": digest, "whole": _WHOLE}
        text = json.dumps(about, separators=(",", ":"))
    return {"positions": text, **({"note": records.note} if records.note else {})}


def notes_on_commit(stream: str, author: Author, manifest: TableManifest) -> Mapping[str, Any]:
    """Return all that is said of a batch: `epoch` is of the driver that commits it, perhaps not the one that landed it.

    `replayed` is how many of its rows are of replays, whose records are of earlier batches.
    """
    said = {"stream": stream, "life": manifest.life, "epoch": author.epoch, "batch": manifest.batch, **manifest.told}
    replayed = sum(file.rows or 0 for file in manifest.manifest.files if is_of_replay(file))
    return {**said, "replayed": replayed} if replayed else said
