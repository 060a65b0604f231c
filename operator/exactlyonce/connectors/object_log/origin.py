"""The first object of a log, which says which log it is."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, ObjectStore
from exactlyonce.connectors.object_log.documents import Origin
from exactlyonce.connectors.object_log.tenancy import require_empty

ORIGIN = "log.json"
ORIGIN_BYTES = 4096
"""It is no larger."""


def find_origin(store: ObjectStore, path: str) -> Origin | None:
    """Return which log this is; None where there is none."""
    try:
        content = store.read(path, ORIGIN_BYTES)
    except FileMissing:
        return None
    return Origin.parse(content, f"{store.location.rstrip('/')}/{path}")


def make_origin(store: ObjectStore, folder: str, path: str, reached: Callable[[str], None]) -> Origin:
    """Return which log this is, and make one where there is none: of two that do so at once, one decides for both.

    Raises:
        LocationNotEmpty: if there is none, and files that are no log's are in its place; nothing was written.
    """
    found = find_origin(store, path)
    if found is not None:
        return found
    location = store.location.rstrip("/")
    require_empty([entry.name for entry in store.list(folder)], ORIGIN, f"{location}/{folder}".rstrip("/"))
    made = Origin(secrets.token_hex(16))
    reached("log.before-origin")
    outcome = store.create(path, made.render())
    return Origin.parse(outcome.content, f"{location}/{path}") if isinstance(outcome, AlreadyExists) else made
