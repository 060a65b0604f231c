"""The names of a log's objects, and what follows from a list of them. Performs no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exactlyonce.connectors.object_log.documents import LogDamaged

_NAME = re.compile(r"(\d{12})\.(entry|snapshot)")
_ARCHIVE = re.compile(r"(\d{12})-\d{4}\.committables")
_KINDS = {"entry": "entries", "snapshot": "snapshots"}


def entry_name(number: int) -> str:
    """Return the name of an entry; names sort as numbers do."""
    return f"{number:012}.entry"


def snapshot_name(number: int) -> str:
    """Return the name of the snapshot of the state after an entry."""
    return f"{number:012}.snapshot"


def archive_name(number: int, part: int) -> str:
    """Return the name of a part of the committables that were taken out of the state after an entry."""
    return f"{number:012}-{part:04}.committables"


def kind_of(name: str) -> str | None:
    """Return what a name is that of, in the plural; None for a file that is not the log's."""
    found = _NAME.fullmatch(name)
    if found is not None:
        return _KINDS[found[2]]
    return "committables" if _ARCHIVE.fullmatch(name) else None


@dataclass(frozen=True, slots=True)
class Names:
    """What a list showed, entries and snapshots in order. A list is not of one moment (`ObjectStore.names_after`)."""

    entries: tuple[int, ...]
    snapshots: tuple[int, ...]
    archives: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Return what names say; those of other files say nothing."""
        names = tuple(names)
        parsed = [found for found in map(_NAME.fullmatch, names) if found is not None]
        numbers = {
            kind: sorted(int(found[1]) for found in parsed if found[2] == kind) for kind in ("entry", "snapshot")
        }
        archives = tuple(name for name in names if _ARCHIVE.fullmatch(name))
        return cls(tuple(numbers["entry"]), tuple(numbers["snapshot"]), archives)

    @property
    def newest_snapshot(self) -> int:
        """Return the number of the newest snapshot, or 0."""
        return self.snapshots[-1] if self.snapshots else 0

    def holds(self, number: int) -> bool:
        """Whether an entry is there, or a snapshot that stands for it."""
        return number in self.entries or self.newest_snapshot >= number

    def is_latest(self, number: int) -> bool:
        """Whether an entry is there, and no newer one, and no snapshot that was made at it or later."""
        return self.entries[-1:] == (number,) and self.newest_snapshot < number

    def entries_after(self, number: int, location: str) -> tuple[int, ...]:
        """Return the entries after one, which follow on it without a hole.

        Raises:
            LogDamaged: if one is missing.
        """
        found = tuple(entry for entry in self.entries if entry > number)
        expected = tuple(range(number + 1, number + 1 + len(found)))
        if found != expected:
            missing = next(entry for entry in expected if entry not in found)
            raise LogDamaged(f"{location} holds entry {found[-1]} and lacks entry {missing}; restore it from a backup.")
        return found

    def behind_two_snapshots(self, dead_archives_until: int = 0) -> tuple[str, ...]:
        """Return the names of what the last but one snapshot stands for: nobody reads them any more.

        That one is kept with the entries after it: a list that was made while the newest snapshot was written, and while what
        is behind it was deleted, may show neither. Archives up to a number go if nothing can refer to
        them any more.
        """
        if len(self.snapshots) < 2:
            return ()
        kept_from = self.snapshots[-2]
        snapshots = [snapshot_name(number) for number in self.snapshots if number < kept_from]
        archives = [name for name in self.archives if name < entry_name(dead_archives_until + 1)]
        return (*snapshots, *(entry_name(number) for number in self.entries if number <= kept_from), *archives)
