"""What a table's properties say of a stream, and whether its latest batch still is in the table's history. Performs no I/O.

A property is set in the very commit that adds a batch's files. It outlives the snapshots, which others may expire, and a
rollback does not take it back. Each snapshot says the same in its summary, for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exactlyonce.connectors.files.manifest import Author
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.history_notes import notes_on_commit
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.table import RowsGone, Words

ICEBERG = Words(
    "sink.iceberg",
    "metadata",
    "somebody has removed or changed the stream's property of the table, exactlyonce.STREAM.…. Set it to what it was",
    "remove_orphan_files with a short retention",
    "start a stream with another streamId, another table and another location",
)


_NAMED = 100
"""How many batches that are gone are handed on by their numbers."""

_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Marker:
    """The number of a stream's latest commit, with the snapshot that it made and that one's sequence number, if it made one."""

    number: int
    snapshot: int | None = None
    sequence: int | None = None

    def to_json(self) -> str:
        """Render it as the value of a property."""
        document: dict[str, int] = {"number": self.number}
        if self.snapshot is not None and self.sequence is not None:
            document |= {"snapshot": self.snapshot, "sequence": self.sequence}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> Marker | None:
        """Parse what `to_json` renders; None for anything else: the table then does not know the stream."""
        try:
            document = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        match document:
            case {"number": int(number), "snapshot": int(snapshot), "sequence": int(sequence)}:
                return cls(number, snapshot, sequence)
            case {"number": 0}:
                return cls(0)
            case _:
                return None


def property_of(stream: str, life: str) -> str:
    """Return the name of the property that says which batches of a life of a stream a table has. It is public."""
    return f"exactlyonce.{stream}.{life}"


def summary_of(stream: str, author: Author, manifest: TableManifest) -> dict[str, str]:
    """Return what a snapshot's summary says of the batch that it adds."""
    return {f"exactlyonce.{name}": str(value) for name, value in notes_on_commit(stream, author, manifest).items()}


def batch_in(summary: Mapping[str, str], stream: str) -> BatchNumber | None:
    """Return the batch of a stream that a snapshot adds by its summary; None if it adds none of it."""
    batch = summary.get("exactlyonce.batch", "")
    is_number = batch.isascii() and batch.isdecimal() and len(batch) <= _DIGITS
    return BatchNumber(int(batch)) if is_number and summary.get("exactlyonce.stream") == stream else None


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A snapshot in the history of the table's current one."""

    snapshot: int
    sequence: int


def rolled_back_to(marker: Marker, history: Iterable[Ancestor]) -> Ancestor | None:
    """Return the snapshot to which somebody has rolled the table back behind a stream's latest batch; None if nobody has.

    `history` are the current snapshot and its ancestors, latest first, as far as they have not been expired. Sequence numbers
    fall along it: so an earlier one than that of the batch, met before the batch's own snapshot, shows that it is on no path to
    the current one. A history that ends before that shows nothing: snapshots were expired, or the table was replaced.
    """
    if marker.snapshot is None or marker.sequence is None:
        return None
    for ancestor in history:
        if ancestor.snapshot == marker.snapshot:
            return None
        if ancestor.sequence <= marker.sequence:
            return ancestor
    return None


def require_not_rolled_back(
    marker: Marker, history: Sequence[Ancestor], added: Mapping[int, int], accepted: int | None, where: str
) -> None:
    """Require that the table has the rows of a stream's batches, unless a person has accepted that they are gone.

    `added` is the batch of the stream that each snapshot has added, as far as they are not expired, also those before which the
    table was rolled back.

    Raises:
        RowsGone: naming the snapshot, the batches, and how to continue without their rows.
    """
    found = rolled_back_to(marker, history)
    latest = marker.number - 1
    if found is None or (accepted is not None and latest <= accepted):
        return
    there = [added[it.snapshot] for it in history if it.snapshot in added]
    known = {*added.values(), latest}
    first = max(there) + 1 if there else min(known)
    gone = range(min(latest, max(first, -1 if accepted is None else accepted + 1)), latest + 1)
    named = f"batch {latest}" if len(gone) == 1 else f"batches {gone[0]} to {latest}"
    earlier = "" if there else ", and before earlier ones whose snapshots have been expired, if there are any"
    raise RowsGone(
        f"Somebody has rolled the table at {where} back to snapshot {found.snapshot}, which is before {named} of this stream "
        f"(snapshot {marker.snapshot}){earlier}: rows that have landed are gone. Set the table to a snapshot that has "
        f"them (set_current_snapshot); or, to continue without all of them, set {ICEBERG.sink}.acceptedRollback: {latest}.",
        gone[:_NAMED],
    )
