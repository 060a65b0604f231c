"""Open the store that a checkpoint's location is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.store import MOST_BYTES, CreateOutcome, Entry, ErasableStore, FolderStore
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import S3Place

if TYPE_CHECKING:
    from exactlyonce.checkpoint.s3_clients import S3Service


def open_store(checkpoint: Checkpoint, secret: Mapping[str, str]) -> ErasableStore:
    """Return the store of a location; nothing is connected to yet. `secret` holds what `secretRef` names, if anything.

    Raises:
        SecretMissing: if the secret holds one half of a login.
    """
    return open_folder(checkpoint.s3 or checkpoint.location, secret, MOST_BYTES)


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

    return S3LogStore(place.location, _service_of(place, secret), most_bytes)


class StoreInPods:
    """Stands for a store that only the stream's own pods reach: whoever asks it for anything is told so, and `why`."""

    def __init__(self, location: str, why: str) -> None:
        self.location = location
        self.why = why

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Answer nothing."""
        raise self._unreachable

    def read(self, path: str) -> bytes:
        """Answer nothing."""
        raise self._unreachable

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Answer nothing."""
        raise self._unreachable

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Answer nothing."""
        raise self._unreachable

    def tree(self, folder: str) -> Mapping[str, int]:
        """Answer nothing."""
        raise self._unreachable

    def copy(self, source: str, target: str) -> None:
        """Answer nothing."""
        raise self._unreachable

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Answer nothing."""
        raise self._unreachable

    @property
    def _unreachable(self) -> StoreUnreachable:
        return StoreUnreachable(f"{self.location} is reached by the stream's own pods only: {self.why}.")


def names_login(place: S3Place, secret: Mapping[str, str]) -> bool:
    """Return whether a secret holds a login to S3; without one, a client takes what its own process is given.

    Raises:
        SecretMissing: if the secret holds one half of a login.
    """
    return _service_of(place, secret).has_login


def _service_of(place: S3Place, secret: Mapping[str, str]) -> S3Service:
    from exactlyonce.checkpoint.s3_clients import S3Service  # a third of a second, as above

    name = None if place.secret_ref is None else place.secret_ref.name
    return S3Service.of(place.endpoint, place.region, path_style=place.path_style, secret=secret, secret_name=name)


def store_name(checkpoint: Checkpoint) -> str:
    """Return what a person calls the store that a location is in: locations with the same name fail together."""
    place = checkpoint.s3
    return checkpoint.location if place is None else f"{place.endpoint or 'Amazon S3'} bucket {place.bucket}"
