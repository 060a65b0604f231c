"""Committables outside of the snapshots: each is written once more when there are many, and read when they are asked for.

A sink of files records a text for each batch, and readers need all of them for as long as the stream is. In the snapshots they
would be written again every hundred entries, and held in memory by whoever folds the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, ObjectStore
from exactlyonce.connectors.object_log.bounds import Bounds
from exactlyonce.connectors.object_log.documents import Archive, LogDamaged
from exactlyonce.connectors.object_log.names import archive_name
from exactlyonce.connectors.object_log.state import Changes, Key, LedgerState, Table
from exactlyonce.positions.ranges import BatchNumber

ARCHIVED_FROM_BYTES = 1 << 20
"""So much text of committables stays in the snapshots before it is taken out of them."""

PART_BYTES = 8 << 20
"""An archive is about as large at most, and larger only where a single text is; far below what a store reads."""


def archives_of(state: LedgerState, number: int, from_bytes: int = ARCHIVED_FROM_BYTES) -> tuple[Archive, ...]:
    """Return the archives that take every committable out of the state after entry `number`; none where there is little."""
    texts = {
        stream_id: {cast("int", rest[0]): str(text) for rest, text in rows.items()}
        for (table, stream_id), rows in state.tables.items()
        if table is Table.COMMITTABLE
    }
    if sum(len(text) for of_stream in texts.values() for text in of_stream.values()) < from_bytes:
        return ()
    parts = [(stream_id, part) for stream_id in sorted(texts) for part in _parts(texts[stream_id])]
    return tuple(Archive(number, place, stream_id, part) for place, (stream_id, part) in enumerate(parts))


def references_to(archives: tuple[Archive, ...]) -> Changes:
    """Return the changes that put references in the place of what the archives hold."""
    taken = {
        Key(Table.COMMITTABLE, archive.stream_id, (batch,)): None for archive in archives for batch in archive.texts
    }
    return taken | {
        Key(Table.ARCHIVE, archive.stream_id, (archive.number, archive.part)): len(archive.texts)
        for archive in archives
    }


def _parts(texts: dict[int, str]) -> Iterator[dict[int, str]]:
    part: dict[int, str] = {}
    size = 0
    for batch in sorted(texts):
        if part and size + len(texts[batch]) > PART_BYTES:
            yield part
            part, size = {}, 0
        part[batch] = texts[batch]
        size += len(texts[batch])
    if part:
        yield part


def write_archives(
    store: ObjectStore, folder: str, archives: Iterable[Archive], bounds: Bounds, reached: Callable[[str], None]
) -> None:
    """Write the archives of an entry.

    Raises:
        LogDamaged: if one is there with other content. Only who appended an entry writes its archives.
    """
    for archive in archives:
        reached("log.before-archive")
        path = f"{folder}/{archive_name(archive.number, archive.part)}"
        where = f"{store.location}/{path}"
        write_archive(store, path, bounds.require_object(where, archive.render()))
        reached("log.archived")


def write_archive(store: ObjectStore, path: str, content: bytes) -> None:
    """Write one archive, or raise LogDamaged."""
    outcome = store.create(path, content)
    if isinstance(outcome, AlreadyExists) and outcome.content != content:
        raise LogDamaged(
            f"{store.location}/{path} already exists with other content; restore the ledger's folder from a backup."
        )


def read_archived(
    store: ObjectStore, folder: str, stream_id: str, references: Mapping[tuple[int, int], int]
) -> dict[BatchNumber, str]:
    """Return the committables of a stream that these references stand for: by number and part, with how many.

    Raises:
        LogDamaged: if an archive is missing or is not the one that is referred to.
    """
    found: dict[BatchNumber, str] = {}
    for (number, part), expected in sorted(references.items()):
        path = f"{folder}/{archive_name(number, part)}"
        where = f"{store.location}/{path}"
        try:
            archive = Archive.parse(store.read(path), where)
        except FileMissing:
            raise LogDamaged(
                f"{where}, which holds the committables of landed batches, is missing; restore it from a backup."
            ) from None
        # The checksum of an object says that it is whole, and not that it is this one.
        seen = (archive.number, archive.part, archive.stream_id, len(archive.texts))
        if seen != (number, part, stream_id, expected):
            raise LogDamaged(
                f"{where} is not the object that the ledger refers to: {expected} committables of this stream belong there; "
                "restore it from a backup."
            )
        found |= {BatchNumber(batch): text for batch, text in archive.texts.items()}
    return found
