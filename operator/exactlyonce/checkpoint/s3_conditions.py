"""That an S3 service honours conditional writes, which every promise about a folder on S3 is made of."""

from __future__ import annotations

import threading
from typing import Protocol

from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.errors import Refused

PROBE = ".exactlyonce-conditional-writes"
"""A hidden object at the location by which a service proves that it honours conditions; not listed."""


class ConditionsIgnored(Refused):
    """The S3 service does not honour conditional writes, so checkpoints are not safe on it."""


class Put(Protocol):
    """Writes an object on a condition; False when the condition does not hold."""

    def __call__(self, path: str, content: bytes, **condition: str) -> bool:
        """Write it."""
        ...


def require_conditions(service: S3Service, location: str, bucket: str, put: Put) -> None:
    """Have the service prove once in this process that it honours conditions, on an object that is there for nothing else.

    Raises:
        ConditionsIgnored: if it does not.
    """
    proven = (service.endpoint, bucket)
    with _proofs_lock:
        if proven in _proofs:
            return
    first = put(PROBE, b"", IfNoneMatch="*")
    if (first and put(PROBE, b"", IfNoneMatch="*")) or put(PROBE, b"", IfMatch=f'"{"0" * 32}"'):
        raise conditions_ignored(service, location)
    with _proofs_lock:
        _proofs.add(proven)


def conditions_ignored(service: S3Service, location: str) -> ConditionsIgnored:
    """Return the error for a service without conditional writes."""
    return ConditionsIgnored(
        f"{service.endpoint or 'The S3 service'} ignores If-None-Match or If-Match, so two operators could write one "
        f"file at {location}; use a service, or a release of it, that has conditional writes."
    )


_proofs: set[tuple[str | None, str]] = set()
_proofs_lock = threading.Lock()
