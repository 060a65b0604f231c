"""A stream is deleted: its driver drains, what the policy says is taken away, and the resource goes, within a bound.

Needs neither the ledger nor the checkpoint unless `deletionPolicy: Delete` asks for them; one that does not answer in time is
left behind, and an event says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from exactlyonce.control.cluster import Cluster
from exactlyonce.control.lease import NotLeading, require_lease
from exactlyonce.control.resource_status import status_of
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError, StoreBusy
from exactlyonce.launch.port import Launcher, Running
from exactlyonce.positions.ranges import Epoch

FINALIZER = "exactlyonce.dev/drain"
_LOOK_SECONDS = 2.0
_STORES_SECONDS = 300.0
_STORES_LOOK_SECONDS = 10.0
_DRAIN_MARGIN = timedelta(seconds=60)


class StillErasing(ExactlyOnceError):
    """There is more to take away than one pass does; the next one continues."""


class EndableLauncher(Launcher, Protocol):
    """A launcher that can also end drivers at once and remove what it made for them."""

    def kill(self, attempt: Epoch) -> None:
        """End the driver of an attempt at once."""
        ...

    def clean_up(self, latest: Epoch, keep: int) -> None:
        """Remove what is left of ended attempts but the last `keep`, and let the records of all others go."""
        ...


@dataclass(frozen=True)
class Deletion:
    """Carries out deletions. `drain_timeout_of` answers for a resource whose spec no longer parses, too."""

    cluster: Cluster
    launcher_of: Callable[[Mapping[str, Any]], EndableLauncher]
    drain_timeout_of: Callable[[Mapping[str, Any]], timedelta]
    erase: Callable[[Mapping[str, Any]], str | None]
    may_act: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    failing_since: dict[str, float] = field(default_factory=dict)

    def run(self, document: dict[str, Any]) -> float | None:
        """Do what is to be done now; return the seconds until the next look, or None when the resource may go."""
        require_lease(self.may_act)
        metadata = document["metadata"]
        if FINALIZER not in metadata.get("finalizers", []):
            return None
        since = datetime.now(UTC) - datetime.fromisoformat(metadata["deletionTimestamp"])
        status = status_of(document)
        launcher = self.launcher_of(document)
        attempt = Epoch(max(status.attempt, launcher.latest()))  # a status may be lost
        if attempt and isinstance(launcher.state_of(attempt), Running):
            launcher.drain(attempt)
            reached("deletion.drained", metadata["namespace"], metadata["name"])
            if since > self.drain_timeout_of(document) + _DRAIN_MARGIN:
                launcher.kill(attempt)
            return _LOOK_SECONDS
        if (document.get("spec") or {}).get("deletionPolicy") == "Delete":
            again = self._erase(document)
            if again is not None:
                return again
        reached("deletion.erased", metadata["namespace"], metadata["name"])
        launcher.clean_up(attempt, 0)
        reached("deletion.cleaned-up", metadata["namespace"], metadata["name"])
        finalizers = [name for name in metadata["finalizers"] if name != FINALIZER]
        require_lease(self.may_act)
        self.cluster.put_finalizers(document, finalizers)
        return None

    def _erase(self, document: Mapping[str, Any]) -> float | None:
        """Erase ledger rows and checkpoint; return when to continue, None also where they did not answer for too long."""
        uid, now = document["metadata"]["uid"], self.clock()
        try:
            left = self.erase(document)
            if left is not None:
                self.cluster.tell(document, "LeftBehind", left, warning=True)
        except NotLeading:
            raise
        except StillErasing:
            self.failing_since.pop(uid, None)
            return 0.0
        except StoreBusy:
            # By other streams' calls: nothing is known of what this one's would have come to.
            return _STORES_LOOK_SECONDS
        except ExactlyOnceError as problem:
            if now - self.failing_since.setdefault(uid, now) < _STORES_SECONDS:
                return _STORES_LOOK_SECONDS
            words = f"The ledger rows or the checkpoint are left behind; delete them by hand: {problem}"
            self.cluster.tell(document, "LeftBehind", words, warning=True)
        self.failing_since.pop(uid, None)
        return None
