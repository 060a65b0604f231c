"""Objects that others wrote are moved below another folder, each only while it is the one that was listed.

S3 knows no move: an object is copied, and then removed. The copy carries the ETag of its source as metadata, so a move that was
cut short between the two is known when it is repeated, and an object of anybody else's is never written over.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial

from exactlyonce.checkpoint.s3_versions import S3Versions

MARK = "exactlyonce-copy-of"
"""The metadata of a copy: the ETag of what it was copied from."""

MOST_COPIED_BYTES = 5 * 1024**3
"""CopyObject takes no larger object. Source: S3's API reference, CopyObject."""

_AT_ONCE = 8
_KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType")


class Copied(Enum):
    """What became of an object that was to be copied."""

    THERE = "there"
    """The copy is there, whoever of this stream's drivers made it."""
    ANOTHER = "another"
    """The source is another one by now, or gone."""
    TAKEN = "taken"
    """The name has an object of somebody else's, which was not touched."""
    TOO_LARGE = "too large"


def copies(source: S3Versions, target: S3Versions, objects: Iterable[tuple[str, str, int]]) -> list[tuple[str, Copied]]:
    """Copy objects, given as path, ETag and size in bytes, to the same paths of the other folder; several at once.

    Raises:
        StoreForbidden, StoreUnreachable: by situation; those copied until then are known when it is repeated.
    """
    listed = list(objects)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(partial(_copy, source, target), listed))
    return [(path, outcome) for (path, _, _), outcome in zip(listed, found, strict=True)]


def _copy(source: S3Versions, target: S3Versions, listed: tuple[str, str, int]) -> Copied:
    path, tag, size_bytes = listed
    there = target.described(path)
    if there is not None:
        return Copied.THERE if there.get("Metadata", {}).get(MARK) == tag else Copied.TAKEN
    if size_bytes > MOST_COPIED_BYTES:
        return Copied.TOO_LARGE
    found = source.described(path)
    if found is None or found["ETag"] != tag:
        return Copied.ANOTHER
    kept = {name: found[name] for name in _KEPT if name in found}
    written = {**kept, "Metadata": {**found.get("Metadata", {}), MARK: tag}}
    # Where either end has changed meanwhile, the next plan lists the folder again, and looks at both.
    return Copied.THERE if target.copy_from(source, path, tag, written) else Copied.ANOTHER
