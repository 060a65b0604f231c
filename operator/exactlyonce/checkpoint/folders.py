"""Open the store of a folder. The assembly and the connectors do; a contract keeps every other module from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.locations import service_of
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.schema.places import S3Place

if TYPE_CHECKING:
    from exactlyonce.checkpoint.s3_versions import S3Versions


def open_versions(place: S3Place, secret: Mapping[str, str]) -> S3Versions:
    """Return a folder on S3 whose objects others write; nothing is connected to yet.

    Raises:
        SecretMissing: as `open_folder`.
    """
    from exactlyonce.checkpoint.s3_versions import S3Versions

    return S3Versions(place.location, service_of(place, secret))


def open_folder(place: S3Place | str, secret: Mapping[str, str], most_bytes: int | None = None) -> FolderStore:
    """Return the store of a folder on S3, or of a path; nothing is connected to yet.

    No object of more than `most_bytes` is read from S3; a sink's own log of its files has no such limit.

    Raises:
        SecretMissing: if the secret holds one half of a login.
    """
    if isinstance(place, str):
        return LocalLogStore(place)
    # Its client takes a third of a second to import.
    from exactlyonce.checkpoint.s3 import S3LogStore

    return S3LogStore(place.location, service_of(place, secret), most_bytes)
