"""Which batches the files of a log are of. Performs no I/O."""

from __future__ import annotations

from exactlyonce.checkpoint.store import Entry
from exactlyonce.positions.ranges import BatchNumber


def number_of(entry: Entry) -> BatchNumber | None:
    """Return the batch a log file is of; Spark lists files with whole numbers for names and nothing else."""
    plain = entry.name.isascii() and entry.name.isdigit() and str(int(entry.name)) == entry.name
    return BatchNumber(int(entry.name)) if plain and not entry.is_folder else None


def numbers_of(listing: tuple[Entry, ...]) -> list[BatchNumber]:
    """Return the batches of a listing, in order."""
    return sorted(number for entry in listing if (number := number_of(entry)) is not None)
