"""Whether what Spark's readers are shown is what the ledger names, file by file.

The numbers of batches do not tell: a ledger that was restored to an earlier moment continues with a new generation, whose
number is past all that were ever planned. Its records land again, beside the files that readers are shown already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from exactlyonce.checkpoint.store import FileMissing, OutputStore
from exactlyonce.connectors.files.manifest import Manifest, life_of
from exactlyonce.connectors.files.spark_log import (
    FOLDER,
    LogUnfit,
    address_of,
    batch_of,
    first_entry,
    lines_of,
    name_of,
    parse,
)
from exactlyonce.positions.ranges import BatchNumber

T = TypeVar("T")


class Reads(Protocol):
    """What an entry is read from."""

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        ...


def batches_shown(store: OutputStore) -> list[BatchNumber]:
    """Return the batches that Spark's log has an entry of."""
    found = (batch_of(entry.name) for entry in store.list(FOLDER))
    return [batch for batch in found if batch is not None]


def latest_shown(store: OutputStore) -> BatchNumber | None:
    """Return the latest batch that Spark's readers are shown."""
    return max(batches_shown(store), default=None)


def require_named(store: Reads, location: str, latest: BatchNumber | None, manifests: Iterable[Manifest]) -> None:
    """Require that the ledger names every file that readers are shown after the first one that it names.

    `manifests` are all of the ledger, read after `latest` was listed.

    Raises:
        LogUnfit: if it does not, or if an entry is missing or unreadable.
    """
    require_all_named(read_shown(store, location, latest), location, manifests)


def read_shown(store: Reads, location: str, latest: BatchNumber | None) -> dict[str, tuple[str, ...]]:
    """Return the URIs that each entry shows readers for whom this is the latest one, by the entry's name.

    Raises:
        LogUnfit: if an entry is missing or is unreadable.
    """
    return {name: _paths_in(store, location, name) for name in names_shown(latest)}


def names_shown(latest: BatchNumber | None) -> tuple[str, ...]:
    """Return the names of the entries that readers read for whom this is the latest one."""
    return () if latest is None else tuple(map(name_of, range(first_entry(latest), latest + 1)))


def require_all_named(shown: Mapping[str, Iterable[str]], location: str, manifests: Iterable[Manifest]) -> None:
    """Require what `require_named` does of entries that were read before the ledger.

    Files before the first that the ledger names are of a ledger that was dropped, and whose checkpoint was adopted: they stay
    visible, and no batch of theirs lands again. Their names tell another life of the stream than any that the ledger names. A
    file that a compaction replaced is named as well: readers may be shown it, and then its rows are in no other file that they
    are shown.
    """
    named = {path for manifest in manifests for path in _named(manifest, location)} if shown else set()
    lives = {life_of(path) for path in named} - {None}
    is_own = False
    for name, paths in shown.items():
        for path in paths:
            is_own = is_own or path in named or life_of(path) in lives
            if not is_own or path in named:
                continue
            raise LogUnfit(
                f"{location}/{FOLDER}/{name} shows readers {path}, and the ledger names no such file: the ledger was "
                "restored to an earlier moment, or another query wrote to this path. What the ledger does not know would land "
                "again and be visible twice. Restore the ledger of a later moment, or start afresh with another path."
            )


def read_entry(store: Reads, location: str, name: str, without_it: str) -> bytes:
    """Return the content of an entry that is there unless somebody removed it; `without_it` tells what cannot be done then.

    Raises:
        LogUnfit: if it is missing.
    """
    try:
        return store.read(f"{FOLDER}/{name}")
    except FileMissing:
        raise LogUnfit(
            f"{location}/{FOLDER}/{name} is missing, so {without_it}: somebody removed it. Restore it, or use another path."
        ) from None


def _paths_in(store: Reads, location: str, name: str) -> tuple[str, ...]:
    return read_files(store, location, name, "readers cannot be shown a later batch", lambda file: str(file["path"]))


def read_files(store: Reads, location: str, name: str, without_it: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    """Return what `read` takes of each file that an entry names.

    Raises:
        LogUnfit: if the entry is missing or unreadable.
    """
    content = read_entry(store, location, name, without_it)
    try:
        return tuple(read(json.loads(line)) for line in parse(name, content))
    except (ValueError, KeyError, TypeError, OverflowError) as problem:
        raise LogUnfit(
            f"{location}/{FOLDER}/{name} has a line that names no file, so it is torn. Restore it, or use another path."
        ) from problem


def _named(manifest: Manifest, location: str) -> Iterator[str]:
    yield from _paths(lines_of(manifest, location))
    yield from (address_of(path, location) for replaced in manifest.replaced for path in replaced.paths)


def _paths(lines: Iterable[str]) -> Iterator[str]:
    return (str(json.loads(line)["path"]) for line in lines)
