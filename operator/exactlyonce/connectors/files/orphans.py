"""Which data files no reader will ever count.

A file counts once the ledger's manifest of its batch names it. Files of attempts that failed, or whose driver died, are left
behind; they cost storage and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.manifest import Author, Manifest, Write
from exactlyonce.connectors.files.shown import require_named
from exactlyonce.connectors.files.spark_log import FOLDER, batch_of, require_not_ahead
from exactlyonce.connectors.files.tenancy import MARKER, require_own
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.sink.files import Orphan, StreamUnknown


def orphans(
    listed: Mapping[str, int],
    partition_by: Sequence[str],
    manifests: Iterable[Manifest],
    author: Author,
    landed: BatchNumber | None,
) -> tuple[Orphan, ...]:
    """Return what can be removed of the files below the sink's path.

    `author`, `landed` and `manifests` are what one transaction read; it does not matter whether the files were listed before or
    after. Performs no I/O.

    A file of an earlier epoch cannot land any more, since its driver is fenced, and neither can one of a batch that has
    landed. What the driver of this epoch writes for a later batch is left alone, however old it is. So is what carries no
    name of an attempt, what is not where this stream's partitions are, what is in the folder of another stream, and what was
    written in a former life of this one, when it may have counted.
    """
    named = {name for manifest in manifests for file in manifest.files for name in (file.path, _checksum_of(file.path))}
    others = {path.removesuffix(MARKER) for path in listed if path.endswith(f"/{MARKER}")}
    found = []
    for path, size in sorted(listed.items()):
        write = Write.of_path(path, partition_by)
        if write is None or path in named or write.author.life != author.life or _is_below(path, others):
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


def find_orphans(store: OutputStore, ledger: Ledger, stream_id: str) -> tuple[Orphan, ...]:
    """Look for orphans while drivers may be running.

    A ledger that was restored to an earlier moment, or another ledger that has a stream of this name, would call files
    orphans that readers count. So the folder has to be this stream's under this very ledger, and what readers are shown must
    not be ahead of it. The folder is listed first: whatever the listing shows readers has landed when the ledger is read.

    Raises:
        StreamUnknown: if the ledger does not know the stream.
        PathOfAnother: if the folder is not this stream's, or was written with another ledger.
        LogUnfit: if readers are shown batches that this ledger does not know.
    """
    listed = dict(store.walk(""))
    view = ledger.look(stream_id)
    if view is None:
        raise StreamUnknown(
            f"The ledger does not know {stream_id}, so it cannot say which files in {store.location} count."
        )
    if not listed:
        return ()
    own = require_own(store, stream_id, ledger.identity())
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(stream_id, Lock.SHARE)
        committables = transaction.read_committables(stream_id)
    if stream is None:
        raise StreamUnknown(
            f"The stream {stream_id} was deleted from the ledger while its files were listed, so no file can be called an "
            "orphan; nothing was changed."
        )
    shown = (batch_of(path.removeprefix(f"{FOLDER}/")) for path in listed if path.startswith(f"{FOLDER}/"))
    latest = max((batch for batch in shown if batch is not None), default=None)
    require_not_ahead(latest, stream.landed_batch)
    manifests = [Manifest.from_json(batch, text) for batch, text in committables.items()]
    require_named(store, store.location, latest, manifests)
    return orphans(listed, own.partition_by, manifests, Author.of(stream), stream.landed_batch)
