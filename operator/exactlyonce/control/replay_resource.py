"""One StreamReplay on the API server, with its status: what is about to be done is written first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pydantic import ValidationError

from exactlyonce.api.stream_replay_status import ReplayPhase, ReplayStatus, rendered_replay
from exactlyonce.control.lease import require_lease
from exactlyonce.control.wakeups import Key

log = logging.getLogger("exactlyonce.operator")


class KeepsReplays(Protocol):
    """Where StreamReplays and their streams are kept."""

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return a stream as it is now, or None where there is none, or none with the labels of `selector`."""
        ...

    def replays(self, stream: Key) -> list[dict[str, Any]]:
        """Return every StreamReplay that names a stream."""
        ...

    def put_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version that `document` names and return the resource."""
        ...

    def tell(self, document: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event of a replay."""
        ...


@dataclass
class ReplayResource:
    """One StreamReplay from the very version that the pass began with.

    A write that finds another version raises StatusConflict, and the pass starts over. `may_act` is asked before each.
    """

    server: KeepsReplays
    document: dict[str, Any]
    may_act: Callable[[], bool]
    now: Callable[[], datetime]

    @property
    def name(self) -> str:
        """The name of the resource."""
        return str(self.document["metadata"]["name"])

    @property
    def status(self) -> ReplayStatus:
        """The status as it was read or written last."""
        return replay_status_of(self.document)

    def write(self, status: ReplayStatus) -> None:
        """Replace the status where it is another one; a new phase is an event, too."""
        require_lease(self.may_act)
        stored = rendered_replay(status, self.document, self.now())
        if stored == self.document.get("status"):
            return
        before = self.status.phase
        self.document = self.server.put_status({**self.document, "status": stored})
        if status.phase is before:
            return
        warning = status.phase in (ReplayPhase.FAILED, ReplayPhase.REFUSED)
        about = {"stream": f"{self.document['metadata']['namespace']}/{self.name}", "reason": str(status.phase)}
        log.log(logging.WARNING if warning else logging.INFO, "%s", status.message, extra=about)
        self.server.tell(self.document, str(status.phase), status.message, warning=warning)


def replay_status_of(document: Mapping[str, Any]) -> ReplayStatus:
    """Return the status of a replay; one that cannot be read counts as lost, and the replay begins again.

    That is harmless: what has landed is not in quarantine any more.
    """
    known = {field.alias or name for name, field in ReplayStatus.model_fields.items()}
    found = {key: value for key, value in (document.get("status") or {}).items() if key in known}
    try:
        return ReplayStatus.model_validate(found)
    except ValidationError:
        return ReplayStatus()


def is_finished(document: Mapping[str, Any]) -> bool:
    """Whether nothing more is done for a replay: it has come to its end, or is being deleted."""
    return "deletionTimestamp" in document["metadata"] or replay_status_of(document).phase.is_final


def stream_named_by(document: Mapping[str, Any]) -> str:
    """Return the name of the stream that a replay names, which may be invalid."""
    return str((document.get("spec") or {}).get("stream") or "")


def in_turn(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the replays of one stream that are not finished, in the order in which they take their turns.

    One that runs comes first, whatever was created meanwhile; then the one that was created first.
    """

    def turn(document: Mapping[str, Any]) -> tuple[bool, str, str]:
        metadata = document["metadata"]
        has_begun = replay_status_of(document).attempt > 0
        return (not has_begun, metadata.get("creationTimestamp") or "", metadata["name"])

    return sorted((document for document in documents if not is_finished(document)), key=turn)
