"""What kopf would remember of each object, were it asked what has changed: nothing, for it is only asked what to wake.

By default it copies every object several times at every event, to find differences that no handler here looks at.
"""

from __future__ import annotations

from typing import Any

import kopf


class NoDiffs(kopf.DiffBaseStorage):
    """No object has an essence, so no two differ."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return nothing, whatever the object."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> None:
        """Nothing was stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """No handler has a progress that would outlive it."""

    def fetch(self, **_: Any) -> None:
        """Nothing was stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """There is nothing to take away."""

    def touch(self, **_: Any) -> None:
        """Change nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Return what is given."""
        return essence
