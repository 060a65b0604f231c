"""What is known of a location before its store is opened: its name, its login, and that only pods reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.checkpoint.store import CreateOutcome, Entry
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import S3Place

if TYPE_CHECKING:
    from exactlyonce.checkpoint.s3_clients import S3Service


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
    return service_of(place, secret).has_login


def service_of(place: S3Place, secret: Mapping[str, str]) -> S3Service:
    """Return the service that a folder on S3 is in, with the login of a secret.

    Raises:
        SecretMissing: if the secret holds one half of a login.
    """
    from exactlyonce.checkpoint.s3_clients import S3Service  # its client takes a third of a second to import

    name = None if place.secret_ref is None else place.secret_ref.name
    return S3Service.of(place.endpoint, place.region, path_style=place.path_style, secret=secret, secret_name=name)


def store_name(checkpoint: Checkpoint) -> str:
    """Return what a person calls the store that a location is in: locations with the same name fail together."""
    place = checkpoint.s3
    return checkpoint.location if place is None else f"{place.endpoint or 'Amazon S3'} bucket {place.bucket}"
