"""The sink's table as Upsert and Merge have it: what each key holds after all that was written, and what it should hold.

Three records of a partition share a key, so that later ones replace earlier ones, in the same batch and in later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from enum import Enum

KEYS = 3


class HowKeyed(Enum):
    """What a row does to the row of its key."""

    OVERWRITES = "Upsert"
    """The latest write stays."""
    IF_NEWER = "Upsert with a version"
    """The row with the greatest version stays; the offset is the version."""
    ADDS = "Merge"
    """Every row adds one."""


def write(table: dict[Hashable, Hashable], row: Hashable, how: HowKeyed) -> None:
    """Write one row."""
    key = key_of(row)
    before = table.get(key)
    match how:
        case HowKeyed.OVERWRITES:
            table[key] = row
        case HowKeyed.IF_NEWER:
            if before is None or version_of(row) >= version_of(before):
                table[key] = row
        case HowKeyed.ADDS:
            assert before is None or isinstance(before, int)
            table[key] = (before or 0) + 1


def expected(counts: Counter[Hashable], how: HowKeyed) -> Mapping[Hashable, Hashable]:
    """Return what each key holds when the records that are counted have been written once each, in the order of the log."""
    table: dict[Hashable, Hashable] = {}
    for row in sorted((row for row, count in counts.items() if count), key=version_of):
        write(table, row, how)
    return table


def key_of(row: Hashable) -> Hashable:
    """Return the key of a row; what a stateful query emits has one of its own."""
    if not _is_record(row):
        return row
    assert isinstance(row, tuple)
    return row[1], row[2] % KEYS


def version_of(row: Hashable) -> int:
    """Return where a record stands in its partition."""
    if not _is_record(row):
        return 0
    assert isinstance(row, tuple)
    return int(row[2])


def _is_record(row: Hashable) -> bool:
    return isinstance(row, tuple) and len(row) == 3 and isinstance(row[1], int)
