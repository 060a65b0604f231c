"""The folder that a stream writes its files to: that it is the stream's alone, and that what landed is still there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, LogStore
from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.connectors.files.spark_log import FOLDER
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.errors import ExactlyOnceError, Refused, RefusedOutside, StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber

MARKER = "_exactlyonce/stream.json"
"""Says whose the folder is. Spark's readers leave out names that begin with an underscore."""

_MOST_NAMES = 3


class PathNotWritable(RefusedOutside):
    """The path cannot be written, or its storage does not answer."""


class PathOfAnother(Refused):
    """The path belongs to another stream or query, or holds files that no stream wrote."""


class FilesLost(Refused):
    """Files that have landed are not there any more."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose a folder is: the stream, the ledger that decides what counts there, and what may not change beneath readers."""

    stream: str
    ledger: str
    format: str
    partition_by: tuple[str, ...]
    manifest: str

    @classmethod
    def of(cls, sink: FilesSink, stream: str, ledger: str) -> Tenant:
        """Return the tenant that a stream with this sink is."""
        return cls(stream, ledger, sink.format.value, sink.partition_by, sink.manifest.value)

    def to_bytes(self) -> bytes:
        """Render it; equal tenants give equal bytes."""
        return json.dumps(asdict(self), sort_keys=True).encode()


def take_place(store: LogStore, tenant: Tenant) -> None:
    """Make the folder the tenant's, or find that it is; nothing is written to a folder of anybody else.

    Raises:
        PathNotWritable, PathOfAnother: if the tenant cannot use it.
    """
    try:
        names = [entry.name for entry in store.list("") if not entry.name.startswith(".")]
        first, *_ = MARKER.split("/")
        if first not in names:
            _require_empty(store.location, names)
        outcome = store.create(MARKER, tenant.to_bytes())
    except StoreUnreachable as problem:
        raise PathNotWritable(
            f"The path {store.location} of the files sink cannot be written: {_reason(problem)}. Let the driver create and "
            "list files there."
        ) from problem
    if isinstance(outcome, AlreadyExists) and outcome.content != tenant.to_bytes():
        raise PathOfAnother(_difference(store.location, outcome.content, tenant))


def require_own(store: LogStore, stream: str, ledger: str) -> None:
    """Require that the folder is this stream's, and that this ledger decides what counts there.

    Raises:
        PathOfAnother: if it is not, or nothing says so.
    """
    try:
        found = _parsed(store.read(MARKER))
    except FileMissing:
        found = None
    if found is None:
        raise PathOfAnother(
            f"{store.location}/{MARKER} is missing or cannot be read, so nobody knows whose files these are; restore it first."
        )
    if found.get("stream") != stream:
        raise PathOfAnother(_of_another_stream(store.location, stream))
    if found.get("ledger") != ledger:
        raise PathOfAnother(_of_another_ledger(store.location, stream))


def _reason(problem: ExactlyOnceError) -> str:
    """A disk's own words: the message around them speaks of a checkpoint. That of S3 says what to do."""
    return str(problem.__cause__ if isinstance(problem.__cause__, OSError) else problem).rstrip(".")


def _require_empty(location: str, names: list[str]) -> None:
    if FOLDER in names:
        raise PathOfAnother(
            f"The path {location} holds {FOLDER} of another query, whose batches would be taken for this stream's. Use a path "
            "of this stream alone."
        )
    if names:
        raise PathOfAnother(
            f"The path {location} holds files that this stream did not write ({_some(names)}); readers would count them "
            "with its rows. Use an empty path."
        )


def _some(names: list[str]) -> str:
    """Return the first of some names, and whether there are more."""
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


def _difference(location: str, content: bytes, tenant: Tenant) -> str:
    found = _parsed(content)
    if found is None:
        return (
            f"{location}/{MARKER} cannot be read, so nobody knows whose the path is; use a path of this stream alone."
        )
    if found.get("stream") != tenant.stream:
        return _of_another_stream(location, tenant.stream)
    if found.get("ledger") != tenant.ledger:
        return _of_another_ledger(location, tenant.stream)
    changed = [
        f"{word} was {found.get(field)!r} and is {now!r}"
        for word, field, now in (
            ("format", "format", tenant.format),
            ("partitionBy", "partition_by", list(tenant.partition_by)),
            ("manifest", "manifest", tenant.manifest),
        )
        if found.get(field) != now
    ]
    return (
        f"The files that have landed in {location} were written otherwise: {'; '.join(changed)}. No reader could read them "
        "together. Set it back, or use another path."
    )


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _of_another_stream(location: str, stream: str) -> str:
    """Name the file and not the other stream: a tenant who may write a path here is not to learn who else does."""
    return (
        f"The path {location} belongs to another stream than {stream}; {MARKER} there says which. Use a path of this stream "
        "alone."
    )


def _of_another_ledger(location: str, stream: str) -> str:
    return (
        f"The path {location} was written by {stream} with another ledger, which alone knows what landed there; {MARKER} "
        "there says which. Use that ledger, or another path."
    )


def require_files(store: LogStore, manifests: Mapping[BatchNumber, Manifest]) -> None:
    """Require that every file that has landed is there with its size.

    Raises:
        FilesLost: naming the batches and the first files.
    """
    there = store.tree("")
    lost = [
        (batch, file.path)
        for batch, manifest in sorted(manifests.items())
        for file in manifest.files
        if there.get(file.path) != file.size_bytes
    ]
    if lost:
        batches = ", ".join(str(batch) for batch in dict.fromkeys(batch for batch, _ in lost))
        paths = [path for _, path in lost]
        raise FilesLost(
            f"{len(lost)} files that have landed are missing from {store.location} or have another size ({_some(paths)}), of "
            f"batches {batches}: somebody deleted or replaced them. Restore them, or start the stream over at another path."
        )
