"""The port to a table's log, Delta's or Iceberg's, and what follows from what it shows. Nothing here performs I/O.

The ledger decides which batches have landed. The log takes each of them in a transaction of the stream's own identifier, whose
version is the batch's number and one: Delta's `txn` action. So the log itself says which of them it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce.errors import LandedGone, Refused
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest


@dataclass(frozen=True, slots=True)
class Words:
    """What sentences say of a kind of table."""

    sink: str
    """Its part of a resource."""
    log: str
    forgotten: str
    """How it comes that a table does not know a stream, and what to do."""
    cleanup: str
    """What removes files that no log names."""
    another: str
    """What a person can do who cannot restore: a stream that starts over is still held to all that has landed."""


DELTA = Words(
    "sink.delta",
    "log",
    "its log was cut, or the stream's transaction has expired. Restore the table's log",
    "a VACUUM with a short retention",
    "start a stream with another streamId and another location",
)


class TableUnfit(Refused):
    """The table cannot be written by this project, or the query's rows do not fit it."""


class TableOfAnother(Refused):
    """The folder holds something else than a table, or the table is another one than that which rows landed in."""


class RowsGone(LandedGone):
    """Rows that have landed are not in the table any more, or it cannot tell."""


class LedgerBehindTable(Refused):
    """The table has a batch of this stream that the ledger does not know."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream asks of its table."""

    where: str
    columns: Mapping[str, Type]
    partition_by: tuple[str, ...]
    evolution: SchemaEvolution = SchemaEvolution.REFUSE
    accepted_restore: int | None = None
    words: Words = DELTA


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A table at one version of its log. `number` is the version of the stream's transaction in the life asked for; None: none.

    `columns` are those of its schema, in order, without what Spark says of NULL in them; `unwritable` says, as a clause, why
    this project may not write to the table as it is.
    """

    id: str
    version: int
    number: int | None
    columns: Mapping[str, Type]
    partition_by: tuple[str, ...]
    unwritable: str | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Somebody has made an earlier version the table's content again: `to` is None if it is not known."""

    version: int
    to: int | None


@dataclass(frozen=True, slots=True)
class SinceOurs:
    """What the log has behind the latest batch of this stream: that batch's version, if the log still has it, and restores."""

    ours: int | None
    restores: tuple[Restore, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a data file says of itself: its columns, and statistics as Delta's log has them."""

    columns: Mapping[str, Type]
    statistics: str


class TableLog(Protocol):
    """The log of one table, for one stream. Every method raises Unreachable where the storage does not answer.

    `create`, `commit` and `add_columns` may have taken effect then.
    """

    def view(self, life: str) -> TableSeen | None:
        """Return the table as it is now, and the number that it has of a life of the stream; None if there is no table."""
        ...

    def create(self, columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
        """Create the table, registered; where one appears meanwhile, it stays as it is.

        Raises:
            TableOfAnother: if the folder holds other files.
            TableUnfit: if no table can have such columns.
        """
        ...

    def facts(self, files: Sequence[DataFile]) -> Mapping[str, FileFacts]:
        """Return what each file says of itself, by path; those that are gone or have another size are left out."""
        ...

    def commit(self, manifest: TableManifest | None, facts: Mapping[str, FileFacts]) -> bool:
        """Add the files of a batch in one commit with its number, to the table as `view` saw it; without any, register.

        False if others have changed the table in a way that may matter, another commit of this stream among them.
        """
        ...

    def add_columns(self, columns: Mapping[str, Type]) -> bool:
        """Add columns to the table as `view` saw it; False if others have changed it: view it again."""
        ...


class DeltaTableLog(TableLog, Protocol):
    """The log of a Delta table."""

    def since_ours(self, life: str) -> SinceOurs:
        """Return what has happened to the table, as `view` saw it last, since the latest batch of a life of this stream."""
        ...


def unpublished(
    seen: TableSeen, landed: Sequence[TableManifest], where: str, words: Words = DELTA
) -> tuple[TableManifest | None, int | None]:
    """Return the batch that has landed and that the table lacks, and the number that the table has before it.

    `landed` are the batches with files of one life, in order, and `seen` is viewed for it. A batch lands only once the one
    before it is in the table: so the latest alone may be lacking. The number is None where the table is to be registered first.

    Raises:
        TableOfAnother, RowsGone, LedgerBehindTable: if it does not fit the ledger.
    """
    if landed and landed[-1].table != seen.id:
        raise TableOfAnother(
            f"The table at {where} is another one than that in which batch {landed[-1].batch} has landed: somebody deleted and "
            f"recreated it, or the stream was given another location. Use the former table, or {words.another}."
        )
    if seen.number is None:
        if landed:
            raise RowsGone(
                f"The table at {where} does not know this stream any more, so it cannot say which of its batches it has: "
                f"{words.forgotten}, or {words.another}."
            )
        return None, None
    numbers = [REGISTERED, *(manifest.number for manifest in landed)]
    if seen.number == numbers[-1]:
        return None, seen.number
    if seen.number not in numbers:
        raise LedgerBehindTable(
            f"The table at {where} has batch {seen.number - 1} of this stream, which the ledger does not know: the ledger was "
            "restored to an earlier moment, and would land its records again. Restore the ledger to a later moment, or "
            f"{words.another}."
        )
    if seen.number == numbers[-2]:
        return landed[-1], seen.number
    lacking = [manifest.batch for manifest in landed if manifest.number > seen.number]
    first = ", ".join(str(batch) for batch in lacking[:3])
    raise RowsGone(
        f"The table at {where} lacks batches that were in it: {first}{', …' if len(lacking) > 3 else ''}. "
        f"Somebody has put back an earlier state of its {words.log}. Restore the later one, or {words.another}.",
        lacking,
    )


def require_not_restored(since: SinceOurs, accepted: int | None, where: str) -> None:
    """Require that nobody has taken rows of this stream back by restoring an earlier version of the table.

    The latest restore decides what the table holds, and where it restored what a restore before it had made, that one does.
    Each is followed to the version that it made the content again, until that is one behind every restore since our batch.

    Raises:
        RowsGone: naming the restore that took the rows, and how to continue without them.
    """
    before: int | None = None
    for restore in sorted(since.restores, key=lambda restore: -restore.version):
        if before is not None and restore.version > before:
            continue  # a later one has undone it
        if accepted is not None and restore.version <= accepted:
            return
        if since.ours is None or restore.to is None or restore.to < since.ours:
            raise _rows_restored_away(restore, where)
        before = restore.to


def _rows_restored_away(restore: Restore, where: str) -> RowsGone:
    version = "a version that its log does not name" if restore.to is None else f"version {restore.to}"
    return RowsGone(
        f"Version {restore.version} of the table at {where} restored it to {version}, which is before the latest rows of this "
        f"stream: rows that have landed are gone. Restore it to a later version; or, to continue without them, set "
        f"sink.delta.acceptedRestore: {restore.version}."
    )
