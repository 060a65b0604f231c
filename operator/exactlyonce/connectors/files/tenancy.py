"""The folder that a stream writes its files to: that it is the stream's alone, and that what landed is still there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, OutputStore
from exactlyonce.connectors.files.former_output import require_continuable
from exactlyonce.connectors.files.manifest import MARKER, Manifest, is_of_replay
from exactlyonce.connectors.files.spark_log import FOLDER
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.errors import ExactlyOnceError, LandedGone, Refused, RefusedOutside, StoreForbidden, StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber

_MOST_NAMES = 3


class PathNotWritable(RefusedOutside):
    """The path cannot be written, or its storage does not answer."""


class PathOfAnother(Refused):
    """The path belongs to another stream or query, or holds files that no stream wrote."""


class FilesLost(LandedGone):
    """Files that have landed are not there any more."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose a folder is: the stream, the ledger that decides what counts there, and what may not change beneath readers.

    `former_batch` is the latest batch of the query of Spark's own that has written the folder before, if one has.
    """

    stream: str
    ledger: str
    format: str
    partition_by: tuple[str, ...]
    manifest: str
    former_batch: int | None = None

    @classmethod
    def of(cls, sink: FilesSink, stream: str, ledger: str) -> Tenant:
        """Return the tenant that a stream with this sink is."""
        former = sink.continue_after_batch
        return cls(stream, ledger, sink.format.value, sink.partition_by, sink.manifest.value, former)

    def to_bytes(self) -> bytes:
        """Render it; equal tenants give equal bytes."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def parsed(cls, content: bytes) -> Tenant | None:
        """Return what `to_bytes` rendered; None for anything else."""
        try:
            found = json.loads(content)
        except ValueError:
            return None
        texts = ("stream", "ledger", "format", "manifest")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in texts):
            return None
        columns = found.get("partition_by")
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            return None
        if "former_batch" not in found:
            return None
        former = found["former_batch"]
        if former is not None and (not isinstance(former, int) or isinstance(former, bool)):
            return None
        return cls(found["stream"], found["ledger"], found["format"], tuple(columns), found["manifest"], former)


def take_place(store: OutputStore, tenant: Tenant) -> None:
    """Make the folder the tenant's, or find that it is; nothing is written to a folder of anybody else, or within it.

    The marker is read first: a folder that is the tenant's may hold any number of files, and is not listed.

    Raises:
        PathNotWritable, PathOfAnother: if the tenant cannot use it.
    """
    try:
        found = _marker_of(store)
        _require_none_above(store)
        if found is None:
            found = _marked(store, tenant)
    except StoreUnreachable as problem:
        raise PathNotWritable(
            f"The path {store.location} of the files sink cannot be written: {_reason(problem)}. Let the driver create and "
            "list files there."
        ) from problem
    if found != tenant.to_bytes():
        raise PathOfAnother(_difference(store.location, found, tenant))


def _marked(store: OutputStore, tenant: Tenant) -> bytes:
    """Write the marker to a folder that nobody else has, and return the one that is there then."""
    try:
        _require_free(store, tenant)
    except Refused:
        found = _marker_of(store)  # another driver may have written it, and files, since it was looked for
        if found is None:
            raise
        return found
    outcome = store.create(MARKER, tenant.to_bytes())
    return outcome.content if isinstance(outcome, AlreadyExists) else tenant.to_bytes()


def _require_free(store: OutputStore, tenant: Tenant) -> None:
    """Require that a folder without a marker is the tenant's to take."""
    if tenant.former_batch is not None:
        require_continuable(store, tenant.former_batch, FileFormat(tenant.format), tenant.partition_by)
    elif names := _first_names(store):
        raise PathOfAnother(_not_empty(store, names))


def _marker_of(store: OutputStore) -> bytes | None:
    try:
        return store.read(MARKER)
    except FileMissing:
        return None


def _require_none_above(store: OutputStore) -> None:
    """Require that no folder above is a stream's: each could take the other's files for its own.

    A login that reaches the sink's own folder alone is as it should be, so what it may not read is left out.
    """
    for above in store.folders_above():
        try:
            found = _marker_of(above)
        except StoreForbidden:
            continue
        if found is not None:
            raise PathOfAnother(
                f"The path {store.location} is inside {above.location}, the folder of a stream that {MARKER} there names. Use "
                "a path outside of it; or remove that file, if its stream is gone for good."
            )


def _first_names(store: OutputStore) -> list[str]:
    """Return the first names in the folder, without hidden ones and without what a crash left of writing the marker."""
    names = (entry.name for entry in store.entries("") if not entry.name.startswith("."))
    found = sorted(islice(names, _MOST_NAMES + 1))
    begun, *_ = MARKER.split("/")
    if found != [begun]:
        return found
    # A driver that dies while it writes the marker leaves a hidden file, or the empty folder.
    is_empty = all(path.rpartition("/")[2].startswith(".") for path, _ in store.walk(begun))
    return [] if is_empty else found


def require_own(store: OutputStore, stream: str, ledger: str) -> Tenant:
    """Require that the folder is this stream's, and that this ledger decides what counts there; return whose it is.

    Raises:
        PathOfAnother: if it is not, or nothing says so.
    """
    content = _marker_of(store)
    found = None if content is None else Tenant.parsed(content)
    if found is None:
        raise PathOfAnother(
            f"{store.location}/{MARKER} is missing or cannot be read, so nobody knows whose files these are; restore it first."
        )
    if found.stream != stream:
        raise PathOfAnother(_of_another_stream(store.location, stream))
    if found.ledger != ledger:
        raise PathOfAnother(_of_another_ledger(store.location, stream, ledger))
    return found


def require_unchanged(location: str, found: Tenant, tenant: Tenant) -> None:
    """Require that the files of a folder, which is `found`'s, were written as the tenant writes them.

    Raises:
        PathOfAnother: if they were not.
    """
    if found != tenant:
        raise PathOfAnother(_difference(location, found.to_bytes(), tenant))


def _reason(problem: ExactlyOnceError) -> str:
    """A disk's own words: the message around them speaks of a checkpoint. That of S3 says what to do."""
    return str(problem.__cause__ if isinstance(problem.__cause__, OSError) else problem).rstrip(".")


def _not_empty(store: OutputStore, names: list[str]) -> str:
    if next(store.entries(FOLDER), None) is not None:
        return (
            f"The path {store.location} holds {FOLDER} of another query, whose batches would be taken for this stream's. Use a "
            "path of this stream alone; or, if that query has ended for good, continue its output with continueAfterBatch."
        )
    return (
        f"The path {store.location} holds files that this stream did not write ({_some(names)}); readers would count them "
        f"with its rows. Use an empty path, or restore {MARKER} if it was removed."
    )


def _some(names: Sequence[object]) -> str:
    """Return the first of some names, and whether there are more."""
    return ", ".join(map(str, names[:_MOST_NAMES])) + (", …" if len(names) > _MOST_NAMES else "")


def _difference(location: str, content: bytes, tenant: Tenant) -> str:
    found = Tenant.parsed(content)
    if found is None:
        return (
            f"{location}/{MARKER} cannot be read, so nobody knows whose the path is; use a path of this stream alone."
        )
    if found.stream != tenant.stream:
        return _of_another_stream(location, tenant.stream)
    if found.ledger != tenant.ledger:
        return _of_another_ledger(location, tenant.stream, tenant.ledger)
    changed = [
        f"{word} was {was!r} and is {now!r}"
        for word, was, now in (
            ("format", found.format, tenant.format),
            ("partitionBy", list(found.partition_by), list(tenant.partition_by)),
            ("manifest", found.manifest, tenant.manifest),
            ("continueAfterBatch", found.former_batch, tenant.former_batch),
        )
        if was != now
    ]
    return (
        f"The files that have landed in {location} were written otherwise: {'; '.join(changed)}. No reader could read them "
        "together. Set it back, or use another path."
    )


def _of_another_stream(location: str, stream: str) -> str:
    """Name the file and not the other stream: a tenant who may write a path here is not to learn who else does."""
    return (
        f"The path {location} belongs to another stream than {stream}; {MARKER} there says which. Use a path of this stream "
        "alone."
    )


def _of_another_ledger(location: str, stream: str, ledger: str) -> str:
    return (
        f"The path {location} was written by {stream} with another ledger, which alone knows what landed there; {MARKER} "
        f"there says which. Use that ledger, or another path; if its content was moved to this ledger, write {ledger!r} there "
        "as the value of ledger."
    )


def require_files(store: OutputStore, manifests: Mapping[BatchNumber, Manifest]) -> None:
    """Require that every file that has landed is there with its size.

    Raises:
        FilesLost: naming the first batches and files.
    """
    batch_of = {file.path: batch for batch, manifest in sorted(manifests.items()) for file in manifest.files}
    lost = _lost(store, manifests.values())
    if lost:
        # What a replay has landed is not of the ranges of the batch that has taken it over.
        batches = list(dict.fromkeys(batch_of[path] for path in lost if not is_of_replay(path)))
        told = (
            [f"of {len(batches)} {'batch' if len(batches) == 1 else 'batches'} ({_some(batches)})"] if batches else []
        )
        if any(map(is_of_replay, lost)):
            told.append(f"of replays ({_some([path for path in lost if is_of_replay(path)])})")
        raise FilesLost(_lost_sentence(store, lost, " and ".join(told)), batches)


def require_replayed_files(store: OutputStore, manifests: Iterable[Manifest]) -> None:
    """Require that every file is there that replays have landed and no batch has taken over.

    Raises:
        FilesLost: naming the first of them.
    """
    lost = _lost(store, manifests)
    if lost:
        raise FilesLost(_lost_sentence(store, lost, "of replays"), [])


def _lost(store: OutputStore, manifests: Iterable[Manifest]) -> list[str]:
    """Return the files that are missing or have another size; the folder is walked through only where there is any."""
    lost = {file.path: file.size_bytes for manifest in manifests for file in manifest.files}
    for path, size in store.walk("") if lost else ():
        if lost.get(path) == size:
            del lost[path]
    return list(lost)


def _lost_sentence(store: OutputStore, lost: Sequence[str], of: str) -> str:
    return (
        f"Files that have landed are missing from {store.location} or have another size: {len(lost)} of them ({_some(lost)}), "
        f"{of}. Somebody deleted or replaced them; restore them, or start a stream with another streamId and another path."
    )
