"""Where a stream stood whose ledger is lost, by the positions in the rows that readers are shown. Nothing is changed.

A file counts if `_spark_metadata` shows it. One that is in place and not shown may have landed a moment before the ledger was
lost, or may be of a driver that died before: nobody can tell, so it is named and has to be moved away first. Its records are
then read again, and readers of the folder see them once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from exactlyonce.bounded_text import some_of
from exactlyonce.checkpoint.store import FileMissing, OutputStore
from exactlyonce.connectors.files.manifest import MARKER, WRITING, ReplayWrite, Write
from exactlyonce.connectors.files.shown import latest_shown, read_shown
from exactlyonce.connectors.files.spark_log import address_of
from exactlyonce.connectors.files.spec import FileFormat, ManifestKind
from exactlyonce.connectors.files.tenancy import PathOfAnother, Tenant
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.positions.spans import PositionSpan
from exactlyonce.sink.files import Rebuilt

Spans = Callable[[str], Sequence[PositionSpan]]
"""Returns the spans of the rows in a file, by its path below the sink's."""


class PositionsUnclear(Refused):
    """What the files hold does not tell where the stream stood."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The last position of a partition in the rows of the latest batch that has some, and the file that holds it."""

    batch: BatchNumber
    position: int
    path: str


def rebuilt_positions(store: OutputStore, stream_id: str, spans: Spans) -> tuple[Rebuilt, ...]:
    """Return the last row of each partition of which readers are shown one.

    Raises:
        PathOfAnother: if the folder is not this stream's.
        LogUnfit: if what readers are shown cannot be read.
        PositionsUnclear: if the files do not tell.
    """
    tenant = _tenant(store, stream_id)
    latest = latest_shown(store)
    shown = {uri for paths in read_shown(store, store.location, latest).values() for uri in paths}
    listed = [path for path, _ in store.walk("")]
    counted = counted_files(listed, shown, store.location, tenant.partition_by, latest)
    return last_positions((write.batch, path, spans(path)) for path, write in counted.items())


def counted_files(
    listed: Collection[str],
    shown: Collection[str],
    location: str,
    partition_by: Sequence[str],
    latest: BatchNumber | None,
) -> dict[str, Write]:
    """Return the files that readers are shown, with the attempt that wrote each. Performs no I/O.

    A file that is not shown and whose batch is not later than the latest that is shown does not count: its batch has landed
    from other files, or its rows are in a merged one.

    Raises:
        PositionsUnclear: if a file that is shown is missing or is no stream's, or one that is not shown may have landed.
    """
    addresses = {address_of(path, location): path for path in listed}
    missing = sorted(uri for uri in shown if uri not in addresses)
    if missing:
        raise PositionsUnclear(
            f"{some_of(missing)}, which readers are shown, is missing: its records would not be read again. Restore it first."
        )
    written = {
        path: write
        for path in listed
        if _is_in_place(path) and (write := Write.of_path(path, partition_by)) is not None
    }
    # The rows of a replay lie before the positions, so they tell nothing of where the stream stood.
    replayed = {path for path in listed if ReplayWrite.of_path(path, partition_by) is not None and _is_in_place(path)}
    foreign = sorted(uri for uri in shown if addresses[uri] not in written and addresses[uri] not in replayed)
    if foreign:
        raise PositionsUnclear(
            f"{some_of(foreign)}, which readers are shown, was not written by a stream, so it tells no positions."
        )
    unshown = sorted(path for path in replayed if address_of(path, location) not in shown)
    if unshown:
        raise PositionsUnclear(
            f"{some_of([f'{location}/{path}' for path in unshown])} were written by a replay, and were not shown to readers "
            "before the ledger was lost: whether they had landed cannot be known. Move them out of the folder, and keep them: "
            "their records lie before the stream's positions and are not read again, so a person has to decide about them."
        )
    counted = {addresses[uri]: written[addresses[uri]] for uri in shown if addresses[uri] in written}
    doubtful = sorted(
        path for path, write in written.items() if path not in counted and (latest is None or write.batch > latest)
    )
    if doubtful:
        raise PositionsUnclear(
            f"{some_of([f'{location}/{path}' for path in doubtful])} may have landed without being shown to readers before the "
            "ledger was lost, and nobody can tell. Move such files out of the folder: their records are then read again, and "
            "readers of the folder see them once."
        )
    return counted


def _is_in_place(path: str) -> bool:
    return not path.startswith(f"{WRITING}/") and not path.rpartition("/")[2].startswith(".")


def last_positions(files: Iterable[tuple[BatchNumber, str, Sequence[PositionSpan]]]) -> tuple[Rebuilt, ...]:
    """Return the last row of each partition, by the batch, the path and the spans of each file. Performs no I/O.

    Raises:
        PositionsUnclear: if a file tells no positions, or a later batch stands before an earlier one.
    """
    found: dict[Partition, _Last] = {}
    for batch, path, spans in sorted(files, key=lambda file: (file[0], file[1])):
        if not spans:
            raise PositionsUnclear(
                f"The rows of {path} carry no source positions; it was written without sink.files.includePositions."
            )
        for span in spans:
            key = Partition(span.origin, span.partition)
            before = found.get(key)
            if before is None or span.last >= before.position:
                found[key] = _Last(batch, span.last, path)
            elif batch > before.batch:
                raise PositionsUnclear(
                    f"{key} went back: {before.path} of batch {before.batch} has it up to {before.position}, and {path} of "
                    f"batch {batch} up to {span.last}. Its origin was recreated, or the stream started over, or {path} is a "
                    f"merged file, whose rows of {key} are of earlier batches; positions in rows do not tell these apart. "
                    "Compare the source by hand."
                )
    return tuple(Rebuilt(key, last.position, last.path) for key, last in sorted(found.items(), key=lambda it: it[0]))


def _tenant(store: OutputStore, stream_id: str) -> Tenant:
    try:
        tenant = Tenant.parsed(store.read(MARKER))
    except FileMissing:
        tenant = None
    if tenant is None or tenant.stream != stream_id:
        raise PathOfAnother(
            f"{store.location}/{MARKER} does not say that this is the folder of {stream_id}; name the stream that wrote there."
        )
    if tenant.format != FileFormat.PARQUET or tenant.manifest != ManifestKind.SPARK_METADATA:
        raise PositionsUnclear(
            f"The files in {store.location} are {tenant.format} with manifest: {tenant.manifest}; positions are rebuilt from "
            "Parquet files that _spark_metadata shows."
        )
    return tenant
