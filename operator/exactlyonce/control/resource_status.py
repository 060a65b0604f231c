"""The status of a stream on the API server: the operator's write-ahead log, with conditions made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import StreamStatus
from exactlyonce.control.cluster import Cluster
from exactlyonce.control.lease import require_lease
from exactlyonce.reconcile.phase_check import check_transition


@dataclass
class ResourceStatus:
    """A `StatusStore` over one resource, from the very version that the pass began with.

    `rendered` turns a status into the document that is stored, conditions included. `may_act` is asked before each write:
    what is about to be done is written first, so an operator that lost the Lease does nothing any more. `written` is told of
    each write: the status before and after.
    """

    cluster: Cluster
    document: dict[str, Any]
    rendered: Callable[[StreamStatus, Mapping[str, Any]], dict[str, Any]]
    may_act: Callable[[], bool]
    written: Callable[[StreamStatus, StreamStatus], None] = lambda before, after: None
    _carried: StreamStatus | None = None

    def read(self) -> tuple[StreamStatus, str]:
        """Return the status of the version at hand: the pass's own GET, or its last write, with what is carried."""
        return self._carried or status_of(self.document), str(self.document["metadata"]["resourceVersion"])

    def write(self, status: StreamStatus, version: str, reason: TransitionReason | None = None) -> str:
        """Replace the status of that version.

        `reason` says why its phase is another one than that of the resource.

        Raises:
            StatusConflict: if the resource has changed meanwhile.
            NotLeading: if the Lease is no longer held.
        """
        require_lease(self.may_act)
        assert version == self.document["metadata"]["resourceVersion"], "a pass writes what it has read"
        self._carried = None
        stored = self.rendered(status, self.document)
        if stored != self.document.get("status"):
            before = status_of(self.document)
            check_transition(before.phase, status.phase, reason)
            self.document = self.cluster.put_status({**self.document, "status": stored})
            self.written(before, status)
        return str(self.document["metadata"]["resourceVersion"])

    def carry(self, status: StreamStatus) -> None:
        """Let the next write carry this; nothing that a pass does may depend on its being written before."""
        self._carried = status

    def flush(self) -> None:
        """Write what is carried, where no write has come since, and that this generation of the resource has been looked at."""
        observed = status_of(self.document).observed_generation
        if self._carried is not None or observed != self.document["metadata"]["generation"]:
            self.write(*self.read())


def status_of(document: Mapping[str, Any]) -> StreamStatus:
    """Return the status of a resource; one that cannot be read counts as lost.

    A lost status changes nothing: attempts continue from the ledger's epoch.
    """
    known = {field.alias or name for name, field in StreamStatus.model_fields.items()}
    found = {key: value for key, value in (document.get("status") or {}).items() if key in known}
    try:
        return StreamStatus.model_validate(found)
    except ValidationError:
        return StreamStatus()
