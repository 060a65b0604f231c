"""Which data files no reader will ever count, or count again.

A file counts once the ledger's manifest of its batch names it. Files of attempts that failed, or whose driver died, are left
behind, and so are files whose rows a compaction has put into another one; they cost storage and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.former_output import former_paths, is_part_file
from exactlyonce.connectors.files.manifest import MARKER, Author, ReplayWrite, Write
from exactlyonce.connectors.files.spark_log import FOLDER, address_of, batch_of
from exactlyonce.connectors.files.spec import ManifestKind
from exactlyonce.connectors.files.standing import Standing, standing
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.sink.files import Orphan, StreamUnknown

REPLACED_KEPT_SECONDS = 24 * 3600
"""How long files stay whose rows are in another one: a reader that listed them before has that long to read them."""


def orphans(
    listed: Mapping[str, int],
    partition_by: Sequence[str],
    kept: Collection[str],
    author: Author,
    landed: BatchNumber | None,
    merging: Collection[str] = (),
    replaying: Collection[str] = (),
    *,
    has_former: bool = False,
) -> tuple[Orphan, ...]:
    """Return what can be removed of the files below the sink's path.

    `author`, `landed`, the paths that are `kept`, the attempts to merge files and the replays that hold ranges are what one
    transaction read, after the files were listed. Performs no I/O.

    A file of an earlier epoch cannot land any more, since its driver is fenced, and neither can one of a batch that has
    landed. What the driver of this epoch writes for a later batch is left alone, however old it is. So is what carries no
    name of an attempt, what is not where this stream's partitions are, what is in the folder of another stream, and what was
    written in a former life of this one, when it may have counted.

    A replay writes files while it holds ranges, and the landing of a chunk requires that it does. So a file of one that holds
    none any more, whose file was there before the ledger was read, cannot land.

    `has_former`: a query of Spark's own has written the folder before, and has ended for good. What it has written and no entry
    of its log names, which are among `kept`, no reader of that log has ever counted.
    """
    named = {name for path in kept for name in (path, _checksum_of(path))}
    others = {path.removesuffix(MARKER) for path in listed if path.endswith(f"/{MARKER}")}
    found = []
    for path, size in sorted(listed.items()):
        if path in named or _is_below(path, others):
            continue
        replay = ReplayWrite.of_path(path, partition_by)
        if replay is not None and replay.life == author.life and replay.replay not in replaying:
            found.append(Orphan(path, size))
        if has_former and is_part_file(path, partition_by):
            found.append(Orphan(path, size))
        write = Write.of_path(path, partition_by)
        if write is None or write.name in merging:
            continue
        if write.author.life != author.life:
            continue
        is_settled = landed is not None and write.batch <= landed
        if write.author.epoch < author.epoch or (write.author.epoch == author.epoch and is_settled):
            found.append(Orphan(path, size))
    return tuple(found)


def _is_below(path: str, folders: set[str]) -> bool:
    return any(path[: at + 1] in folders for at, letter in enumerate(path) if letter == "/")


def _checksum_of(path: str) -> str:
    """Hadoop's hidden checksum of a file on a local disk goes with it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}{'/' if folder else ''}.{name}.crc"


def find_orphans(
    store: OutputStore, ledger: Ledger, stream_id: str, clock: Callable[[], float] = time.time
) -> tuple[Orphan, ...]:
    """Look for orphans while drivers may be running.

    The folder is listed first: whatever the listing shows readers has landed when the ledger is read.

    Raises:
        StreamUnknown: if the ledger does not know the stream.
        PathOfAnother: if the folder is not this stream's, or was written with another ledger.
        LogUnfit: if readers are shown batches that this ledger does not know.
    """
    listed = dict(store.walk(""))
    if ledger.view(stream_id) is None:
        raise StreamUnknown(
            f"The ledger does not know {stream_id}, so it cannot say which files in {store.location} count."
        )
    if not listed:
        return ()
    shown = (batch_of(path.removeprefix(f"{FOLDER}/")) for path in listed if path.startswith(f"{FOLDER}/"))
    found = standing(store, ledger, stream_id, max((batch for batch in shown if batch is not None), default=None))
    manifests = found.manifests.values()
    has_former = found.tenant.former_batch is not None
    return orphans(
        listed,
        found.tenant.partition_by,
        {
            *(file.path for manifest in (*manifests, *found.replayed) for file in manifest.files),
            *still_read(found, store.location, clock() - REPLACED_KEPT_SECONDS),
            *(former_paths(found.shown, store.location) if has_former else ()),
        },
        Author.of(found.stream),
        found.stream.landed_batch,
        {manifest.merging for manifest in manifests if manifest.merging is not None},
        found.replaying,
        has_former=has_former,
    )


def still_read(found: Standing, location: str, since: float) -> Iterator[str]:
    """Yield the replaced files that a reader may still read: those replaced later than `since`, and those that Spark shows."""
    may_return = _may_be_shown_again(found)
    for replaced in chain.from_iterable(manifest.replaced for manifest in found.manifests.values()):
        is_recent = replaced.since_milliseconds > 1000 * since
        if is_recent or may_return or any(address_of(path, location) in found.shown for path in replaced.paths):
            yield from replaced.paths


def _may_be_shown_again(found: Standing) -> bool:
    """Whether Spark's log may come to show replaced files that it shows no more.

    A driver that had read its latest compaction before that was changed makes the next one of what it has read. It does so only
    for a batch that has landed and is not shown. Where all are shown, nobody does.
    """
    landed = max(found.manifests, default=None)
    shows = found.tenant.manifest == ManifestKind.SPARK_METADATA
    return shows and landed is not None and (found.latest is None or found.latest < landed)
